"""We may not list or watch, or not any more."""

from structlog.testing import capture_logs

from tests.support.reflecting import PATH, reflecting
from tests.support.scripted_server import ScriptedServer, Silence, Stream, a_list, an_object, refusal

NOT_ALLOWED = refusal(
    403, "Forbidden", 'things.test is forbidden: User "system:serviceaccount:x:y" cannot list resource'
)


def test_forbidden_list_backs_off_and_says_which_right_is_missing():
    """The sentence is the API server's own, with what to do beside it."""
    with (
        capture_logs() as logs,
        ScriptedServer(lists=(NOT_ALLOWED,)) as server,
        reflecting(server) as (reflector, _, time),
    ):
        assert time.wait_for_waits(3)[:3] == [0.8, 1.6, 3.2]
        assert reflector.state.last_error == (
            f'GET {PATH}: 403 Forbidden: things.test is forbidden: User "system:serviceaccount:x:y" cannot list resource'
        )
    assert [entry["event"] for entry in logs] == ["watch interrupted"]
    assert logs[0]["remedy"].startswith("grant the right named here")


def test_right_granted_later_is_used():
    """Nobody has to restart us once the role is there."""
    with (
        ScriptedServer(lists=(NOT_ALLOWED, NOT_ALLOWED, a_list(an_object("a")))) as server,
        reflecting(server) as (reflector, heard, _),
    ):
        server.wait_for_watches(1)
        assert heard.synced == 1
        assert reflector.state.synced


def test_right_taken_away_keeps_the_old_copy():
    """A watch that becomes forbidden leaves the store as it was, and does not list."""
    watches = (NOT_ALLOWED, Stream(Silence()))
    with (
        ScriptedServer(lists=(a_list(an_object("a")),), watches=watches) as server,
        reflecting(server) as (reflector, _, _),
    ):
        server.wait_for_watches(2)
        assert reflector.snapshot() == {"a": "a"}
        assert reflector.state.lists == 1
