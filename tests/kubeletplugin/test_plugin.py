"""The whole plugin on a simulated machine, between an API server and a stand-in for the kubelet."""

import errno
import json
import tempfile
import threading
from dataclasses import replace
from pathlib import Path

import grpc
import pynvml
import pytest
from structlog.testing import capture_logs

from api.refusals import Refused
from cli.sandbox.kubelet import Registry
from kubeletplugin import plugin as plugin_module
from kubeletplugin.claims.prepare import Claims
from kubeletplugin.claims.store import Store
from kubeletplugin.discovery.simulated import render
from kubeletplugin.plugin import Plugin
from tests.support.controlled_cluster import SECONDS, a_client, a_town
from tests.support.fake_nvml import FakeGpu, FakeNvml, installed
from tests.support.machines import TWO_GPUS, a_machine
from tests.support.plugin_site import DRIVER, FIRST, NEW, NODE, OLD, POOL, SECOND, Site, until


@pytest.fixture(autouse=True)
def _quick(monkeypatch):
    """Sockets looked at often; logs kept off the terminal."""
    monkeypatch.setattr(plugin_module, "SOCKET_CHECK_SECONDS", 0.05)
    with capture_logs():
        yield


@pytest.fixture
def site():
    """Below /tmp, because a socket path has 107 bytes."""
    with (
        tempfile.TemporaryDirectory(prefix="lw-", dir="/tmp") as base,
        a_town() as town,
        a_client(town.api, "plugin") as client,
    ):
        (Path(base) / "reg").mkdir(exist_ok=True)
        with Registry(Path(base) / "reg") as kubelet:
            (Path(base) / "reg").rmdir()
            made = Site(Path(base), town, client, kubelet)
            yield made
            for plugin in made.started:
                plugin.stop()


def test_it_registers_and_reports(site):
    """What is found is in the inventory, the kubelet's hold in its entry, and a Lease is there."""
    plugin = site.plugin()
    assert plugin.why_not_live() is None
    assert plugin.restart_wanted is None
    site.town.wait(lambda: len(site.leases()) == 1)
    (registered,) = site.kubelet.scan()
    assert registered.driver == DRIVER
    assert "v1.DRAPlugin" in registered.supported_versions
    site.town.wait(lambda: list(site.entries().values()) == [True])
    found = site.inventory()
    assert [gpu.uuid for gpu in found.machine.gpus] == [gpu.uuid for gpu in plugin._discovery.current.gpus]
    assert found.machine.simulated
    assert found.node_uid == site.owner.uid
    told = registered.stream.report()
    while not told.devices:  # a stream opened before the first look at the hardware begins with no device
        told = registered.stream.report()
    assert sorted(item.device.device_name for item in told.devices) == [FIRST, SECOND]


def test_a_claim_goes_through(site):
    """Prepared: record, hold and a CDI file that names the GPU. Released: nothing is left."""
    site.ready()
    claim = site.claim("train", SECOND)
    answer = site.prepare(claim)
    assert answer.error == ""
    (device,) = answer.devices
    assert (device.pool_name, device.device_name, list(device.request_names)) == (POOL, SECOND, ["gpu"])
    (file,) = site.cdi_files()
    document = json.loads(file.read_text())
    (entry,) = document["devices"]
    assert [f"{document['kind']}={entry['name']}"] == list(device.cdi_device_ids)
    uuid = next(gpu.uuid for gpu in site.inventory().machine.gpus if gpu.minor == 1)
    assert uuid in json.dumps(entry["containerEdits"]["env"])
    assert "/dev/nvidia1" in json.dumps(entry["containerEdits"])
    assert "/dev/nvidia0" not in json.dumps(document)
    assert site.records() == [claim[2]]
    assert site.unprepare(claim).error == ""
    assert (site.cdi_files(), site.records()) == ([], [])
    assert site.unprepare(claim).error == ""


