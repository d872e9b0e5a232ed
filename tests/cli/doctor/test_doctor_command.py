"""`lanewise doctor` as an administrator meets it."""

import errno
import json
import socket
from pathlib import Path

import pytest

from cli.doctor import telling
from cli.doctor.findings import Level, failure, ok, warning, worst
from cli.main import main
from cli.paper import Paper
from tests.support.controlled_cluster import a_town
from tests.support.machines import TWO_GPUS

FINDINGS = (
    ok("driver", "loaded"),
    warning("cdi files", "a file is stale", "remove it"),
    failure("sockets", "no plugin of ours has a socket in the kubelet's directory of plugins", "see its log"),
)


def test_the_table():
    """A line for each, its remedy below, and the sum."""
    assert telling.text(FINDINGS, Paper()) == (
        "ok       driver     loaded\n"
        "warning  cdi files  a file is stale\n"
        "                    -> remove it\n"
        "failure  sockets    no plugin of ours has a socket in the kubelet's directory of plugins\n"
        "                    -> see its log\n"
        "\n"
        "3 checks: 1 failure, 1 warning"
    )
    assert telling.text(FINDINGS[:1], Paper()).endswith("\n\n1 check: all is well")


def test_a_terminal_gets_colours_and_folded_lines():
    """Nothing is wider than it."""
    told = telling.text(FINDINGS, Paper(60, colours=True))
    assert "\x1b[31mfailure\x1b[0m  sockets" in told
    assert max(len(line) for line in telling.text(FINDINGS, Paper(60)).split("\n")) <= 60


def test_json():
    """The shape that docs/operations.md promises."""
    assert telling.document(FINDINGS, "node-a") == {
        "apiVersion": "cli.lanewise.dev/v1alpha1",
        "kind": "Diagnosis",
        "node": "node-a",
        "worst": "failure",
        "findings": [
            {"check": "driver", "level": "ok", "what": "loaded"},
            {"check": "cdi files", "level": "warning", "what": "a file is stale", "remedy": "remove it"},
            {
                "check": "sockets",
                "level": "failure",
                "what": "no plugin of ours has a socket in the kubelet's directory of plugins",
                "remedy": "see its log",
            },
        ],
    }


@pytest.mark.parametrize(("count", "level"), [(0, Level.OK), (1, Level.OK), (2, Level.WARNING), (3, Level.FAILURE)])
def test_the_exit_code_is_the_worst(count, level):
    """0, 1 and 2."""
    assert worst(FINDINGS[:count]) is level
    assert [int(each) for each in Level] == [0, 1, 2]


@pytest.fixture
def flags(tmp_path):
    """A node with nothing on it but a simulated machine."""
    (tmp_path / "machine.yaml").write_text(TWO_GPUS)
    names = {"host-root": "", "registry-dir": "reg", "plugin-dir": "plug", "cdi-dir": "cdi", "machine": "machine.yaml"}
    return [f"--{flag}={tmp_path / name}" for flag, name in names.items()]


def test_a_node_alone(flags, capsys):
    """No API server is asked; the exit code says that a failure is there."""
    assert main(["doctor", "--only=node", *flags, "-o", "json"]) == Level.FAILURE
    told = json.loads(capsys.readouterr().out)
    levels = {finding["check"]: finding["level"] for finding in told["findings"]}
    assert levels == {
        "hardware": "ok",
        "sockets": "failure",
        "cdi directory": "failure",
        "runtime": "warning",
        "runtime cdi": "warning",
    }


@pytest.mark.parametrize("method", ["is_dir", "iterdir"])
def test_what_may_not_be_read_is_not_taken_for_empty(flags, tmp_path, capsys, monkeypatch, method):
    """/var/lib/kubelet is root's alone on many nodes, the CDI directory is not: to somebody else every file of ours would look
    like one without a claim, to be removed."""
    (tmp_path / "cdi").mkdir()
    (tmp_path / "cdi/gpu.lanewise.dev-claim_u1.json").write_text("{}")
    real = getattr(Path, method)

    def guarded(self):
        if self.is_relative_to(tmp_path / "plug") or self == tmp_path / "reg":
            raise PermissionError(errno.EACCES, "Permission denied", str(self))
        return real(self)

    monkeypatch.setattr(Path, method, guarded)
    main(["doctor", "--only=node", *flags, "-o", "json"])
    told = json.loads(capsys.readouterr().out)["findings"]
    (sockets,) = (finding for finding in told if finding["check"] == "sockets")
    what = f"not known: {tmp_path}/reg: Permission denied"
    assert sockets == {
        "check": "sockets",
        "level": "warning",
        "what": what,
        "remedy": "run it as root on the node, or name the place by its flag",
    }
    assert not [finding for finding in told if "is not prepared here" in finding["what"] and method == "iterdir"]
    assert "runtime" in {finding["check"] for finding in told}


def test_a_machine_file_that_cannot_be_used_is_a_failure(flags, tmp_path, capsys):
    """In the words of the machine check."""
    (tmp_path / "machine.yaml").write_text("gpus: 5")
    assert main(["doctor", "--only=node", *flags]) == Level.FAILURE
    assert "failure  hardware" in capsys.readouterr().out


def test_a_cluster_alone(tmp_path, capsys):
    """What the sandbox lacks is told, and nothing of the node."""
    with a_town() as town:
        town.node()
        kubeconfig = town.api.kubeconfig(tmp_path / "kubeconfig")
        assert main(["doctor", "--only=cluster", f"--kubeconfig={kubeconfig}", "--node-name=node-a"]) == Level.FAILURE
    out = capsys.readouterr().out
    assert (
        "failure  class          there is no DeviceClass gpu.lanewise.dev: claims that name it wait for ever\n" in out
    )
    assert "failure  inventory      no plugin has reported node-a\n" in out
    assert "ok       crd            NodeInventory is defined\n" in out
    assert "cdi directory" not in out


def test_an_api_server_that_cannot_be_reached_is_one_failure(flags, tmp_path, capsys):
    """And the node is looked at all the same."""
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
    cluster = {"name": "c", "cluster": {"server": f"http://127.0.0.1:{port}"}}
    context = {"name": "c", "context": {"cluster": "c"}}
    kubeconfig = tmp_path / "kubeconfig"
    kubeconfig.write_text(json.dumps({"clusters": [cluster], "contexts": [context], "current-context": "c"}))
    assert main(["doctor", *flags, f"--kubeconfig={kubeconfig}"]) == Level.FAILURE
    out = capsys.readouterr().out
    assert f"failure  api server     it could not be asked: http://127.0.0.1:{port}: connection refused\n" in out
    assert "ok       hardware" in out


def test_no_kubeconfig_is_one_failure(flags, capsys, monkeypatch, tmp_path):
    """With where it was looked for."""
    monkeypatch.delenv("KUBECONFIG", raising=False)
    monkeypatch.setenv("HOME", str(tmp_path))
    assert main(["doctor", *flags]) == Level.FAILURE
    assert "it could not be asked: kubeconfig: no cluster is named" in capsys.readouterr().out
