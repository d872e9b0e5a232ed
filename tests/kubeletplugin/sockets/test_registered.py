"""The rule of docs/architecture.md: who counts as registered."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.sockets.registered import (
    STREAM_GRACE_SECONDS,
    Notified,
    Seen,
    SocketsMissing,
    StreamClosed,
    StreamOpened,
    after,
    next_change,
    registered,
)

OK = Notified(None, 100.0)
REFUSED = Notified("no", 100.0)
OPEN, CLOSED, MISSING = StreamOpened(), StreamClosed(), SocketsMissing()


def seen(*signs):
    state = Seen()
    for sign in signs:
        state = after(state, sign)
    return state


@pytest.mark.parametrize(
    ("signs", "at_once", "later"),
    [
        ((), False, False),
        ((OK,), True, True),
        ((REFUSED,), False, False),
        ((OK, REFUSED), False, False),
        ((REFUSED, OK), True, True),
        ((OPEN,), True, True),
        ((OK, OPEN), True, True),
        ((OPEN, OK), True, True),
        ((OPEN, REFUSED), True, True),
        ((OK, OPEN, CLOSED), False, False),
        ((OK, OPEN, CLOSED, OPEN), True, True),
        ((OK, OPEN, CLOSED, OK), False, True),
        ((OK, OPEN, CLOSED, OK, OPEN), True, True),
        ((OK, OPEN, CLOSED, OK, CLOSED), False, False),
        ((OK, MISSING), False, False),
        ((OK, MISSING, OK), True, True),
        ((OK, OPEN, MISSING), True, True),
        ((OK, OPEN, MISSING, CLOSED), False, False),
        ((OPEN, OPEN, CLOSED), True, True),
        ((CLOSED, OPEN), True, True),
    ],
    ids=lambda value: (
        "+".join(type(sign).__name__ for sign in value) or "nothing" if isinstance(value, tuple) else str(value)
    ),
)
def test_signs_decide(signs, at_once, later):
    """At the time of the last sign, and when the kubelet had its time to open a stream."""
    state = seen(*signs)
    assert registered(state, 100.0) is at_once
    assert registered(state, 100.0 + STREAM_GRACE_SECONDS) is later


def test_dead_kubelet_that_had_a_stream_does_not_count():
    """Its stream closes and nothing else ever comes: not in a week."""
    assert not registered(seen(OK, OPEN, CLOSED), 100.0 + 7 * 86400)


def test_time_of_the_next_change_is_known():
    """So that whoever reports it need not poll."""
    waiting = seen(OPEN, CLOSED, OK)
    assert next_change(waiting, 104.0) == 100.0 + STREAM_GRACE_SECONDS
    assert next_change(waiting, 100.0 + STREAM_GRACE_SECONDS) is None
    assert next_change(seen(OK), 104.0) is None
    assert next_change(seen(OPEN, CLOSED), 104.0) is None


signs_in_time = st.lists(
    st.tuples(st.floats(0, 20), st.sampled_from(["ok", "refused", "open", "close", "missing"])), max_size=12
)


@given(history=signs_in_time, wait=st.floats(0, 40))
def test_any_history_agrees_with_the_plain_words_of_the_rule(history, wait):
    """Judged again from the whole history instead of from what is kept of it."""
    state, now, told = Seen(), 0.0, []
    streams = 0
    for step, name in history:
        now += step
        if name == "close" and streams == 0:
            continue
        streams += {"open": 1, "close": -1}.get(name, 0)
        told.append((now, name))
        state = after(
            state,
            {
                "ok": Notified(None, now),
                "refused": Notified("no", now),
                "open": OPEN,
                "close": CLOSED,
                "missing": MISSING,
            }[name],
        )
    now += wait
    news = [(at, name) for at, name in told if name != "open"]
    counts_since = news[-1][0] if news and news[-1][1] == "ok" else None
    expected = streams > 0 or (
        counts_since is not None
        and (all(name != "open" for _, name in told) or now >= counts_since + STREAM_GRACE_SECONDS)
    )
    assert registered(state, now) is expected
    change = next_change(state, now)
    if change is not None:
        assert not registered(state, now)
        assert registered(state, change)
    elif not expected:
        assert not registered(state, now + 1e6)
