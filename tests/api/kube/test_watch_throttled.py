"""The server is busy and says when to come back."""

from tests.support.reflecting import reflecting
from tests.support.scripted_server import ScriptedServer, Silence, Stream, a_list, refusal


def test_wait_the_server_asks_for_is_kept():
    """429 with Retry-After: 17 is not asked again sooner, though our own backoff would be shorter."""
    watches = (refusal(429, "TooManyRequests", Retry_After="17"), Stream(Silence()))
    with ScriptedServer(lists=(a_list(),), watches=watches) as server, reflecting(server) as (reflector, _, time):
        server.wait_for_watches(2)
        assert time.waits == [17.0]
        assert reflector.state.lists == 1


def test_own_backoff_wins_where_it_is_longer():
    """Retry-After: 1 again and again does not keep us at one second."""
    watches = (refusal(429, "TooManyRequests", Retry_After="1"),)
    with ScriptedServer(lists=(a_list(),), watches=watches) as server, reflecting(server) as (_, _, time):
        assert time.wait_for_waits(4)[:4] == [1.0, 1.6, 3.2, 6.4]


def test_throttled_list_is_tried_again():
    """A list that is refused for an hour's wait is left to the reflector, not repeated inside the call."""
    lists = (refusal(429, "TooManyRequests", Retry_After="3600"), a_list())
    with ScriptedServer(lists=lists) as server, reflecting(server) as (_, _, time):
        server.wait_for_watches(1)
        assert time.waits == [3600.0]
