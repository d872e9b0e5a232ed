"""A list that comes in pages."""

from api.kube.client import Client
from api.kube.reflector import Timing
from api.kube.server import Server
from tests.support.reflecting import PATH, reflecting
from tests.support.scripted_server import ScriptedServer, a_list, an_object


def test_all_pages_are_read_and_the_token_is_sent_back():
    """A list of three pages arrives whole, at the version of its first page."""
    pages = (
        a_list(an_object("a"), version=7, token="t1"),
        a_list(an_object("b"), version=7, token="t2"),
        a_list(an_object("c"), version=7),
    )
    with ScriptedServer(lists=pages) as server, Client(Server(url=server.url), user_agent="test") as client:
        listing = client.list_pages(PATH, {"labelSelector": "x=y"}, limit=1, keep=lambda item: item["metadata"]["name"])
        assert listing.items == ("a", "b", "c")
        assert listing.resource_version == "7"
        assert [asked.query.get("continue") for asked in server.asked] == [None, "t1", "t2"]
        assert {(asked.query["limit"], asked.query["labelSelector"]) for asked in server.asked} == {("1", "x=y")}


def test_items_get_the_kind_that_lists_leave_out():
    """An item of a list equals the same object in a watch, where kind and apiVersion are written out."""
    item = {"metadata": {"name": "a"}}
    with ScriptedServer(lists=(a_list(item),)) as server, Client(Server(url=server.url), user_agent="test") as client:
        assert client.list_pages(PATH).items == ({"apiVersion": "test/v1", "kind": "Thing", "metadata": {"name": "a"}},)


def test_reflector_lists_in_pages_and_says_once_that_it_is_synced():
    """The handler hears of every object of every page before it hears that the list is in."""
    pages = (a_list(an_object("a"), token="t"), a_list(an_object("b", namespace="team")))
    with ScriptedServer(lists=pages) as server, reflecting(server, timing=Timing(page_size=1)) as (reflector, heard, _):
        server.wait_for_watches(1)
        assert heard.changes == [("Added", None, "a"), ("Added", None, "b")]
        assert heard.synced == 1
        assert reflector.wait_synced(0)
        assert reflector.snapshot() == {"a": "a", "team/b": "b"}