def test_a_refusal_is_an_event_on_the_claim(site):
    """In words that a user can act on; for the kubelet it is this claim's answer, not a failed call."""
    site.ready()
    first, second = site.claim("train", FIRST), site.claim("serve", FIRST)
    assert site.prepare(first).error == ""
    answer = site.prepare(second)
    assert answer.error.startswith(f"claim team-a/serve: {FIRST} on {NODE} is still held by claim team-a/train")
    site.town.wait(lambda: len(site.events()) == 1)
    (event,) = site.events()
    assert (event["regarding"]["name"], event["regarding"]["uid"]) == ("serve", second[2])
    assert (event["type"], event["reason"], event["action"]) == ("Warning", "Held", "Prepare")
    assert event["note"].startswith(f"claim team-a/serve: {FIRST} on {NODE} is still held by claim team-a/train; ")
    assert site.records() == [first[2]]
    site.unprepare(first)
    assert site.prepare(second).error == ""


def test_a_refusal_is_an_event_on_the_pods_too(site):
    """Who describes the pod sees why it does not start, once, and how often it was tried."""
    site.ready()
    first, second = site.claim("train", FIRST), site.claim("serve", FIRST, pods=("serve-0", "serve-1"))
    assert site.prepare(first).error == ""
    for _ in range(3):
        assert "still held" in site.prepare(second).error

    def told():
        return {(e["regarding"]["kind"], e["regarding"]["name"]): e for e in site.events()}

    site.town.wait(lambda: len(told()) == 3 and all("series" in event for event in told().values()))
    assert set(told()) == {("ResourceClaim", "serve"), ("Pod", "serve-0"), ("Pod", "serve-1")}
    assert len(site.events()) == 3
    for event in told().values():
        assert (event["type"], event["reason"], event["action"]) == ("Warning", "Held", "Prepare")
        assert event["note"].endswith("to see who keeps it: kubectl -n team-a describe resourceclaim train")
    pod = told()["Pod", "serve-0"]["regarding"]
    assert pod == {"apiVersion": "v1", "kind": "Pod", "namespace": "team-a", "name": "serve-0", "uid": "uid-of-serve-0"}


def test_while_the_api_server_does_not_answer_nobody_knows_the_pods(site):
    """They are in the claim, which could not be read: the claim alone is told, when that is possible again."""
    site.ready()
    claim = site.claim("train", FIRST, pods=("train-0",))
    site.town.api.faults.fail(500, times=1, method="GET", path="/apis/resource.k8s.io")
    assert "could not be read" in site.prepare(claim).error
    site.town.wait(lambda: len(site.events()) == 1)
    (event,) = site.events()
    assert (event["reason"], event["regarding"]["kind"]) == ("Silent", "ResourceClaim")


def test_a_mistake_of_ours_is_an_event_too(site, monkeypatch):
    """Nobody reads the plugin's log while a pod does not start and nothing says why."""
    site.ready()
    claim = site.claim("train", FIRST, pods=("train-0",))
    monkeypatch.setattr("kubeletplugin.claims.prepare.record_of", lambda *_, **__: {}["gone"])
    assert "internal error" in site.prepare(claim).error
    site.town.wait(lambda: len(site.events()) == 2)
    for event in site.events():
        assert event["reason"] == "Defect"
        assert f"internal error of the plugin on {NODE}: KeyError: 'gone'; the kubelet tries again" in event["note"]


def test_it_can_be_looked_at(site):
    """What metrics are made of: hardware, claims, and how it stands with kubelet and API server."""
    plugin = site.ready()
    claim = site.claim("train", FIRST)
    site.prepare(claim)
    seen = plugin.seen()
    assert (len(seen.machine.gpus), seen.registered, seen.why_not_ready) == (2, True, None)
    assert [record.claim.uid for record in seen.records] == [claim[2]]
    assert 0 <= seen.report_age_seconds < SECONDS
    site.unprepare(claim)
    assert plugin.seen().records == ()


def test_a_claim_made_anew_under_its_name_is_not_taken_for_the_old(site):
    """The UID counts."""
    site.ready()
    old = site.claim("train", FIRST)
    site.town.api.store.remove("resourceclaims", "train", "team-a")
    new = site.claim("train", FIRST)
    assert "created anew" in site.prepare(old).error
    assert site.prepare(new).error == ""


