"""What a user reads when a claim is refused: whole texts."""

from dataclasses import replace

import pytest
from structlog.testing import capture_logs

from api.claims import Config, PodRef
from api.hardware import LeftOut
from api.names import ClaimRef
from kubeletplugin.claims.refusals import BadUid, Busy, Cancelled, Changing, HeldUnreadably, Late, NewerRecord
from kubeletplugin.claims.states import Event
from tests.support.claims_world import DRIVER, World, a_claim, a_ref, a_result, device, prepare, refusal

TRAIN = ClaimRef("team-a", "train", "u-train")
SERVE = ClaimRef("team-b", "serve", "u-serve")
GPU = device(0)
AGAIN = "the kubelet tries again by itself"


def _told(world: World, *results, configs=(), allocated=True, ref=TRAIN) -> tuple[str, str]:
    """The text with which this claim is refused; nothing may be left, and the user must have been told the same."""
    world.allocate(a_claim(ref, *results, configs=configs, allocated=allocated))
    return _refused(world, ref)


def _refused(world: World, ref: ClaimRef) -> tuple[str, str]:
    before = (world.recorded(), world.holds(), world.cdi_uids()) if world.state_dir.exists() else (set(), {}, set())
    reason = refusal(lambda: prepare(world.claims(), ref))
    assert (world.recorded(), world.holds(), world.cdi_uids()) == before
    assert world.leftovers() == []
    assert world.told[-1] == (ref, reason)
    return reason.what, reason.remedy


def test_held_by_another_claim(world):
    """Case H3."""
    prepare(world.claims(), world.allocate(a_claim(SERVE, 0)))
    assert _told(world, 0) == (
        "claim team-a/train: gpu-65-00-0 on node-a is still held by claim team-b/serve",
        f"{AGAIN}; to see who keeps it: kubectl -n team-b describe resourceclaim serve",
    )


def test_claim_is_gone(world):
    """Deleted between the kubelet's look and ours."""
    assert _refused(world, TRAIN) == (
        "claim team-a/train: it exists no more",
        "nothing need be done; a pod that still names it waits until a claim of this name is created",
    )


def test_claim_was_created_anew(world):
    """The UID decides, not the name."""
    world.allocate(a_claim(replace(TRAIN, uid="u-new"), 0))
    assert _refused(world, TRAIN) == (
        "claim team-a/train: it was deleted and created anew, its UID is u-new and no longer u-train",
        f"{AGAIN}, with the new claim once the old one is released",
    )


def test_claim_is_not_allocated(world):
    """The scheduler took the allocation back."""
    assert _told(world, allocated=False) == (
        "claim team-a/train: no devices are allocated to it",
        f"the scheduler allocates them for the next pod that uses it; {AGAIN}",
    )


def test_api_server_is_silent(world):
    """The kubelet asks again, and the reason of the API's client goes through."""
    world.api_down = True
    assert _refused(world, TRAIN) == (
        "claim team-a/train: it could not be read from the API server: https://10.0.0.1:6443: connection refused",
        f"{AGAIN}; see whether the API server runs",
    )


def test_device_is_unknown(world):
    """A slice that is out of date, or a card that fell off the bus."""
    assert _told(world, 9) == (
        "claim team-a/train: node-a has no gpu-6e-00-0 now",
        "look with: kubectl get nodeinventory node-a -o yaml; delete the pod and the claim for another device",
    )


@pytest.mark.parametrize("named", ["gpu-6e-00-0", "0000:6e:00.0"])
def test_device_was_left_out(world, named):
    """What discovery found out about it is what the user reads."""
    why = "NVML calls it lost; a reset or a reboot brings it back"
    world.machine = replace(world.machine, left_out=(LeftOut("driver", "x"), LeftOut(named, why)))
    assert _told(world, 9) == (
        f"claim team-a/train: gpu-6e-00-0 on node-a cannot be used: {why}",
        f"{AGAIN} once that is mended; or delete the pod and the claim, so that another device is allocated",
    )


def test_hardware_is_not_known_yet(world):
    """The driver container is still compiling."""
    world.machine = None
    assert _told(world, 0) == (
        "claim team-a/train: the GPUs of node-a are not known yet: libnvidia-ml.so.1 is not under /run/nvidia/driver yet",
        f"{AGAIN}; nothing need be done if the GPU driver of node-a is still starting",
    )


