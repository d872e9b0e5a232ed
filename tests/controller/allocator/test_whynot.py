"""A refusal by a node is said in words that tell what to do."""

from controller.allocator import DeviceID, allocate
from tests.support.allocation import DRIVER, a_claim, a_device, a_question, a_request, a_slice

H100 = f'device.attributes["{DRIVER}"].model == "h100"'


def test_each_device_is_counted_under_its_first_reason():
    """Held, rejected, tainted: every device of the node is in exactly one count."""
    taint = {"key": "lanewise.dev/unreachable", "effect": "NoSchedule"}
    devices = [
        a_device("gpu-0", model="h100"),
        a_device("gpu-1", model="a100"),
        a_device("gpu-2", model="h100", taints=[taint]),
        a_device("gpu-3", model="h100"),
    ]
    held = {DeviceID(DRIVER, "node-a", "gpu-0"): "team-b/serve"}
    answer = allocate(a_question(a_claim(a_request("gpu", H100, count=2)), slices=[a_slice(*devices)], held=held))
    assert answer.what == (
        "node node-a: claim team-a/claim: request gpu wants 2 devices, and 1 of 4 fits "
        f"(1 held by claim team-b/serve; 1 rejected by the selector of the request: {H100}; "
        "1 tainted lanewise.dev/unreachable:NoSchedule)"
    )
    assert answer.remedy == (
        "it is tried again when a device is free; kubectl describe resourceclaim tells which pods use a claim"
    )


def test_constraint_is_explained_by_how_values_are_spread():
    """Where each request could be met alone, the attribute's values tell why not together."""
    devices = [a_device(f"gpu-{i}", root=f"r{i // 2}") for i in range(4)]
    claim = a_claim(a_request(count=3), constraints=[{"matchAttribute": f"{DRIVER}/root"}])
    answer = allocate(a_question(claim, slices=[a_slice(*devices)]))
    assert answer.why == (
        "each request could be met by itself, but not all of them together; "
        "claim team-a/claim: request gpu wants 3 devices, and 4 of 4 fit; "
        f"claim team-a/claim wants the same {DRIVER}/root for its devices; of those that fit: 2 with r0, 2 with r1"
    )
    assert answer.remedy == "it is tried again when devices, classes or nodes change"


def test_node_without_devices_says_so():
    """No slice at all is 0 of 0."""
    assert allocate(a_question()).why == "claim team-a/claim: request gpu wants 1 device, and 0 of 0 fit"


def test_selector_that_fails_on_an_unseen_device_does_not_hide_the_answer():
    """The explanation looks at devices that the search never came to; a selector that fails there is a count of its own."""
    picky = a_request("b", f'device.attributes["{DRIVER}"].nosuch == 1')
    answer = allocate(a_question(a_claim(a_request("a", "false"), picky), slices=[a_slice(a_device("gpu-0"))]))
    assert "1 cannot be judged: claim team-a/claim, request b: selector #0" in answer.why
