"""What the node plugin takes from flags and environment, and how it refuses the rest."""

from pathlib import Path

import pytest

from api.refusals import Refused
from kubeletplugin.settings import parse


def refusal(*arguments: str, **environment: str) -> str:
    with pytest.raises(Refused) as caught:
        parse(arguments, environment)
    return caught.value.reason.what


def test_defaults_are_those_of_a_node() -> None:
    """Where nothing is said, the kubelet's and the runtime's own directories are meant."""
    settings = parse(["--node-name", "node-a"], {})
    assert settings.plugin_dir == Path("/var/lib/kubelet/plugins/gpu.lanewise.dev")
    assert settings.registry_dir == Path("/var/lib/kubelet/plugins_registry")
    assert settings.cdi_dir == Path("/var/run/cdi")
    assert (settings.pod_uid, settings.machine, settings.kubeconfig) == (None, None, None)
    assert (settings.rediscover_seconds, settings.reconcile_seconds) == (60, 60)
    assert (settings.health_seconds, settings.watch_xids) == (10, True)


def test_directories_as_the_runtime_sees_them_default_to_our_own() -> None:
    """Host paths differ from ours only where the plugin runs in a container."""
    settings = parse(["--node-name=node-a", "--driver-root=/host", "--host-dev-root=/"], {})
    assert settings.host_driver_root == Path("/host")
    assert (settings.dev_root, settings.host_dev_root) == (Path("/"), Path("/"))
    assert settings.host_machine_root == settings.machine_root


def test_flags_win_over_environment() -> None:
    """The environment is the pod's, the flag is somebody's decision."""
    assert parse(["--node-name=flag"], {"NODE_NAME": "variable"}).node == "flag"
    assert parse([], {"NODE_NAME": "variable"}).node == "variable"


def test_missing_node_name_says_what_to_do() -> None:
    """The one required setting."""
    with pytest.raises(Refused) as caught:
        parse([], {})
    assert str(caught.value) == ("--node-name: not given (name this machine's Node object, by the flag or $NODE_NAME)")


@pytest.mark.parametrize(
    ("arguments", "words"),
    [
        (["--driver-name=GPU.example.dev"], "no DNS subdomain"),
        (["--driver-name=a-name-that-is-much-too-long.lanewise.dev"], "leave room for 27"),
        (["--plugin-dir=relative"], "no absolute path"),
        (["--machine=/nowhere/machine.yaml"], "--machine /nowhere/machine.yaml: no such file"),
        (["--kubeconfig=/nowhere/config"], "--kubeconfig /nowhere/config: no such file"),
        (["--cdi-mode=maybe"], "'maybe' is none of auto, nvidia-ctk, builtin"),
        (["--machine-nodes=some"], "'some' is none of devices, plain, auto"),
        (["--http-port=70000"], "'70000' is no whole number from 0 to 65535"),
        (["--rediscover-seconds=soon"], "no number of seconds"),
        (["--rediscover-seconds=nan"], "no number of seconds"),
        (["--pod-uid=../../etc"], "no UID"),
        (["--node-name=Node_A"], "no node name"),
        (["--fast"], "--fast: unknown flag"),
        (["--node-name"], "expected one argument"),
    ],
)
def test_bad_values_are_refused_with_their_flag(arguments: list[str], words: str) -> None:
    """One sentence that names the flag."""
    assert words in refusal(*arguments, NODE_NAME="node-a")


def test_all_that_is_wrong_is_said_at_once() -> None:
    """So that it is mended in one go."""
    said = refusal("--cdi-mode=maybe", "--log-level=loud")
    assert [flag in said for flag in ("--node-name", "--cdi-mode", "--log-level")] == [True] * 3


def test_bad_environment_is_refused_like_a_flag() -> None:
    """A value means the same wherever it was read."""
    assert "'maybe' is none of" in refusal(NODE_NAME="node-a", CDI_MODE="maybe")
