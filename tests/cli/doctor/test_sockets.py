"""Sockets of ours in the kubelet's directory, asked as the kubelet would."""

from dataclasses import replace
from pathlib import Path

import pytest

from api.refusals import BadInput
from cli.doctor import sockets
from cli.doctor.mounts import Mount, find, mount_of
from cli.doctor.sockets import Sockets
from kubeletplugin.sockets.probe import NoAnswer
from tests.support.diagnosis import lines, trouble
from tests.support.plugin_sockets import DRIVER

REGISTRY, PLUGIN = Path("/reg"), Path("/plug")
WELL = Sockets(
    registry_dir=REGISTRY,
    registry_is_there=True,
    plugin_dir=PLUGIN,
    plugin_mount=Mount("/", "ext4", read_only=False),
    too_long=None,
    answers=((f"{DRIVER}-reg.sock", None),),
)


def look(node):
    return sockets.look(DRIVER, node.registry, node.plugin_dir, Path("/proc"))


def test_a_node_that_is_well():
    """Sockets answer, records are on a disk."""
    assert lines(sockets.judge(WELL)) == [
        f"ok sockets: {DRIVER}-reg.sock answers as the kubelet needs it",
        "ok records: /plug is on ext4",
    ]


@pytest.mark.parametrize(
    ("seen", "said"),
    [
        (
            replace(WELL, registry_is_there=False, answers=()),
            "failure sockets: /reg is not there: no kubelet looks for plugins in it",
        ),
        (replace(WELL, answers=()), "failure sockets: no plugin of ours has a socket in /reg"),
        (
            replace(WELL, answers=(("x", NoAnswer(REGISTRY / "x", "UNAVAILABLE: refused")),)),
            "failure sockets: /reg/x does not answer: UNAVAILABLE: refused",
        ),
        (
            replace(WELL, plugin_mount=Mount("/run", "tmpfs", read_only=False)),
            "failure records: /plug is on tmpfs: the records of prepared claims do not survive a reboot",
        ),
        (
            replace(WELL, too_long=BadInput("--plugin-dir", "too long", "use a shorter one")),
            "failure sockets: --plugin-dir: too long",
        ),
    ],
)
def test_each_thing_that_can_be_wrong(seen, said):
    """One finding."""
    assert trouble(sockets.judge(seen)) == [said]


def test_a_live_plugin_is_asked(node):
    """Through both its sockets; two instances in a rolling update both are (Case H4)."""
    uids = [f"{digit * 8}-{digit * 4}-4{digit * 3}-8{digit * 3}-{digit * 12}" for digit in "12"]
    for uid in uids:
        node.plugin(pod_uid=uid).start()
    seen = look(node)
    assert seen.answers == tuple((f"{DRIVER}-{uid}-reg.sock", None) for uid in uids)


def test_a_dead_plugins_sockets_do_not_answer(node):
    """They are there, and nobody listens."""
    node.plugin().start()
    node.paths().dra.unlink()
    ((name, reason),) = look(node).answers
    assert name == f"{DRIVER}-reg.sock"
    assert reason.path == node.paths().dra


def test_a_path_that_is_too_long_is_found_before_the_plugin_starts(node):
    """Case H6: with the flag to change."""
    long = node.registry.parent / ("x" * 80)
    seen = sockets.look(DRIVER, node.registry, long, Path("/proc"))
    assert seen.too_long.source == "--plugin-dir"


def test_other_drivers_sockets_are_none_of_ours(node):
    """Only names of our form are asked."""
    (node.registry / "gpu.nvidia.com-reg.sock").touch()
    assert look(node).answers == ()


MOUNTINFO = """\
22 1 8:1 / / rw,relatime shared:1 - ext4 /dev/sda1 rw
30 22 0:25 / /run rw,nosuid - tmpfs tmpfs rw,size=1000k
31 22 0:26 / /var/lib/a\\040b ro,relatime - xfs /dev/sdb1 rw
32 30 0:27 / /run/cdi rw - tmpfs tmpfs ro
33 22 0:28 / /srv/ä\\040b rw - tmpfs tmpfs rw
34 22 0:29 / /srv/c\\134x rw - btrfs x rw
garbage
"""


@pytest.mark.parametrize(
    ("path", "kind", "read_only"),
    [
        ("/etc", "ext4", False),
        ("/run", "tmpfs", False),
        ("/running", "ext4", False),
        ("/var/lib/a b/c", "xfs", True),
        ("/run/cdi", "tmpfs", True),
        ("/srv/ä b", "tmpfs", False),
        ("/srv/c\\x", "btrfs", False),
    ],
)
def test_the_mount_of_a_directory_is_the_nearest(path, kind, read_only):
    """By whole components, with escaped blanks, read-only by the mount or by the file system."""
    found = mount_of(Path(path), MOUNTINFO)
    assert (found.kind, found.read_only) == (kind, read_only)


def test_this_machines_mounts_can_be_read(tmp_path):
    """And where there is no procfs nothing is known."""
    assert find(tmp_path, Path("/proc")) is not None
    assert find(tmp_path, tmp_path) is None
