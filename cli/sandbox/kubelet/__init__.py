"""A stand-in for the kubelet: its side of the plugin sockets, and what it does with the pods of its node.

    kubelet = Kubelet(client, "node-a", registry_dir=Path(...), cdi_dirs=(Path(...),))
    kubelet.start()     # returns when the Node is there and the pods are listed; its threads run until stop()
    kubelet.views("team-a", "train")         # {container: ContainerView}: what the containers of a running pod see
    kubelet.cdi_names("team-a", "train", "main")    # the CDI device names that the runtime was given for it
    kubelet.stop()      # may be repeated; pods, Node and claims stay as they are

It makes siblings of the client and closes those. Every rule is that of the kubelet of 1.37 (pkg/kubelet/cm/dra,
pluginmanager). `Registry` alone is the side of the sockets, moved by its caller.
"""

from cli.sandbox.kubelet.containers import ContainerView
from cli.sandbox.kubelet.kubelet import Kubelet
from cli.sandbox.kubelet.plugin import HealthStream, Plugin
from cli.sandbox.kubelet.registry import NotRegistered, Registry

__all__ = ["ContainerView", "HealthStream", "Kubelet", "NotRegistered", "Plugin", "Registry"]
