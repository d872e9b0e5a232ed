"""What to write so that a node's slices become what they should be."""

import copy
import itertools

from hypothesis import given, settings
from hypothesis import strategies as st

from api.inventory import Owner
from controller.device import Device, Taint
from controller.plan import Create, Delete, Update, adoption, canonical, generate_name, index_of, plan
from controller.slices import slices_of

OWNER = Owner("node-a", "uid-1")
DRIVER = "gpu.lanewise.dev"
TAINT = Taint("lanewise.dev/unreachable", "silent", "NoSchedule")


def specs(count=2, *, taints=(), capacity="80Gi", start=0):
    devices = [Device(f"gpu-{n:03}", {"type": "gpu"}, {"memory": capacity}) for n in range(start, start + count)]
    return slices_of(devices, node="node-a", driver=DRIVER, taints=lambda _: taints)


class Server:
    """Slices as a server keeps them; `drop` loses a field of every device."""

    def __init__(self, drop=""):
        self.slices = {}
        self.version = itertools.count(1)
        self.drop = drop

    def write(self, write):
        version = str(next(self.version))
        if isinstance(write, Delete):
            obj = self.slices.pop(write.name)
            assert (obj["metadata"]["uid"], obj["metadata"]["resourceVersion"]) == (write.uid, write.resource_version)
            return None
        obj = copy.deepcopy(write.obj)
        meta = obj["metadata"]
        if isinstance(write, Create):
            meta |= {"name": f"{meta['generateName']}{version:>05}", "uid": f"uid-{version}"}
        else:
            assert self.slices[meta["name"]]["metadata"]["resourceVersion"] == meta["resourceVersion"]
        meta["resourceVersion"] = version
        for device in obj["spec"].get("devices", ()):
            device.pop(self.drop, None)
            for taint in device.get("taints", ()):
                taint.setdefault("timeAdded", f"time {version}")
        self.slices[meta["name"]] = obj
        return obj

    def plan(self, desired, owner=OWNER, adopted=None):
        return plan(desired, tuple(self.slices.values()), owner, adopted or {})

    def become(self, desired, owner=OWNER, limit=None):
        writes = self.plan(desired, owner)[:limit]
        for write in writes:
            self.write(write)
        return writes

    def pool(self):
        """What the scheduler sees: device names of the newest generation if it is complete, else None."""
        newest = max((obj["spec"]["pool"]["generation"] for obj in self.slices.values()), default=0)
        current = [obj for obj in self.slices.values() if obj["spec"]["pool"]["generation"] == newest]
        if any(obj["spec"]["pool"]["resourceSliceCount"] != len(current) for obj in current):
            return None
        return sorted(device["name"] for obj in current for device in obj["spec"].get("devices", ()))


def test_a_new_pool_starts_at_generation_one():
    """Created in order, owned by the Node as its controller."""
    (create,) = Server().plan(specs())
    assert create == Create(
        0,
        {
            "apiVersion": "resource.k8s.io/v1",
            "kind": "ResourceSlice",
            "metadata": {
                "generateName": "00000-gpu.lanewise.dev-node-a-",
                "ownerReferences": [
                    {"apiVersion": "v1", "kind": "Node", "name": "node-a", "uid": "uid-1", "controller": True}
                ],
            },
            "spec": {
                **specs()[0],
                "pool": {"name": "node-a/gpu.lanewise.dev", "resourceSliceCount": 1, "generation": 1},
            },
        },
    )


def test_nothing_to_do_is_nothing_written():
    """Also when the server spells quantities its own way."""
    server = Server()
    server.become(specs(130, capacity="80Gi"))
    assert server.plan(specs(130, capacity="80Gi")) == ()
    assert server.plan(specs(130, capacity="81920Mi")) == ()


def test_one_changed_slice_keeps_the_generation():
    """The pool is complete at every moment, and the name stays."""
    server = Server()
    server.become(specs(130))
    changed = list(specs(130))
    changed[1] = specs(130, capacity="40Gi")[1]
    (update,) = server.plan(changed)
    assert isinstance(update, Update)
    assert (update.index, update.obj["spec"]["pool"]["generation"]) == (1, 1)


def test_two_changed_slices_are_a_new_generation_of_all():
    """Or the scheduler would see half of the change."""
    server = Server()
    server.become(specs(130))
    writes = server.plan(specs(130, taints=(TAINT,)))
    assert [(type(write), write.index, write.obj["spec"]["pool"]["generation"]) for write in writes] == [
        (Update, 0, 2),
        (Update, 1, 2),
        (Update, 2, 2),
    ]


def test_order_is_delete_update_create():
    """Deletions first, with UID and version; creations last."""
    server = Server()
    server.become(specs(70))
    broken = next(iter(server.slices.values()))
    server.slices["odd"] = {**broken, "metadata": {**broken["metadata"], "name": "odd", "uid": "u"}}
    writes = server.plan(specs(130))
    assert [type(write) for write in writes] == [Delete, Update, Update, Create]
    assert writes[0] == Delete("odd", "u", broken["metadata"]["resourceVersion"])
    assert {write.obj["spec"]["pool"]["generation"] for write in writes[1:]} == {2}


def test_obsolete_slices_go():
    """Older generations, surplus indexes, second slices of one index, names of other making."""
    server = Server()
    server.become(specs(130))
    writes = server.become(specs(10))
    assert [type(write) for write in writes] == [Delete, Delete, Update]
    (kept,) = server.slices.values()
    twin = copy.deepcopy(kept)
    twin["metadata"] |= {"name": "00000-z", "uid": "twin"}
    old = copy.deepcopy(kept)
    old["metadata"] |= {"name": "00000-a", "uid": "old"}
    old["spec"]["pool"]["generation"] = 0
    server.slices |= {"00000-z": twin, "00000-a": old}
    assert [write.uid for write in server.plan(specs(10))] == ["old", "twin"]


