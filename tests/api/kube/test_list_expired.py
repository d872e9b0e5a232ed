"""A continue token that is too old."""

import pytest

from api.kube.client import Client
from api.kube.errors import Gone
from api.kube.server import Server
from tests.support.reflecting import PATH
from tests.support.scripted_server import ScriptedServer, a_list, an_object, refusal

EXPIRED = refusal(410, "Expired")


def names(client: Client) -> tuple[str, ...]:
    return client.list_pages(PATH, limit=1, keep=lambda item: item["metadata"]["name"]).items


def test_expired_token_starts_the_list_again_without_doubles():
    """Objects of the abandoned first try are not in the answer twice."""
    script = (a_list(an_object("a"), token="t"), EXPIRED, a_list(an_object("a"), token="u"), a_list(an_object("b")))
    with ScriptedServer(lists=script) as server, Client(Server(url=server.url), user_agent="test") as client:
        assert names(client) == ("a", "b")


def test_twice_expired_list_is_asked_for_in_one_piece():
    """A list that keeps expiring between pages ends, because the last try has no pages."""
    page = a_list(an_object("a"), token="t")
    script = (page, EXPIRED, page, EXPIRED, a_list(an_object("a"), an_object("b")))
    with ScriptedServer(lists=script) as server, Client(Server(url=server.url), user_agent="test") as client:
        assert names(client) == ("a", "b")
        assert "limit" not in server.asked[-1].query


def test_list_that_is_always_gone_raises():
    """There is an end to starting again."""
    with ScriptedServer(lists=(EXPIRED,)) as server, Client(Server(url=server.url), user_agent="test") as client:
        with pytest.raises(Gone):
            names(client)
        assert len(server.asked) == 3
