"""The whole plugin on a simulated machine whose GPUs fall ill: what the API server and the kubelet see."""

import queue
import tempfile
from pathlib import Path

import pynvml
import pytest
from structlog.testing import capture_logs

from api.hardware import Driver
from cli.sandbox.kubelet import Registry
from kubeletplugin.discovery.simulated import render
from tests.support.controlled_cluster import a_client, a_town
from tests.support.fake_nvml import installed, library_like
from tests.support.machines import TWO_GPUS, a_machine
from tests.support.plugin_site import DRIVER, FIRST, NODE, SECOND, Site, until

LOST = TWO_GPUS.replace("- {pci: 0000:53:00.0, numa: 0}", "- {pci: 0000:53:00.0, numa: 0, health: {lost: true}}")

ONE_GPU = "\n".join(line for line in TWO_GPUS.splitlines() if "0000:64:00.0" not in line)


@pytest.fixture(autouse=True)
def _quiet():
    """Logs are kept off the terminal."""
    with capture_logs():
        yield


@pytest.fixture
def site():
    with (
        tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as base,
        a_town() as town,
        a_client(town.api, "plugin") as client,
        Registry(Path(base) / "reg") as kubelet,
    ):
        made = Site(Path(base), town, client, kubelet)  # it makes the folder that the kubelet looks at
        yield made
        for plugin in made.started:
            plugin.stop()


def ready(site):
    """Looks at health only when it is poked; plain files for device nodes, so that no test needs CAP_MKNOD."""
    return site.ready(health_seconds=3600, machine_nodes="plain")


def become(site, plugin, text):
    """The machine file says so from now on, and the plugin looks."""
    site.machine.write_text(text)
    plugin._watch.poke()


def health(site, device=FIRST):
    """The newest that the kubelet was told of the device; waits for the next report."""
    report = site.kubelet.plugin(DRIVER).stream.report(timeout=10)
    return next(((d.health, d.message) for d in report.devices if d.device.device_name == device), None)


def awaited(site, wanted, device=FIRST):
    while (found := health(site, device)) is None or found[0] != wanted:
        pass
    return found[1]


def ailments(site):
    return {gpu.minor: [(a.kind, a.code) for a in gpu.ailments] for gpu in site.inventory().machine.gpus}


def test_a_gpu_falls_off_the_bus_and_is_back(site):
    """The inventory keeps it with what ails it, the kubelet hears at once, its claim's owner too; new claims are refused."""
    plugin = ready(site)
    claim, late = site.claim("train", FIRST), site.claim("late", FIRST)
    assert awaited(site, 1) == ""
    assert site.prepare(claim).error == ""
    become(site, plugin, LOST)
    site.town.wait(lambda: ailments(site) == {0: [("lost", "off-the-bus")], 1: []})
    assert awaited(site, 2).startswith("the GPU has fallen off the bus, since 20")
    site.town.wait(lambda: [event["reason"] for event in site.events()] == ["DeviceLost"])
    assert site.inventory().machine.left_out == ()
    assert site.unprepare(claim).error == ""
    assert f"{FIRST} on {NODE} is lost since" in site.prepare(late).error
    become(site, plugin, TWO_GPUS)
    site.town.wait(lambda: ailments(site) == {0: [], 1: []})
    assert awaited(site, 1) == ""
    assert site.prepare(late).error == ""


def test_a_restart_keeps_what_ails_and_since_when(site):
    """Case J3: the new process tells the same, from its first inventory on, and tells the claim's owner nothing twice."""
    plugin = ready(site)
    site.prepare(site.claim("train", FIRST))
    become(site, plugin, LOST)
    site.town.wait(lambda: ailments(site)[0] == [("lost", "off-the-bus")])
    site.town.wait(lambda: len(site.events()) == 1)
    before = site.inventory().machine
    site.stop(plugin)
    site.kubelet.close()
    site.machine.write_text(LOST.replace("580.105.08", "580.105.09"))
    again = ready(site)
    site.town.wait(lambda: site.inventory().machine.driver.version == "580.105.09")
    assert site.inventory().machine.gpus == before.gpus
    assert again._claims.restore().lost == 1
    assert len(site.events()) == 1


def test_a_gpu_that_was_never_there_is_left_out(site):
    """As before: nobody has a claim on it, and its place is told."""
    site.machine.write_text(LOST)
    ready(site)
    found = site.inventory().machine
    assert [gpu.minor for gpu in found.gpus] == [1]
    assert [(item.what, item.why) for item in found.left_out] == [("0000:53:00.0", "NVML: GPU is lost")]


def test_a_machine_file_that_breaks_makes_health_unknown_in_time(site):
    """Nobody looks any more, so nobody is told that all is well."""
    plugin = ready(site)
    assert awaited(site, 1, SECOND) == ""
    plugin._health._fresh = -1.0
    plugin._sockets.devices_changed()
    assert awaited(site, 0, SECOND).startswith("nobody has looked at it for")


def test_the_only_gpu_of_a_real_node_falls_off_the_bus(site):
    """Through pynvml: an Xid 79, then a library that lists no GPU; the inventory still has it, and it comes back."""
    root = site.base / "hardware"
    render(a_machine(ONE_GPU), root, nodes="plain")
    library = library_like(a_machine(ONE_GPU).gpus, Driver("580.105.08", "13.0"))
    whole, events = list(library.gpus), queue.Queue()

    def wait(milliseconds):
        try:
            return events.get(timeout=milliseconds / 1000)
        except queue.Empty:
            return pynvml.NVML_ERROR_TIMEOUT

    library.on_wait = wait
    with installed(library):
        plugin = site.ready(
            machine=None,
            driver_root=Path("/"),
            cdi_mode="builtin",
            sysfs_root=root / "sys",
            proc_root=root / "proc",
            health_seconds=1,
        )
        assert awaited(site, 1) == ""
        library.gpus.clear()
        events.put((0, 79))
        site.town.wait(lambda: ailments(site) == {0: [("lost", "off-the-bus")]})
        assert "fallen off the bus" in awaited(site, 2)
        library.gpus.extend(whole)
        site.town.wait(lambda: ailments(site) == {0: []})
        assert awaited(site, 1) == ""
        site.stop(plugin)
    assert library.open == 0


def test_the_stop_ends_the_watch(site):
    """Promptly, though its next look is an hour away."""
    plugin = ready(site)
    until(plugin._watch._thread.is_alive)
    site.stop(plugin)
    assert not plugin._watch._thread.is_alive()
