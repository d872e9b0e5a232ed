"""The CustomResourceDefinitions fit what our programs write."""

import copy
from pathlib import Path
from typing import Any

import pytest
import yaml

from api.hardware import LeftOut, Machine
from api.health import AILMENTS_MAX, MEANINGS, known, nvml_error, of_xid
from api.inventory import Instance, Owner, decode, encode_instance, encode_spec
from cli.sandbox.apiserver.schema import faults, pruned
from controller.conditions import status_of
from controller.decide import Decision
from controller.liveness import Alive
from kubeletplugin.discovery.machinefile import read
from tests.support.gpus import a_gpu, a_machine
from tests.support.machines import ALL, EXAMPLES

CRD = yaml.safe_load((Path(__file__).parents[2] / "deploy/crds/nodeinventories.yaml").read_text())
(VERSION,) = CRD["spec"]["versions"]
SCHEMA = VERSION["schema"]["openAPIV3Schema"]
OWNER = Owner("node-a", "uid-1")


def the_machine(path: Path) -> Machine:
    found = read(path, node="node-a")
    return Machine(
        found.gpus, found.nics, found.driver, "boot-1", (LeftOut("0000:00:1f.0", "it is no GPU"),), simulated=True
    )


def complete(obj: dict[str, Any]) -> dict[str, Any]:
    """With a status as plugin and controller write it."""
    instance = Instance("i1", True, "lanewise-node-i1", "0.1.0", "2026-11-30T10:00:00Z", "2026-11-30T10:00:01Z")
    status = encode_instance("node-a", instance)["status"]
    decision = Decision((), published=True, reason="Published", message="8 GPUs published", health=Alive(1, 1))
    ours = status_of(obj, decision, slices=1, left_out=0, dropped=(), now="2026-11-30T10:00:02Z")
    assert ours is not None
    return {**obj, "status": {**status, **ours["status"]}}


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_every_example_machine_fits_the_schema(path):
    """Nothing is refused, nothing is pruned, and what is read back is the same machine."""
    machine = the_machine(path)
    obj = complete(encode_spec(OWNER, machine))
    assert faults(obj, SCHEMA) == []
    kept, unknown = pruned(obj, SCHEMA)
    assert unknown == []
    assert kept == obj
    assert decode(kept).machine == machine


def test_every_ailment_fits_the_schema():
    """Whatever NVML or an Xid can tell, up to sixteen things of one GPU."""
    since = "2026-12-01T10:00:00Z"
    told = [known(meaning.kind, meaning.code, since) for meaning in MEANINGS]
    told += [ailment for number in (48, 119, 4711) if (ailment := of_xid(number, since)) is not None]
    told.append(nvml_error("unknown-error", "Unknown Error", since))
    for start in range(0, len(told), AILMENTS_MAX):
        machine = a_machine(1, gpus=(a_gpu(ailments=tuple(told[start : start + AILMENTS_MAX])),))
        obj = complete(encode_spec(OWNER, machine))
        assert faults(obj, SCHEMA) == []
        assert pruned(obj, SCHEMA) == (obj, [])
        assert decode(obj).machine == machine
    more = encode_spec(OWNER, a_machine(1, gpus=(a_gpu(ailments=tuple(told)),)))
    assert len(more["spec"]["gpus"][0]["ailments"]) == AILMENTS_MAX


def test_the_schema_is_structural():
    """Every part has a type, or Kubernetes takes none of it (apiextensions, structural schemas)."""

    def untyped(schema, at):
        found = [] if "type" in schema else [at]
        for name, part in schema.get("properties", {}).items():
            found += untyped(part, f"{at}.{name}")
        if "items" in schema:
            found += untyped(schema["items"], f"{at}[]")
        return found

    assert untyped(SCHEMA, "") == []


@pytest.mark.parametrize(
    ("field", "value"), [("pciAddress", "65:00.0"), ("pciAddress", "0000:65:20.0"), ("numaNode", -1), ("uuid", None)]
)
def test_what_the_controller_could_not_read_is_refused(field, value):
    """A hand-written inventory is stopped at the door."""
    obj = encode_spec(OWNER, a_machine(1))
    obj["spec"]["gpus"][0][field] = value
    assert faults(obj, SCHEMA) != []


def test_columns_point_at_what_is_there():
    """kubectl get nodeinventories is worth reading: no column is empty on a published node."""
    obj: Any = complete(encode_spec(OWNER, the_machine(EXAMPLES / "hgx-h100.yaml")))
    obj["metadata"]["creationTimestamp"] = "2026-11-30T10:00:00Z"
    shown = {
        column["name"]: look_up(copy.deepcopy(obj), column["jsonPath"])
        for column in VERSION["additionalPrinterColumns"]
    }
    assert shown == {
        "GPUs": 8,
        "Published": 0,
        "Ailing": 0,
        "Registered": "True",
        "Product": "NVIDIA H100 80GB HBM3",
        "Driver": shown["Driver"],
        "Reason": "Published",
        "Age": "2026-11-30T10:00:00Z",
        "Message": "8 GPUs published",
    }
    assert shown["Driver"]


def look_up(obj, path):
    """The JSONPath of our columns: names, and one filter by type."""
    before, _, rest = path.partition("[?(@.type==")
    for name in before.strip(".").split("."):
        obj = obj[name]
    if rest:
        wanted, _, field = rest.partition(")].")
        (item,) = [item for item in obj if item["type"] == wanted.strip('"')]
        return item[field]
    return obj


def test_several_products_are_counted():
    """One column for a mixed workstation."""
    spec = encode_spec(OWNER, the_machine(EXAMPLES / "mixed-workstation.yaml"))["spec"]
    assert " x " in spec["summary"]["product"]
    assert spec["summary"]["gpus"] == len(spec["gpus"])
