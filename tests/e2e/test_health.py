"""A GPU falls ill under a running pod, and recovers: what the scheduler, the kubelet and the pod's owner see of it."""

import pytest

from api.names import gpu_address, gpu_device_name
from api.pci import PciAddress
from controller.taints import taint_key
from tests.cluster.lanewise import until
from tests.e2e.site import claim, pod, request

QUICK = ("--health-seconds=1",)
LOST = taint_key("lost")


class Ward:
    """The site's plugin on a machine file of ours, in which GPUs fall ill."""

    def __init__(self, site, path):
        self.site, self.path = site, path
        self.text = site.lanewise.machine.read_text()
        path.write_text(self.text)

    def start(self):
        self.site.lanewise.start_plugin(*QUICK, machine=self.path)

    def make(self, device, health):
        """Let the GPU be so from now on."""
        lines = [
            line.replace("}", f", health: {health}}}", 1) if device == device_of(line) else line
            for line in self.text.splitlines()
        ]
        assert lines != self.text.splitlines(), f"no {device} in the machine file"
        self.path.write_text("\n".join(lines))

    def mend(self):
        """All GPUs are well."""
        self.path.write_text(self.text)

    def taints(self, device):
        return [
            (taint["key"], taint.get("value"), taint["effect"], taint["timeAdded"])
            for taint in self.site.devices().get(device, {}).get("taints", [])
        ]

    def ailments(self, device):
        gpus = self.site.inventory()["spec"]["gpus"]
        return next(gpu.get("ailments", []) for gpu in gpus if gpu["name"] == device)

    def health(self, name):
        """What the kubelet says of the pod's devices: health and message."""
        statuses = self.site.pod(name)["status"].get("containerStatuses", [])
        return [
            (resource["health"], resource.get("message", ""))
            for status in statuses
            for allocated in status.get("allocatedResourcesStatus") or []
            for resource in allocated["resources"]
        ]

    def device_of(self, name):
        """The device that the claim of this name has."""
        for each in self.site.claims():
            if each["metadata"]["name"] == name:
                return each["status"]["allocation"]["devices"]["results"][0]["device"]
        raise AssertionError(f"no claim {name}")


def device_of(line):
    """The device of a GPU's line in the machine file."""
    head, found, rest = line.partition("- {pci: ")
    return gpu_device_name(PciAddress.parse(rest[:12])) if found and not head.strip() else None


@pytest.fixture
def ward(site, tmp_path):
    """Afterwards the site's own plugin runs again, on its own file."""
    site.plugin.stop()
    here = Ward(site, tmp_path / "machine.yaml")
    here.start()
    try:
        site.published(60)
        yield here
    finally:
        here.mend()
        if site.plugin.pid is None:
            here.start()
        site.published(60)
        site.plugin.stop()
        site.lanewise.start_plugin()


