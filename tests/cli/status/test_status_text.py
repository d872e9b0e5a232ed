"""What people read, whole, from objects as the API server has them."""

import json
from datetime import UTC, datetime

import pytest

from api.hardware import LeftOut
from api.health import LOST, OFF_THE_BUS, known
from api.names import gpu_device_name
from cli.paper import Paper
from cli.status.document import document
from cli.status.reading import (
    read_class,
    read_inventory,
    read_lease,
    read_node,
    read_pod,
    read_rule,
    read_slice,
    read_status_claim,
)
from cli.status.report import Scope
from cli.status.summary import Snapshot, next_change, summarise
from cli.status.text import text
from tests.support.gpus import a_gpu, a_machine, an_instance, an_inventory
from tests.support.held_devices import DRIVER, a_gpu_class, a_held_claim, a_pod, a_result

NOW = datetime(2026, 12, 1, 12, 0, 0, tzinfo=UTC)
SINCE = "2026-12-01T11:00:00Z"
GPUS = (a_gpu(0x10), a_gpu(0x18), a_gpu(0x20, ailments=(known(LOST, OFF_THE_BUS, SINCE),)))
MACHINE = a_machine(0, gpus=GPUS, left_out=(LeftOut("0000:28:00.0", "no driver bound"),))
LOST_TAINT = {"key": "lanewise.dev/lost", "value": "off-the-bus", "effect": "NoSchedule", "timeAdded": SINCE}


def published(gpus=GPUS, taints=None, node="node-a", generation=1):
    """The slice of a node's GPUs."""
    devices = [
        {
            "name": gpu_device_name(gpu.place.address),
            "attributes": {
                "uuid": {"string": gpu.uuid},
                "productName": {"string": gpu.product_name},
                "resource.kubernetes.io/pciBusID": {"string": str(gpu.place.address)},
            },
            "capacity": {"memory": {"value": "81559Mi"}},
            **({"taints": found} if (found := (taints or {}).get(gpu.place.address.bus)) else {}),
        }
        for gpu in gpus
    ]
    pool = {"name": f"{node}/{DRIVER}", "generation": generation, "resourceSliceCount": 1}
    spec = {"driver": DRIVER, "nodeName": node, "pool": pool, "devices": devices}
    return {"metadata": {"name": f"{node}-{generation}"}, "spec": spec}


def a_node(name="node-a", ready="True", **spec):
    conditions = [{"type": "Ready", "status": ready}]
    return {"metadata": {"name": name, "uid": "n"}, "spec": spec, "status": {"conditions": conditions}}


def inventory(machine=MACHINE, instances=None, message="3 devices in 1 slice", status="True"):
    """A node's inventory with the controller's word on it."""
    obj = an_inventory(machine=machine, instances=instances if instances is not None else (an_instance(),))
    condition = {"type": "Published", "status": status, "reason": "Published", "message": message}
    obj["status"]["conditions"] = [{**condition, "lastTransitionTime": SINCE}]
    return obj


def a_lease(renewed="2026-12-01T11:59:50.000000Z", holder="node-a"):
    return {"metadata": {"name": "lease-i1"}, "spec": {"holderIdentity": holder, "renewTime": renewed}}


def facts(**changes):
    """A node of three GPUs, one of them lost, unless a list of raw objects says otherwise."""
    raw = {
        "slices": [published(taints={0x20: [LOST_TAINT]})],
        "claims": [],
        "pods": [],
        "nodes": [a_node()],
        "inventories": [inventory()],
        "leases": [a_lease()],
        "classes": [a_gpu_class()],
        "rules": [],
        **changes,
    }
    readers = {
        "slices": lambda obj: read_slice(obj, DRIVER),
        "claims": lambda obj: read_status_claim(obj, DRIVER),
        "pods": read_pod,
        "nodes": read_node,
        "inventories": read_inventory,
        "leases": read_lease,
        "classes": lambda obj: read_class(obj, DRIVER),
        "rules": read_rule,
    }
    return Snapshot(**{field: tuple(map(readers[field], found)) for field, found in raw.items()})


