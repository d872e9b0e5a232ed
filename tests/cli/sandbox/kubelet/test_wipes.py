"""When a driver's slices are due to go."""

from cli.sandbox.kubelet.wipes import PendingWipes


def test_driver_that_is_away_is_due_once():
    """After its time; later only when it has been back."""
    wipes = PendingWipes(30.0)
    wipes.note("d", usable=False, now=0.0)
    assert wipes.due(29.9) == []
    assert wipes.due(30.0) == ["d"]
    assert wipes.due(1000.0) == []


def test_driver_that_is_back_is_spared():
    """However short its visit."""
    wipes = PendingWipes(30.0)
    wipes.note("d", usable=False, now=0.0)
    wipes.note("d", usable=True, now=29.0)
    wipes.note("d", usable=False, now=29.5)
    assert wipes.due(30.0) == []
    assert wipes.due(59.5) == ["d"]


def test_more_bad_news_does_not_put_it_off():
    """The time runs from the first."""
    wipes = PendingWipes(30.0)
    for now in (0.0, 10.0, 20.0):
        wipes.note("d", usable=False, now=now)
    wipes.note("e", usable=False, now=20.0)
    assert wipes.due(30.0) == ["d"]