def test_a_gpu_falls_off_the_bus_and_is_back(site, ward):
    """Taint, message in the pod's status, Event on the claim, no new pod on it, a clear refusal; recovery clears it all."""
    site.apply(claim("train"), pod("train", claims=["train"]))
    site.running("train")
    device = ward.device_of("train")
    until("the kubelet says that it is well", lambda: ward.health("train") == [("Healthy", "")])

    ward.make(device, "{lost: true}")
    until("the device is tainted", lambda: ward.taints(device), 20)
    ((key, value, effect, since),) = ward.taints(device)
    assert (key, value, effect) == (LOST, "off-the-bus", "NoSchedule")
    assert len(site.devices()) == 8, "the GPU is still there to be seen"
    (ailment,) = ward.ailments(device)
    assert (ailment["kind"], ailment["code"], ailment["since"]) == ("lost", "off-the-bus", since)
    said = f"the GPU has fallen off the bus, since {since}; {ailment['remedy']}"
    until("the kubelet says so", lambda: ward.health("train") == [("Unhealthy", said)], 60)
    until("its owner is told", lambda: any(f"{device} on" in note for note in site.events("ResourceClaim", "train")))
    site.running("train")  # NoSchedule touches nobody

    others = [claim("seven", request(count=7)), pod("seven", claims=["seven"])]
    more = [claim("eighth"), pod("eighth", claims=["eighth"])]
    site.apply(*others)
    site.running("seven")
    site.apply(*more)
    site.pending_because("eighth", "cannot allocate all claims")
    site.delete(more[1], others[1], pod("train"))
    site.delete(more[0], others[0], claim("train"))

    tolerating = request(tolerations=[{"key": LOST, "operator": "Exists", "effect": "NoSchedule"}])
    only_it = f'device.attributes["resource.kubernetes.io"].pciBusID == "{gpu_address(device)}"'
    tolerating["exactly"]["selectors"] = [{"cel": {"expression": only_it}}]
    site.apply(claim("anyway", tolerating), pod("anyway", claims=["anyway"]))
    until(
        "it is refused with the reason",
        lambda: any(
            f"{device} on localhost is lost since {since}" in note for note in site.events("ResourceClaim", "anyway")
        ),
    )

    site.delete(pod("anyway"))
    ward.mend()
    until("the taint is gone", lambda: not ward.taints(device), 20)
    assert ward.ailments(device) == []
    site.apply(claim("after", request(selectors=[only_it])), pod("after", claims=["after"]))
    site.running("after")
    until("the kubelet says that it is well", lambda: ward.health("after") == [("Healthy", "")])


def test_a_taint_outlives_the_plugin_and_the_gpus_return_does_not_need_it(site, ward):
    """Case J3: the taint stays through a kill and a restart, its time unchanged, and the Event is not told again."""
    site.apply(claim("held"), pod("held", claims=["held"]))
    site.running("held")
    device = ward.device_of("held")
    ward.make(device, "{lost: true}")
    until("the device is tainted", lambda: ward.taints(device), 20)
    before = ward.taints(device)
    until("its owner is told", lambda: site.events("ResourceClaim", "held"))

    site.plugin.kill()
    ward.start()
    until("the plugin serves again", lambda: site.taints() == {LOST} and registered(site), 60)
    assert ward.taints(device) == before
    until("the kubelet says so", lambda: [health for health, _ in ward.health("held")] == ["Unhealthy"], 60)
    lost = [note for note in site.events("ResourceClaim", "held") if "is lost while" in note]
    assert len(lost) == 1

    site.plugin.kill()
    ward.mend()
    ward.start()
    site.published(60)
    until("the kubelet says that it is well", lambda: ward.health("held") == [("Healthy", "")], 60)
    site.agrees()


def test_what_is_only_to_be_known_keeps_nobody_away(site, ward):
    """A pending row remap is a taint of the effect None: seen by everybody, minded by nobody (the default)."""
    device = next(iter(site.devices()))
    ward.make(device, "{remapPending: true}")
    until("it is told", lambda: ward.taints(device), 20)
    assert [taint[:3] for taint in ward.taints(device)] == [(taint_key("memory-pending"), "remap-pending", "None")]
    site.apply(claim("all", request(count=8)), pod("all", claims=["all"]))
    site.running("all")


def test_no_execute_ends_the_pods_on_it(site, ward):
    """`--health-effects=xid=NoExecute`: the pod is evicted, and nobody else is."""
    site.controller.stop()
    site.lanewise.start_controller("--health-effects=xid=NoExecute")
    try:
        site.published(60)
        for name in ("first", "second"):
            site.apply(claim(name), pod(name, claims=[name]))
            site.running(name)
        device = ward.device_of("first")
        ward.make(device, "{xids: [31, 119]}")
        until("the pod is evicted", lambda: gone(site, "first"), 60)
        assert [taint[:3] for taint in ward.taints(device)] == [(taint_key("xid"), "119", "NoExecute")]
        site.running("second")
    finally:
        site.controller.stop()
        site.lanewise.start_controller()


def gone(site, name):
    items = site.cluster.get("/api/v1/namespaces/default/pods")["items"]
    return all(each["metadata"]["name"] != name or each["metadata"].get("deletionTimestamp") for each in items)


def registered(site):
    return any(entry["registered"] for entry in site.inventory()["status"].get("instances", []))