def report(scope=Scope(), now=NOW, **changes):  # noqa: B008  # frozen
    return summarise(facts(**changes), driver=DRIVER, scope=scope, now=now)


def shown(*args, width=None, **changes):
    return text(report(*args, **changes), Paper(width))


WHOLE = """\
node-a: 3 GPUs: 1 free, 1 in use, 1 tainted
  driver 580.105.08, CUDA 13.0
  Published: True, 3 devices in 1 slice
  plugin of unknown version, instance i1: registered, Lease fresh

  DEVICE       STATE         NAMESPACE   POD         CONTAINERS  CLAIM  PRODUCT                ADDRESS       UUID
  gpu-10-00-0  in use        team-a      old (Gone)  -           train  NVIDIA H100 80GB HBM3  0000:10:00.0  GPU-00000000-0000-0000-0000-000000000010
  gpu-10-00-0  in use        team-a      p           main        train  NVIDIA H100 80GB HBM3  0000:10:00.0  GPU-00000000-0000-0000-0000-000000000010
  gpu-10-00-0  admin access  monitoring  m           main        watch  NVIDIA H100 80GB HBM3  0000:10:00.0  GPU-00000000-0000-0000-0000-000000000010
  gpu-18-00-0  free          -           -           -           -      NVIDIA H100 80GB HBM3  0000:18:00.0  GPU-00000000-0000-0000-0000-000000000018
  gpu-20-00-0  tainted       -           -           -           -      NVIDIA H100 80GB HBM3  0000:20:00.0  GPU-00000000-0000-0000-0000-000000000020

  gpu-20-00-0: lanewise.dev/lost=off-the-bus:NoSchedule since 2026-12-01T11:00:00Z; the GPU has fallen off the bus, since \
2026-12-01T11:00:00Z; look at the kernel's log; reboot the node, and if it happens again have the card and its slot looked at

  left out: 0000:28:00.0: no driver bound

WAITING
  claim team-a/idle (gpu.lanewise.dev): no pod uses it yet
  claim team-a/more (gpu.lanewise.dev): pod waiter: 0/1 nodes are available: 1 cannot allocate all claims."""  # noqa: E501

STORY = {
    "claims": [
        a_held_claim("train", a_result("gpu-10-00-0"), pods=("p", "old")),
        a_held_claim("watch", a_result("gpu-10-00-0", adminAccess=True), pods=("m",), namespace="monitoring"),
        a_held_claim("more"),
        a_held_claim("idle"),
    ],
    "pods": [
        a_pod("p", {"c": "train"}),
        a_pod("m", {"c": "watch"}, namespace="monitoring"),
        a_pod(
            "waiter",
            {"c": "more"},
            phase="Pending",
            conditions=[
                {
                    "type": "PodScheduled",
                    "status": "False",
                    "reason": "Unschedulable",
                    "message": "0/1 nodes are available: 1 cannot allocate all claims.",
                }
            ],
        ),
    ],
}


def test_the_whole_of_it():
    """Held, shared with a pod that is gone, looked at, free, tainted, left out, waiting."""
    assert shown(**STORY) == WHOLE


def test_a_narrow_terminal_loses_columns_and_says_so():
    """UUID first; sentences are folded, and no line is wider than the terminal."""
    lines = shown(width=100, **STORY).split("\n")
    assert max(map(len, lines)) <= 100
    assert "  DEVICE       STATE         NAMESPACE   POD         CONTAINERS  CLAIM  ADDRESS" in lines
    assert "  (UUID, PRODUCT left out for want of width; -o json has all)" in lines


