"""Puts the figures of a run into docs/performance.md, between its marks."""

from collections.abc import Mapping
from pathlib import Path
from typing import Any

from tests.bench.figures import report, table

PAGE = Path(__file__).resolve().parents[2] / "docs/performance.md"
BEGIN, END = "<!-- bench: begin -->", "<!-- bench: end -->"


def filled(page: str, result: Mapping[str, Any]) -> str:
    """The page with these figures. ValueError where it has no marks."""
    before, begin, rest = page.partition(BEGIN)
    _, end, after = rest.partition(END)
    if not (begin and end):
        raise ValueError(f"the page has no {BEGIN} and {END}")
    ran_on = table(
        ("ran on", ""), ((key, str(value)) for key, value in {**result["machine"], **result["code"]}.items())
    )
    return f"{before}{BEGIN}\n{ran_on}\n\n{report(result)}{END}{after}"


def write(result: Mapping[str, Any]) -> None:
    """Rewrite the page."""
    PAGE.write_text(filled(PAGE.read_text(), result))
