"""What we find on a real node, held against nvidia-smi: `make test-gpu` on a machine with an NVIDIA GPU and its driver."""

import subprocess
import time
from pathlib import Path

import pytest

from api.pci import PciAddress
from kubeletplugin.cdi.builtin import BuiltinContent, Places
from kubeletplugin.cdi.content import ClaimDevice, claim_spec
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.spec import to_document
from kubeletplugin.cdi.validate import problems
from kubeletplugin.discovery.nvml import NvmlSource
from kubeletplugin.health.nvml import NvmlProbe

pytestmark = pytest.mark.gpu

QUERY = "uuid,pci.bus_id,name,memory.total,driver_version"


@pytest.fixture(scope="module")
def machine():
    """This machine, as the node plugin finds it."""
    return NvmlSource(Path("/"), Path("/sys"), Path("/proc")).discover()


def test_gpus_are_those_of_nvidia_smi(machine):
    """Same UUIDs, addresses, names, driver; memory to the MiB."""
    command = ["nvidia-smi", f"--query-gpu={QUERY}", "--format=csv,noheader,nounits"]
    rows = [line.split(", ") for line in subprocess.check_output(command, text=True).splitlines()]
    told = {uuid: (PciAddress.parse(bus), name, int(mib), version) for uuid, bus, name, mib, version in rows}
    found = {
        gpu.uuid: (gpu.place.address, gpu.product_name, (gpu.memory_bytes or 0) >> 20, machine.driver.version)
        for gpu in machine.gpus
    }
    assert found == told


def test_builtin_cdi_names_only_what_is_there(machine):
    """The document is valid, has libcuda.so.1, and every host path in it exists."""
    content = BuiltinContent(Places(driver=Root.same(Path("/")), dev=Root.same(Path("/"))))
    devices = [ClaimDevice(f"gpu-{number}", gpu) for number, gpu in enumerate(machine.gpus)]
    uid = "00000000-0000-4000-8000-000000000000"
    document = to_document(claim_spec("gpu.lanewise.dev", uid, devices, machine, content))
    assert problems(document) == ()
    mounts = document["containerEdits"]["mounts"]
    assert (
        any(mount["containerPath"].endswith("/libcuda.so.1") for mount in mounts)
        or "hooks" in document["containerEdits"]
    )
    edits = [document["containerEdits"], *(device["containerEdits"] for device in document["devices"])]
    paths = [mount["hostPath"] for each in edits for mount in each.get("mounts", [])]
    paths += [node.get("hostPath", node["path"]) for each in edits for node in each.get("deviceNodes", [])]
    assert [path for path in paths if not Path(path).exists()] == []


class TwoLooks:
    """A bedside that keeps the looks."""

    def __init__(self, gpus):
        self.all, self.looks = gpus, []

    def gpus(self):
        return self.all

    def looked(self, look):
        self.looks.append(look)

    def leaving(self):
        return len(self.looks) == 2

    def rest(self, seconds):
        pass


def test_every_gpu_tells_how_it_is(machine):
    """Two looks and a wait for Xids between: each GPU answers, what it does not support is None, nothing ails a good one."""
    bedside = TwoLooks(machine.gpus)
    source = NvmlSource(Path("/"), Path("/sys"), Path("/proc"))
    NvmlProbe(source, Path("/sys"), watch_xids=True, clock=time.monotonic).attend(bedside, 2.0)
    for look in bedside.looks:
        assert look.readings.keys() == {gpu.uuid for gpu in machine.gpus}
        for reading in look.readings.values():
            assert (reading.lost, reading.reset_required, reading.error) == (False, False, None)
            assert reading.recovery in {None, 0}
    assert bedside.looks[0].driver_load == bedside.looks[1].driver_load != ""