def test_a_claim_without_a_name_is_refused_in_words(site):
    """No traceback, and no question to the API server that would be about a collection."""
    site.ready()
    for nameless in (("", "train", "u1"), ("team-a", "", "u1")):
        assert "came without a namespace or a name" in site.prepare(nameless).error
        assert site.unprepare(nameless).error == ""


def test_an_answer_that_is_no_claim_is_a_refusal(site):
    """Something else than an API server, or one that let anything in: the pod waits, and is told why."""
    site.ready()
    claim = site.claim("train", FIRST)
    odd = site.town.api.store.get("resourceclaims", "train", "team-a")
    odd["status"]["allocation"]["devices"]["results"] = [{}]
    site.town.api.store.put(odd)
    assert "is no ResourceClaim as Kubernetes has them" in site.prepare(claim).error
    assert site.unprepare(claim).error == ""


def test_another_drivers_failure_leaves_us_consistent(site):
    """Case H8: we prepared, the NIC driver fails for a week. Each retry of ours is the same answer, and whether the release
    comes at the end, or not until the claim is gone, nothing is left."""
    site.ready()
    claim = site.claim("train", FIRST)
    first = site.prepare(claim)
    before = (site.records(), [path.read_bytes() for path in site.cdi_files()])
    for _ in range(5):
        assert site.prepare(claim) == first
    assert (site.records(), [path.read_bytes() for path in site.cdi_files()]) == before
    site.town.api.store.remove("resourceclaims", "train", "team-a")  # the pod was deleted, and the claim with it
    assert site.unprepare(claim).error == ""
    assert (site.records(), site.cdi_files()) == ([], [])
    assert site.prepare(site.claim("next", FIRST)).error == ""


def test_stop_leaves_claims_and_takes_sockets_and_marks(site):
    """SIGTERM: running pods keep what they have, the kubelet forgets us, and our own entry and Lease are gone."""
    plugin = site.ready()
    claim = site.claim("train", FIRST)
    site.prepare(claim)
    files = {path: path.read_bytes() for path in site.cdi_files()}
    site.stop(plugin)
    assert site.sockets() == []
    assert site.records() == [claim[2]]
    assert {path: path.read_bytes() for path in site.cdi_files()} == files
    assert site.entries() == {}
    assert site.leases() == []
    assert len(site.inventory().machine.gpus) == 2


def test_the_next_start_knows_what_the_last_one_prepared(site):
    """Case G13: what was prepared is on disk below --plugin-dir and nowhere else; a start says what it found there."""
    plugin = site.ready()
    claim = site.claim("train", FIRST)
    answer = site.prepare(claim)
    site.kill(plugin)
    site.cdi_files()[0].unlink()
    with capture_logs() as logs:
        site.ready()
    (found,) = [entry for entry in logs if entry["event"] == "claims found"]
    assert found["summary"].startswith("1 claims recorded")
    until(lambda: len(site.cdi_files()) == 1)
    assert "is still held by claim team-a/train" in site.prepare(site.claim("serve", FIRST)).error
    assert site.prepare(claim) == answer
    assert site.unprepare(claim).error == ""


def test_records_on_another_path_are_not_known(site):
    """Case G13, the other half: state in memory or on a directory that was lost is no evidence, and is not pretended."""
    plugin = site.ready()
    site.prepare(site.claim("train", FIRST))
    site.stop(plugin)
    site.kubelet.scan()
    with capture_logs() as logs:
        site.ready(plugin_dir=site.base / "other")
    (found,) = [entry for entry in logs if entry["event"] == "claims found"]
    assert found["summary"].startswith("0 claims recorded")


@pytest.mark.parametrize("which", ["reg", "plug"])
def test_a_removed_socket_is_made_anew(site, which):
    """Somebody cleaned up; the kubelet forgot us, and is told of us again."""
    plugin = site.ready()
    (path,) = (site.base / which).glob("*.sock")
    inode = path.stat().st_ino
    path.rename(site.base / "away")  # renamed, so that its inode is not used again at once
    site.kubelet.scan()
    until(lambda: path.exists() and path.stat().st_ino != inode)
    site.kubelet.close()
    until(site.kubelet.scan)  # the registration socket comes after the other
    until(lambda: plugin.why_not_ready() is None)
    assert site.prepare(site.claim("train", FIRST)).error == ""


