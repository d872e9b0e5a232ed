"""The calls of the client, one by one."""

import threading

import pytest

from api.kube.client import Client
from api.kube.errors import (
    AlreadyExists,
    ApiError,
    Closed,
    Conflict,
    Forbidden,
    Garbled,
    Gone,
    Invalid,
    NotFound,
    NotServed,
    TooManyRequests,
    Unavailable,
    Unreachable,
)
from api.kube.server import Server
from tests.support.scripted_server import (
    SECONDS,
    Drop,
    Json,
    ScriptedServer,
    Silence,
    Stream,
    a_list,
    an_object,
    refusal,
)

PATH = "/apis/test/v1/things/a"
OK = Json({"metadata": {"name": "a"}})


class Scripted:
    """A client whose pauses are written down, at a server with one answer after another."""

    def __init__(self, *answers, url_suffix="", **options):
        self.answers = list(answers)
        self.pauses = []
        self.server = ScriptedServer(answer=lambda _: self.answers.pop(0) if len(self.answers) > 1 else self.answers[0])
        target = Server(url=self.server.url + url_suffix)
        self.client = Client(target, user_agent="lanewise/test", pause=self.pauses.append, **options)

    def __enter__(self):
        self.server.__enter__()
        return self.client, self.server

    def __exit__(self, *_):
        self.client.close()
        self.server.__exit__()


def test_get_sends_what_is_asked_and_who_asks():
    """Path, query and user agent arrive as given; truth values are written as Kubernetes reads them."""
    with Scripted(OK) as (client, server):
        assert client.get(PATH, {"fieldSelector": "metadata.name=a,x!=y", "pretty": False}) == {
            "metadata": {"name": "a"}
        }
    (asked,) = server.asked
    assert (asked.method, asked.path) == ("GET", PATH)
    assert asked.query == {"fieldSelector": "metadata.name=a,x!=y", "pretty": "false"}
    assert asked.headers["user-agent"] == "lanewise/test"
    assert "authorization" not in asked.headers


def test_path_of_a_gateway_stays_in_front():
    """A server URL with a path keeps it."""
    with Scripted(OK, url_suffix="/k8s/clusters/c-1") as (client, server):
        client.version()
    assert server.asked[0].path == "/k8s/clusters/c-1/version"


def test_writes_carry_their_content_type():
    """Create, replace, merge patch and apply say what kind of body they send."""
    obj = an_object("a")
    with Scripted(OK) as (client, server):
        client.create("/apis/test/v1/things", obj)
        client.replace(PATH, obj)
        client.merge_patch(f"{PATH}/status", {"status": {}})
        client.apply(PATH, obj, field_manager="lanewise", force=True)
    assert [(asked.method, asked.path, asked.headers["content-type"]) for asked in server.asked] == [
        ("POST", "/apis/test/v1/things", "application/json"),
        ("PUT", PATH, "application/json"),
        ("PATCH", f"{PATH}/status", "application/merge-patch+json"),
        ("PATCH", PATH, "application/apply-patch+yaml"),
    ]
    assert server.asked[3].query == {"fieldManager": "lanewise", "force": "true"}
    assert server.asked[0].body == obj


def test_delete_names_the_object_it_means():
    """Preconditions keep us from deleting what came later under the same name."""
    with Scripted(OK) as (client, server):
        client.delete(PATH, uid="u-1", resource_version="7")
        client.delete(PATH)
    first, second = server.asked
    assert first.body["preconditions"] == {"uid": "u-1", "resourceVersion": "7"}
    assert "preconditions" not in second.body


def test_delete_of_a_collection_says_what_is_meant():
    """The selector is in the query; repeated where that does no harm, as every delete."""
    with Scripted(Json({"items": []})) as (client, server):
        client.delete_collection("/apis/test/v1/things", {"fieldSelector": "spec.nodeName=n"})
    (asked,) = server.asked
    assert (asked.method, asked.query) == ("DELETE", {"fieldSelector": "spec.nodeName=n"})


@pytest.mark.parametrize(
    "answer",
    [
        Json(b"404 page not found\n", status=404),
        refusal(404, "NotFound", "the server could not find the requested resource"),
    ],
    ids=["no group", "no kind"],
)
@pytest.mark.parametrize(
    ("path", "group_version", "remedy"),
    [
        ("/apis/resource.k8s.io/v1/resourceslices", "resource.k8s.io/v1", "Kubernetes 1.34 or newer"),
        ("/apis/lanewise.dev/v1alpha1/nodeinventories/a", "lanewise.dev/v1alpha1", "kubectl apply -k deploy"),
        ("/api/v1/things", "v1", "kubectl api-versions"),
    ],
)
def test_a_kind_that_is_not_served_is_no_missing_object(answer, path, group_version, remedy):
    """Case I9: who takes a 404 for "deleted" must not believe that of a whole kind; the remedy is the group's."""
    with Scripted(answer) as (client, _), pytest.raises(NotServed) as caught:
        client.get(path)
    assert not isinstance(caught.value, NotFound)
    assert caught.value.what == f"GET {path}: 404 NotFound: the API server does not serve {group_version}"
    assert remedy in caught.value.remedy


