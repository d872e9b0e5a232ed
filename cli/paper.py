"""What a report is written on: a terminal has a width and perhaps colours, a file has neither."""

import shutil
import textwrap
from collections.abc import Mapping
from dataclasses import dataclass
from typing import TextIO

_BOLD, _RED, _GREEN, _YELLOW, _PLAIN = "\x1b[1m", "\x1b[31m", "\x1b[32m", "\x1b[33m", "\x1b[0m"


@dataclass(frozen=True, slots=True)
class Paper:
    """How wide a line may be and whether it may have colours."""

    width: int | None = None
    """Characters; None: as wide as need be."""
    colours: bool = False

    @classmethod
    def of(cls, out: TextIO, environment: Mapping[str, str]) -> "Paper":
        """As the stream is. Colours only for a terminal, and not with NO_COLOR (https://no-color.org)."""
        if not out.isatty():
            return cls()
        colours = not environment.get("NO_COLOR") and environment.get("TERM") != "dumb"
        return cls(shutil.get_terminal_size().columns, colours)

    def fold(self, text: str, indent: int = 0) -> str:
        """A sentence on as many lines as it needs, indented."""
        text = printable(text)
        margin = " " * indent
        width = self.width or 0
        if len(margin) + len(text) <= width or not width:
            return margin + text
        return textwrap.fill(
            text,
            max(width, 40),
            initial_indent=margin,
            subsequent_indent=margin + "  ",
            break_long_words=False,
            break_on_hyphens=False,
        )

    def bold(self, text: str) -> str:
        return self._in(_BOLD, text)

    def green(self, text: str) -> str:
        return self._in(_GREEN, text)

    def yellow(self, text: str) -> str:
        return self._in(_YELLOW, text)

    def red(self, text: str) -> str:
        return self._in(_RED, text)

    def _in(self, colour: str, text: str) -> str:
        return f"{colour}{text}{_PLAIN}" if self.colours and text else text


def printable(text: str) -> str:
    """The text on one line, with what acts on a terminal escaped: others write into what we tell, and none of it may pass for
    ours."""
    if text.isprintable():
        return text
    return "".join(
        each if each.isprintable() else " " if each.isspace() else each.encode("unicode_escape").decode()
        for each in text
    )
