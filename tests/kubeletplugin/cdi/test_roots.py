"""A tree under two names."""

from pathlib import Path

import pytest

from kubeletplugin.cdi.roots import Root


@pytest.fixture
def root(tmp_path: Path) -> Root:
    seen = tmp_path / "driver-root"
    (seen / "usr/lib64").mkdir(parents=True)
    (seen / "usr/lib64/libx.so.1.2").write_text("")
    (seen / "usr/lib64/libx.so.1").symlink_to("libx.so.1.2")
    (seen / "lib64").symlink_to("/usr/lib64")
    (seen / "up").symlink_to("../../../usr/lib64")
    (seen / "loop").symlink_to("loop")
    (seen / "gone").symlink_to("/usr/nothing")
    return Root(seen, Path("/run/nvidia/driver"))


@pytest.mark.parametrize(
    ("path", "resolved"),
    [
        ("/usr/lib64/libx.so.1.2", "/usr/lib64/libx.so.1.2"),
        ("/usr/lib64/libx.so.1", "/usr/lib64/libx.so.1.2"),
        ("/lib64/libx.so.1", "/usr/lib64/libx.so.1.2"),
        ("/up/libx.so.1", "/usr/lib64/libx.so.1.2"),
        ("//usr/./lib64/../lib64/", "/usr/lib64"),
        ("/", "/"),
        ("/loop", None),
        ("/gone", None),
        ("/usr/lib64/libx.so.1/more", None),
        ("/nothing", None),
    ],
)
def test_links_are_followed_inside_the_root(root: Root, path: str, resolved: str | None):
    """Absolute links of a driver container mean its own files, never those around the plugin."""
    assert root.resolve(path) == resolved


def test_a_path_has_two_names(root: Root):
    """One to look at, one to write down."""
    assert root.at("/usr/lib64") == root.seen / "usr/lib64"
    assert root.on_host("/usr/lib64") == "/run/nvidia/driver/usr/lib64"
    assert root.host_path_of(f"{root.seen}/usr/lib64") == "/run/nvidia/driver/usr/lib64"
    assert root.host_path_of("/usr/lib64") is None
    assert root.host_path_of(f"{root.seen}-other/x") is None


def test_root_of_the_host_changes_nothing():
    """The plugin outside a container."""
    root = Root.same(Path("/"))
    assert root.on_host("/dev/nvidia0") == "/dev/nvidia0"
    assert root.host_path_of("/dev/nvidia0") == "/dev/nvidia0"
