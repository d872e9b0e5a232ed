"""Two sockets, up and down in the right order, among instances that come, go and die."""

import socket
import stat
import threading

import grpc
import pytest
from structlog.testing import capture_logs

from api.refusals import BadInput, Refused
from cli.sandbox.kubelet import NotRegistered, Registry
from kubeletplugin.sockets.registered import STREAM_GRACE_SECONDS
from kubeletplugin.sockets.registration import SUPPORTED_VERSIONS
from tests.support.plugin_sockets import DRIVER, Fake

OLD, NEW, DEAD = (f"{digit * 8}-0000-0000-0000-000000000000" for digit in "123")
CLAIM = ("team-a", "train", "u")


def dead_socket(path):
    """What a killed process leaves: the file, and nobody behind it."""
    with socket.socket(socket.AF_UNIX, socket.SOCK_STREAM) as made:
        made.bind(str(path))
        made.listen()


@pytest.fixture
def kubelet(node):
    with Registry(node.registry) as made:
        yield made


def test_kubelet_learns_who_we_are(node, kubelet):
    """Type, name, absolute endpoint, and the versions in the order of preference."""
    node.plugin().start()
    [plugin] = kubelet.scan()
    assert plugin.driver == DRIVER
    assert plugin.endpoint == str(node.paths().dra)
    assert plugin.supported_versions == SUPPORTED_VERSIONS
    assert SUPPORTED_VERSIONS == (
        "v1.DRAPlugin",
        "v1beta1.DRAPlugin",
        "v1.DRAResourceHealth",
        "v1alpha1.DRAResourceHealth",
    )
    assert plugin.pb.DESCRIPTOR.package == "k8s.io.kubelet.pkg.apis.dra.v1"
    assert plugin.prepare([CLAIM]).claims["u"].error == ""


def test_sockets_are_for_root_only(node):
    """Whoever may write to them can prepare any claim."""
    node.plugin().start()
    modes = {path.name: stat.filemode(path.stat().st_mode) for path in (node.paths().registration, node.paths().dra)}
    assert modes == {f"{DRIVER}-reg.sock": "srw-------", "dra.sock": "srw-------"}


def test_nothing_else_is_made(node):
    """No temporary file stays; the plugin's directory is made."""
    node.plugin().start()
    assert node.names() == ["dra.sock", f"{DRIVER}-reg.sock"]


def test_missing_registry_is_refused(node):
    """A plugin that waits where no kubelet looks would wait for ever."""
    node.registry.rmdir()
    with pytest.raises(Refused) as caught:
        node.plugin().start()
    assert str(caught.value) == (
        f"{node.registry}: is no directory, so the kubelet does not look there for plugins"
        " (mount the kubelet's plugins_registry from the host, or name the right directory)"
    )


def test_something_else_in_the_sockets_place_is_refused_and_kept(node):
    """Nothing that we did not make is destroyed, and nothing stays open after a refused start."""
    node.paths().registration.write_text("precious")
    plugin = node.plugin()
    with pytest.raises(Refused) as caught:
        plugin.start()
    assert caught.value.reason.what == f"{node.paths().registration}: is no socket, but lies where one has to be"
    assert node.names() == [f"{DRIVER}-reg.sock"]
    assert node.paths().registration.read_text() == "precious"
    node.paths().registration.unlink()
    plugin.start()
    assert plugin.sockets_in_place()


def test_plugin_directory_that_cannot_be_made_is_refused(node):
    """One sentence with the path."""
    node.plugin_dir.parent.write_text("a file")
    with pytest.raises(Refused) as caught:
        node.plugin().start()
    assert isinstance(caught.value.reason, BadInput)
    assert caught.value.reason.source == str(node.plugin_dir)


def test_stale_sockets_of_the_same_names_are_replaced(node, kubelet):
    """The container restarted after a SIGKILL."""
    node.plugin_dir.mkdir(parents=True)
    dead_socket(node.paths().registration)
    dead_socket(node.paths().dra)
    with pytest.raises(NotRegistered):
        kubelet.scan()
    node.plugin().start()
    assert kubelet.scan()[0].prepare([CLAIM]).claims["u"].error == ""


