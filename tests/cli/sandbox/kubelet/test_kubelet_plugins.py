"""What the kubelet does when plugins come, go and report: registration, wipes, health."""

from tests.support.kubelet_world import GPUS, NICS, NODE, DeviceHealth, until


def _usable(kubelet, driver=GPUS):
    return kubelet.registry.usable(driver)


def test_start_deletes_the_slices_of_the_node(world):
    """Of all drivers, and of no other node."""
    for name, node, driver in (("a", NODE, GPUS), ("b", NODE, NICS), ("c", "node-b", GPUS)):
        world.slice(name, node, driver)
    world.kubelet()
    until(lambda: world.slices() == ["c"])


def test_slices_go_when_the_plugin_was_away_for_30_s(world):
    """Its own only; those written while it stays away are left alone."""
    kubelet = world.kubelet()
    plugin = world.plugin(world.driver())
    until(lambda: _usable(kubelet))
    for name, driver in (("a", GPUS), ("b", NICS)):
        world.slice(name, driver=driver)
    world.kill(plugin)
    until(lambda: not _usable(kubelet))
    until(_turns(kubelet))
    world.clock.time += 29.0
    until(_turns(kubelet))
    assert world.slices() == ["a", "b"]
    world.clock.time += 1.5
    until(lambda: world.slices() == ["b"])
    world.slice("again")
    world.clock.time += 100.0
    until(_turns(kubelet))
    assert world.slices() == ["again", "b"]


def test_slices_stay_when_the_plugin_is_back_in_time(world):
    """Its socket was made anew, so it is registered anew."""
    kubelet = world.kubelet()
    driver = world.driver()
    plugin = world.plugin(driver)
    until(lambda: _usable(kubelet))
    world.slice("a")
    world.kill(plugin)
    until(lambda: not _usable(kubelet))
    world.clock.time += 10.0
    world.plugin(driver)
    until(lambda: _usable(kubelet))
    until(_turns(kubelet))
    world.clock.time += 100.0
    until(_turns(kubelet))
    assert world.slices() == ["a"]


def test_removed_registration_socket_deregisters(world):
    """The plugin lives, but is asked no more, and its slices go after 30 s."""
    kubelet = world.kubelet()
    world.plugin(world.driver())
    until(lambda: _usable(kubelet))
    world.slice("a")
    (world.registry / f"{GPUS}-reg.sock").unlink()
    until(lambda: not kubelet.registry.plugins)
    until(_turns(kubelet))
    world.clock.time += 31.0
    until(lambda: not world.slices())


def test_rolling_update_changes_nothing_for_pods_and_slices(world):
    """Case H4: the newest instance gets the calls, the old one's going wipes nothing."""
    kubelet = world.kubelet()
    old, new = world.driver(), world.driver()
    first = world.plugin(old, pod_uid="0b6d2f5e-1111-4a3c-9a55-3c1b6a8e7d11")
    until(lambda: len(kubelet.registry.plugins) == 1)
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    world.plugin(new, pod_uid="7c1e9a04-2222-4a3c-9a55-3c1b6a8e7d11")
    until(lambda: len(kubelet.registry.plugins) == 2)
    world.slice("a")
    first.stop(0)
    until(lambda: len(kubelet.registry.plugins) == 1)
    world.clock.time += 100.0
    until(_turns(kubelet))
    assert world.slices() == ["a"]
    world.delete()
    until(lambda: world.found() is None)
    assert (old.calls, new.calls) == ([("prepare", "c")], [("unprepare", "c")])


def test_kubelet_of_an_older_version_prepares_too(world):
    """v1beta1 and the health stream of before 1.37."""
    world.plugin(world.driver())
    kubelet = world.kubelet(dra_versions=("v1beta1",), health_versions=("v1alpha1",))
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")
    assert kubelet.cdi_names("default", "p", "main")