def test_colours_only_where_paper_has_them():
    """The same text but for the colours."""
    plain = text(report(**STORY), Paper())
    coloured = text(report(**STORY), Paper(None, colours=True))
    assert "\x1b" not in plain
    assert "\x1b[33mgpu-20-00-0" in coloured
    for code in ("\x1b[1m", "\x1b[33m", "\x1b[0m"):
        coloured = coloured.replace(code, "")
    assert coloured == plain


@pytest.mark.parametrize(
    ("changes", "line"),
    [
        ({"nodes": []}, "  there is no Node of this name"),
        ({"nodes": [a_node(ready="False")]}, "  the Node is not ready"),
        ({"nodes": [a_node(ready="Unknown")]}, "  the kubelet is silent"),
        ({"nodes": [a_node(unschedulable=True)]}, "  the Node is cordoned: it gets no new pods"),
        ({"inventories": []}, "  no plugin has reported it: there is no NodeInventory of this name"),
        ({"inventories": [inventory(instances=())]}, "  no plugin instance is there"),
        (
            {"inventories": [inventory(instances=(an_instance(registered=False),))]},
            "  plugin of unknown version, instance i1: not registered, Lease fresh",
        ),
        ({"leases": []}, "  plugin of unknown version, instance i1: registered, no Lease of this node's"),
        (
            {"leases": [a_lease(holder="node-b")]},
            "  plugin of unknown version, instance i1: registered, no Lease of this node's",
        ),
        (
            {"leases": [a_lease("2026-12-01T11:59:19.000000Z")]},
            "  plugin of unknown version, instance i1: registered, Lease silent since 2026-12-01T11:59:19Z",
        ),
        (
            {"inventories": [inventory(status="False", message="no plugin instance is alive")]},
            "  Published: False, no plugin instance is alive",
        ),
        ({"slices": []}, "node-a: 3 GPUs: 3 unpublished"),
        ({"slices": [published(GPUS[:2])]}, "node-a: 3 GPUs: 2 free, 1 unpublished"),
        (
            {"slices": [published(taints={gpu.place.address.bus: [LOST_TAINT] for gpu in GPUS})]},
            "  all devices: lanewise.dev/lost=off-the-bus:NoSchedule since 2026-12-01T11:00:00Z",
        ),
    ],
)
def test_what_is_the_matter_with_a_node_is_said(changes, line):
    """One line for each."""
    assert line in shown(**changes).split("\n")


def test_only_the_newest_generation_of_a_pool_counts():
    """As for the scheduler: what an older slice has is not published."""
    told = report(slices=[published(), published(GPUS[:1], generation=2)])
    assert [device.published for device in told.nodes[0].devices] == [True, False, False]


def test_a_pool_of_which_a_slice_is_missing_has_nothing_to_give():
    """The scheduler leaves it alone until all its slices are there, so none of its devices is free."""
    half = published(GPUS[:2])
    half["spec"]["pool"]["resourceSliceCount"] = 2
    assert shown(slices=[half], claims=[]).startswith("node-a: 3 GPUs: 3 unpublished\n")


def test_a_device_in_use_that_is_not_published_any_more_is_still_in_use():
    """The kubelet wiped the slices, or the GPU left them: the pod runs on."""
    claims = [a_held_claim("train", a_result("gpu-99-00-0"), pods=("p",))]
    told = shown(slices=[], claims=claims, pods=[a_pod("p", {"c": "train"})])
    assert "node-a: 4 GPUs: 1 in use, 3 unpublished" in told
    assert "  gpu-99-00-0  in use, unpublished  team-a     p    main        train" in told


def test_a_taint_that_does_nothing_keeps_a_device_free():
    """Effect None is told, and no more."""
    told = report(slices=[published(taints={0x10: [{**LOST_TAINT, "effect": "None"}]})])
    assert told.nodes[0].devices[0].state == "free"
    assert "gpu-10-00-0: lanewise.dev/lost=off-the-bus:None since" in text(told, Paper())


