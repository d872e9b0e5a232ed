"""DRAPlugin over a real socket: each claim gets its own answer, in both versions."""

import threading

import grpc
import pytest
import structlog
from structlog.testing import capture_logs

from api.names import ClaimRef
from api.refusals import BadInput, Refused
from cli.sandbox.kubelet import Registry
from tests.support.plugin_sockets import Fake, a_device

A, B, C = (("team-a", f"train-{uid}", uid) for uid in ("a", "b", "c"))


@pytest.fixture
def fake():
    return Fake()


@pytest.fixture(params=["v1", "v1beta1"])
def version(request):
    return request.param


@pytest.fixture
def kubelet(node, version):
    with Registry(node.registry, dra_versions=(version,), health_versions=()) as made:
        yield made


@pytest.fixture
def plugin(node, fake, kubelet):
    node.plugin(fake).start()
    [registered] = kubelet.scan()
    return registered


def refuse(text):
    raise Refused(BadInput("claim", text, "do this"))


def test_prepared_devices_arrive_as_they_are(plugin, fake):
    """Names, pool, requests and CDI ids reach the kubelet unchanged; an entry without error means prepared."""
    reply = plugin.prepare([A])
    assert list(reply.claims) == ["a"]
    [device] = reply.claims["a"].devices
    assert list(device.request_names) == ["gpu"]
    assert device.pool_name == "node-a/gpu.lanewise.dev"
    assert device.device_name == "gpu-a"
    assert list(device.cdi_device_ids) == ["gpu.lanewise.dev/claim=a"]
    assert reply.claims["a"].error == ""
    assert fake.calls == [("prepare", ClaimRef("team-a", "train-a", "a"))]


def test_share_id_is_in_v1_only(plugin, fake, version):
    """v1beta1 has no field for it, and works all the same."""
    fake.on_prepare = lambda ref, cancelled: (a_device(ref, "share-1"), a_device(ref))
    devices = plugin.prepare([A]).claims["a"].devices
    assert [device.device_name for device in devices] == ["gpu-a", "gpu-a"]
    if version == "v1":
        assert devices[0].share_id == "share-1"
        assert not devices[1].HasField("share_id")
    else:
        assert "share_id" not in type(devices[0]).DESCRIPTOR.fields_by_name


def test_claim_without_devices_of_ours_has_an_empty_entry(plugin, fake):
    """A missing entry would count as an error (pkg/kubelet/cm/dra)."""
    fake.on_prepare = lambda ref, cancelled: ()
    reply = plugin.prepare([A])
    assert list(reply.claims) == ["a"]
    assert (list(reply.claims["a"].devices), reply.claims["a"].error) == ([], "")


def test_no_claims_is_an_empty_answer(plugin):
    """What the probe asks."""
    assert dict(plugin.prepare([]).claims) == {}
    assert dict(plugin.unprepare([]).claims) == {}


def test_one_bad_claim_never_spoils_its_neighbours(plugin, fake):
    """A refusal and a defect are told for their own claims; the third is prepared: nobody spoils its neighbours."""

    def prepare(ref, cancelled):
        if ref.uid == "a":
            refuse("is held by team-b/serve")
        if ref.uid == "b":
            raise ZeroDivisionError("division by zero")
        return (a_device(ref),)

    fake.on_prepare = prepare
    reply = plugin.prepare([A, B, C])
    assert reply.claims["a"].error == "claim: is held by team-b/serve (do this)"
    assert reply.claims["b"].error == (
        "internal error at claim team-a/train-b: ZeroDivisionError: division by zero (see the plugin's log for b)"
    )
    assert [device.device_name for device in reply.claims["c"].devices] == ["gpu-c"]


def test_an_answer_that_cannot_be_sent_is_one_claims_error(plugin, fake):
    """A device whose name is no text must not fail the whole reply."""
    fake.on_prepare = lambda ref, cancelled: None if ref.uid == "a" else (a_device(ref),)
    reply = plugin.prepare([A, B])
    assert reply.claims["a"].error.startswith("internal error at claim team-a/train-a: TypeError")
    assert reply.claims["b"].error == ""