def test_health_is_in_the_status_of_the_containers(world):
    """What the driver reports, with its message, and Healthy again when it says so (Case J5); a device nobody looked at is
    Unknown."""
    sick = []
    driver = world.driver(c=["a", "b"])

    def report():
        return [DeviceHealth("pool", "device-a", not sick, "fell off the bus" if sick else "")]

    plugin = world.plugin(driver, health=report)
    kubelet = world.kubelet()
    uid = world.claim("c", requests=("a", "b"))["metadata"]["uid"]
    world.pod(containers={"all": [("c", "")], "one": [("c", "a")], "none": []})
    a, b = (f"{GPUS}/claim={uid}-{request}" for request in "ab")

    def told(container=0):
        found = world.health(container=container)
        return {name: {each["resourceID"]: each["health"] for each in resources} for name, resources in found.items()}

    until(lambda: world.phase() == "Running" and told() == {"claim:c": {a: "Healthy", b: "Unknown"}})
    until(lambda: told(1) == {"claim:c/a": {a: "Healthy"}})
    assert told(2) == {}
    sick.append(True)
    plugin.devices_changed()
    until(lambda: told(1) == {"claim:c/a": {a: "Unhealthy"}})
    assert world.health(container=1)["claim:c/a"] == [
        {"resourceID": a, "health": "Unhealthy", "message": "fell off the bus"}
    ]
    sick.clear()
    plugin.devices_changed()
    until(lambda: told(1) == {"claim:c/a": {a: "Healthy"}})
    assert kubelet.views("default", "p")


def test_stream_that_ended_is_opened_again(world):
    """Five seconds later, and only when somebody listens."""
    kubelet = world.kubelet()
    driver = world.driver()
    plugin = world.plugin(driver)
    (registered,) = until(lambda: list(kubelet.registry.plugins.values()))
    stream = registered.stream
    stream.call.cancel()
    until(stream.ended.is_set)
    until(_turns(kubelet))
    assert registered.stream is stream
    world.clock.time += 5.5
    until(lambda: registered.stream is not stream)
    until(plugin.registered)


def test_stream_that_is_not_served_is_not_asked_for_again(world, monkeypatch):
    """A plugin may offer the service without having it: it stays registered, and gets its claims."""
    monkeypatch.setattr("kubeletplugin.sockets.server.HealthStreams.handlers", lambda _: ())
    kubelet = world.kubelet()
    world.plugin(world.driver())
    (registered,) = until(lambda: list(kubelet.registry.plugins.values()))
    stream = registered.stream
    until(stream.ended.is_set)
    for _ in range(3):
        world.clock.time += 5.5
        until(_turns(kubelet))
    assert registered.stream is stream
    assert _usable(kubelet)
    world.claim("c")
    world.pod()
    until(lambda: world.phase() == "Running")


def test_socket_nobody_answers_is_tried_ever_more_rarely(world):
    """A stale socket of a dead plugin costs one GetInfo of growing distance."""
    plugin = world.plugin(world.driver())
    world.kill(plugin)
    kubelet = world.kubelet()
    tries = []
    register = kubelet.registry.register
    kubelet.registry.register = lambda path: (tries.append(world.clock.time), register(path))[1]
    for seconds in (0.6, 0.6, 0.6, 2.0):
        until(_turns(kubelet))
        world.clock.time += seconds
    until(_turns(kubelet))
    assert 2 <= len(tries) <= 4
    assert not kubelet.registry.plugins


def _turns(kubelet, count=2):
    """Whether the kubelet has looked at its plugins that often from now on; the turn under way does not count."""
    seen = []
    kubelet._attendance._pending = _Counting(kubelet._attendance._pending, seen)
    return lambda: len(seen) > count


class _Counting:
    """Pending wipes that note each look at them."""

    def __init__(self, wipes, seen):
        self._wipes, self._seen = wipes, seen

    def note(self, *args, **kwargs):
        self._wipes.note(*args, **kwargs)

    def due(self, now):
        self._seen.append(now)
        return self._wipes.due(now)