@pytest.mark.parametrize(
    ("selector", "tainted"),
    [
        (None, []),
        ({}, ["gpu-10-00-0", "gpu-18-00-0", "gpu-20-00-0"]),
        ({"driver": "other.example.com"}, []),
        ({"driver": DRIVER, "pool": f"node-a/{DRIVER}", "device": "gpu-18-00-0"}, ["gpu-18-00-0"]),
    ],
)
def test_an_administrators_rule_taints_what_it_selects(selector, tainted):
    """A DeviceTaintRule is in no slice; without a selector it matches nothing."""
    spec = {"taint": {"key": "example.com/repair", "value": "yes", "effect": "NoSchedule"}}
    if selector is not None:
        spec["deviceSelector"] = selector
    told = report(slices=[published()], rules=[{"metadata": {"name": "repair"}, "spec": spec}])
    assert [device.name for device in told.nodes[0].devices if device.tainted] == tainted
    assert ("example.com/repair=yes:NoSchedule by DeviceTaintRule repair" in text(told, Paper())) == bool(tainted)


def test_a_pod_that_waits_for_an_extended_resource_is_told():
    """It has no claim before it is scheduled."""
    pod = a_pod(
        "classic",
        phase="Pending",
        spec={"containers": [{"name": "main", "resources": {"limits": {"cpu": "1", "nvidia.com/gpu": "1"}}}]},
        conditions=[{"type": "PodScheduled", "status": "False", "message": "no GPU is free"}],
    )
    told = shown(classes=[a_gpu_class("nvidia", extended="nvidia.com/gpu")], pods=[pod])
    assert told.endswith("WAITING\n  pod team-a/classic (nvidia.com/gpu): no GPU is free")
    assert "WAITING" not in shown(classes=[a_gpu_class("nvidia", "other.example.com", "nvidia.com/gpu")], pods=[pod])


def test_a_claim_for_another_driver_is_not_ours():
    """Unless its own selector names ours."""
    claim = a_held_claim("nic")
    claim["spec"]["devices"]["requests"][0]["exactly"]["deviceClassName"] = "any"
    others = [a_gpu_class("any", "nic.example.com")]
    assert report(classes=others, claims=[claim]).waiting == ()
    selectors = [{"cel": {"expression": f"device.driver == '{DRIVER}'"}}]
    claim["spec"]["devices"]["requests"][0]["exactly"]["selectors"] = selectors
    assert [each.claim for each in report(classes=others, claims=[claim]).waiting] == ["nic"]


def test_scopes_narrow_what_is_told():
    """A node, a namespace, a pod; of a namespace alone nothing is said to be free."""
    assert [node.name for node in report(Scope(node="node-b"), **STORY).nodes] == []
    in_namespace = shown(Scope(namespace="monitoring"), **STORY)
    assert in_namespace.split("\n")[0] == "node-a"
    assert "free" not in in_namespace
    assert "train" not in in_namespace
    of_pod = report(Scope(namespace="team-a", pod="waiter"), **STORY)
    assert (of_pod.nodes, [each.claim for each in of_pod.waiting]) == ((), ["more"])
    of_pod = report(Scope(namespace="team-a", pod="p"), **STORY)
    assert [device.name for node in of_pod.nodes for device in node.devices] == ["gpu-10-00-0"]
    assert of_pod.waiting == ()
    nothing = shown(Scope(namespace="team-a", pod="nobody"), **STORY)
    assert nothing == f"pod team-a/nobody has no device of {DRIVER} and waits for none"


def test_nothing_at_all_is_said_in_a_sentence():
    """A cluster without Lanewise, or before its first plugin."""
    told = shown(slices=[], inventories=[], nodes=[])
    assert told == f"no node has a NodeInventory, and {DRIVER} has no device in any ResourceSlice"


