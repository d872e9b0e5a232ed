"""The program as somebody starts it who got something wrong: a sentence with where and what to do, and exit code 2."""

import json
import os
import signal
import socket
import subprocess
import sys
import tempfile
import urllib.request
from pathlib import Path

import pynvml
import pytest
from prometheus_client.parser import text_string_to_metric_families

from api import program
from kubeletplugin import main as module
from kubeletplugin import plugin as plugin_module
from tests.support.controlled_cluster import a_town
from tests.support.fake_nvml import FakeNvml, installed
from tests.support.machines import TWO_GPUS

KUBECONFIG = """\
apiVersion: v1
kind: Config
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


@pytest.fixture
def base():
    """Below /tmp, because a socket path has 107 bytes. All that the plugin needs is there, and right."""
    with tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as path:
        folder = Path(path)
        (folder / "reg").mkdir()
        (folder / "machine.yaml").write_text(TWO_GPUS)
        (folder / "config").write_text(KUBECONFIG)
        yield folder


def flags(base, **changes):
    given = {
        "node-name": "node-a",
        "kubeconfig": base / "config",
        "plugin-dir": base / "plug",
        "registry-dir": base / "reg",
        "cdi-dir": base / "cdi",
        "machine-root": base / "root",
        "machine-nodes": "plain",  # no test here needs CAP_MKNOD
        **{name.replace("_", "-"): value for name, value in changes.items()},
    }
    return [f"--{name}={value}" for name, value in given.items() if value is not None]


def said(capsys, arguments, environment=None):
    """The one line on stderr of a start that is refused; the exit code is 2."""
    code = program.run(lambda: module._main(arguments, environment or {}))
    lines = [line for line in capsys.readouterr().err.splitlines() if not line.startswith("{")]
    assert code == 2
    assert len(lines) == 1, lines
    assert lines[0].startswith("error: ")
    assert lines[0].endswith(")"), "the remedy is in parentheses"
    return lines[0].removeprefix("error: ")


@pytest.fixture(autouse=True)
def _as_before():
    """The program sets signal handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no mapping of fields"),
        (b"\xff\xfe\x00", "is not UTF-8 text"),
        (b"gpus: [", "is no YAML"),
        (b"- a\n- b\n", "is no mapping of fields"),
        (b"name: box\ngpus: []\n", "tree: is missing"),
        (b"name: box\ngpus: []\ntree: {}\nextra: 1\n", "extra: is no field"),
        (b"[" * 1000, "is no YAML"),
    ],
    ids=["empty", "binary", "broken", "list", "incomplete", "unknown field", "deep"],
)
def test_a_malformed_machine_file(base, capsys, content, words):
    """Said at the start, with the file's path; later ones are said in the inventory (see test_plugin)."""
    path = base / "machine.yaml"
    path.write_bytes(content)
    sentence = said(capsys, flags(base, machine=path))
    assert sentence.startswith(str(path))
    assert words in sentence


@pytest.mark.parametrize("path", ["gone.yaml", "reg"])
def test_a_machine_file_that_is_none(base, capsys, path):
    """Missing, or a directory."""
    assert said(capsys, flags(base, machine=base / path)).startswith(f"--machine {base / path}: no such file (")


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no kubeconfig"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"a: [", "is not YAML"),
        (b"[]", "is no kubeconfig"),
        (b"x: 2026-13-45\n", "is not YAML"),
        (b"kind: Config\n", "no current-context is set"),
        (KUBECONFIG.replace("127.0.0.1:1", "127.0.0.1:port").encode(), "is no URL"),
        (KUBECONFIG.replace("user: {}", "user: {client-key: /nowhere/key.pem}").encode(), "no file /nowhere/key.pem"),
        (
            KUBECONFIG.replace('1:1"', '1:1", certificate-authority: /nowhere/ca.crt').encode(),
            "no file /nowhere/ca.crt",
        ),
        (
            KUBECONFIG.replace(
                'http://127.0.0.1:1"', 'https://127.0.0.1:1", certificate-authority-data: aGVsbG8='
            ).encode(),
            "certificate-authority-data: holds no usable certificate",
        ),
    ],
    ids=["empty", "binary", "broken", "list", "bad date", "no context", "no URL", "no key", "no CA", "odd CA"],
)
def test_a_malformed_kubeconfig(base, capsys, content, words):
    """Each way of being wrong, with the file's path."""
    (base / "config").write_bytes(content)
    sentence = said(capsys, flags(base))
    assert sentence.startswith(f"{base}/config: ")
    assert words in sentence