def test_card_is_in_mig_mode(world):
    """A whole GPU that is cut into slices is not whole."""
    first, *others = world.machine.gpus
    world.machine = replace(world.machine, gpus=(replace(first, mig_enabled=True), *others))
    assert _told(world, 0) == (
        "claim team-a/train: gpu-65-00-0 on node-a is in MIG mode and cannot be given out whole",
        f"on node-a: nvidia-smi -i 0000:65:00.0 -mig 0; {AGAIN}",
    )


def test_pool_is_another_nodes(world):
    """A device of the same name on another node is another device."""
    assert _told(world, a_result(0, pool=f"node-b/{DRIVER}")) == (
        "claim team-a/train: gpu-65-00-0 belongs to pool node-b/gpu.lanewise.dev, which is not of node-a",
        "delete the pod; a new one goes to the node whose device the claim has",
    )


def test_all_bad_devices_are_named_at_once(world):
    """All faults of one input are reported."""
    what, remedy = _told(world, 8, 0, 9)
    assert (
        what == "claim team-a/train: node-a has no gpu-6d-00-0 now; claim team-a/train: node-a has no gpu-6e-00-0 now"
    )
    assert (
        remedy == "look with: kubectl get nodeinventory node-a -o yaml; delete the pod and the claim for another device"
    )


PARAMETERS = {"apiVersion": "gpu.example.dev/v1", "kind": "GpuConfig", "sharing": {"strategy": "TimeSlicing"}}


def test_parameters_of_an_unknown_kind(world):
    """Case A1: strict with what a user sends, naming the field path; nothing is written."""
    configs = (Config((), "other.dev", {}, False), Config((), DRIVER, PARAMETERS, False))
    assert _told(world, 0, configs=configs) == (
        "claim team-a/train: config[1].parameters: kind 'GpuConfig' is nothing that gpu.lanewise.dev understands",
        "take the config for gpu.lanewise.dev out of the claim (or its template), and create the claim anew",
    )


def test_parameters_of_the_class_are_no_better(world):
    """The remedy says where they come from."""
    assert _told(world, 0, configs=(Config(("gpu",), DRIVER, None, True),)) == (
        (
            "claim team-a/train: config[0].parameters: a configuration without a kind is nothing "
            "that gpu.lanewise.dev understands"
        ),
        "take the config for gpu.lanewise.dev out of the DeviceClass that the claim names, and create the claim anew",
    )


def test_parameters_for_others_are_none_of_our_business(world):
    """Other drivers' configs, and ours for an alternative that was not chosen, refuse nothing (Case A3)."""
    configs = (Config((), "other.dev", PARAMETERS, False), Config(("gpu/small",), DRIVER, PARAMETERS, False))
    prepare(world.claims(), world.allocate(a_claim(TRAIN, a_result(0, request="gpu/big"), configs=configs)))


def test_parameters_for_the_main_request_cover_its_alternatives(world):
    """Case A3: a config for `gpu` covers `gpu/big`."""
    configs = (Config(("gpu",), DRIVER, PARAMETERS, False),)
    assert "config[0].parameters" in _told(world, a_result(0, request="gpu/big"), configs=configs)[0]


def test_claim_has_other_devices_than_it_was_prepared_with(world):
    """Containers of a pod deleted by force may run on with the earlier ones."""
    prepare(world.claims(), world.allocate(a_claim(TRAIN, 0, 1)))
    assert _told(world, 2) == (
        "claim team-a/train: it is allocated gpu-67-00-0, but node-a still has it prepared with gpu-65-00-0, gpu-66-00-0",
        f"{AGAIN}; deleting the pod releases what is prepared",
    )


def test_something_foreign_stands_for_a_hold(world):
    """A file that is no link of ours is not removed by us."""
    world.claims()
    path = world.state_dir / "devices" / GPU
    path.write_text("?")
    world.allocate(a_claim(TRAIN, 0))
    reason = refusal(lambda: prepare(world.claims(), TRAIN))
    assert (reason.what, reason.remedy) == (
        f"claim team-a/train: {path} is no link of this driver",
        f"remove {path}; {AGAIN}",
    )