def test_times_of_taints_are_kept():
    """timeAdded is copied back for the same key, value and effect; a taint that is new begins now."""
    server = Server()
    server.become(specs(2, taints=(TAINT,)))
    (update,) = server.plan(specs(3, taints=(TAINT,)))
    taints = [device["taints"] for device in update.obj["spec"]["devices"]]
    assert taints[:2] == [[{**TAINT.encode(), "timeAdded": "time 1"}]] * 2
    assert taints[2] == [TAINT.encode()]
    other = Taint(TAINT.key, "unregistered", TAINT.effect)
    (update,) = server.plan(specs(2, taints=(other,)))
    assert update.obj["spec"]["devices"][0]["taints"] == [other.encode()]


def test_a_new_node_object_becomes_the_owner():
    """Or the garbage collector would take the slices with the old Node."""
    server = Server()
    server.become(specs())
    (update,) = server.plan(specs(), Owner("node-a", "uid-2"))
    assert update.obj["metadata"]["ownerReferences"][0]["uid"] == "uid-2"
    assert update.obj["spec"]["pool"]["generation"] == 1


def test_without_node_all_goes():
    """There is nobody to own it."""
    server = Server()
    server.become(specs(130))
    assert [type(write) for write in server.plan(specs(130), None)] == [Delete] * 3


def test_slices_of_an_immutable_field_are_made_anew():
    """Driver, pool and node of a slice cannot be changed."""
    server = Server()
    server.become(specs())
    (obj,) = server.slices.values()
    obj["spec"]["pool"]["name"] = "other"
    assert [type(write) for write in server.plan(specs())] == [Delete, Create]


def test_dropped_fields_are_named_and_adopted():
    """A gate that is off takes taints away: said once, and no hot loop."""
    server = Server(drop="taints")
    desired = specs(2, taints=(TAINT,))
    (write,) = server.plan(desired)
    answer = server.write(write)
    adopted = adoption(write.obj["spec"], answer["spec"])
    assert adopted is not None
    assert adopted.dropped == ("devices[].taints",)
    assert server.plan(desired, adopted={0: adopted}) == ()
    assert len(server.plan(desired)) == 1
    assert len(server.plan(specs(3, taints=(TAINT,)), adopted={0: adopted})) == 1


def test_what_the_server_adds_is_nothing_dropped():
    """Times, defaults, other spellings."""
    server = Server()
    (write,) = server.plan(specs(2, taints=(TAINT,)))
    assert adoption(write.obj["spec"], server.write(write)["spec"]) is None
    more = copy.deepcopy(write.obj["spec"])
    more["allNodes"] = False
    adopted = adoption(write.obj["spec"], more)
    assert adopted is not None
    assert adopted.dropped == ()


def test_names_survive_very_long_nodes():
    """The API server cuts the base at 58 bytes; the index comes first, and the base stays a valid name."""
    name = generate_name(17, DRIVER, "n" * 30 + "." + "m" * 200)
    assert name == "00011-gpu.lanewise.dev-nnnnnnnnnnnnnnnnnnnnnnnnnnnnnn.mmm-"
    assert len(name) <= 58
    assert index_of(f"{name}abcde") == 17
    assert index_of("node-a-gpu") is None
    cut_at_dot = generate_name(0, DRIVER, "n" * 33 + ".m")
    assert cut_at_dot.endswith("n-")


def test_canonical_leaves_its_argument_alone():
    """It is called on what the reflector keeps."""
    spec = {"pool": {"generation": 1}, "devices": [{"name": "a", "taints": [{"key": "k", "timeAdded": "t"}]}]}
    before = copy.deepcopy(spec)
    canonical(spec)
    assert spec == before


DESIRED = st.builds(
    specs,
    st.sampled_from([0, 1, 2, 64, 65, 129]),
    taints=st.sampled_from([(), (TAINT,)]),
    capacity=st.sampled_from(["80Gi", "40Gi"]),
    start=st.integers(0, 2),
)


@settings(max_examples=30, deadline=None)
@given(st.lists(st.tuples(DESIRED, st.none() | st.integers(0, 4)), min_size=1, max_size=5))
def test_interrupted_anywhere_it_ends_as_desired_and_never_lies(steps):
    """Cut off after any write and gone on with anything else: consumers see the old pool, the new one, or none."""
    server = Server()
    for desired, limit in steps:
        allowed = [None, server.pool(), sorted(device["name"] for spec in desired for device in spec["devices"])]
        for write in server.plan(desired)[:limit]:
            server.write(write)
            assert (server.pool() or None) in [pool or None for pool in allowed]  # without a slice there is none
    server.become(steps[-1][0])
    assert server.plan(steps[-1][0]) == ()
    assert server.pool() == sorted(device["name"] for spec in steps[-1][0] for device in spec["devices"])


def test_a_generation_that_cannot_grow_begins_anew():
    """Somebody wrote the largest there is: one more is no int64, and the API server would refuse it for ever."""
    server = Server()
    server.become(specs(100))
    (first, *_) = server.slices.values()
    first["spec"]["pool"]["generation"] = 2**63 - 1
    server.become(specs(100))
    assert {obj["spec"]["pool"]["generation"] for obj in server.slices.values()} == {1}
    assert len(server.slices) == 2
    assert server.plan(specs(100)) == ()