@pytest.mark.parametrize(
    ("answer", "kind"),
    [
        (refusal(404, "NotFound"), NotFound),
        (refusal(403, "Forbidden"), Forbidden),
        (refusal(409, "Conflict"), Conflict),
        (refusal(409, "AlreadyExists"), AlreadyExists),
        (refusal(410, "Expired"), Gone),
        (refusal(422, "Invalid"), Invalid),
        (refusal(429, "TooManyRequests"), TooManyRequests),
        (refusal(503, "ServiceUnavailable"), Unavailable),
        (refusal(500, "InternalError"), ApiError),
    ],
)
def test_refusals_are_typed(answer, kind):
    """Each status the callers tell apart has its class, with the server's reason and message."""
    with Scripted(answer) as (client, _), pytest.raises(kind) as caught:
        client.get(PATH)
    assert type(caught.value) is kind
    assert caught.value.what == f"GET {PATH}: {answer.status} {answer.body['reason']}: because the test says so"
    assert caught.value.remedy


def test_answer_of_a_proxy_is_quoted():
    """An error page that is no Status object says in one line what it says."""
    with Scripted(Json(b"<h1>Bad\n gateway</h1>", status=502)) as (client, _), pytest.raises(ApiError) as caught:
        client.get(PATH)
    assert caught.value.what == f"GET {PATH}: 502 Unknown: <h1>Bad gateway</h1>"


def test_error_of_any_depth_is_quoted():
    """The beginning of it."""
    with Scripted(Json(b"[" * 100_000, status=502)) as (client, _), pytest.raises(ApiError, match="502 Unknown"):
        client.get(PATH)


@pytest.mark.parametrize("body", [b"<html>", b"[]", b"[" * 100_000], ids=["text", "list", "deep"])
def test_answer_that_is_no_object_is_garbled(body):
    """200 with something else than a JSON object is not taken for an empty object."""
    with Scripted(Json(body)) as (client, _), pytest.raises(Garbled):
        client.get(PATH)


@pytest.mark.parametrize("status", [(429, "TooManyRequests"), (503, "ServiceUnavailable")])
def test_repeatable_call_waits_as_long_as_the_server_asks(status):
    """429 and 503 with Retry-After are tried again after that time."""
    scripted = Scripted(refusal(*status, Retry_After="3"), refusal(*status, Retry_After="2"), OK)
    with scripted as (client, _):
        client.get(PATH)
    assert scripted.pauses == [3.0, 2.0]


def test_patience_ends():
    """After three repeats the refusal is the caller's."""
    scripted = Scripted(refusal(429, "TooManyRequests", Retry_After="1"))
    with scripted as (client, server):
        with pytest.raises(TooManyRequests):
            client.get(PATH)
        assert len(server.asked) == 4


@pytest.mark.parametrize(
    "call",
    [
        lambda client: client.create("/apis/test/v1/things", an_object("a")),
        lambda client: client.merge_patch(PATH, {}),
        lambda client: client.replace(PATH, {"metadata": {"name": "a"}}),
    ],
)
def test_call_that_may_not_be_repeated_is_not(call):
    """Create, merge patch and a replace without version could be carried out twice."""
    with Scripted(refusal(429, "TooManyRequests", Retry_After="1"), OK) as (client, server):
        with pytest.raises(TooManyRequests) as caught:
            call(client)
        assert caught.value.retry_after_seconds == 1.0
        assert len(server.asked) == 1


def test_without_retry_after_nothing_is_repeated():
    """A server that does not say when leaves it to the caller's backoff."""
    with Scripted(refusal(503, "ServiceUnavailable"), OK) as (client, server):
        with pytest.raises(Unavailable):
            client.get(PATH)
        assert len(server.asked) == 1


def test_bounded_call_does_not_wait_past_its_end():
    """A wait that would outlast the call's own limit is not begun."""
    scripted = Scripted(refusal(429, "TooManyRequests", Retry_After="5"), OK)
    with scripted as (client, _), pytest.raises(TooManyRequests):
        client.get(PATH, timeout_seconds=2.0)
    assert scripted.pauses == []


