"""Our own CDI content beside that of the real nvidia-ctk, for one driver and one machine; and the real hooks run by it."""

import json
import os
import subprocess
from dataclasses import replace
from pathlib import Path

import pytest

from api.refusals import Refused
from kubeletplugin.cdi.builtin import BuiltinContent, Places
from kubeletplugin.cdi.content import ClaimDevice, choose, claim_spec
from kubeletplugin.cdi.ctk import CtkContent, GpuNotDescribed, run_program
from kubeletplugin.cdi.files import CdiFiles
from kubeletplugin.cdi.naming import cdi_id
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import Edits
from kubeletplugin.discovery.simulated import SimulatedSource
from kubeletplugin.disk import LocalDisk
from tests.fakenvml.driver import make_full_driver
from tests.fakenvml.library import Says, installed, told
from tests.support.machines import HGX_H100
from tests.upstream.judge import Judge

DRIVER = "gpu.lanewise.dev"
HOST = Path("/run/nvidia/driver")
GRAPHICS = "for screens, EGL and Vulkan: built-in content is for computing; nvidia-ctk has it all"
THEIRS_ONLY = {
    "mount /etc/vulkan/": GRAPHICS,
    "mount /usr/share/egl/": GRAPHICS,
    "mount /usr/share/glvnd/": GRAPHICS,
    "mount /usr/share/nvidia/nvoptix.bin": GRAPHICS,
    "mount /usr/lib/x86_64-linux-gnu/libnvidia-egl-gbm.so": GRAPHICS,
    "link /usr/lib/x86_64-linux-gnu/gbm/nvidia-drm_gbm.so": GRAPHICS,
    "hook createContainer update-application-profile": GRAPHICS,
    "link /dev/dri/by-path/": "names of graphics nodes, which is what udev makes on a host",
    "hook createRuntime apply-cuda-memory-limits": "lets the image's environment set limits; older hooks have no such command",
}
"""What nvidia-ctk gives a container and built-in content does not, with the reason. Nothing is the other way round."""


@pytest.fixture(scope="module")
def world(built, tmp_path_factory):
    """A machine of eight GPUs, one of them with graphics nodes, and a full driver, as the plugin sees them in its container."""
    if os.geteuid() != 0:
        pytest.skip("device nodes are made by root only")
    return World(tmp_path_factory.mktemp("world"), built("nvidia-ctk"))


class World:
    def __init__(self, folder: Path, program: Path) -> None:
        self.folder, self.program = folder, program
        self.machine = SimulatedSource(HGX_H100, folder / "machine", "node-a", nodes="devices").discover()
        dev = folder / "machine/dev"
        for name, number in (("nvidia-modeset", (195, 254)), ("dri/card1", (226, 1)), ("dri/renderD128", (226, 128))):
            (dev / name).parent.mkdir(exist_ok=True)
            os.mknod(dev / name, 0o666 | 0o020000, os.makedev(*number))
            (dev / name).chmod(0o666)
        address = str(self.machine.gpus[0].place.address)
        (dev / "dri/by-path").mkdir()
        (dev / f"dri/by-path/pci-{address}-card").symlink_to("../card1")
        (dev / f"dri/by-path/pci-{address}-render").symlink_to("../renderD128")
        for name in ("card1", "renderD128"):
            (folder / f"sys/bus/pci/devices/{address}/drm/{name}").mkdir(parents=True)
        self.version = self.machine.driver.version
        self.driver = make_full_driver(folder / "driver", self.version)
        self.nvml = installed(self.driver, self.version, told(self.machine.gpus, self.machine.driver))
        hook = folder / "host/usr/bin/nvidia-cdi-hook"
        hook.parent.mkdir(parents=True)
        hook.write_text("")

    def places(self) -> Places:
        return Places(
            driver=Root(self.driver, HOST),
            dev=Root(self.folder / "machine", Path("/")),
            sys=self.folder / "sys",
            host=Root(self.folder / "host", Path("/")),
        )

    def theirs(self) -> CtkContent:
        """The tool reads /sys, wherever its other roots are: it runs where our machine's is in its place."""
        enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c"]
        enter += [f'mount --bind {self.folder}/sys/bus/pci/devices /sys/bus/pci/devices && exec "$@"', "sh"]
        return CtkContent(self.program, self.places(), run=lambda argv: run_program([*enter, *argv]))

    def ours(self) -> BuiltinContent:
        return BuiltinContent(self.places())


def facts(edits: Edits) -> set[str]:
    """What edits do to a container, as lines; the same whoever wrote them and in whichever order.

    Left out, for they differ throughout: the type of a node, which says no more than its numbers; its mode, which a runtime
    reads from the host; and permissions, of which ours lack the m that would let a container make nodes.
    """
    links: dict[str, str] = {}
    said = {f"env {item}" for item in edits.env} | {f"group {gid}" for gid in edits.additional_gids}
    said |= {
        f"node {node.path} from {node.host_path or node.path} {node.major or 0}:{node.minor or 0}"
        for node in edits.device_nodes
    }
    said |= {f"mount {item.container_path} from {item.host_path} {sorted(item.options)}" for item in edits.mounts}
    for hook in edits.hooks:
        command, words = hook.args[1], hook.args[2:]
        if command == "create-symlinks":
            pairs = (word.split("::") for word in words[1::2])
            links |= {path: os.path.normpath(Path(path).parent / target) for target, path in pairs}
        else:
            said.add(f"hook {hook.name} {command} {' '.join(words)} by {hook.path} {hook.env}")
    return said | {f"link {path} to {_end(path, links)}" for path in links}


def _end(path: str, links: dict[str, str]) -> str:
    return _end(links[path], links) if path in links else path