@pytest.mark.parametrize(
    ("reason", "what", "remedy"),
    [
        (
            Busy(TRAIN, "node-a", 30.0),
            "claim team-a/train: an earlier call for it on node-a has been at work for more than 30 s",
            AGAIN,
        ),
        (
            Late(TRAIN),
            "claim team-a/train: it was released while this call waited",
            "nothing need be done; if a pod needs it, the kubelet asks again",
        ),
        (
            Cancelled(TRAIN),
            "claim team-a/train: the kubelet has given up this call",
            "nothing need be done; if a pod needs it, the kubelet asks again",
        ),
        (
            Changing(TRAIN, GPU, "node-a", "u-serve"),
            "claim team-a/train: gpu-65-00-0 on node-a is being taken or left by the claim of UID u-serve",
            AGAIN,
        ),
        (
            HeldUnreadably(TRAIN, GPU, "node-a", "u-serve"),
            (
                "claim team-a/train: gpu-65-00-0 on node-a is still held by the claim of UID u-serve, "
                "whose record cannot be read"
            ),
            f"{AGAIN}; the device is free when the pod of that claim is gone from node-a, or node-a restarts",
        ),
        (
            NewerRecord(TRAIN, "node-a", 2),
            "claim team-a/train: a newer version of the plugin prepared it on node-a (record format 2)",
            "install that version on node-a again, or delete the pod",
        ),
        (
            BadUid("a/b"),
            "claim UID 'a/b': none that Kubernetes gives",
            "look at who called the plugin; the kubelet does not",
        ),
    ],
    ids=lambda value: type(value).__name__ if not isinstance(value, str) else "",
)
def test_rarer_texts(reason, what, remedy):
    """Texts whose circumstances other tests make."""
    assert (reason.what, reason.remedy) == (what, remedy)


def test_refusal_is_logged_with_its_fields(world):
    """One closing line for a claim, with outcome and seconds."""
    with capture_logs() as logs:
        refusal(lambda: prepare(world.claims(), a_ref()))
        prepare(world.claims(), world.allocate(replace(a_claim(a_ref(), 0), pods=(PodRef("train-0", "u-0"),))))
        world.claims().unprepare(a_ref())
    assert [
        {key: value for key, value in entry.items() if key not in {"seconds", "why", "remedy"}} for entry in logs
    ] == [
        {
            "event": "claim refused",
            "log_level": "warning",
            "claim": "team-a/train-1",
            "uid": "uid-1",
            "node": "node-a",
            "kind": "Gone",
            "pods": [],
        },
        {
            "event": "claim prepared",
            "log_level": "info",
            "claim": "team-a/train-1",
            "uid": "uid-1",
            "node": "node-a",
            "devices": [GPU],
            "pods": ["train-0"],
            "was": "absent",
        },
        {
            "event": "claim unprepared",
            "log_level": "info",
            "claim": "team-a/train-1",
            "uid": "uid-1",
            "node": "node-a",
            "was": "ready",
        },
    ]


def test_pods_are_told_once_the_claim_was_read(world):
    """Those that it is reserved for, and sixteen at most: hundreds may share a claim."""
    pods = tuple(PodRef(f"pod-{n}", f"u-{n}") for n in range(20))
    prepare(world.claims(), world.allocate(a_claim(SERVE, 0)))
    world.allocate(replace(a_claim(TRAIN, 0), pods=pods))
    _refused(world, TRAIN)
    assert world.told_pods == [pods[:16]]
    world.allocate(replace(a_claim(replace(TRAIN, uid="u-new"), 0), pods=pods))
    _refused(world, TRAIN)
    assert world.told_pods[-1] == (), "they wait for the new claim, not for this one"


def test_a_mistake_of_ours_is_told(world, monkeypatch):
    """The kubelet gets the exception; users get a reason, and the call is counted."""
    ref = world.allocate(a_claim(TRAIN, 0))
    claims = world.claims()
    monkeypatch.setattr("kubeletplugin.claims.prepare.record_of", lambda *_, **__: 1 / 0)
    with pytest.raises(ZeroDivisionError):
        prepare(claims, ref)
    ((_, reason),) = world.told
    assert (reason.what, reason.remedy) == (
        "claim team-a/train: internal error of the plugin on node-a: ZeroDivisionError: division by zero",
        f"{AGAIN}; if it lasts, write a bug report with what the plugin's log says of u-train",
    )
    assert [call[:2] for call in world.done] == [(Event.PREPARE, "Defect")]
