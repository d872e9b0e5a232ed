"""Where the server and our credentials are read from."""

import base64
import sys
import tomllib
from pathlib import Path

import pytest
import yaml

from api.kube import config
from api.kube.client import Client
from api.kube.server import Server
from api.refusals import Refused
from tests.support.scripted_server import Json, ScriptedServer

IN_CLUSTER = {"KUBERNETES_SERVICE_HOST": "10.96.0.1", "KUBERNETES_SERVICE_PORT": "443"}


@pytest.fixture
def token_dir(tmp_path):
    directory = tmp_path / "serviceaccount"
    directory.mkdir()
    (directory / "token").write_text("pod-token\n")
    (directory / "ca.crt").write_text("PEM")
    (directory / "namespace").write_text("lanewise-system")
    return directory


def a_kubeconfig(path: Path, *, user=None, cluster=None, context=None, name="dev") -> Path:
    document = {
        "current-context": name,
        "contexts": [{"name": name, "context": {"cluster": name, "user": name, **(context or {})}}],
        "clusters": [{"name": name, "cluster": {"server": "https://api.example:6443/", **(cluster or {})}}],
        "users": [{"name": name, "user": user or {}}],
    }
    path.write_text(yaml.safe_dump(document))
    return path


def refused(call, *args, **kwargs):
    with pytest.raises(Refused) as caught:
        call(*args, **kwargs)
    return caught.value.reason


def test_pod_uses_its_service_account(token_dir):
    """Case L1: in a cluster each call carries the token of the mounted directory."""
    server = config.load(None, IN_CLUSTER, token_dir=token_dir)
    assert server.url == "https://10.96.0.1:443"
    assert server.authority == token_dir / "ca.crt"
    assert server.namespace == "lanewise-system"
    assert server.tokens.token() == "pod-token"


def test_token_is_sent_as_bearer(token_dir):
    """Case L1: the header is there, and not empty."""
    tokens = config.load(None, IN_CLUSTER, token_dir=token_dir).tokens
    with (
        ScriptedServer(answer=lambda _: Json({})) as server,
        Client(Server(url=server.url, tokens=tokens), user_agent="test") as client,
    ):
        client.version()
    assert server.asked[0].headers["authorization"] == "Bearer pod-token"


def test_pod_in_an_ipv6_cluster(token_dir):
    """A host with colons is put in brackets."""
    server = config.load(None, {**IN_CLUSTER, "KUBERNETES_SERVICE_HOST": "fd00::1"}, token_dir=token_dir)
    assert server.url == "https://[fd00::1]:443"


@pytest.mark.parametrize("missing", ["token", "ca.crt"])
def test_pod_without_service_account_says_what_is_missing(token_dir, missing):
    """The path and what to mount are in the refusal."""
    (token_dir / missing).unlink()
    reason = refused(config.load, None, IN_CLUSTER, token_dir=token_dir)
    assert reason.source == str(token_dir / missing)
    assert reason.remedy


@pytest.mark.parametrize("content", ["", "two lines\nof it", "caf\u00e9"], ids=["empty", "two lines", "no ASCII"])
def test_token_file_without_a_token_is_refused(token_dir, content):
    """What could not stand in a header would fail with every call, in words of some library."""
    (token_dir / "token").write_text(content, encoding="utf-8")
    assert refused(config.load, None, IN_CLUSTER, token_dir=token_dir).source == str(token_dir / "token")


@pytest.mark.parametrize("port", ["https", "0", "70000", "\u0661"])
def test_port_in_the_environment_that_is_none(token_dir, port):
    """The variable is named."""
    reason = refused(config.load, None, {**IN_CLUSTER, "KUBERNETES_SERVICE_PORT": port}, token_dir=token_dir)
    assert reason.what == f"KUBERNETES_SERVICE_PORT: {port!r} is no port"


@pytest.mark.parametrize(
    ("cluster", "user", "field"),
    [
        ({"certificate-authority-data": "aGVsbG8="}, {}, "certificate-authority-data"),
        ({}, {"client-certificate-data": "aGVsbG8=", "client-key-data": "aGVsbG8="}, "client-certificate-data"),
    ],
)
def test_certificate_that_is_none_is_refused_with_the_files_path(tmp_path, cluster, user, field):
    """Also where it stands in the kubeconfig itself."""
    server = config.load(a_kubeconfig(tmp_path / "config", cluster=cluster, user=user), {})
    reason = refused(Client, server, user_agent="test")
    assert reason.source == f"{tmp_path}/config: {field}"