def test_a_renewal_is_no_news():
    """Two reports that differ in nothing else are equal, until a Lease becomes stale."""
    later = facts(leases=[a_lease("2026-12-01T11:59:59.000000Z")])
    assert report() == summarise(later, driver=DRIVER, scope=Scope(), now=NOW)
    assert next_change(facts(), NOW) == 30.0
    assert next_change(facts(leases=[]), NOW) is None
    assert report() != report(now=datetime(2026, 12, 1, 12, 0, 30, tzinfo=UTC))


def test_a_lease_without_a_time_zone_renews_nothing():
    """Nothing can be said of it, and `--watch` must not break over it."""
    lease = a_lease()
    lease["spec"]["renewTime"] = "2026-12-01T12:00:00"
    assert "no Lease of this node's" in shown(leases=[lease])
    assert next_change(facts(leases=[lease]), NOW) is None


def test_an_inventory_that_cannot_be_read_is_told():
    """The devices in the slices are there all the same."""
    broken = inventory()
    broken["spec"]["gpus"][0]["pciAddress"] = "nowhere"
    told = report(inventories=[broken])
    assert "nowhere" in told.nodes[0].problem
    assert len(told.nodes[0].devices) == 3


def test_json_has_all_of_it():
    """The shape that docs/operations.md promises: by example, whole."""
    told = document(report(**STORY))
    assert json.loads(json.dumps(told)) == told
    assert {key: told[key] for key in ("apiVersion", "kind", "driver", "scope")} == {
        "apiVersion": "cli.lanewise.dev/v1alpha1",
        "kind": "Status",
        "driver": DRIVER,
        "scope": {},
    }
    (node,) = told["nodes"]
    assert node["summary"] == {"gpus": 3, "published": 3, "inUse": 1, "free": 1, "tainted": 1, "leftOut": 1}
    assert node["instances"] == [
        {
            "id": "i1",
            "registered": True,
            "leaseFresh": True,
            "lease": "lease-i1",
            "renewedAt": "2026-12-01T11:59:50Z",
        }
    ]
    assert node["devices"][0] == {
        "name": "gpu-10-00-0",
        "pool": f"node-a/{DRIVER}",
        "state": "InUse",
        "published": True,
        "productName": "NVIDIA H100 80GB HBM3",
        "pciAddress": "0000:10:00.0",
        "uuid": "GPU-00000000-0000-0000-0000-000000000010",
        "memory": "81559Mi",
        "taints": [],
        "ailments": [],
        "holders": [
            {
                "namespace": "team-a",
                "claim": "train",
                "claimUID": "uid-train",
                "request": "gpu",
                "deleting": False,
                "pods": [
                    {"name": "old", "uid": "uid-old", "state": "Gone", "containers": []},
                    {"name": "p", "uid": "uid-p", "state": "Running", "containers": ["main"]},
                ],
            }
        ],
        "adminAccess": [
            {
                "namespace": "monitoring",
                "claim": "watch",
                "claimUID": "uid-watch",
                "request": "gpu",
                "deleting": False,
                "pods": [{"name": "m", "uid": "uid-m", "state": "Running", "containers": ["main"]}],
            }
        ],
    }
    assert node["devices"][2]["taints"] == [LOST_TAINT]
    assert told["waiting"] == [
        {"namespace": "team-a", "claim": "idle", "asks": [DRIVER], "pods": []},
        {
            "namespace": "team-a",
            "claim": "more",
            "asks": [DRIVER],
            "pods": [{"name": "waiter", "why": "0/1 nodes are available: 1 cannot allocate all claims."}],
        },
    ]
    assert "summary" not in document(report(Scope(namespace="team-a"), **STORY))["nodes"][0]


def test_of_a_namespace_alone_a_device_without_a_holder_has_no_state():
    """Its holder may be in another namespace."""
    (node,) = document(report(Scope(namespace="monitoring"), **STORY))["nodes"]
    assert [("state" in device, device["holders"]) for device in node["devices"]] == [(False, [])]