def test_leftovers_of_dead_instances_go_and_nothing_else(node):
    """Case H4: a dead instance's sockets are dialled by every new kubelet; living and foreign ones are not ours to judge."""
    node.plugin_dir.mkdir(parents=True)
    ours = [
        node.paths(DEAD).registration,
        node.paths(DEAD).dra,
        node.paths().dra,
        node.paths().registration,
    ]
    foreign = [node.registry / "nic.example.com-reg.sock", node.registry / f"{DRIVER}-special-reg.sock"]
    for path in [*ours, *foreign]:
        dead_socket(path)
    (node.plugin_dir / "dra-notes.sock").write_text("no socket")
    living = node.plugin(pod_uid=OLD)
    with capture_logs() as logs:
        living.start()
    assert [line["paths"] for line in logs if line["event"] == "left over sockets removed"] == [
        sorted(str(path) for path in ours if path.parent == node.registry)
        + sorted(str(path) for path in ours if path.parent == node.plugin_dir)
    ]
    node.plugin(pod_uid=NEW).start()
    assert living.sockets_in_place()
    assert all(path.exists() for path in foreign)
    assert (node.plugin_dir / "dra-notes.sock").exists()
    assert not any(path.exists() for path in ours)


def test_rolling_update_keeps_one_instance_registered_throughout(node):
    """Case H4: the new instance beside the old, a kubelet restart in between, then the old one leaves."""
    old_work, new_work = Fake(), Fake()
    old, new = node.plugin(old_work, pod_uid=OLD), node.plugin(new_work, pod_uid=NEW)
    old.start()
    with Registry(node.registry) as first:
        first.scan()
        new.start()
        first.scan()
        first.plugin(DRIVER).prepare([CLAIM])
        assert (len(old_work.calls), len(new_work.calls)) == (0, 1)
    with Registry(node.registry) as second:
        assert len(second.scan()) == 2
        old.stop()
        assert second.scan() == []
        assert [plugin.socket for plugin in second.plugins.values()] == [node.paths(NEW).registration]
        second.plugin(DRIVER).stream.report()
        assert new.registered()
        assert not old.registered()
        assert new.sockets_in_place()
        second.plugin(DRIVER).unprepare([CLAIM])
    assert node.names() == sorted([node.paths(NEW).dra.name, node.paths(NEW).registration.name])


def test_old_instance_does_not_take_the_new_ones_sockets_away(node, kubelet):
    """Same names, started before the old one ended: gRPC alone would unlink whatever has its socket's name by then."""
    old, new = node.plugin(), node.plugin()
    old.start()
    with capture_logs() as logs:
        new.start()
    assert [line["event"] for line in logs if line["log_level"] == "warning"] == [
        "socket of a running process replaced"
    ] * 2
    assert not old.sockets_in_place()
    old.stop()
    assert new.sockets_in_place()
    assert kubelet.scan()[0].prepare([CLAIM]).claims["u"].error == ""


def test_stop_removes_the_sockets_and_can_be_repeated(node):
    """SIGTERM: no file stays for the kubelet to dial."""
    plugin = node.plugin()
    plugin.stop()
    plugin.start()
    plugin.start()
    plugin.stop()
    plugin.stop()
    assert node.names() == []
    assert not plugin.sockets_in_place()
    assert not plugin.registered()


def test_started_again_after_a_stop(node, kubelet):
    """The cure when a socket went missing."""
    plugin = node.plugin()
    plugin.start()
    kubelet.scan()
    plugin.stop()
    kubelet.scan()
    plugin.start()
    [registered] = kubelet.scan()
    registered.stream.report()
    assert plugin.registered()


def test_registrar_goes_first_and_calls_in_flight_get_their_grace(node):
    """The kubelet sends nothing new, and what was begun is finished and answered."""
    entered, leave = threading.Event(), threading.Event()
    fake = Fake()

    def prepare(ref, cancelled):
        entered.set()
        assert leave.wait(10)
        return ()

    fake.on_prepare = prepare
    plugin = node.plugin(fake)
    plugin.start()
    with Registry(node.registry, health_versions=("v1",)) as kubelet:
        [registered] = kubelet.scan()
        call = registered.prepare_call([CLAIM])
        assert entered.wait(10)
        stopping = threading.Thread(target=plugin.stop, args=(60,))
        stopping.start()
        try:
            # Streams end after the registrar went and before the calls had to.
            assert registered.stream.ended.wait(10)
            assert node.names() == ["dra.sock"]
            assert not call.done()
        finally:
            leave.set()
        assert call.result(10).claims["u"].error == ""
        stopping.join(10)
    assert node.names() == []