def test_what_a_person_names_goes_before_the_surroundings(tmp_path, token_dir):
    """Flag, then KUBECONFIG, then the pod, then the home directory."""
    flag = a_kubeconfig(tmp_path / "flag", cluster={"server": "https://flag"})
    named = a_kubeconfig(tmp_path / "named", cluster={"server": "https://named"})
    (tmp_path / ".kube").mkdir()
    a_kubeconfig(tmp_path / ".kube" / "config", cluster={"server": "https://home"})
    home = {"HOME": str(tmp_path)}
    everything = {**IN_CLUSTER, **home, "KUBECONFIG": str(named)}
    assert config.load(flag, everything, token_dir=token_dir).url == "https://flag"
    assert config.load(None, everything, token_dir=token_dir).url == "https://named"
    assert config.load(None, {**IN_CLUSTER, **home}, token_dir=token_dir).url == "https://10.96.0.1:443"
    assert config.load(None, home, token_dir=token_dir).url == "https://home"


def test_no_cluster_at_all_says_where_was_looked(tmp_path):
    """The refusal names all places, and the flag that helps."""
    reason = refused(config.load, None, {"HOME": str(tmp_path)})
    assert reason.what == (
        f"kubeconfig: no cluster is named: no --kubeconfig, no KUBECONFIG, no {tmp_path}/.kube/config, and this is no pod"
    )
    assert reason.remedy == "give --kubeconfig=FILE"


def test_files_and_data_of_a_kubeconfig(tmp_path):
    """Relative paths start at the kubeconfig; data is decoded; what is secret is not in the repr."""
    (tmp_path / "ca.pem").write_text("CA")
    encoded = {f"client-{part}-data": base64.b64encode(part.encode()).decode() for part in ("certificate", "key")}
    path = a_kubeconfig(
        tmp_path / "config",
        user={**encoded, "token": "secret-token"},
        cluster={"certificate-authority": "ca.pem", "tls-server-name": "kubernetes"},
        context={"namespace": "team-a"},
    )
    server = config.load(path, {})
    assert server.url == "https://api.example:6443"
    assert server.authority == tmp_path / "ca.pem"
    assert (server.certificate, server.key) == (b"certificate", b"key")
    assert server.tls_server_name == "kubernetes"
    assert server.namespace == "team-a"
    assert server.tokens.token() == "secret-token"
    assert "secret" not in repr(server)


def test_token_file_wins_over_token(tmp_path):
    """As in client-go, because the file is the one that is renewed."""
    (tmp_path / "token").write_text("from-file")
    path = a_kubeconfig(tmp_path / "config", user={"token": "literal", "tokenFile": "token"})
    assert config.load(path, {}).tokens.token() == "from-file"


def test_several_files_are_merged(tmp_path):
    """Of several files in KUBECONFIG the first to name something wins, and missing ones are passed over."""
    one = a_kubeconfig(tmp_path / "one", name="one")
    two = a_kubeconfig(tmp_path / "two", name="two", cluster={"server": "https://two"})
    env = {"KUBECONFIG": f"{tmp_path}/none:{one}:{two}"}
    assert config.load(None, env).url == "https://api.example:6443"
    chosen = tmp_path / "chosen"
    chosen.write_text("current-context: two")
    assert config.load(None, {"KUBECONFIG": f"{chosen}:{one}:{two}"}).url == "https://two"


@pytest.mark.parametrize(
    ("text", "problem"),
    [
        ("a: [", "is not YAML (line 1)"),
        ("just text", "is no kubeconfig"),
        ("apiVersion: v1", "no current-context is set"),
        ("current-context: x", "there is no context 'x'"),
        ("when: 2026-13-45", "is not YAML"),
        ("[" * 1000, "is not YAML"),
        ("a: !!python/object/apply:os.system [id]", "is not YAML (line 1)"),
        ("--- 1\n--- 2\n", "is not YAML (line 2)"),
    ],
    ids=lambda text: text[:20],
)
def test_file_that_is_no_kubeconfig_is_refused(tmp_path, text, problem):
    """Each way of being wrong has its sentence, with the path."""
    path = tmp_path / "config"
    path.write_text(text)
    assert refused(config.load, path, {}).what == f"{path}: {problem}"


def test_missing_file_is_refused_with_its_path(tmp_path):
    """A wrong flag is said with the path in it."""
    assert (
        refused(config.load, tmp_path / "none", {}).what
        == f"{tmp_path}/none: cannot be read: No such file or directory"
    )


