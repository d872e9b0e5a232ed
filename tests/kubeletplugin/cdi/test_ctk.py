"""Content by nvidia-ctk."""

import json
import subprocess
from collections.abc import Sequence
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from api.hardware import Driver, Gpu, Machine
from api.health import LOST, OFF_THE_BUS, known
from api.pci import PciAddress, Place
from api.refusals import Refused
from kubeletplugin.cdi.builtin import Places
from kubeletplugin.cdi.content import ClaimDevice, claim_spec
from kubeletplugin.cdi.ctk import CtkContent, GpuNotDescribed, Ran, run_program
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import DeviceNode, to_document
from kubeletplugin.cdi.validate import Invalid, problems
from tests.support.driver_root import device_numbers, make_driver_root

CTK = Path("/usr/bin/nvidia-ctk")
LIBCUDA = "/usr/lib64/libcuda.so.580.105.08"
NET_DEVICE = {"netDevices": [{"hostInterfaceName": "a", "name": "b"}]}


def a_gpu(minor: int) -> Gpu:
    return Gpu(Place(PciAddress(0, 0x10 + minor, 0, 0)), f"GPU-{minor}", minor=minor)


ONE, TWO = a_gpu(0), a_gpu(1)
MACHINE = Machine(gpus=(ONE, TWO), driver=Driver("580.105.08"))


def printed(*gpus: tuple[str, int], **more: Any) -> str:
    """What the tool says of GPUs by UUID and minor, with its roots at /driver-root and /driver-root/host-dev."""
    document = {
        "cdiVersion": "0.5.0",
        "kind": "lanewise.dev/gpu",
        "devices": [
            {
                "name": uuid,
                "containerEdits": {
                    "deviceNodes": [{"path": f"/dev/nvidia{minor}", "hostPath": f"/driver-root/host-dev/dev/nvidia{minor}"}]
                },
            }
            for uuid, minor in gpus
        ],
        "containerEdits": {
            "env": ["NVIDIA_VISIBLE_DEVICES=void"],
            "deviceNodes": [{"path": "/dev/nvidiactl", "hostPath": "/driver-root/host-dev/dev/nvidiactl"}],
            "mounts": [
                {"hostPath": f"/driver-root{LIBCUDA}", "containerPath": LIBCUDA},
                {"hostPath": "/run/nvidia-persistenced/socket", "containerPath": "/run/nvidia-persistenced/socket"},
            ],
            "hooks": [{"hookName": "createContainer", "path": "/usr/bin/nvidia-cdi-hook", "args": ["nvidia-cdi-hook", "x"]}],
        },
        **more,
    }  # fmt: skip
    return json.dumps(document)


BOTH = Ran(0, printed(("GPU-0", 0), ("GPU-1", 1)), "level=info")


class Tool:
    """nvidia-ctk as it is told to be."""

    def __init__(self, answer: Ran | OSError = BOTH) -> None:
        self.answer = answer
        self.asked: list[Sequence[str]] = []

    def __call__(self, argv: Sequence[str]) -> Ran:
        self.asked.append(argv)
        if isinstance(self.answer, OSError):
            raise self.answer
        return self.answer


def a_content(tool: Tool, driver: Path = Path("/driver-root"), nodes: dict[str, tuple[int, int]] | None = None):
    places = Places(driver=Root(driver, Path("/run/nvidia/driver")), dev=Root(Path("/driver-root/host-dev"), Path("/")))
    return CtkContent(CTK, places, run=tool, stat_of=device_numbers(nodes or {}))


def test_tool_is_asked_once_for_all_gpus():
    """A claim of eight GPUs waits as long as one of one; with the roots as we see them."""
    tool = Tool()
    content = a_content(tool)
    for gpu in MACHINE.gpus:
        assert [node.path for node in content.device(MACHINE, gpu).device_nodes] == [f"/dev/nvidia{gpu.minor}"]
    content.common(MACHINE)
    assert tool.asked == [
        (
            "/usr/bin/nvidia-ctk",
            "cdi",
            "generate",
            "--format=json",
            "--vendor=lanewise.dev",
            "--class=gpu",
            "--device-id=GPU-0",
            "--device-id=GPU-1",
            "--device-name-strategy=uuid",
            "--no-all-device",
            "--driver-root=/driver-root",
            "--dev-root=/driver-root/host-dev",
            "--nvidia-cdi-hook-path=/usr/bin/nvidia-cdi-hook",
        )
    ]