def assert_same(ours: Edits, theirs: Edits, unseen: set[str]) -> None:
    mine, other = facts(ours), facts(theirs)
    assert mine - other == set(), "only built-in content has this"
    for fact in other - mine:
        reasons = {start for start in THEIRS_ONLY if fact.startswith(start)}
        assert reasons, f"only nvidia-ctk has this: {fact}"
        unseen -= reasons


def test_built_in_content_is_that_of_nvidia_ctk(world: World):
    """Environment, nodes, mounts, links and hooks, for all GPUs; and where it is less, the reason is known."""
    unseen = set(THEIRS_ONLY)
    ours, theirs = world.ours(), world.theirs()
    assert_same(ours.common(world.machine), theirs.common(world.machine), unseen)
    for gpu in world.machine.gpus:
        assert_same(ours.device(world.machine, gpu), theirs.device(world.machine, gpu), unseen)
    assert unseen == set(), "these differences are gone"


def test_comparison_sees_what_is_missing(world: World):
    """It could fail: a mount, a link, a hook, a node or a variable less shows, and so does one more."""
    theirs = world.theirs().common(world.machine)
    for name in ("env", "device_nodes", "mounts", "hooks"):
        fewer = replace(theirs, **{name: getattr(theirs, name)[1:]})
        assert facts(fewer) < facts(theirs), name
        with pytest.raises(AssertionError, match="only"):
            assert_same(theirs, fewer, set())


def test_the_tools_content_is_chosen_and_injected(world: World, built, tmp_path: Path):
    """Through the whole of our path for it: found on the host, asked, validated, written, and read by a runtime's library."""
    content = choose("auto", world.places(), which=lambda _: str(world.program))
    assert isinstance(content, CtkContent)
    folder = tmp_path / "cdi"
    devices = [ClaimDevice(f"gpu-{number}", gpu) for number, gpu in enumerate(world.machine.gpus)]
    spec = claim_spec(DRIVER, "uid-1", devices, world.machine, content)
    CdiFiles(folder, DRIVER, LocalDisk()).write("uid-1", spec)
    ids = [cdi_id(DRIVER, "uid-1", device.name) for device in devices]
    with Judge(built("cdi")) as judge:
        read = judge.ask({"dir": str(folder), "inject": []})
    assert (read["errors"], sorted(read["devices"])) == ({}, sorted(ids))
    # Of paths that the plugin sees none is left: a runtime sees those of the host.
    assert str(world.folder) not in next(folder.glob("*.json")).read_text()


def test_lost_gpu_takes_no_other_with_it(world: World):
    """NVML fails for one of the eight: the others are described, and the lost one is refused by name."""
    lost, *others = world.machine.gpus
    says = {lost.uuid: Says(errors={"*": 15})}
    world.nvml.say(told(world.machine.gpus, world.machine.driver, says))
    try:
        machine = replace(world.machine, gpus=tuple(others))
        content = world.theirs()
        assert content.device(machine, others[0]).device_nodes[0].path == f"/dev/nvidia{others[0].minor}"
        with pytest.raises(Refused) as refused:
            content.device(machine, lost)
        assert isinstance(refused.value.reason, GpuNotDescribed)
        with pytest.raises(Refused, match="exit code 1"):
            world.theirs().common(world.machine)  # which asks about all eight
    finally:
        world.nvml.say(told(world.machine.gpus, world.machine.driver))


def test_hooks_of_built_in_content_run(world: World, built, tmp_path: Path):
    """The real nvidia-cdi-hook does what we ask it for: links and a cache are in the container's root, and it ends well."""
    common = world.ours().common(world.machine)
    bundle = a_bundle(tmp_path, common, world.driver)
    for hook in common.hooks:
        run_in(bundle, [built("nvidia-cdi-hook"), *hook.args[1:]])
    rootfs = bundle / "rootfs"
    directory = rootfs / "usr/lib/x86_64-linux-gnu"
    assert str((directory / "libcuda.so.1").readlink()) == f"libcuda.so.{world.version}"
    assert (directory / "libcuda.so").resolve().name == f"libcuda.so.{world.version}"
    cache = (rootfs / "etc/ld.so.cache").read_bytes()
    assert b"libcuda.so.1\0" in cache
    assert b"libvdpau_nvidia.so.1\0" in cache


def a_bundle(folder: Path, common: Edits, driver: Path) -> Path:
    """An OCI bundle whose root has the libraries where the mounts would put them."""
    rootfs = folder / "bundle/rootfs"
    for name in ("etc", "dev", "proc", "sys"):
        (rootfs / name).mkdir(parents=True)
    for mount in common.mounts:
        if ".so." in mount.container_path:
            target = rootfs / mount.container_path.lstrip("/")
            target.parent.mkdir(parents=True, exist_ok=True)
            target.write_bytes((driver / Path(mount.host_path).relative_to(HOST)).read_bytes())
    (folder / "bundle/config.json").write_text(json.dumps({"ociVersion": "1.0.2", "root": {"path": "rootfs"}}))
    return folder / "bundle"


def run_in(bundle: Path, command: list[str | Path]) -> None:
    """As a runtime runs a createContainer hook: the container's root is a mount, and the state comes on standard input."""
    state = {"ociVersion": "1.0.2", "id": "x", "status": "created", "pid": os.getpid(), "bundle": str(bundle)}
    enter = ["unshare", "--mount", "--propagation", "private", "sh", "-c", 'mount --bind "$0" "$0" && exec "$@"']
    ended = subprocess.run(
        [*enter, bundle / "rootfs", *command], input=json.dumps(state), capture_output=True, text=True
    )
    assert ended.returncode == 0, f"{command}: {ended.stderr}"