@pytest.mark.parametrize(
    ("user", "cluster", "field", "problem"),
    [
        ({"client-certificate-data": "%%%"}, {}, "users[dev].user.client-certificate-data", "is not base64"),
        ({"client-key": "gone.pem"}, {}, "users[dev].user.client-key", "there is no file {dir}/gone.pem"),
        ({"token": 7}, {}, "users[dev].user.token", "is int, not text"),
        ({"username": "admin", "password": "x"}, {}, "users[dev].user.username", "is not supported"),
        ({"as": "root"}, {}, "users[dev].user.as", "is not supported"),
        ({}, {"server": "api.example:6443"}, "clusters[dev].cluster.server", "'api.example:6443' is no URL"),
        (
            {},
            {"server": "https://api.example:port"},
            "clusters[dev].cluster.server",
            "'https://api.example:port' is no URL",
        ),
        ({}, {"server": "https://[::1"}, "clusters[dev].cluster.server", "'https://[::1' is no URL"),
        ({}, {"server": "https://:6443"}, "clusters[dev].cluster.server", "'https://:6443' is no URL"),
        ({"token": "one\ntwo"}, {}, "users[dev].user.token", "has characters that no token has"),
        ({"client-certificate-data": "YQ=="}, {}, "users[dev].user.client-key", "is missing"),
        ({"client-key-data": "YQ=="}, {}, "users[dev].user.client-certificate", "is missing"),
        ({"exec": 5}, {}, "users[dev].user.exec", "gave no credentials"),
        ({}, {"proxy-url": "http://p"}, "clusters[dev].cluster.proxy-url", "Lanewise uses no proxies"),
    ],
)
def test_field_that_cannot_be_used_is_named(tmp_path, user, cluster, field, problem):
    """File and field stand in the refusal, and something to do about it."""
    path = a_kubeconfig(tmp_path / "config", user=user, cluster=cluster)
    reason = refused(config.load, path, {})
    assert reason.what == f"{path}: {field}: {problem.format(dir=tmp_path)}"
    assert reason.remedy


def exec_user(tmp_path, script: str):
    plugin = tmp_path / "plugin"
    plugin.write_text(f"#!/bin/sh\n{script}\n")
    plugin.chmod(0o755)
    return {
        "exec": {
            "apiVersion": "client.authentication.k8s.io/v1",
            "command": str(plugin),
            "interactiveMode": "Never",
        }
    }


def test_exec_plugin_is_run_by_the_official_client(tmp_path):
    """The token of an exec plugin is used like any other."""
    credential = (
        '{"apiVersion":"client.authentication.k8s.io/v1","kind":"ExecCredential","status":{"token":"from-plugin"}}'
    )
    path = a_kubeconfig(
        tmp_path / "config", user=exec_user(tmp_path, f"echo '{credential}'"), context={"namespace": "ns"}
    )
    server = config.load(path, {})
    assert server.url == "https://api.example:6443"
    assert server.tokens.token() == "from-plugin"
    assert server.namespace == "ns"


def test_missing_official_client_is_said_with_what_to_install(tmp_path, monkeypatch):
    """Only who uses such a kubeconfig needs the package, and learns its name."""
    monkeypatch.setitem(sys.modules, "kubernetes.client", None)
    path = a_kubeconfig(tmp_path / "config", user=exec_user(tmp_path, "true"))
    reason = refused(config.load, path, {})
    assert reason.what == f"{path}: users[dev].user.exec: needs the Python package kubernetes, which is not installed"
    assert "pip install 'lanewise[controller]'" in reason.remedy


def test_plain_kubeconfig_does_not_import_the_official_client(tmp_path, monkeypatch):
    """The node agent's 50 MB stay 50 MB: with the package out of reach everything else is read."""
    for name in ("kubernetes", "kubernetes.client", "kubernetes.config"):
        monkeypatch.setitem(sys.modules, name, None)
    assert config.load(a_kubeconfig(tmp_path / "config", user={"token": "t"}), {}).tokens.token() == "t"


def test_the_release_that_sends_no_token_is_excluded():
    """Case L1: kubernetes 36.0.0 has no Authorization header in a cluster (kubernetes-client/python#2584)."""
    root = Path(__file__).parents[3]
    extras = tomllib.loads((root / "pyproject.toml").read_text())["project"]["optional-dependencies"]
    (needed,) = [name for name in extras["controller"] if name.startswith("kubernetes")]
    assert needed.startswith("kubernetes")
    assert "!=36.0.0" in needed
    locked = "\n".join(path.read_text() for path in (root / "requirements").glob("*.txt"))
    assert "kubernetes==36.0.0 " not in locked
