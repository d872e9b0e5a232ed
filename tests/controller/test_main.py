"""The program: flags, leading, ending."""

import contextlib
import signal
import socket
import subprocess
import sys
import threading
import urllib.error
import urllib.request
from dataclasses import replace
from pathlib import Path

import pytest

from api import program
from api.kube.lease import LeaseTiming
from api.refusals import Refused
from controller.main import LEASE, _main, serve
from controller.settings import Settings, parse
from tests.support.controlled_cluster import NAMESPACE, a_client, a_town
from tests.support.gpus import a_machine

QUICK_LEASE = LeaseTiming(lease_seconds=1, renew_seconds=0.7, retry_seconds=0.1)


def test_defaults_are_promises():
    """What nobody set."""
    assert parse([], {}) == Settings(identity="lanewise-controller")
    assert Settings().stale_seconds == 40
    assert not Settings().allow_shared_ownership
    assert Settings().leader_election


def test_flags_win_over_the_environment():
    """The pod's manifest sets one, a person the other."""
    settings = parse(["--namespace=mine"], {"NAMESPACE": "theirs", "WORKERS": "7", "LEADER_ELECTION": "false"})
    assert (settings.namespace, settings.workers, settings.leader_election) == ("mine", 7, False)


@pytest.mark.parametrize(
    ("arguments", "sentence"),
    [
        (["--nonsense"], "--nonsense: unknown flag"),
        (["--driver-name=GPU"], "--driver-name: 'GPU' is no DNS subdomain"),
        (
            ["--driver-name=a.very.long.name.for.a.driver"],
            "--driver-name: 'a.very.long.name.for.a.driver' has 29 characters",
        ),
        (["--stale-seconds=soon"], "--stale-seconds: 'soon' is no number of seconds from 1 to 3600"),
        (["--workers=0"], "--workers: '0' is no whole number from 1 to 64"),
        (["--leader-election=yes"], "--leader-election: 'yes' is none of true, false"),
        (["--kubeconfig=/nowhere"], "--kubeconfig /nowhere: no such file"),
        (["--namespace=A b"], "--namespace: 'A b' is no namespace"),
        (["--stale-seconds=nan"], "--stale-seconds: 'nan' is no number of seconds from 1 to 3600"),
    ],
)
def test_a_wrong_flag_is_one_sentence(arguments, sentence):
    """Where, what, and what to do."""
    with pytest.raises(Refused) as refused:
        parse(arguments, {})
    assert refused.value.reason.what.startswith(sentence)
    assert refused.value.reason.remedy


def test_all_wrong_flags_are_told_at_once():
    """Mended in one go."""
    with pytest.raises(Refused, match=r"--workers.*; --log-level"):
        parse(["--workers=x", "--log-level=loud"], {})


def test_bad_input_is_exit_code_two_without_a_traceback(tmp_path: Path):
    """A kubeconfig that is none."""
    bad = tmp_path / "config"
    bad.write_text("[")
    done = subprocess.run(
        [sys.executable, "-m", "controller.main", f"--kubeconfig={bad}"], capture_output=True, text=True, timeout=60
    )
    assert done.returncode == 2
    assert str(bad) in done.stderr
    assert "Traceback" not in done.stderr


KUBECONFIG = """\
clusters: [{name: a, cluster: {server: "http://127.0.0.1:1"}}]
users: [{name: a, user: {}}]
contexts: [{name: a, context: {cluster: a, user: a}}]
current-context: a
"""


@pytest.mark.parametrize(
    ("content", "words"),
    [
        (b"", "is no kubeconfig"),
        (b"\xff\xfe\x00", "is not YAML"),
        (b"[]", "is no kubeconfig"),
        (b"clusters: {}\ncurrent-context: a\n", "there is no context 'a'"),
        (KUBECONFIG.replace("127.0.0.1:1", "127.0.0.1:x").encode(), "is no URL"),
        (KUBECONFIG.replace('1:1"', '1:1", certificate-authority: /nowhere/ca.crt').encode(), "/nowhere/ca.crt"),
        (KUBECONFIG.replace("user: {}}", "user: {token: 5}}").encode(), "user.token: is int, not text"),
    ],
    ids=["empty", "binary", "list", "clusters no list", "no URL", "no CA", "token no text"],
)
def test_a_malformed_kubeconfig_is_one_sentence(tmp_path, capsys, content, words):
    """The path, what is wrong, what to do; exit code 2."""
    (tmp_path / "config").write_bytes(content)
    assert program.run(lambda: _main([f"--kubeconfig={tmp_path}/config"], {})) == 2
    (line,) = capsys.readouterr().err.splitlines()
    assert line.startswith(f"error: {tmp_path}/config: ")
    assert words in line
    assert line.endswith(")")


