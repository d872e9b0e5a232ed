"""Which devices claims get: order, counts, alternatives, constraints, access for administration, and what is written."""

import pytest

from api.refusals import Refused
from controller.allocator import Allocated, DeviceID, WhyNot, allocate, holders
from tests.support.allocation import DRIVER, a_claim, a_class, a_device, a_node, a_question, a_request, a_slice

HERE = {"nodeSelectorTerms": [{"matchFields": [{"key": "metadata.name", "operator": "In", "values": ["node-a"]}]}]}
MODEL = f'device.attributes["{DRIVER}"].model'


def chosen(answer, claim=0):
    """The devices of one claim in order."""
    assert isinstance(answer, Allocated), answer.what
    return [result["device"] for result in answer.allocations[claim]["devices"]["results"]]


def gpus(count, **attributes):
    return [a_device(f"gpu-{i}", **attributes) for i in range(count)]


def test_first_device_in_order_is_taken():
    """Pools go by driver and name, slices by name, devices as they stand."""
    slices = [
        a_slice(a_device("c"), name="slice-1", pool="pool-b"),
        a_slice(a_device("b"), name="slice-3", pool="pool-a", count=2),
        a_slice(a_device("z"), a_device("a"), name="slice-2", pool="pool-a", count=2),
    ]
    answer = allocate(a_question(a_claim(a_request(count=4)), slices=slices))
    assert chosen(answer) == ["z", "a", "b", "c"]


def test_allocation_says_device_and_node():
    """The allocation is what the API wants in a claim's status."""
    answer = allocate(a_question(slices=[a_slice(*gpus(1))]))
    result = {"request": "gpu", "driver": DRIVER, "pool": "node-a", "device": "gpu-0"}
    assert answer == Allocated(({"devices": {"results": [result]}, "nodeSelector": HERE},))


def test_held_devices_are_passed_over():
    """A device that a claim holds is not given again, and one given for administration does not count as held."""
    held = a_claim(name="serve")
    results = [
        {"driver": DRIVER, "pool": "node-a", "device": "gpu-0"},
        {"driver": DRIVER, "pool": "node-a", "device": "gpu-1", "adminAccess": True},
    ]
    held["status"] = {"allocation": {"devices": {"results": results}}}
    found = holders([held, a_claim(name="pending")])
    assert found == {DeviceID(DRIVER, "node-a", "gpu-0"): "team-a/serve"}
    assert chosen(allocate(a_question(slices=[a_slice(*gpus(3))], held=found))) == ["gpu-1"]


def test_two_claims_share_nothing():
    """Claims of one pod get devices of their own."""
    question = a_question(a_claim(name="one"), a_claim(name="two"), slices=[a_slice(*gpus(2))])
    answer = allocate(question)
    assert [chosen(answer, 0), chosen(answer, 1)] == [["gpu-0"], ["gpu-1"]]


def test_search_goes_back_where_the_first_choice_leads_nowhere():
    """A request that could take any device leaves the only fitting one to the request behind it."""
    devices = [a_device("gpu-0", model="h100"), a_device("gpu-1", model="a100")]
    claim = a_claim(a_request("any"), a_request("picky", f'{MODEL} == "h100"'))
    assert chosen(allocate(a_question(claim, slices=[a_slice(*devices)]))) == ["gpu-1", "gpu-0"]


