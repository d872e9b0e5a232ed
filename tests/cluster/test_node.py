"""What the node's pure parts promise: addresses that never meet, files where the programs look, groups told apart."""

import socket

import yaml

from tests.cluster import config, containers, layout
from tests.cluster.addresses import Addresses, choose


def test_addresses_of_the_first_service_are_those_of_the_api_server():
    """Kubernetes gives the service `kubernetes` the first address of the range and port 443."""
    addresses = Addresses(44, 20000)
    assert (addresses.services, addresses.server) == ("127.44.0.0/16", "https://127.44.0.1:443")
    assert Addresses.load(addresses.dump()) == addresses


def test_chosen_kubelet_port_is_free():
    """Nobody listens there."""
    with socket.socket() as listener:
        listener.bind(("127.0.0.1", choose().kubelet_port))


def test_kubelet_leaves_the_host_alone_and_has_no_gates_by_default(tmp_path):
    """No control groups, no swap, no firewall rules of the host are touched."""
    text = config.kubelet(layout.Layout(tmp_path), Addresses(44, 20000), {})
    settings = yaml.safe_load(text)
    assert (settings["cgroupsPerQOS"], settings["enforceNodeAllocatable"]) == (False, [])
    assert (settings["port"], settings["featureGates"]) == (20000, {})


def test_folder_of_others_or_one_that_the_node_would_hide_is_refused(tmp_path):
    """The node shows folders of its own in place of some, and the end of a cluster removes its folder."""
    assert layout.why_unusable(tmp_path) is None
    (tmp_path / "thesis.txt").touch()
    assert "holds something that is no cluster" in str(layout.why_unusable(tmp_path))
    for hidden in ("/run/cluster", "/var/run/cluster", "/var/lib/jenkins/cluster", "/var/log"):
        assert "choose another folder" in str(layout.why_unusable(layout.Path(hidden))), hidden


def test_control_groups_of_another_cluster_are_not_ours(tmp_path):
    """Only containers that our containerd has a folder for, in every hierarchy of cgroup v1 and in v2."""
    (tmp_path / "host" / containers.TASKS / "mine").mkdir(parents=True)
    for group in ("cpu/k8s.io/mine", "k8s.io/mine", "cpu/k8s.io/theirs", "k8s.io/theirs"):
        (tmp_path / "cgroup" / group).mkdir(parents=True)
    found = containers.groups(tmp_path / "host", tmp_path / "cgroup")
    assert found == [tmp_path / "cgroup/k8s.io/mine", tmp_path / "cgroup/cpu/k8s.io/mine"]
