"""How the demo speaks: headings, paragraphs, things shown, and parts that come up one after another."""

import textwrap
import time
from collections.abc import Callable, Iterable, Mapping
from typing import TextIO

from cli.paper import Paper
from cli.tree import ASCII, LINES, Marks

WIDTH = 110
"""Characters of a paragraph's line where there is room."""


class Teller:
    """Writes to one stream, at once, in letters that the stream can say."""

    def __init__(
        self, out: TextIO, environment: Mapping[str, str], *, clock: Callable[[], float] = time.monotonic
    ) -> None:
        """`clock` counts seconds."""
        self._out, self._clock = out, clock
        self._since = clock()
        self._paper = Paper.of(out, environment)
        self._width = min(WIDTH, self._paper.width or WIDTH)
        self._chapter = 0
        self._fancy = _can_say("├│└─✓…", out.encoding)
        self._mark = self._paper.green("✓" if self._fancy else "ok")

    @property
    def marks(self) -> Marks:
        """What trees are drawn with: lines where the stream can say them."""
        return LINES if self._fancy else ASCII

    def chapter(self, title: str) -> None:
        """A numbered heading."""
        self._chapter += 1
        self.gap()
        self.title(f"{self._chapter}. {title}")

    def title(self, title: str) -> None:
        """A heading without a number."""
        self._write(f"{self._paper.bold(title)}\n")

    def say(self, text: str) -> None:
        """A paragraph."""
        self._write("".join(f"{line}\n" for line in self._wrapped(text, self._width)))

    def gap(self) -> None:
        """An empty line."""
        self._write("\n")

    def show(self, lines: Iterable[str]) -> None:
        """Something to look at, as it is."""
        self._write("".join(f"  {line}\n" if line else "\n" for line in lines))

    def warn(self, text: str) -> None:
        """A sentence that stands out."""
        self.show(self._paper.yellow(line) for line in self._wrapped(text, self._width - 2))

    def is_up(self, part: str) -> None:
        """A part has come up, after how long."""
        self._write(f"  {self._mark} {part:<24} {self._clock() - self._since:.1f} s\n")

    def seen(self, text: str) -> None:
        """Something that was looked at and found true."""
        first, *others = self._wrapped(text, self._width - 4)
        self.show([f"{self._mark} {first}", *(f"  {line}" for line in others)])

    @staticmethod
    def _wrapped(text: str, width: int) -> list[str]:
        return textwrap.wrap(text, max(width, 40), break_long_words=False, break_on_hyphens=False)

    def _write(self, text: str) -> None:
        told = text if self._fancy else text.replace("…", "...")
        if not self._fancy:
            # A name from a machine file may have letters that the stream cannot say either.
            encoding = self._out.encoding or "ascii"
            told = told.encode(encoding, "replace").decode(encoding)
        self._out.write(told)
        self._out.flush()


def _can_say(letters: str, encoding: str | None) -> bool:
    try:
        letters.encode(encoding or "ascii")
    except (UnicodeEncodeError, LookupError):
        return False
    return True
