"""JSON made short for reading."""

import json

from cli.story.abridged import LIST_MAX, abridged


def test_what_fits_is_on_one_line() -> None:
    """As JSON."""
    assert abridged({"a": [1, {"b": None}]}) == ['{"a": [1, {"b": null}]}']


def test_whatever_is_broken_is_still_json_and_narrow() -> None:
    """As long as no list is too long."""
    value = {
        "kind": "x" * 20,
        "list": [{"path": f"/dev/{n}", "major": n, "text": "word, "} for n in range(LIST_MAX)],
    }
    lines = abridged(value, room=40)
    assert json.loads("\n".join(lines)) == value
    assert max(map(len, lines)) <= 40


def test_long_lists_say_how_much_was_left_out() -> None:
    """Their beginning is shown."""
    lines = abridged(["y" * 30] * 20, room=40)
    assert lines[-2:] == [f"  … and {20 - LIST_MAX} more", "]"]
    assert len([line for line in lines if "yyy" in line]) == LIST_MAX


def test_text_is_shortened_before_it_is_measured() -> None:
    """So that a long path does not break a line that fits without it."""
    path = "/very" * 20
    assert abridged({"path": f"{path}/x"}, shorten=lambda text: text.replace(path, "…"), room=40) == ['{"path": "…/x"}']
