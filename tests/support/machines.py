"""The machines of examples/, and shorthand for machine files in tests."""

from pathlib import Path

from kubeletplugin.discovery.machinefile import MachineFile, parse

EXAMPLES = Path(__file__).parents[2] / "examples/machines"
ALL = tuple(sorted(EXAMPLES.glob("*.yaml")))
HGX_H100 = EXAMPLES / "hgx-h100.yaml"

TWO_GPUS = """
name: two
driver: {version: 580.105.08, cuda: "13.0"}
eachGpu: {product: NVIDIA H100 80GB HBM3, brand: Nvidia, architecture: Hopper, computeCapability: "9.0", memoryMiB: 81559}
gpus:
- {pci: 0000:53:00.0, numa: 0}
- {pci: 0000:64:00.0, numa: 1}
nics:
- {pci: 0000:54:00.0, kind: infiniband, numa: 0, net: [ib0], rdma: [mlx5_0], vendor: "0x15b3", device: "0x1021"}
tree:
  pci0000:50: {0000:50:01.0: {0000:51:00.0: {0000:52:00.0: [0000:53:00.0], 0000:52:01.0: [0000:54:00.0]}}}
  pci0000:60: [0000:64:00.0]
"""


def a_machine(text: str = TWO_GPUS, *, node: str = "node-a") -> MachineFile:
    """A machine read from text."""
    return parse(text, source="machine.yaml", node=node)