def test_same_attribute_is_kept_over_requests():
    """With matchAttribute, devices come from one group, though the first group has free ones."""
    devices = [a_device(f"gpu-{i}", root=f"r{i // 2}") for i in range(4)]
    claim = a_claim(a_request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/root"}])
    held = {DeviceID(DRIVER, "node-a", "gpu-1"): "team-b/other"}
    assert chosen(allocate(a_question(claim, slices=[a_slice(*devices)], held=held))) == ["gpu-2", "gpu-3"]


def test_one_and_true_are_not_the_same_attribute():
    """Values are compared with their types."""
    devices = [a_device("gpu-0", x=1), a_device("gpu-1", x=True)]
    claim = a_claim(a_request(count=2), constraints=[{"matchAttribute": f"{DRIVER}/x"}])
    assert isinstance(allocate(a_question(claim, slices=[a_slice(*devices)])), WhyNot)


def test_distinct_attribute_takes_one_of_each():
    """With distinctAttribute no value comes twice."""
    devices = [a_device(f"gpu-{i}", root=f"r{i // 2}") for i in range(4)]
    claim = a_claim(a_request(count=2), constraints=[{"distinctAttribute": f"{DRIVER}/root"}])
    assert chosen(allocate(a_question(claim, slices=[a_slice(*devices)]))) == ["gpu-0", "gpu-2"]


def test_constraint_of_one_alternative_leaves_the_others_alone():
    """A constraint that names request/alternative counts for that alternative only."""
    devices = [a_device("gpu-0", root="r0"), a_device("gpu-1", root="r1")]
    wish = {"deviceClassName": "gpu", "allocationMode": "ExactCount"}
    request = {
        "name": "gpu",
        "firstAvailable": [{"name": "two", "count": 2, **wish}, {"name": "one", "count": 1, **wish}],
    }
    constraint = {"matchAttribute": f"{DRIVER}/root", "requests": ["gpu/two"]}
    answer = allocate(a_question(a_claim(request, constraints=[constraint]), slices=[a_slice(*devices)]))
    assert [result["request"] for result in answer.allocations[0]["devices"]["results"]] == ["gpu/one"]


def test_all_devices_means_all_that_fit_and_none_is_too_few():
    """All takes every selected device; where one is held or none is selected, there is no answer."""
    claim = a_claim(a_request("gpu", f'{MODEL} == "h100"', count=0))
    devices = [a_device("gpu-0", model="h100"), a_device("gpu-1", model="a100"), a_device("gpu-2", model="h100")]
    slices = [a_slice(*devices)]
    assert chosen(allocate(a_question(claim, slices=slices))) == ["gpu-0", "gpu-2"]
    held = {DeviceID(DRIVER, "node-a", "gpu-2"): "team-b/other"}
    assert isinstance(allocate(a_question(claim, slices=slices, held=held)), WhyNot)
    assert isinstance(allocate(a_question(claim, slices=[a_slice(a_device("gpu-1", model="a100"))])), WhyNot)


def test_admin_access_takes_held_devices():
    """For administration devices in use are given as well, and it is said in the result."""
    held = {DeviceID(DRIVER, "node-a", "gpu-0"): "team-b/other"}
    question = a_question(a_claim(a_request(adminAccess=True)), slices=[a_slice(*gpus(1))], held=held)
    assert allocate(question).allocations[0]["devices"]["results"][0]["adminAccess"] is True


@pytest.mark.parametrize(
    ("taint", "toleration", "taken"),
    [
        ({"key": "bad", "effect": "NoSchedule"}, None, False),
        ({"key": "bad", "effect": "NoExecute"}, None, False),
        ({"key": "bad", "effect": "None"}, None, True),
        ({"key": "bad", "effect": "NoSchedule"}, {"operator": "Exists"}, True),
        ({"key": "bad", "effect": "NoSchedule"}, {"key": "bad", "operator": "Exists", "effect": "NoExecute"}, False),
        ({"key": "bad", "value": "x", "effect": "NoSchedule"}, {"key": "bad", "value": "x"}, True),
        ({"key": "bad", "value": "x", "effect": "NoSchedule"}, {"key": "bad", "operator": "Equal"}, False),
    ],
)
def test_taints_keep_off_who_does_not_tolerate_them(taint, toleration, taken):
    """NoSchedule and NoExecute forbid, None does not; a toleration fits by key, value and effect."""
    request = a_request(**({"tolerations": [toleration]} if toleration else {}))
    answer = allocate(a_question(a_claim(request), slices=[a_slice(a_device("gpu-0", taints=[taint]))]))
    assert isinstance(answer, Allocated) is taken
    if taken and toleration:
        assert answer.allocations[0]["devices"]["results"][0]["tolerations"] == [toleration]


def test_configuration_of_classes_comes_first_and_once():
    """The class's settings come before the claim's, with the requests that they are for; for all, they name none."""
    setting = {"opaque": {"driver": DRIVER, "parameters": {"a": 1}}}
    classes = [a_class("gpu", config=[setting]), a_class("other")]
    claim = a_claim(
        a_request("a"),
        a_request("b"),
        a_request("c", device_class="other"),
        config=[{"requests": ["c"], **setting}, setting],
    )
    answer = allocate(a_question(claim, slices=[a_slice(*gpus(3))], classes=classes))
    assert answer.allocations[0]["devices"]["config"] == [
        {"source": "FromClass", "requests": ["a", "b"], **setting},
        {"source": "FromClaim", "requests": ["c"], **setting},
        {"source": "FromClaim", **setting},
    ]
    alone = allocate(a_question(a_claim(a_request("a")), slices=[a_slice(*gpus(1))], classes=classes))
    assert alone.allocations[0]["devices"]["config"] == [{"source": "FromClass", **setting}]


def test_slice_of_another_node_is_not_used():
    """Devices count by the node that their slice, or they themselves, name."""
    slices = [
        a_slice(a_device("other"), nodeName="node-b", pool="node-b"),
        a_slice(a_device("zone"), pool="zone", name="s2", nodeSelector=in_zone("east")),
        a_slice({**a_device("mine"), "nodeName": "node-a"}, pool="mixed", name="s3", perDeviceNodeSelection=True),
    ]
    question = a_question(a_claim(a_request(count=2)), slices=slices, node=a_node(zone="east"))
    assert chosen(allocate(question)) == ["mine", "zone"]
    west = a_question(a_claim(a_request(count=2)), slices=slices, node=a_node(zone="west"))
    assert isinstance(allocate(west), WhyNot)


def in_zone(zone):
    return {"nodeSelectorTerms": [{"matchExpressions": [{"key": "zone", "operator": "In", "values": [zone]}]}]}


def test_device_of_many_nodes_keeps_the_claim_where_it_can_be_used():
    """The allocation carries the slice's node selector, or none where every node will do."""
    zone = a_question(slices=[a_slice(a_device("z"), nodeSelector=in_zone("east"))], node=a_node(zone="east"))
    assert allocate(zone).allocations[0]["nodeSelector"] == {
        "nodeSelectorTerms": [*in_zone("east")["nodeSelectorTerms"]]
    }
    assert "nodeSelector" not in allocate(a_question(slices=[a_slice(a_device("n"), allNodes=True)])).allocations[0]


def test_newest_generation_of_a_pool_counts():
    """Slices of an older generation are forgotten, and a pool of which slices are missing gives nothing."""
    old, new = a_slice(a_device("old"), name="s1"), a_slice(a_device("new"), name="s2")
    new["spec"]["pool"]["generation"] = 2
    assert chosen(allocate(a_question(slices=[old, new]))) == ["new"]
    new["spec"]["pool"]["resourceSliceCount"] = 2
    answer = allocate(a_question(slices=[old, new]))
    assert answer.incomplete == (f"{DRIVER}/node-a",)


def test_pool_with_one_name_twice_is_not_used():
    """A pool is invalid when a device's name comes twice in it."""
    answer = allocate(a_question(slices=[a_slice(a_device("gpu-0"), a_device("gpu-0"))]))
    assert answer.invalid == (f"{DRIVER}/node-a is invalid: duplicate device name gpu-0",)


def test_more_devices_than_an_allocation_holds_are_refused():
    """33 devices in one claim end the attempt for all nodes."""
    with pytest.raises(Refused) as caught:
        allocate(a_question(a_claim(a_request(count=33)), slices=[a_slice(*gpus(40))]))
    assert caught.value.reason.what == (
        "claim team-a/claim, request gpu: the claim would get 33 devices, and 32 is the limit"
    )