def test_a_kubelet_that_goes_is_reported(site):
    """Its health stream ends with it; the inventory says so at once, and again when it is back."""
    site.ready()
    site.kubelet.close()
    site.town.wait(lambda: list(site.entries().values()) == [False])
    site.kubelet.scan()
    site.town.wait(lambda: list(site.entries().values()) == [True])


def test_a_rolling_update_hands_over(site):
    """Two pods beside each other: the new one gets the calls, the old one's end takes nothing away that is in use."""
    old = site.ready(pod_uid=OLD)
    claim = site.claim("train", FIRST)
    answer = site.prepare(claim)
    site.plugin(pod_uid=NEW)
    site.kubelet.scan()
    site.town.wait(lambda: site.entries() == {OLD: True, NEW: True})
    site.stop(old)
    site.kubelet.scan()
    assert site.entries() == {NEW: True}
    assert site.leases() == [f"lanewise-node-{NEW}"]
    assert site.prepare(claim) == answer
    assert site.unprepare(claim).error == ""
    assert site.records() == []


def test_without_an_api_server_releases_work_and_prepares_are_retried(site):
    """A release needs no API; a prepare says that the API server does not answer, and works when it does."""
    site.ready()
    first, second = site.claim("train", FIRST), site.claim("serve", FIRST)
    site.prepare(first)
    with site.town.api.outage():
        assert site.unprepare(first).error == ""
        assert "could not be read from the API server" in site.prepare(second).error
    assert site.prepare(second).error == ""


def test_it_starts_without_an_api_server(site):
    """The node comes up before the control plane does: sockets first, the report when somebody hears it."""
    with site.town.api.outage():
        plugin = site.plugin()
        site.kubelet.scan()
        until(lambda: "connection refused" in (plugin.why_not_ready() or ""))
    until(lambda: plugin.why_not_ready() is None, seconds=20)
    site.town.wait(lambda: list(site.entries().values()) == [True])


def test_hardware_that_is_not_there_yet_is_said_in_the_inventory(site):
    """A machine file still to come, as a driver that is being installed: the inventory says why, and is put right later."""
    settings = site.settings()
    text = site.machine.read_text()
    site.machine.unlink()
    plugin = Plugin(settings, site.client, version="0.1.0")
    plugin.start()
    site.started.append(plugin)
    site.kubelet.scan()
    site.town.wait(lambda: site.inventory() is not None)
    (left_out,) = site.inventory().machine.left_out
    assert left_out.what == "driver"
    assert str(site.machine) in left_out.why
    assert "No such file" in plugin.why_not_ready()
    claim = site.claim("train", FIRST)
    assert f"the GPUs of {NODE} are not known yet" in site.prepare(claim).error
    site.machine.write_text(text)
    plugin._discovery.poke()
    site.town.wait(lambda: len(site.inventory().machine.gpus) == 2)
    assert site.inventory().machine.left_out == ()
    assert site.prepare(claim).error == ""


def test_a_driver_that_is_not_there_is_said_in_the_inventory(site):
    """On a real machine without NVIDIA's driver."""
    settings = replace(
        site.settings(), machine=None, driver_root=site.base, host_driver_root=site.base, cdi_mode="builtin"
    )
    plugin = Plugin(settings, site.client, version="0.1.0")
    plugin.start()
    site.started.append(plugin)
    site.town.wait(lambda: site.inventory() is not None)
    (left_out,) = site.inventory().machine.left_out
    assert left_out.what == "driver"
    assert left_out.why.startswith(f"no NVIDIA driver below {site.base}: ")
    assert "--driver-root" in left_out.why


