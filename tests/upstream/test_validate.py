"""What we write to the API server, and what we tell people to write, before the API server's own code."""

import copy
from dataclasses import replace
from pathlib import Path

import pytest
import yaml

from api.health import KINDS, MEANINGS, Ailment
from api.inventory import Instance, Owner, encode_instance, encode_spec
from controller.plan import Create, Update, adoption, plan
from controller.pool import devices_of
from controller.slices import slices_of
from controller.taints import EFFECTS, taints_of
from kubeletplugin.discovery.simulated import SimulatedSource
from tests.support.gpus import a_machine
from tests.support.machines import ALL, HGX_H100
from tests.upstream.judge import Judge

ROOT = Path(__file__).parents[2]
DRIVER = "gpu.lanewise.dev"
OWNER = Owner("node-a", "0b5fa1a3-6c5c-4f0c-9a53-6f0f5d0f4a11")
SINCE = "2026-12-01T10:00:00Z"
AILMENTS = tuple(Ailment(kind, "x", SINCE, "it is broken", "mend it") for kind in KINDS)
CRD = yaml.safe_load((ROOT / "deploy/crds/nodeinventories.yaml").read_text())
KINDS_HERE = ("Pod", "Deployment", "DaemonSet", "Job", "ResourceClaim", "ResourceClaimTemplate", "DeviceClass")
MANIFESTS = [
    pytest.param(document, id=f"{path.parent.name}-{document['kind']}-{document['metadata']['name']}")
    for path in sorted([*(ROOT / "deploy").rglob("*.yaml"), *(ROOT / "examples").rglob("*.yaml")])
    for document in yaml.safe_load_all(path.read_text())
    if document and document.get("kind") in KINDS_HERE
]


@pytest.fixture(scope="module")
def judge(built):
    with Judge(built("validate")) as running:
        yield running


def assert_taken(told):
    """Without a word, and without dropping a field."""
    assert (told["unreadable"], told["faults"], told["unknown"]) == ("", [], None)


def desired(machine, effect: str | None = None):
    """The specs that the controller wants for a machine; with an effect, each GPU has one of every ailment there is."""
    devices = devices_of(machine).devices
    if effect is None:
        return slices_of(devices, node="node-a", driver=DRIVER)
    ailing = [replace(device, ailments=AILMENTS) for device in devices]
    effects = dict.fromkeys(KINDS, effect)
    return slices_of(ailing, node="node-a", driver=DRIVER, taints=lambda device: taints_of(device, effects))


def publish(judge, specs, existing=()):
    """What the server stores when the controller's writes are sent, after each was taken as it is."""
    stored = list(existing)
    for write in plan(specs, existing, OWNER, {}):
        assert isinstance(write, Create | Update)
        obj = copy.deepcopy(write.obj)
        if isinstance(write, Create):
            told = judge.ask({"object": obj})
        else:
            told = judge.ask({"object": obj, "old": stored[write.index]})
        assert_taken(told)
        # Else the next pass would write it again, and so for ever.
        assert adoption(obj["spec"], told["stored"]["spec"]) is None
        assert adoption(told["stored"]["spec"], obj["spec"]) is None
        stored[write.index : write.index + 1] = [told["stored"]]
    for obj in stored:  # the storage's part
        obj["metadata"]["resourceVersion"] = "1"
    return stored


@pytest.mark.parametrize("file", ALL, ids=lambda path: path.stem)
def test_slices_of_every_machine_are_taken_as_they_are(file: Path, judge, tmp_path: Path):
    """Published, tainted in place with every effect and every ailment, and clean again."""
    machine = SimulatedSource(file, tmp_path / "machine", "node-a", nodes="plain").discover()
    stored = publish(judge, desired(machine))
    assert stored or not machine.gpus
    for effect in EFFECTS:
        stored = publish(judge, desired(machine, effect), stored)
    stored = publish(judge, desired(machine), stored)
    assert plan(desired(machine), stored, OWNER, {}) == ()


