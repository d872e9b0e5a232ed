"""The server's life, its log of requests, and who may ask it what."""

import json
import socket
import struct
import threading

import pytest
import urllib3
from urllib3.exceptions import HTTPError

from cli.sandbox.apiserver import ApiServer
from tests.support.api_objects import CONFIG_MAPS, NODES, a_config_map
from tests.support.http_api import HttpApi


def test_stop_ends_open_watches_and_leaves_no_thread(server, api):
    """Stopping does not wait for clients that watch."""
    before = set(threading.enumerate())
    ended = threading.Event()

    def watch():
        try:
            for _ in api.watch(CONFIG_MAPS, 60):
                pass
        except HTTPError:
            ended.set()

    watching = threading.Thread(target=watch)
    watching.start()
    assert server.wait_for_request(lambda r: r.query.get("watch") == "true")
    server.stop()
    assert ended.wait(5)
    for thread in set(threading.enumerate()) - before:  # one that has answered may still be on its way out
        thread.join(5)
    assert len(threading.enumerate()) <= len(before) - 1, "the listener is gone, too"


def test_server_comes_back_on_the_same_port_with_its_objects(server, api):
    """An outage refuses connections and forgets nothing."""
    made = api.post(CONFIG_MAPS, a_config_map("a"))
    port = server.port
    with server.outage(), pytest.raises(HTTPError):
        api.get(CONFIG_MAPS)
    assert server.port == port
    assert api.get(f"{CONFIG_MAPS}/a").body == made.body


def test_stop_twice_does_nothing(server):
    """Who cleans up need not know who did before."""
    server.stop()
    server.stop()


def test_requests_are_kept_with_what_tells_them_apart(server, api):
    """The log tells reads from writes, and who wrote."""
    api.get(CONFIG_MAPS, limit=5)
    api.post(CONFIG_MAPS, a_config_map("a"))
    read, write = server.requests
    assert (read.method, read.path, read.query, read.writes) == ("GET", CONFIG_MAPS, {"limit": "5"}, False)
    assert (write.method, write.user_agent, write.writes) == ("POST", "contract/1", True)
    assert json.loads(write.body)["metadata"]["name"] == "a"
    server.forget_requests()
    assert server.requests == []


def test_tokens_name_users_and_the_rule_refuses_in_its_own_words():
    """Unknown tokens are 401, refusals 403 with the reason."""

    def authorize(user, verb, path):
        return f"{user} may not {verb}" if user == "plugin" and verb != "get" else None

    with ApiServer(tokens={"one": "plugin", "two": "admin"}, authorize=authorize) as server:
        plugin, admin = HttpApi(server.url, token="one"), HttpApi(server.url, token="two")
        stranger, nobody = HttpApi(server.url, token="three"), HttpApi(server.url)
        assert admin.post(NODES, {"apiVersion": "v1", "kind": "Node", "metadata": {"name": "a"}}).status == 201
        assert plugin.get(f"{NODES}/a").status == 200
        refused = plugin.get(NODES)
        assert (refused.status, refused.body["reason"]) == (403, "Forbidden")
        assert refused.body["message"] == "nodes is forbidden: plugin may not list"
        assert plugin.delete(f"{NODES}/a").body["message"] == 'nodes "a" is forbidden: plugin may not delete'
        assert (stranger.get(NODES).status, stranger.get(NODES).body["reason"]) == (401, "Unauthorized")
        nobody.get(NODES)
        assert [r.user for r in server.requests][-1] == "system:anonymous"
        server.access.tokens["three"] = "admin"
        assert stranger.get(NODES).status == 200, "a token may be added while it runs"
        for speaker in (plugin, admin, stranger, nobody):
            speaker.close()


def test_kubeconfig_leads_to_the_server(server, tmp_path):
    """The file is one that our own client reads."""
    from api.kube.config import load

    path = server.kubeconfig(tmp_path / "config", token="secret")
    loaded = load(path, {})
    assert loaded.url == server.url
    assert loaded.tokens.token() == "secret"


def test_connections_are_kept(server):
    """One connection carries several requests."""
    with urllib3.HTTPConnectionPool("127.0.0.1", server.port, maxsize=1) as pool:
        for _ in range(3):
            assert pool.request("GET", "/readyz").status == 200
        assert pool.num_connections == 1


def test_a_client_that_is_killed_is_no_news(server, capsys):
    """Its connection is reset in the middle of a request; nothing is printed about it."""
    with socket.create_connection(("127.0.0.1", server.port)) as client:
        client.sendall(b"GET /readyz HTTP/1.1\r\n\r\n")
        assert client.recv(1024).startswith(b"HTTP/1.1 200")
        client.sendall(b"GET /rea")
        client.setsockopt(socket.SOL_SOCKET, socket.SO_LINGER, struct.pack("ii", 1, 0))
        served = [thread for thread in threading.enumerate() if thread.name == "apiserver-connection"]
    for thread in served:
        thread.join(5)
    assert capsys.readouterr().err == ""
