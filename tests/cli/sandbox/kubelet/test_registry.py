"""Registration sockets, one turn at a time; what plugins make of it is tested with them (tests/kubeletplugin/sockets)."""

import pytest

from cli.sandbox.kubelet import NotRegistered, Registry


@pytest.fixture
def registry(world):
    with Registry(world.registry, health_versions=()) as made:
        yield made


def test_socket_made_anew_is_another_plugin(world, registry):
    """A plugin that was killed and started again between two looks is registered again."""
    plugin = world.plugin(world.driver())
    (first,) = registry.scan()
    assert registry.scan() == []
    world.kill(plugin)
    world.plugin(world.driver())
    (second,) = registry.scan()
    assert list(registry.plugins.values()) == [second] != [first]


def test_connected_instance_is_preferred(world, registry):
    """The one registered last, unless nobody answers there."""
    names = ("0b6d2f5e-1111-4a3c-9a55-3c1b6a8e7d11", "7c1e9a04-2222-4a3c-9a55-3c1b6a8e7d11")
    old, new = (world.plugin(driver := world.driver(), pod_uid=name) for name in names)
    assert driver.name
    registry.scan()
    latest = registry.plugin(driver.name)
    dead = new if names[1] in latest.endpoint else old
    world.kill(dead)
    assert registry.plugin(driver.name) is not latest
    assert registry.usable(driver.name)


def test_endpoint_of_another_instance_is_refused(world, registry):
    """One plugin cannot take over another's endpoint."""
    world.plugin(world.driver())
    registry.scan()
    path = next(iter(registry.plugins))
    link = path.with_name("other-reg.sock")
    link.hardlink_to(path)
    with pytest.raises(NotRegistered, match="already registered for DRA driver plugin"):
        registry.scan()


def test_other_files_are_no_registration_sockets(world, registry):
    """Nor are sockets with a leading dot."""
    world.plugin(world.driver())
    (path,) = registry.sockets()
    path.with_name(".hidden.sock").hardlink_to(path)
    (world.registry / "file").write_text("")
    assert registry.sockets() == [path]