def test_a_directory_as_kubeconfig_is_one_sentence(tmp_path, capsys):
    """It exists, and is no file."""
    assert program.run(lambda: _main([f"--kubeconfig={tmp_path}"], {})) == 2
    assert capsys.readouterr().err == (
        f"error: --kubeconfig {tmp_path}: no such file (name a file that exists, or leave the flag out)\n"
    )


def test_a_wrong_variable_is_one_sentence(capsys):
    """Named by the flag that it stands for."""
    assert program.run(lambda: _main([], {"WORKERS": "many"})) == 2
    assert capsys.readouterr().err.startswith("error: --workers: 'many' is no whole number from 1 to 64 (")


def test_a_port_that_is_taken_is_one_sentence(tmp_path, capsys):
    """Two programs on the host's network, say."""
    (tmp_path / "config").write_text(KUBECONFIG)
    with socket.create_server(("", 0)) as taken:
        flags = [f"--kubeconfig={tmp_path}/config", f"--http-port={taken.getsockname()[1]}"]
        assert program.run(lambda: _main(flags, {})) == 2
    assert "error: --http-port: port " in capsys.readouterr().err


@pytest.fixture(autouse=True)
def _as_before():
    """The program sets signal handlers."""
    before = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    yield
    for number, handler in before.items():
        signal.signal(number, handler)


@contextlib.contextmanager
def served(town, settings):
    """A controller process, but for the process."""
    told = threading.Event()
    with a_client(town.api, f"controller-{settings.identity}") as client:
        thread = threading.Thread(target=serve, args=(settings, client, told), kwargs={"timing": QUICK_LEASE})
        thread.start()

        def end():
            told.set()
            thread.join(20)
            assert not thread.is_alive()

        try:
            yield end
        finally:
            end()


def leader(town):
    lease = town.api.store.get("leases", LEASE, NAMESPACE) or {}
    return (lease.get("spec") or {}).get("holderIdentity", "").split("_")[0]


def test_of_two_controllers_one_writes_and_the_other_takes_over():
    """The second finds all as it should be, and goes on where the first ended."""
    with a_town() as town:
        owner = town.node()
        with served(town, Settings(identity="one")) as end_one:
            town.wait(lambda: leader(town) == "one")
            with served(town, Settings(identity="two")):
                town.plugin(owner)
                with town.pulse():
                    town.wait(lambda: len(town.devices()) == 2)
                assert town.writes(agent="controller-one")
                assert not town.writes(agent="controller-two")
                end_one()
                town.wait(lambda: leader(town) == "two")
                assert len(town.devices()) == 2
                town.report(owner, a_machine(3))
                with town.pulse():
                    town.wait(lambda: len(town.devices()) == 3)
                assert town.writes(agent="controller-two")


def test_probes_say_when_the_watches_are_open():
    """ready means: working, or waiting to."""
    with a_town() as town, socket.create_server(("127.0.0.1", 0)) as free:
        port = free.getsockname()[1]
        free.close()
        hold = town.api.faults.hold(method="GET", path="/apis/lanewise.dev")
        with served(town, replace(Settings(), leader_election=False, http_port=port)):
            assert hold.reached.wait(10)
            with pytest.raises(urllib.error.HTTPError, match="503") as failed:
                urllib.request.urlopen(f"http://127.0.0.1:{port}/readyz", timeout=5)
            assert failed.value.read() == b"the watch on nodeinventories is not open\n"
            failed.value.close()
            with urllib.request.urlopen(f"http://127.0.0.1:{port}/healthz", timeout=5) as answer:
                assert answer.read() == b"ok\n"
            hold.release()