def test_dead_kept_connection_is_replaced_once():
    """A connection that the server closes as we use it costs a repeat, not an error; twice is an error."""
    with Scripted(OK, Drop(), OK) as (client, server):
        client.get(PATH)
        client.get(PATH)
        assert len(server.asked) == 3
    with Scripted(Drop()) as (client, server):
        with pytest.raises(Unreachable, match="the connection was dropped"):
            client.get(PATH)
        assert len(server.asked) == 2
    with Scripted(Drop(), OK) as (client, server):
        with pytest.raises(Unreachable):
            client.create("/apis/test/v1/things", an_object("a"))
        assert len(server.asked) == 1


def test_silent_server_is_given_up():
    """No answer within the timeout is Unreachable, and not tried again: it may still be at work."""
    with Scripted(Silence(), timeout_seconds=0.05) as (client, server):
        with pytest.raises(Unreachable, match="no answer in time"):
            client.get(PATH)
        assert len(server.asked) == 1


def test_close_ends_calls_of_other_threads():
    """Whoever waits for an answer is told that we hung up, and so is who asks later."""
    with Scripted(Silence(), timeout_seconds=SECONDS) as (client, server):
        errors = []

        def ask():
            with pytest.raises(Closed) as caught:
                client.get(PATH)
            errors.append(caught.value)

        thread = threading.Thread(target=ask)
        thread.start()
        server.wait_for(lambda s: s.asked, "the call")
        client.close()
        thread.join(2.0)
        assert len(errors) == 1
        with pytest.raises(Closed):
            client.get(PATH)


def test_sibling_lives_and_dies_by_itself():
    """Closing a sibling leaves the client as it was."""
    with Scripted(OK) as (client, _):
        client.sibling().close()
        client.get(PATH)


def test_watch_can_be_closed_from_another_thread():
    """An iteration that waits ends with Closed."""
    with (
        ScriptedServer(watches=(Stream(Silence()),)) as server,
        Client(Server(url=server.url), user_agent="test") as client,
    ):
        watch = client.watch("/apis/test/v1/things")
        timer = threading.Timer(0.0, watch.close)
        with watch:
            timer.start()
            with pytest.raises(Closed):
                next(watch)
        timer.join()
        watch.close()


def test_calls_from_many_threads_do_not_mix():
    """Each thread gets the answer to its own question."""
    wrong = []

    def echo(asked):
        return Json({"path": asked.path})

    with (
        ScriptedServer(answer=echo) as server,
        Client(Server(url=server.url), user_agent="test", pool_size=8) as client,
    ):

        def ask(number):
            for turn in range(10):
                path = f"/x/{number}/{turn}"
                if client.get(path)["path"] != path:
                    wrong.append(path)

        threads = [threading.Thread(target=ask, args=(number,)) for number in range(8)]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
    assert wrong == []


def test_proxies_of_the_environment_are_not_used(monkeypatch):
    """A proxy meant for package downloads must not see cluster traffic."""
    for name in ("http_proxy", "HTTP_PROXY", "https_proxy", "HTTPS_PROXY", "all_proxy"):
        monkeypatch.setenv(name, "http://127.0.0.1:9")
    with Scripted(OK) as (client, _):
        client.get(PATH)


def test_list_that_is_no_list_is_garbled():
    """An object where a list should be is an error of the server, not an empty list."""
    with Scripted(Json({"kind": "Thing"})) as (client, _), pytest.raises(Garbled):
        client.list_pages("/apis/test/v1/things")
    with Scripted(a_list()) as (client, _):
        assert client.list_pages("/apis/test/v1/things").items == ()


def test_every_request_is_told_with_how_it_ended():
    """For metrics: statuses and causes, repeats and siblings included; a call that we cut ourselves is none."""
    heard = []
    answers = (
        refusal(429, "TooManyRequests", Retry_After="1"),
        OK,
        refusal(404, "NotFound"),
        Drop(),
        OK,
        Stream(),
        Stream(),
    )
    with Scripted(*answers, answered=lambda verb, code: heard.append((verb, code))) as (client, _):
        client.get(PATH)
        with pytest.raises(NotFound):
            client.delete(PATH)
        with pytest.raises(Unreachable):
            client.create(PATH, {})
        with client.sibling() as other:
            other.get(PATH)
        with client.watch(PATH):
            pass
        client.close()
        with pytest.raises(Closed):
            client.get(PATH)
    assert heard == [
        ("GET", "429"),
        ("GET", "200"),
        ("DELETE", "404"),
        ("POST", "dropped"),
        ("GET", "200"),
        ("WATCH", "200"),
    ]