def test_a_kubeconfig_of_the_environment(base, capsys):
    """KUBECONFIG means the same as everywhere else, several files included."""
    gone = f"{base}/gone:{base}/away"
    sentence = said(capsys, flags(base, kubeconfig=None), {"KUBECONFIG": gone})
    assert sentence == f"KUBECONFIG: none of {base}/gone, {base}/away exists (name a file that exists)"


def test_no_cluster_at_all(base, capsys):
    """Neither a file nor a pod."""
    assert "no cluster is named" in said(capsys, flags(base, kubeconfig=None), {"HOME": str(base)})


@pytest.mark.parametrize("setting", ["cdi_dir", "plugin_dir", "registry_dir", "machine_root"])
def test_a_file_where_a_directory_has_to_be(base, capsys, setting):
    """The path is named, whichever of them it is."""
    odd = base / "odd"
    odd.write_text("a file")
    assert str(odd) in said(capsys, flags(base, **{setting: odd}, machine=base / "machine.yaml"))
    assert odd.read_text() == "a file"


@pytest.mark.parametrize("setting", ["cdi_dir", "plugin_dir", "machine_root"])
def test_a_directory_that_cannot_be_made(base, capsys, setting):
    """/proc takes no directories, not even from root."""
    assert "/proc/lanewise" in said(capsys, flags(base, **{setting: "/proc/lanewise"}, machine=base / "machine.yaml"))


def test_a_cdi_directory_that_cannot_be_written(base, capsys, monkeypatch):
    """Mounted read-only, say."""
    (base / "cdi").mkdir()
    allowed = os.access
    monkeypatch.setattr(os, "access", lambda path, mode: Path(path) != base / "cdi" and allowed(path, mode))
    assert said(capsys, flags(base, driver_root=base, cdi_mode="builtin")).startswith(f"{base}/cdi: not writable (")


def test_a_simulated_machine_in_somebody_elses_folder(base, capsys):
    """Nothing that is there is swept away."""
    (base / "root").mkdir()
    (base / "root" / "precious").write_text("mine")
    sentence = said(capsys, flags(base, machine=base / "machine.yaml"))
    assert sentence.startswith(f"{base}/root: is not empty and holds no simulated machine (")
    assert (base / "root" / "precious").read_text() == "mine"


def test_a_simulated_machine_that_cannot_be_written(base, capsys):
    """Something of another kind is in the way; on a full disk it is the same sentence."""
    (base / "root").mkdir()
    (base / "root" / ".lanewise-simulated").touch()
    (base / "root" / "proc").write_text("a file")
    sentence = said(capsys, flags(base, machine=base / "machine.yaml"))
    assert sentence.startswith(f"{base}/root/proc")
    assert "the simulated machine cannot be written: " in sentence


def test_socket_paths_that_are_too_long(base, capsys):
    """Case H6: refused at the start, with the flag and by how much."""
    long = base / ("x" * 100)
    sentence = said(capsys, flags(base, plugin_dir=long))
    assert sentence.startswith(f"--plugin-dir: {long}/dra.sock is ")
    assert "longer than the 107 that a socket path can have" in sentence


@pytest.mark.parametrize(
    ("arguments", "environment", "words"),
    [
        (["--driver-name=No_Such_Name"], {}, "--driver-name: 'No_Such_Name' is no DNS subdomain"),
        (["--namespace=A b"], {}, "--namespace: 'A b' is no namespace"),
        (["--cdi-mode=nvidia-ctk"], {}, "--cdi-mode: nvidia-ctk was asked for"),
        (["--node=n"], {}, "--node=n: unknown flag"),
        (["positional"], {}, "positional: unknown flag"),
        (["--http-port"], {}, "command line: argument --http-port: expected one argument"),
        ([], {"HTTP_PORT": "many"}, "--http-port: 'many' is no "),
        ([], {"RECONCILE_SECONDS": "-1"}, "--reconcile-seconds: '-1' is no number of seconds"),
        ([], {"LOG_LEVEL": "loud"}, "--log-level: 'loud' is none of debug, info, warning, error"),
        ([], {"POD_UID": "../x"}, "--pod-uid: '../x' is no UID"),
    ],
)
def test_wrong_flags_and_variables(base, capsys, monkeypatch, arguments, environment, words):
    """Each is named; a variable by the flag that it stands for."""
    monkeypatch.setenv("PATH", str(base))
    given = flags(base, driver_root=base, dev_root=base)
    assert said(capsys, [*given, *arguments], environment).startswith(words)


def test_probing_a_plugin_that_is_not_there(base, capsys):
    """The kubelet's probe: one line in the pod's events."""
    assert "gpu.lanewise.dev-reg.sock does not answer" in said(capsys, [*flags(base), "--probe"])


