"""Tables for people: columns as wide as they need to be."""

from collections.abc import Iterable, Sequence

from cli.paper import printable


def columns(heads: Sequence[str], rows: Iterable[Sequence[object]]) -> str:
    """One line for the heads and one for each row, `-` for what is not known, nothing behind the last column."""
    lines = [tuple(heads), *(tuple("-" if cell is None else printable(str(cell)) for cell in row) for row in rows)]
    widths = [max(len(line[column]) for line in lines) for column in range(len(heads))]
    return "\n".join(
        "  ".join(cell.ljust(width) for cell, width in zip(line, widths, strict=True)).rstrip() for line in lines
    )
