"""The token in the file is replaced while we run."""

from api.kube.credentials import TokenFile
from api.kube.server import Server
from tests.support.reflecting import reflecting
from tests.support.scripted_server import Asked, ScriptedServer, a_list, an_object, refusal


def test_rejected_token_is_read_again_and_the_watch_goes_on(tmp_path):
    """401 to the old token is answered with the new one at once, without backoff."""
    file = tmp_path / "token"
    file.write_text("old\n")
    valid = ["old"]

    def guard(asked: Asked):
        return None if asked.headers["authorization"] == f"Bearer {valid[0]}" else refusal(401, "Unauthorized")

    with ScriptedServer(lists=(a_list(an_object("a")),), answer=guard) as server:
        target = Server(url=server.url, tokens=TokenFile(file, clock=lambda: 0.0))
        with reflecting(server, target=target) as (reflector, _, time):
            server.wait_for_watches(1)
            valid[0] = "new"
            file.write_text("new\n")
            server.drop_connections()
            watches = server.wait_for_watches(3)
            assert [asked.headers["authorization"] for asked in watches] == ["Bearer old", "Bearer old", "Bearer new"]
            assert len(time.waits) == 1, "one for the dropped connection, none for the token"
            assert reflector.state.lists == 1


def test_token_that_stays_wrong_backs_off(tmp_path):
    """Where the file holds nothing better, 401 is an error like others."""
    file = tmp_path / "token"
    file.write_text("wrong")
    with (
        ScriptedServer(answer=lambda asked: refusal(401, "Unauthorized")) as server,
        reflecting(server, target=Server(url=server.url, tokens=TokenFile(file))) as (reflector, _, time),
    ):
        assert time.wait_for_waits(3)[:3] == [0.8, 1.6, 3.2]
        assert "401 Unauthorized" in reflector.state.last_error