def test_calls_that_outlast_the_grace_are_cancelled(node, kubelet):
    """Their worker learns it; the stop does not wait for them."""
    entered, learned, leave = threading.Event(), threading.Event(), threading.Event()
    fake = Fake()

    def prepare(ref, cancelled):
        entered.set()
        while not cancelled() and not leave.wait(0.01):
            pass
        if cancelled():
            learned.set()
        return ()

    fake.on_prepare = prepare
    plugin = node.plugin(fake)
    plugin.start()
    [registered] = kubelet.scan()
    call = registered.prepare_call([CLAIM])
    assert entered.wait(10)
    try:
        plugin.stop(grace_seconds=0.05)
        assert learned.wait(10)
    finally:
        leave.set()
    with pytest.raises(grpc.RpcError):
        call.result(10)
    assert node.names() == []


def test_kubelet_without_streams_counts_while_the_sockets_are_there(node):
    """Its registration call, and our own files: a kubelet forgets a plugin whose registrar socket is gone."""
    plugin = node.plugin()
    plugin.start()
    assert not plugin.registered()
    with Registry(node.registry, health_versions=()) as kubelet:
        kubelet.scan()
        assert plugin.registered()
        node.paths().registration.unlink()
        with capture_logs() as logs:
            assert not plugin.registered()
            assert not plugin.registered()
        assert [(line["event"], line["paths"]) for line in logs] == [
            ("sockets went missing", [str(node.paths().registration)])
        ]
        assert not plugin.sockets_in_place()


def test_another_file_in_our_place_is_not_our_socket(node):
    """The name alone proves nothing."""
    plugin = node.plugin()
    plugin.start()
    node.paths().dra.unlink()
    dead_socket(node.paths().dra)
    assert not plugin.sockets_in_place()
    plugin.stop()
    assert node.names() == ["dra.sock"]


def test_kubelet_that_lost_its_stream_service_counts_after_a_while(node):
    """Downgraded: a stream was seen once, now only the registration call comes."""
    now = [1000.0]
    changed = threading.Event()
    plugin = node.plugin(monotonic=lambda: now[0], changed=changed.set)
    plugin.start()
    with Registry(node.registry) as newer:
        newer.scan()[0].stream.report()
        changed.clear()
    assert changed.wait(10)
    assert not plugin.registered()
    with Registry(node.registry, health_versions=()) as older:
        older.scan()
        assert not plugin.registered()
        assert plugin.next_change() == STREAM_GRACE_SECONDS
        now[0] += STREAM_GRACE_SECONDS
        assert plugin.registered()
        assert plugin.next_change() is None


def test_refusal_by_the_kubelet_is_logged_and_does_not_count(node):
    """With the kubelet's own words."""

    class Picky(Registry):
        def why_not(self, info):
            return "driver name is taken"

    plugin = node.plugin()
    plugin.start()
    with capture_logs() as logs, Picky(node.registry) as kubelet, pytest.raises(NotRegistered):
        kubelet.scan()
    assert not plugin.registered()
    assert [(line["log_level"], line["error"]) for line in logs if line["event"] == "kubelet refused the plugin"] == [
        ("error", "driver name is taken")
    ]


def test_older_kubelet_takes_v1beta1(node):
    """The first entry of our list that it knows."""
    node.plugin().start()
    with Registry(node.registry, dra_versions=("v1beta1",), health_versions=("v1alpha1",)) as kubelet:
        [plugin] = kubelet.scan()
        assert plugin.pb.DESCRIPTOR.package == "k8s.io.kubelet.pkg.apis.dra.v1beta1"
        assert plugin.prepare([CLAIM]).claims["u"].error == ""
        assert len(plugin.stream.report().devices) == 1


def test_odd_characters_in_directories(node):
    """gRPC takes its addresses for URIs."""
    node.registry = node.registry.with_name("r %41#?")
    node.registry.mkdir()
    node.plugin_dir = node.plugin_dir.with_name("p %41#?")
    plugin = node.plugin()
    plugin.start()
    assert node.names() == ["dra.sock", f"{DRIVER}-reg.sock"]
    assert plugin.sockets_in_place()


def test_killed_between_making_and_naming_a_socket(node):
    """The temporary socket is swept by the next start."""
    node.plugin_dir.mkdir(parents=True)
    from kubeletplugin.sockets.paths import temporary_prefix

    for directory in (node.registry, node.plugin_dir):
        dead_socket(directory / f"{temporary_prefix(DRIVER)}0a1b2c")
    node.plugin().start()
    assert node.names() == ["dra.sock", f"{DRIVER}-reg.sock"]
