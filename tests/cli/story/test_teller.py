"""How the demo speaks."""

import io

from cli.story.teller import Teller
from cli.tree import ASCII, LINES


class Terminal(io.StringIO):
    """A stream that says it is a terminal."""

    def __init__(self, encoding: str = "utf-8") -> None:
        super().__init__()
        self._encoding = encoding

    @property
    def encoding(self) -> str:
        return self._encoding

    def isatty(self) -> bool:
        return True


class File(Terminal):
    """One that is none."""

    def isatty(self) -> bool:
        return False


def told(out: Terminal, **environment: str) -> str:
    teller = Teller(out, environment, clock=iter([0.0, 1.25]).__next__)
    teller.chapter("Beginning")
    teller.is_up("API server")
    teller.say("words " * 40)
    teller.seen("It is so…")
    teller.warn("It has to wait.")
    return out.getvalue()


def test_a_file_gets_no_colours() -> None:
    """Headings are numbered, paragraphs wrapped, what is shown is indented."""
    text = told(File())
    assert text.startswith("\n1. Beginning\n  ✓ API server               1.2 s\nwords words")
    assert text.endswith("\n  ✓ It is so…\n  It has to wait.\n")
    assert max(map(len, text.splitlines())) <= 110
    assert "\x1b" not in text


def test_a_terminal_gets_colours_unless_told_not_to() -> None:
    """https://no-color.org"""
    assert "\x1b[1m1. Beginning\x1b[0m" in told(Terminal(), TERM="xterm")
    assert "\x1b" not in told(Terminal(), TERM="xterm", NO_COLOR="1")
    assert "\x1b" not in told(Terminal(), TERM="dumb")


def test_a_stream_that_knows_ascii_only_gets_ascii() -> None:
    """PYTHONIOENCODING=ascii is no reason to end with an error."""
    out = File("ascii")
    assert told(out).isascii()
    assert "  ok It is so...\n" in out.getvalue()
    teller = Teller(out, {})
    teller.show(["Größe"])
    assert out.getvalue().endswith("  Gr??e\n")
    assert teller.marks is ASCII
    assert Teller(File(), {}).marks is LINES