def test_driver_root_in_a_hook_becomes_the_hosts():
    """That hook runs on the host, and would look for NVML where only the plugin sees it."""
    document = json.loads(printed(("GPU-0", 0)))
    args = ["nvidia-cdi-hook", "apply-cuda-memory-limits", "--driver-root", "/driver-root", "--gpu-id", "GPU-0"]
    hook = {"hookName": "createRuntime", "path": "/usr/bin/nvidia-cdi-hook", "args": args}
    document["devices"][0]["containerEdits"]["hooks"] = [hook]
    (made,) = a_content(Tool(Ran(0, json.dumps(document), ""))).device(MACHINE, ONE).hooks
    assert made.args == (*args[:3], "/run/nvidia/driver", *args[4:])


def test_link_in_dev_is_one_of_the_container():
    """The tool writes it with the root that it was given for /dev."""
    document = json.loads(printed(("GPU-0", 0)))
    link = "../card0::{}/dev/dri/by-path/pci-0000:65:00.0-card"
    words = ["--link", link.format("/driver-root/host-dev"), "--link", "libcuda.so.1::/usr/lib64/libcuda.so"]
    hook = {"hookName": "createContainer", "path": "/hook", "args": ["nvidia-cdi-hook", "create-symlinks", *words]}
    document["devices"][0]["containerEdits"]["hooks"] = [hook]
    (made,) = a_content(Tool(Ran(0, json.dumps(document), ""))).device(MACHINE, ONE).hooks
    assert made.args[2:] == ("--link", link.format(""), "--link", "libcuda.so.1::/usr/lib64/libcuda.so")


def test_paths_become_the_hosts():
    """The runtime does not see the plugin's mounts; what lies outside both roots stays."""
    content = a_content(Tool())
    assert content.device(MACHINE, ONE).device_nodes == (DeviceNode("/dev/nvidia0"),)
    common = content.common(MACHINE)
    assert common.device_nodes == (DeviceNode("/dev/nvidiactl"),)
    assert [mount.host_path for mount in common.mounts] == [
        "/run/nvidia/driver/usr/lib64/libcuda.so.580.105.08",
        "/run/nvidia-persistenced/socket",
    ]
    assert [hook.path for hook in common.hooks] == ["/usr/bin/nvidia-cdi-hook"]


def test_claim_is_a_valid_document():
    """With our names around the tool's edits."""
    devices = [ClaimDevice("gpu-10-00-0", ONE), ClaimDevice("gpu-11-00-0", TWO)]
    document = to_document(claim_spec("gpu.lanewise.dev", "u1", devices, MACHINE, a_content(Tool())))
    assert problems(document) == ()
    assert document["kind"] == "gpu.lanewise.dev/claim"
    assert [device["name"] for device in document["devices"]] == ["u1-gpu-10-00-0", "u1-gpu-11-00-0"]


def test_tool_is_asked_again_only_when_something_changed(tmp_path: Path):
    """Case F4: a changed driver root, a new control node, and another driver version; nothing else."""
    driver = make_driver_root(tmp_path / "driver")
    tool, nodes = Tool(), {"nvidiactl": (195, 255)}
    content = CtkContent(
        CTK,
        Places(driver=Root.same(driver), dev=Root.same(tmp_path)),
        run=tool,
        stat_of=device_numbers(nodes),
    )
    for _ in range(3):
        content.device(MACHINE, ONE)
        content.common(MACHINE)
    assert len(tool.asked) == 1
    driver.rename(tmp_path / "old")
    make_driver_root(driver)
    content.device(MACHINE, ONE)
    assert len(tool.asked) == 2
    nodes["nvidia-uvm"] = (505, 0)
    content.device(MACHINE, ONE)
    assert len(tool.asked) == 3
    content.device(Machine(gpus=MACHINE.gpus, driver=Driver("590.10.01")), ONE)
    assert len(tool.asked) == 4


def test_failure_carries_the_tools_last_line():
    """And is not remembered: the next prepare asks again."""
    tool = Tool()
    tool.answer = Ran(1, "", 'level=info msg=x\nlevel=error msg="device not found"\n')
    content = a_content(tool)
    with pytest.raises(Refused) as refused:
        content.device(MACHINE, ONE)
    assert refused.value.reason.what == (
        '/usr/bin/nvidia-ctk cdi generate: exit code 1: level=error msg="device not found"'
    )
    tool.answer = BOTH
    assert content.device(MACHINE, ONE)


def test_gpu_that_the_tool_leaves_out_is_refused_by_its_name():
    """The others are served, and it is asked for again by the next prepare."""
    tool = Tool(Ran(0, printed(("GPU-1", 1)), ""))
    content = a_content(tool)
    assert content.device(MACHINE, TWO)
    with pytest.raises(Refused) as refused:
        content.device(MACHINE, ONE)
    assert refused.value.reason == GpuNotDescribed("/usr/bin/nvidia-ctk cdi generate", "GPU-0", ("GPU-1",))
    assert content.common(MACHINE).mounts
    tool.answer = BOTH
    assert content.device(MACHINE, ONE)