def test_a_reason_that_is_no_utf8_is_still_told(plugin, fake):
    """File names may hold any bytes; protobuf text may not."""
    fake.on_prepare = lambda ref, cancelled: refuse("odd file /x/\udcff")
    assert plugin.prepare([A]).claims["a"].error == "claim: odd file /x/\\udcff (do this)"


def test_unprepare_answers_each_claim(plugin, fake):
    """Refused, failed and done side by side."""

    def unprepare(ref):
        if ref.uid == "a":
            refuse("record cannot be removed")
        if ref.uid == "b":
            raise OSError(28, "No space left on device")

    fake.on_unprepare = unprepare
    reply = plugin.unprepare([A, B, C])
    assert reply.claims["a"].error == "claim: record cannot be removed (do this)"
    assert reply.claims["b"].error.startswith("internal error at claim team-a/train-b: OSError")
    assert reply.claims["c"].error == ""
    assert sorted(reply.claims) == ["a", "b", "c"]


def test_calls_of_different_pods_run_side_by_side(plugin, fake):
    """The second call is answered while the first waits."""
    entered, leave = threading.Event(), threading.Event()

    def prepare(ref, cancelled):
        if ref.uid == "a":
            entered.set()
            assert leave.wait(10)
        return (a_device(ref),)

    fake.on_prepare = prepare
    first = plugin.prepare_call([A])
    try:
        assert entered.wait(10)
        assert plugin.prepare([B]).claims["b"].error == ""
        assert not first.done()
    finally:
        leave.set()
    assert first.result(10).claims["a"].error == ""


def test_preparer_learns_that_nobody_waits_any_more(plugin, fake):
    """At the kubelet's deadline the call is cancelled; what is half done can then be left for the retry."""
    entered, learned, checked = threading.Event(), threading.Event(), threading.Event()

    def prepare(ref, cancelled):
        assert not cancelled()
        entered.set()
        while not cancelled() and not checked.wait(0.01):
            pass
        if cancelled():
            learned.set()
        return ()

    fake.on_prepare = prepare
    call = plugin.prepare_call([A])
    assert entered.wait(10)
    call.cancel()
    try:
        assert learned.wait(10)
    finally:
        checked.set()
    with pytest.raises(grpc.FutureCancelledError):
        call.result()


def test_each_claim_has_one_closing_line(plugin, fake):
    """With claim, uid, method, outcome and seconds; a defect with its traceback."""

    def prepare(ref, cancelled):
        if ref.uid == "a":
            refuse("no")
        if ref.uid == "b":
            raise ZeroDivisionError
        return (a_device(ref),)

    fake.on_prepare = prepare
    with capture_logs() as logs:
        plugin.prepare([A, B, C])
        plugin.unprepare([C])
    closing = [line for line in logs if line["event"].startswith("claim ")]
    assert [(line["event"], line["claim"], line["uid"], line["method"], line["outcome"]) for line in closing] == [
        ("claim refused", "team-a/train-a", "a", "NodePrepareResources", "refused"),
        ("claim failed", "team-a/train-b", "b", "NodePrepareResources", "failed"),
        ("claim prepared", "team-a/train-c", "c", "NodePrepareResources", "done"),
        ("claim unprepared", "team-a/train-c", "c", "NodeUnprepareResources", "done"),
    ]
    assert all(line["seconds"] >= 0 for line in closing)
    assert [bool(line.get("exc_info")) for line in closing] == [False, True, False, False]


def test_what_the_preparer_logs_carries_the_claim(plugin, fake):
    """Bound to the worker while it works on this claim, and not after."""
    found = []
    fake.on_prepare = lambda ref, cancelled: (found.append(structlog.contextvars.get_contextvars()), ())[1]
    plugin.prepare([A, B])
    assert found == [
        {"claim": f"team-a/train-{uid}", "uid": uid, "method": "NodePrepareResources"} for uid in ("a", "b")
    ]