def test_changed_hardware_changes_the_inventory_without_a_restart(site):
    """One GPU was taken out: lost in this boot, and no part of another machine; pods that have it are told with the next
    comparison, the inventory now."""
    plugin = site.ready()
    one = "\n".join(line for line in TWO_GPUS.splitlines() if "0000:64:00.0" not in line)
    site.machine.write_text(one)
    plugin._discovery.poke()
    site.town.wait(lambda: [gpu.lost is not None for gpu in site.inventory().machine.gpus] == [False, True])
    site.machine.write_text(one.replace("name: two", "name: one"))
    plugin._discovery.poke()
    site.town.wait(lambda: len(site.inventory().machine.gpus) == 1)
    site.machine.write_text("gpus: 5")
    plugin._discovery.poke()
    until(lambda: plugin._discovery.why is not None)
    assert len(site.inventory().machine.gpus) == 1, "a file that breaks takes nothing from the pods that run"


def test_garbage_among_the_records_hinders_nobody(site):
    """Each odd file is set aside or left alone, and said; the rest works (issue 3, bad input)."""
    plugin = site.ready()
    claim = site.claim("train", FIRST)
    answer = site.prepare(claim)
    site.stop(plugin)
    site.kubelet.scan()
    room = site.base / "plug"
    bad = {
        "empty.json": b"",
        "0b6d2f5e-3333-4a3c-9a55-3c1b6a8e7d11.json": b"\xff\x00\xfe",
        "list.json": b"[]",
        "not a uid!.json": b"{}",
        "notes.txt": b"hello",
    }
    for name, content in bad.items():
        (room / "claims" / name).write_bytes(content)
        (room / "devices" / name).write_bytes(content)
        (room / "released" / name).write_bytes(content)
        (room / name).write_bytes(content)
    (room / "claims" / "folder.json").mkdir()
    (room / "devices" / "gpu-64-00-0").symlink_to("nobody")
    with capture_logs() as logs:
        site.ready()
    assert {entry["event"] for entry in logs if entry["log_level"] == "error"} == {
        "damaged record found",
        "record set aside",
    }
    kept = {path.read_bytes() for path in (room / "quarantine").iterdir() if path.is_file()}
    assert {b"", b"\xff\x00\xfe", b"[]"} <= kept
    assert site.prepare(claim) == answer
    assert site.prepare(site.claim("serve", SECOND)).error == ""
    assert site.unprepare(claim).error == ""


def test_garbage_among_the_cdi_files_hinders_nobody(site):
    """Files of ours that say nothing are made anew or removed; other people's are not touched (issue 3, bad input)."""
    plugin = site.ready()
    claim = site.claim("train", FIRST)
    answer = site.prepare(claim)
    (ours,) = site.cdi_files()
    good = ours.read_bytes()
    site.stop(plugin)
    site.kubelet.scan()
    ours.write_bytes(b"\x00\xff")
    stray = ours.with_name(ours.name.replace(claim[2], "0b6d2f5e-5555-4a3c-9a55-3c1b6a8e7d11"))
    stray.write_bytes(b"[")
    foreign = site.base / "cdi/nvidia.yaml"
    foreign.write_bytes(b"not: [even YAML")
    (site.base / "cdi/folder.json").mkdir()
    site.ready()
    assert site.prepare(claim) == answer
    assert ours.read_bytes() == good
    assert foreign.read_bytes() == b"not: [even YAML"
    until(lambda: not stray.exists())
    assert site.unprepare(claim).error == ""
    assert not ours.exists()


@pytest.mark.parametrize(
    ("setting", "make"),
    [
        ("cdi_dir", lambda path: path.write_text("a file")),
        ("plugin_dir", lambda path: path.write_text("a file")),
        ("registry_dir", lambda path: None),
    ],
)
def test_a_directory_that_cannot_be_used_is_refused_with_its_path(site, setting, make):
    """One sentence, before anything runs."""
    path = site.base / "unfit"
    make(path)
    with pytest.raises(Refused) as refused:
        Plugin(site.settings(**{setting: path}), site.client, version="0.1.0").start()
    assert str(path) in refused.value.reason.what
    assert refused.value.reason.remedy


