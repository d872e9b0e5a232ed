"""CDI names turned into what a container sees."""

import pytest

from cli.sandbox.kubelet.containers import NotResolved, view
from kubeletplugin.cdi.spec import CdiDevice, DeviceNode, Edits, Hook, Mount, Spec, encode, to_document


def _write(path, kind="v.d/claim", common=None, **devices):
    spec = Spec(kind, tuple(CdiDevice(name, edits) for name, edits in devices.items()), common or Edits())
    path.parent.mkdir(exist_ok=True)
    path.write_bytes(encode(to_document(spec)))


def test_edits_of_a_file_come_once_and_first(tmp_path):
    """Then those of its devices, in the order of the names."""
    hook = Hook("createContainer", "/bin/x", ("x",))
    mount = Mount("/lib/a", "/usr/lib/a", ("ro",))
    common = Edits(env=("ALL=1",), mounts=(mount,), hooks=(hook,))
    node = DeviceNode("/dev/a", host_path="/host/a")
    _write(tmp_path / "f.json", common=common, a=Edits(env=("A=1",), device_nodes=(node,)), b=Edits(env=("B=1",)))
    seen = view("main", ["v.d/claim=b", "v.d/claim=a", "v.d/claim=b"], [tmp_path])
    assert seen.cdi_names == ("v.d/claim=b", "v.d/claim=a")
    assert seen.edits == Edits(("ALL=1", "B=1", "A=1"), (node,), (mount,), (hook,))


def test_later_directory_wins(tmp_path):
    """As /var/run/cdi over /etc/cdi."""
    for folder in ("etc", "run"):
        _write(tmp_path / folder / "f.json", a=Edits(env=(f"FROM={folder}",)))
    assert view("main", ["v.d/claim=a"], [tmp_path / "etc", tmp_path / "run"]).edits.env == ("FROM=run",)


def test_unknown_names_are_all_told(tmp_path):
    """Together with the files that are no good, since the names may be in one of them."""
    _write(tmp_path / "f.json", a=Edits(env=("A=1",)))
    (tmp_path / "broken.json").write_text("{")
    with pytest.raises(NotResolved) as error:
        view("main", ["v.d/claim=a", "v.d/claim=b", "w.d/claim=c"], [tmp_path])
    assert "unresolvable CDI devices v.d/claim=b, w.d/claim=c" in str(error.value)
    assert "broken.json" in str(error.value)


def test_container_without_devices_needs_no_files(tmp_path):
    """Nor is it kept by those of others."""
    (tmp_path / "broken.json").write_text("{")
    assert view("main", [], [tmp_path, tmp_path / "none"]).edits == Edits()