def test_from_start_to_sigterm(base):
    """As a process: it serves and answers its own probe, ends with 0, takes its sockets along, and needs no second signal.

    A port that another program has, as the plugin's own predecessor in an update, keeps it from none of that.
    """
    with a_town() as town, socket.create_server(("", 0)) as taken:
        town.node()
        town.api.kubeconfig(base / "config")
        port = taken.getsockname()[1]
        given = flags(base, driver_root=base, cdi_mode="builtin", http_port=port)
        command = [sys.executable, "-m", "kubeletplugin.main", *given]
        with subprocess.Popen(command, stderr=subprocess.PIPE, text=True) as process:
            town.wait(lambda: town.api.store.get("nodeinventories", "node-a"), timeout=30)
            assert len(list((base / "reg").iterdir())) == 1
            assert subprocess.run([*command, "--probe"], timeout=30).returncode == 0
            process.send_signal(signal.SIGTERM)
            log = process.communicate(timeout=30)[1]
        assert process.returncode == 0
        assert "Traceback" not in log
        assert log.count("port taken") == 1
        assert list((base / "reg").iterdir()) == []
        assert town.api.store.listed("leases", "lanewise-system") == []


def test_metrics_of_a_process(base):
    """One port for /healthz, /readyz and /metrics, where somebody asked for one."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]

    def ask(path):
        with urllib.request.urlopen(f"http://127.0.0.1:{port}{path}", timeout=5) as answer:
            return answer.read().decode()

    with a_town() as town:
        town.node()
        town.api.kubeconfig(base / "config")
        given = flags(base, driver_root=base, cdi_mode="builtin", http_port=port)
        with subprocess.Popen([sys.executable, "-m", "kubeletplugin.main", *given], stderr=subprocess.PIPE) as process:
            town.wait(lambda: town.api.store.get("nodeinventories", "node-a"), timeout=30)
            health, metrics = ask("/healthz"), ask("/metrics")
            process.send_signal(signal.SIGTERM)
            process.communicate(timeout=30)
        assert process.returncode == 0
    assert health == "ok\n"
    families = {family.name: family for family in text_string_to_metric_families(metrics)}
    assert {
        "lanewise_build_info",
        "lanewise_prepares",
        "lanewise_ready",
        "process_resident_memory_bytes",
    } <= families.keys()
    asked = {(sample.labels["verb"], sample.labels["code"]) for sample in families["lanewise_api_requests"].samples}
    assert ("PATCH", "201") in asked


def test_a_driver_changed_under_it_ends_it_with_an_error(base, monkeypatch, capsys):
    """Exit code 1, so that Kubernetes starts it anew; it takes its sockets along as ever."""
    monkeypatch.setattr(plugin_module, "MISMATCH_SECONDS", 0)
    monkeypatch.setattr(plugin_module, "SOCKET_CHECK_SECONDS", 0.05)
    library = FakeNvml(errors={"nvmlInitWithFlags": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH})
    with a_town() as town, installed(library):
        town.node()
        town.api.kubeconfig(base / "config")
        assert module._main(flags(base, driver_root=base, cdi_mode="builtin"), {}) == 1
        assert list((base / "reg").iterdir()) == []
    said = [json.loads(line) for line in capsys.readouterr().err.splitlines() if line.startswith("{")]
    (wanted,) = [line for line in said if line["event"] == "restart wanted"]
    assert wanted["why"] == "nvmlInit: RM has detected an NVML/RM version mismatch."


@pytest.mark.parametrize(
    ("imported", "unneeded"),
    [
        ("kubeletplugin.main, kubeletplugin.sockets.probe", {"urllib3", "yaml", "kubeletplugin.plugin", "api.kube"}),
        (
            "kubeletplugin.plugin, api.kube.client, api.kube.config",
            {"yaml", "kubernetes", "kubeletplugin.discovery.simulated"},
        ),
    ],
    ids=["probe", "plugin"],
)
def test_a_node_does_not_import_what_it_does_not_need(imported, unneeded):
    """A probe is a process of its own, several times a minute; the plugin reads YAML only from a person's files."""
    program = f"import sys, {imported}; print(*sys.modules)"
    done = subprocess.run([sys.executable, "-c", program], capture_output=True, text=True, timeout=60, check=True)
    assert unneeded.isdisjoint(done.stdout.split())


def test_bad_input_as_a_process(base):
    """The whole way: nothing on stdout, one line on stderr, 2."""
    (base / "config").write_bytes(b"\x00\x01")
    command = [sys.executable, "-m", "kubeletplugin.main", *flags(base)]
    done = subprocess.run(command, capture_output=True, text=True, timeout=60)
    assert (done.returncode, done.stdout) == (2, "")
    assert done.stderr == f"error: {base}/config: is not YAML (name a kubeconfig file)\n"