def test_calls_of_no_claims_and_of_unknown_ones(site):
    """The kubelet may ask for nothing, or for what was never there."""
    site.ready()
    plugin = site.kubelet.plugin(DRIVER)
    assert len(plugin.prepare([]).claims) == 0
    gone = ("team-a", "gone", "0b6d2f5e-4444-4a3c-9a55-3c1b6a8e7d11")
    assert "it exists no more" in plugin.prepare([gone]).claims[gone[2]].error
    assert plugin.unprepare([gone]).claims[gone[2]].error == ""
    with pytest.raises(grpc.RpcError):
        plugin.channel.unary_unary("/v9.DRAPlugin/NodePrepareResources")(b"", timeout=5)


MISMATCH = {"nvmlInitWithFlags": pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH}


def on_real_hardware(site, **options) -> Plugin:
    """A plugin that asks NVML, not started yet."""
    root = site.base / "hardware"
    render(a_machine(), root, nodes="plain")
    changes = {"machine": None, "cdi_mode": "builtin", "sysfs_root": root / "sys", "proc_root": root / "proc"}
    return Plugin(replace(site.settings(), **changes), site.client, version="0.1.0", **options)


def test_a_driver_changed_under_the_plugin_ends_it(site):
    """The library that the process has loaded no longer fits the kernel module: only a new process can load the new one."""
    library = FakeNvml([FakeGpu()])
    ended = threading.Event()
    with installed(library):
        plugin = on_real_hardware(site, ended=ended)
        plugin.start()
        site.started.append(plugin)
        until(lambda: plugin._discovery.current is not None)
        assert (plugin.why_not_live(), ended.is_set()) == (None, False)
        library.errors = {"nvmlInitWithFlags": pynvml.NVML_ERROR_UNKNOWN}
        plugin._discovery.poke()
        until(lambda: plugin._discovery.why is not None)
        assert plugin.why_not_live() is None, "what a restart does not change is not answered with one"
        library.errors = MISMATCH
        plugin._discovery.poke()
        assert ended.wait(SECONDS)
        assert (
            plugin.why_not_live() == plugin.restart_wanted == "nvmlInit: RM has detected an NVML/RM version mismatch."
        )
        site.stop(plugin)
    assert site.sockets() == []


def test_a_mismatch_found_at_the_start_is_given_a_minute(site):
    """A new process may meet the same one: restarts that change nothing are no loop."""
    now, ended = [100.0], threading.Event()
    with installed(FakeNvml(errors=MISMATCH)):
        plugin = on_real_hardware(site, ended=ended, clock=lambda: now[0])
        plugin.start()
        site.started.append(plugin)
        until(lambda: plugin._discovery.why is not None)
        now[0] += 59
        plugin._look_for_an_end()
        assert (plugin.why_not_live(), plugin.restart_wanted, ended.is_set()) == (None, None, False)
        now[0] += 2
        assert plugin.why_not_live() is not None
        assert ended.wait(SECONDS)
        site.stop(plugin)


def test_cdi_files_are_renewed_while_the_api_server_does_not_answer(site, monkeypatch):
    """New hardware must not wait for a comparison that waits for an API server."""
    asking, answer = threading.Event(), threading.Event()

    def compare(_):
        asking.set()
        answer.wait(SECONDS)
        return 0

    monkeypatch.setattr(Claims, "compare", compare)
    plugin = site.ready()
    try:
        assert asking.wait(SECONDS)
        claim = site.claim("train", FIRST)
        site.prepare(claim)
        (file,) = site.cdi_files()
        file.unlink()
        plugin._found(plugin._discovery.current)
        until(lambda: site.cdi_files() == [file])
    finally:
        answer.set()


def test_a_refused_release_is_told_as_one(site, monkeypatch):
    """`kubectl describe` of a claim that cannot be released does not speak of a prepare."""
    site.ready()
    claim = site.claim("train", FIRST)
    site.prepare(claim)

    def broken(store, uid):
        raise OSError(errno.EIO, "Input/output error", str(store.record_path(uid)))

    with monkeypatch.context() as patch:
        patch.setattr(Store, "remove", broken)
        assert "Input/output error" in site.unprepare(claim).error
    site.town.wait(lambda: len(site.events()) == 1)
    (event,) = site.events()
    assert (event["reason"], event["action"]) == ("DiskTrouble", "Unprepare")
    assert site.unprepare(claim).error == ""
