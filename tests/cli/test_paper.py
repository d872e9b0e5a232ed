"""What a report is written on."""

import pytest

from cli.columns import columns
from cli.paper import Paper


@pytest.mark.parametrize("paper", [Paper(), Paper(200)], ids=["file", "terminal"])
def test_what_others_wrote_cannot_pass_for_what_we_say(paper):
    """A broken-in node writes its own NodeInventory: it must not add lines, clear the screen, or turn the text around."""
    assert paper.fold("m\nnode-b: 8 GPUs: 8 free\x1b[2J\u202e\ud800", 2) == (
        "  m node-b: 8 GPUs: 8 free\\x1b[2J\\u202e\\ud800"
    )
    assert columns(("A", "B"), [("a\r\n\x1b[31m", "b")]) == "A            B\na  \\x1b[31m  b"


def test_names_of_any_language_stay_as_they_are():
    """What can be printed is."""
    assert Paper().fold("GPU für Zürich 日本") == "GPU für Zürich 日本"
    assert columns(("A",), [("Zürich",)]) == "A\nZürich"
