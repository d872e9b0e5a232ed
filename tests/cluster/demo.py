"""The main job on a real Kubernetes, told step by step: `python -m tests.cluster demo`."""

import shlex
import sys
from pathlib import Path

from tests.cluster.build import build
from tests.cluster.cluster import Cluster
from tests.cluster.lanewise import ROOT, Lanewise, install, until

EXAMPLE = ROOT / "examples/one-gpu"


def demo(machine: Path) -> None:
    """Starts a cluster in a temporary folder, shows what happens, and leaves nothing behind. ClusterError if that fails."""
    say("Kubernetes: etcd, API server, scheduler, controller manager, containerd, kubelet (built once, some minutes)")
    cluster = Cluster(build())
    try:
        cluster.start()
        say(f"Lanewise: its controller and its node plugin, on a simulated machine ({machine.name})")
        tell(cluster, install(cluster, machine))
    finally:
        cluster.wipe()
    say("The cluster is gone again. To keep one and play with it: make cluster")


def tell(cluster: Cluster, lanewise: Lanewise) -> None:
    """The story itself."""
    say("What the plugin found on the node, and whether it is published")
    show(cluster, "get", "nodeinventories")
    say("What the controller published for the scheduler")
    show(cluster, "get", "resourceslices")
    say("A claim for one GPU and a pod that uses it (examples/one-gpu)")
    show(cluster, "apply", "-f", str(EXAMPLE.relative_to(ROOT)))
    cluster.kubectl("wait", "--for=condition=Ready", "pod/one-gpu", "--timeout=60s")
    say("Which device the scheduler chose")
    columns = "custom-columns=CLAIM:.metadata.name,DEVICE:.status.allocation.devices.results[*].device"
    show(cluster, "get", "resourceclaim", "one-gpu", "-o", columns)
    say("What the container sees: this GPU and no other")
    until("the container has spoken", lambda: "/dev/nvidia" in cluster.kubectl("logs", "one-gpu"))
    show(cluster, "logs", "one-gpu")
    say("What the plugin wrote for the container runtime (CDI)")
    for path in sorted(cluster.cdi_dir.glob("*.json")):
        print(f"  {path.name}")
    say("The pod is deleted, and everything is gone")
    cluster.kubectl("delete", "-f", str(EXAMPLE), "--timeout=60s")
    until("record and CDI file are gone", lambda: not list(cluster.cdi_dir.glob("*.json")))
    kept = [path.name for path in (lanewise.plugin_dir / "claims").iterdir()]
    print(f"  CDI files: 0, records on the node: {len(kept)}")


def say(sentence: str) -> None:
    print(f"\n== {sentence}", flush=True)


def show(cluster: Cluster, *arguments: str) -> None:
    """A kubectl command as one would type it, and what it says."""
    print(f"  $ kubectl {' '.join(shlex.quote(argument) for argument in arguments)}")
    for line in cluster.kubectl(*arguments).splitlines():
        print(f"  {line}")
    sys.stdout.flush()
