"""What is not understood is refused with claim and field, never guessed."""

import pytest

from api.refusals import Refused
from controller.allocator import BadSelector, DeviceID, Unsupported, allocate
from tests.support.allocation import DRIVER, a_claim, a_class, a_device, a_question, a_request, a_slice


def refusal(question):
    with pytest.raises(Refused) as caught:
        allocate(question)
    return caught.value.reason


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("capacity", {"requests": {"memory": "1Gi"}}),
        ("derivedAttributes", [{"name": "example.com/x", "expression": "1"}]),
        ("somethingNew", True),
    ],
)
def test_request_with_an_unknown_field_is_refused(field, value):
    """A field of a request that would change the choice is named with the request."""
    question = a_question(a_claim(a_request(**{field: value})), slices=[a_slice(a_device("gpu-0"))])
    assert refusal(question) == Unsupported("claim team-a/claim, request gpu", field)


@pytest.mark.parametrize(
    ("field", "value"),
    [
        ("allowMultipleAllocations", True),
        ("bindingConditions", ["example.com/ready"]),
        ("nodeAllocatableResources", {"cpu": {}}),
    ],
)
def test_device_with_an_unknown_field_is_refused_when_its_turn_comes(field, value):
    """A device that is not understood does not matter until it would be taken."""
    odd = {**a_device("odd"), field: value}
    assert refusal(a_question(slices=[a_slice(odd)])) == Unsupported(f"device {DRIVER}/node-a/odd", field)
    plain_first = a_slice(a_device("gpu-0"), name="s0", pool="a-pool")
    assert allocate(a_question(slices=[plain_first, a_slice(odd, name="s1", pool="b-pool")])).allocations


def test_device_that_consumes_counters_is_refused():
    """Shared counters are not counted here, so that no device is given twice over."""
    counters = {"counters": {"memory": {"value": "80Gi"}}}
    device = {**a_device("mig"), "consumesCounters": [{"counterSet": "gpu-0", **counters}]}
    shared = a_slice(name="s0", count=2, sharedCounters=[{"name": "gpu-0", **counters}])
    question = a_question(slices=[shared, a_slice(device, name="s1", count=2)])
    assert refusal(question).field == "consumesCounters"


def test_constraint_of_an_unknown_kind_is_refused():
    """A constraint that names no attribute ends the attempt."""
    claim = a_claim(constraints=[{"requests": ["gpu"]}])
    assert refusal(a_question(claim)).what == "claim team-a/claim, constraint #0: it names no attribute"


def test_absent_class_is_named():
    """A class that is not there ends the attempt for all nodes."""
    told = refusal(a_question(a_claim(a_request(device_class="gone"))))
    assert told.what == "claim team-a/claim, request gpu: there is no DeviceClass gone"


def test_selector_that_fails_on_a_device_ends_the_attempt():
    """Kubernetes ends a pod's allocation at a CEL runtime error, though another device would do."""
    devices = [a_device("gpu-0"), a_device("gpu-1", numa=1)]
    question = a_question(
        a_claim(a_request("gpu", f'device.attributes["{DRIVER}"].numa == 1')), slices=[a_slice(*devices)]
    )
    told = refusal(question)
    assert isinstance(told, BadSelector)
    assert told.what == (
        f"claim team-a/claim, request gpu: selector #0 on device {DRIVER}/node-a/gpu-0: "
        'CEL runtime error: NOT_FOUND: Key not found in map : "numa"'
    )


def test_selector_is_not_run_on_devices_in_use():
    """A selector that would fail on a device that somebody has does no harm, as upstream."""
    devices = [a_device("gpu-0"), a_device("gpu-1", numa=1)]
    question = a_question(
        a_claim(a_request("gpu", f'device.attributes["{DRIVER}"].numa == 1')),
        slices=[a_slice(*devices)],
        held={DeviceID(DRIVER, "node-a", "gpu-0"): "team-b/other"},
    )
    assert allocate(question).allocations


def test_class_whose_selector_does_not_compile_is_named():
    """The class and the place of the fault are in the reason."""
    question = a_question(slices=[a_slice(a_device("gpu-0"))], classes=[a_class("gpu", "device.drver == 'x'")])
    assert refusal(question).what == "class gpu: selector #0: device has no field 'drver'"


def test_all_devices_of_an_unfinished_pool_are_not_known():
    """All cannot be answered while slices of a pool are missing."""
    question = a_question(a_claim(a_request(count=0)), slices=[a_slice(a_device("gpu-0"), count=2)])
    assert "it asks for all devices, but pool gpu.example.com/node-a is being updated" in refusal(question).what