@pytest.mark.parametrize("count", [64, 65, 256])
def test_slices_of_many_gpus_are_taken(count: int, judge):
    """Also when every one of them gets taints, which halves what a slice may hold (Case I3)."""
    stored = publish(judge, desired(a_machine(count)))
    assert len(stored) == -(-count // 64)
    publish(judge, desired(a_machine(count), "NoSchedule"), stored)


def test_every_taint_of_the_table_is_taken(judge):
    """Kinds and codes that NVML or an Xid can lead to are a label's name and value."""
    machine = a_machine(1)
    (device,) = devices_of(machine).devices
    for meaning in MEANINGS:
        ailing = replace(device, ailments=(Ailment(meaning.kind, meaning.code, SINCE, "a", "b"),))
        specs = slices_of([ailing], node="node-a", driver=DRIVER, taints=lambda one: taints_of(one, {}))
        publish(judge, specs)


@pytest.mark.parametrize("document", MANIFESTS)
def test_manifests_are_taken(document, judge):
    """Workloads, claims, templates and classes of deploy/ and examples/, with no field that is not there."""
    document = yaml.safe_load(yaml.safe_dump(document).replace("nodeName: NODE", "nodeName: node-a"))
    if document["kind"] != "DeviceClass":
        document["metadata"].setdefault("namespace", "default")
    assert_taken(judge.ask({"object": document}))


def test_the_definition_is_taken(judge):
    """Of NodeInventory."""
    assert_taken(judge.ask({"crd": CRD}))


@pytest.mark.parametrize("file", ALL, ids=lambda path: path.stem)
def test_inventories_are_taken(file: Path, judge, tmp_path: Path):
    """Every machine's, with an instance in its status, and stored as they were sent."""
    machine = SimulatedSource(file, tmp_path / "machine", "node-a", nodes="plain").discover()
    instance = Instance("i1", True, "lanewise-node-i1", "0.1.0", SINCE, SINCE)
    obj = {**encode_spec(OWNER, machine), "status": encode_instance("node-a", instance)["status"]}
    told = judge.ask({"object": obj, "crd": CRD})
    assert_taken(told)
    assert told["stored"]["spec"] == obj["spec"]


def spoil(obj, path: str, value):
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place = obj = copy.deepcopy(obj)
    for part in parents:
        place = place[part]
    place[last] = value
    return obj


def a_slice(tmp_path: Path):
    machine = SimulatedSource(HGX_H100, tmp_path / "machine", "node-a", nodes="plain").discover()
    (write,) = plan(desired(machine), (), OWNER, {})
    return write.obj


@pytest.mark.parametrize(
    ("path", "value"),
    [
        ("spec.devices.0.name", "GPU_0"),
        ("spec.devices.0.attributes.driverVersion", {"version": "580.105.08"}),
        ("spec.devices.0.attributes.uuid", {"string": "x" * 65}),
        ("spec.devices.0.taints", [{"key": "lanewise.dev/x", "effect": "Never"}]),
        ("spec.pool.resourceSliceCount", 0),
        ("spec.nodeName", ""),
        ("spec.devices", [{"name": "gpu-0"}, {"name": "gpu-0"}]),
        ("spec.devices", [{"name": f"gpu-{number}"} for number in range(129)]),
    ],
)
def test_bad_slices_are_refused(path: str, value, judge, tmp_path: Path):
    """A judge that never refuses proves nothing; each fault is told with its place."""
    told = judge.ask({"object": spoil(a_slice(tmp_path), path, value)})
    assert told["faults"]
    assert all(fault["field"].startswith("spec") for fault in told["faults"])


def test_unknown_fields_are_told(judge, tmp_path: Path):
    """A field that the server would drop without a word."""
    told = judge.ask({"object": spoil(a_slice(tmp_path), "spec.devices.0.colour", "red")})
    assert told["unknown"] == ['unknown field "spec.devices[0].colour"']


def test_bad_manifests_and_inventories_are_refused(judge, tmp_path: Path):
    """The same for the other kinds of question."""
    for document in (param.values[0] for param in MANIFESTS if param.values[0]["kind"] == "ResourceClaimTemplate"):
        (request, *_) = document["spec"]["spec"]["devices"]["requests"]
        bad = {**document, "metadata": {**document["metadata"], "namespace": "default"}}
        bad = spoil(bad, "spec.spec.devices.requests", [request, request])
        assert judge.ask({"object": bad})["faults"]
    machine = SimulatedSource(HGX_H100, tmp_path / "machine", "node-a", nodes="plain").discover()
    obj = encode_spec(OWNER, machine)
    assert judge.ask({"object": spoil(obj, "spec.gpus.0.uuid", 7), "crd": CRD})["faults"]
    assert judge.ask({"object": spoil(obj, "spec.gpus.0.colour", "red"), "crd": CRD})["unknown"]
    assert judge.ask({"crd": spoil(CRD, "spec.scope", "Galaxy")})["faults"]