def test_only_gpus_that_the_driver_has_are_asked_for():
    """One that is lost stops no other; what is known of those that stay is not asked again."""
    tool = Tool()
    content = a_content(tool)
    content.device(MACHINE, TWO)
    content.device(Machine(gpus=(TWO,), driver=MACHINE.driver), TWO)
    assert len(tool.asked) == 1
    a_content(tool).common(Machine(gpus=(TWO,), driver=MACHINE.driver))
    lost = replace(ONE, ailments=(known(LOST, OFF_THE_BUS, "2026-12-01T10:00:00Z"),))
    a_content(tool).common(replace(MACHINE, gpus=(lost, TWO)))
    for words in tool.asked[1:]:
        assert [word for word in words if "GPU-" in word] == ["--device-id=GPU-1"]


@pytest.mark.parametrize(
    ("answer", "says"),
    [
        (Ran(1, "", ""), "exit code 1: it says no more"),
        (FileNotFoundError(2, "No such file or directory"), "No such file or directory"),
        (TimeoutError("no end after 20 s"), "no end after 20 s"),
        (Ran(0, "", ""), "it printed no JSON"),
        (Ran(0, "cdiVersion: 0.5.0", ""), "it printed no JSON"),
        (Ran(0, "[" * 100_000, ""), "it printed no JSON"),
        (Ran(0, printed(("GPU-9", 0)), ""), "it describes GPU-9, not GPU-0"),
        (Ran(0, printed(("GPU-0", 7)), ""), "GPU-0 does not have /dev/nvidia0, the node of this GPU"),
        (Ran(0, printed(("GPU-0", 0), containerEdits=NET_DEVICE, cdiVersion="1.1.0"), ""), "netDevices is nothing a GPU needs"),
    ],
)  # fmt: skip
def test_nothing_to_use_is_told(answer: Ran | OSError, says: str):
    """With the command to try by hand. Case F5 among them: another GPU's node."""
    with pytest.raises(Refused) as refused:
        a_content(Tool(answer)).device(MACHINE, ONE)
    assert refused.value.reason.what.startswith(f"/usr/bin/nvidia-ctk cdi generate: {says}")
    assert "--cdi-mode=builtin" in refused.value.reason.remedy


def test_invalid_output_is_told_fault_by_fault():
    """Case F3: the tool's device without edits is not passed on."""
    text = printed(("GPU-0", 0), devices=[{"name": "GPU-0", "containerEdits": {}}], gpus=1)
    with pytest.raises(Refused) as refused:
        a_content(Tool(Ran(0, text, ""))).device(MACHINE, ONE)
    assert isinstance(refused.value.reason, Invalid)
    assert [problem.path for problem in refused.value.reason.problems] == ["devices[0].containerEdits", "gpus"]


def test_machine_without_gpus_has_nobody_to_ask_about():
    """No empty file out of it."""
    with pytest.raises(Refused, match="the machine has no GPU to ask it about"):
        a_content(Tool()).common(Machine())


def test_program_is_run_and_its_words_kept():
    """With no shell and nothing on its input."""
    assert run_program(["/bin/sh", "-c", "cat; echo out; echo err >&2; exit 3"]) == Ran(3, "out\n", "err\n")
    with pytest.raises(FileNotFoundError):
        run_program(["/nonexistent/nvidia-ctk"])


def test_program_without_end_is_stopped(monkeypatch: pytest.MonkeyPatch):
    """A hanging driver hangs its tools."""
    monkeypatch.setattr("kubeletplugin.cdi.ctk.TIMEOUT_SECONDS", 0.05)
    with pytest.raises(TimeoutError, match="no end after"):
        run_program(["/bin/sleep", "60"])


def test_program_that_does_not_die_is_not_waited_for(monkeypatch: pytest.MonkeyPatch):
    """A tool that hangs in the driver takes no signal, and the kubelet waits for 45 s altogether."""
    monkeypatch.setattr("kubeletplugin.cdi.ctk.TIMEOUT_SECONDS", 0.05)
    monkeypatch.setattr("kubeletplugin.cdi.ctk._KILL_SECONDS", 0.05)
    started, kill = [], subprocess.Popen.kill

    def not_killed(process: subprocess.Popen) -> None:
        started.append(process)

    monkeypatch.setattr(subprocess.Popen, "kill", not_killed)
    try:
        with pytest.raises(TimeoutError, match="no end after"):
            run_program(["/bin/sleep", "60"])
    finally:
        for process in started:
            kill(process)
            process.wait(10)
