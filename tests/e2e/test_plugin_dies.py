"""The plugin is killed, stays away, is frozen, or is replaced while pods come and go."""

import signal
from concurrent.futures import ThreadPoolExecutor
from functools import partial

from tests.cluster.lanewise import DRIVER, until
from tests.e2e.site import claim, pod, template

KILLS = 5


def test_killed_in_the_middle_of_fifty_prepares(site):
    """Fifty pods on eight GPUs while the plugin is killed again and again; each gets one GPU, and nothing is lost or kept."""
    script = "env | grep -c '^LANEWISE_DEVICE_.*=GPU-'; ls /dev | grep -c '^nvidia[0-9]'; sleep 1"
    names = [f"storm-{n}" for n in range(50)]
    site.apply(template("each"), *(pod(name, templates=["each"], script=script) for name in names))

    def phases() -> list[str]:
        return [
            each["status"].get("phase", "") for each in site.cluster.get("/api/v1/namespaces/default/pods")["items"]
        ]

    def through(number: int) -> bool:
        assert "Failed" not in phases()
        return phases().count("Succeeded") >= number

    for kill in range(1, KILLS + 1):
        until(f"{4 * kill} pods are through", partial(through, 4 * kill), 240)
        site.plugin.kill()
        site.lanewise.start_plugin()
    until("all pods are through", partial(through, 50), 400)
    assert {site.cluster.kubectl("logs", name) for name in names} == {"1\n1\n"}
    until("nothing is left", lambda: site.kept() == (set(), set(), {}), 90)
    site.published()


def test_away_for_longer_than_thirty_seconds_and_back(site):
    """First the devices are tainted, then the kubelet wipes them, and they return only with the plugin; the pod runs on."""
    site.apply(claim("kept"), pod("kept", claims=["kept"]))
    site.running("kept")
    before = site.pod("kept")["status"]["containerStatuses"][0]["containerID"]
    site.plugin.kill()
    until("the kubelet wiped the slices", lambda: not site.slices(), 60)
    site.apply(claim("late"), pod("late", claims=["late"]))
    site.pending_because("late", "cannot allocate all claims")
    assert not site.slices(), "the slices came back without the plugin"
    site.lanewise.start_plugin()
    site.published()
    site.running("late")
    assert site.pod("kept")["status"]["containerStatuses"][0]["containerID"] == before
    site.agrees()


def test_stopped_plugin_is_tainted_at_once_and_untainted_on_return(site):
    """A clean stop says so: no pod is sent to a node that cannot start it."""
    site.plugin.stop()
    until(
        "every device is tainted",
        lambda: len(site.devices()) == 8 and all("taints" in d for d in site.devices().values()),
        20,
    )
    assert {t["effect"] for d in site.devices().values() for t in d["taints"]} == {"NoSchedule"}
    site.apply(claim("waits"), pod("waits", claims=["waits"]))
    site.pending_because("waits", "cannot allocate all claims")
    site.lanewise.start_plugin()
    site.running("waits")
    assert not site.taints()


def test_frozen_plugin_is_tainted_and_goes_on(site):
    """SIGSTOP for longer than its Lease lasts: tainted after the silence, clean when it goes on, never wiped."""
    uids = {each["metadata"]["uid"] for each in site.slices()}
    site.plugin.signal(signal.SIGSTOP)
    try:
        until("every device is tainted", lambda: len(site.devices()) == 8 and bool(site.taints()), 70)
    finally:
        site.plugin.signal(signal.SIGCONT)
    site.published(20)
    assert {each["metadata"]["uid"] for each in site.slices()} == uids


def test_rolling_update_while_pods_come_and_go(site):
    """A second instance starts beside the first, pods start and end all the while, the first leaves; no slice is touched."""
    site.plugin.stop()
    first = site.lanewise.start_plugin(name="plugin-first", pod_uid="11111111-1111-4111-8111-111111111111")
    second = None
    try:
        site.published(60)
        slices = [(s["metadata"]["uid"], s["metadata"]["generation"]) for s in site.slices()]
        site.apply(template("each"))

        def come_and_go(n: int) -> None:
            each = pod(f"roll-{n}", templates=["each"])
            site.apply(each)
            site.running(each)
            site.delete(each)

        with ThreadPoolExecutor(4) as hands:
            going = [hands.submit(come_and_go, n) for n in range(12)]
            until("some pods went through", lambda: sum(each.done() for each in going) >= 2, 90)
            second = site.lanewise.start_plugin(name="plugin-second", pod_uid="22222222-2222-4222-8222-222222222222")
            until(
                "both are registered",
                lambda: [i["registered"] for i in site.inventory()["status"]["instances"]] == [True, True],
                30,
            )
            first.stop()
            until("the first took its mark away", lambda: len(site.inventory()["status"]["instances"]) == 1)
            for each in going:
                each.result()
        site.agrees()
        assert [(s["metadata"]["uid"], s["metadata"]["generation"]) for s in site.slices()] == slices
        sockets = sorted(path.name for path in site.cluster.plugins_registry.glob(f"{DRIVER}*"))
        assert sockets == [f"{DRIVER}-22222222-2222-4222-8222-222222222222-reg.sock"]
    finally:
        first.stop()
        if second is not None:
            second.stop()


def test_registration_socket_removed_under_a_live_plugin(site):
    """Somebody cleans the kubelet's directory; the plugin notices and registers again without a restart."""
    pid = site.plugin.pid
    socket = site.cluster.plugins_registry / f"{DRIVER}-reg.sock"
    socket.unlink()
    until("the socket is back", socket.exists, 20)
    site.published(30)
    site.apply(claim("after"), pod("after", claims=["after"]))
    site.running("after")
    assert site.plugin.pid == pid
