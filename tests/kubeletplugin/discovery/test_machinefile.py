"""Machine files: what is read, and how what is wrong is told."""

from pathlib import Path

import pytest
import yaml
from hypothesis import given, settings
from hypothesis import strategies as st

from api.refusals import BadInput, Refused, Several
from kubeletplugin.discovery.machinefile import parse, read
from tests.support.machines import ALL, HGX_H100, TWO_GPUS, a_machine


def refused(text: str) -> list[str]:
    """What the parser says of the text, a line for each fault."""
    with pytest.raises(Refused) as error:
        a_machine(text)
    reason = error.value.reason
    reasons = reason.reasons if isinstance(reason, Several) else (reason,)
    assert all(isinstance(each, BadInput) and each.remedy for each in reasons)
    return [each.what.removeprefix("machine.yaml: ") for each in reasons]


@pytest.mark.parametrize("path", ALL, ids=lambda path: path.stem)
def test_shipped_machine_is_complete(path: Path) -> None:
    """Every GPU of examples/machines says what a pool needs, and the file is named after the machine."""
    machine = read(path, node="node-a")
    assert (machine.name, bool(machine.description)) == (path.stem, True)
    assert None not in (machine.driver.version, machine.driver.cuda_version)
    for gpu in machine.gpus:
        facts = (gpu.product_name, gpu.brand, gpu.architecture, gpu.compute_capability, gpu.memory_bytes, gpu.minor)
        assert None not in facts
        assert gpu.place.root is not None


def test_ten_machines_are_shipped() -> None:
    """The kinds of machine that users have."""
    assert len(ALL) >= 10


def test_places_come_from_the_tree() -> None:
    """Roots, bridges and NUMA nodes as drawn."""
    first, second = a_machine().gpus
    assert [str(bridge) for bridge in first.place.bridges] == ["0000:50:01.0", "0000:51:00.0", "0000:52:00.0"]
    assert (first.place.root, first.place.root_is_standard, first.place.numa_node) == ("pci0000:50", True, 0)
    assert (second.place.root, second.place.bridges) == ("pci0000:60", ())


def test_nothing_of_a_dgx_a100_is_one_switch() -> None:
    """Case C5: GPUs and NICs of a pair share a root port (PXB), never the lowest switch (PIX); NUMA goes 3, 1, 7, 5."""
    machine = read(HGX_H100.with_stem("dgx-a100"), node="node-a")
    assert [gpu.place.numa_node for gpu in machine.gpus] == [3, 3, 1, 1, 7, 7, 5, 5]
    fabric = [nic for nic in machine.nics if nic.kind == "infiniband"]
    assert {gpu.place.switch for gpu in machine.gpus}.isdisjoint({nic.place.switch for nic in machine.nics})
    assert [gpu.place.root_port for gpu in machine.gpus] == [nic.place.root_port for nic in fabric]


def test_gb200_has_the_cpus_numa_nodes() -> None:
    """Case C7: 0, 0, 1, 1, and no NIC on a GPU's root."""
    machine = read(HGX_H100.with_stem("gb200-tray"), node="node-a")
    assert [gpu.place.numa_node for gpu in machine.gpus] == [0, 0, 1, 1]
    assert {gpu.place.root for gpu in machine.gpus}.isdisjoint({nic.place.root for nic in machine.nics})


@pytest.mark.parametrize("name", ["azure-nc-a100-v4", "azure-nd-h100-v5"])
def test_azure_machines_have_no_standard_root(name: str) -> None:
    """Case C1: each device is alone below VMBUS."""
    machine = read(HGX_H100.with_stem(name), node="node-a")
    places = [gpu.place for gpu in machine.gpus]
    assert len({place.root for place in places}) == len(places)
    assert not any(place.root_is_standard for place in places)


def test_uuids_differ_between_nodes_and_stay_the_same_on_one() -> None:
    """Two simulated nodes of one file must not share a GPU."""
    here, again, there = ([gpu.uuid for gpu in a_machine(node=node).gpus] for node in ("a", "a", "b"))
    assert here == again
    assert set(here).isdisjoint(there)


def test_numbers_are_what_the_field_says_and_not_what_yaml_1_1_says() -> None:
    """0000:50:01.0 is no number to the base 60, and 550.50 is no 550.5."""
    machine = a_machine(TWO_GPUS.replace("580.105.08", "550.50"))
    assert machine.driver.version == "550.50"


def test_uuid_and_minor_can_be_given() -> None:
    """A recorded machine keeps its own."""
    machine = a_machine(TWO_GPUS.replace("0000:53:00.0, numa: 0", "0000:53:00.0, uuid: GPU-mine, minor: 5, mig: true"))
    gpu = machine.gpus[0]
    assert (gpu.uuid, gpu.minor, gpu.mig_enabled, gpu.place.numa_node) == ("GPU-mine", 5, True, None)


def test_two_gpus_with_one_minor_are_refused() -> None:
    """Case F5: one device node cannot be two GPUs."""
    assert refused(TWO_GPUS.replace("numa: 0}\n- {pci: 0000:64", "numa: 0, minor: 1}\n- {pci: 0000:64")) == [
        "gpus: two GPUs have minor 1"
    ]


def test_typo_is_answered_with_the_nearest_name() -> None:
    """One sentence with file, field and remedy."""
    with pytest.raises(Refused) as error:
        a_machine(TWO_GPUS.replace("memoryMiB", "memoryMib"))
    assert str(error.value) == "machine.yaml: eachGpu.memoryMib: is no field (did you mean memoryMiB?)"


def test_fault_of_what_all_share_is_told_once_and_where_it_stands() -> None:
    """Eight GPUs are one mistake."""
    assert refused(TWO_GPUS.replace("memoryMiB: 81559", "memoryMiB: much, minor: 3")) == [
        "eachGpu.minor: is no field",
        "eachGpu.memoryMiB: 'much' is no whole number from 1 to 1099511627776",
        "gpus: two GPUs have minor 3",
    ]


def test_all_faults_are_told_at_once() -> None:
    """So that the file is mended in one go."""
    text = """
name: Two GPUs
gpus:
- {pci: 0000:53:00.0, minor: 255, memoryMiB: lots, mig: maybe}
- {pci: nowhere}
- {pci: 0000:50:01.0}
- {pci: 0000:99:00.0}
- a string
nics:
- {pci: 0000:54:00.0, kind: token-ring, vendor: mellanox, net: [a/b]}
tree:
  pci0000:50: {0000:50:01.0: [0000:53:00.0, 0000:54:00.0, 0000:55:00.0, 0000:53:00.0, what]}
  ../pci0000:51: []
  outside: []
"""
    assert refused(text) == [
        "name: 'Two GPUs' is no DNS label",
        "tree.0000:50:01.0[3]: 0000:53:00.0 is in the tree twice",
        "tree.0000:50:01.0[4]: 'what' is no PCI address; one looks like 0000:65:00.0",
        "tree.../pci0000:51: is no host bridge",
        "tree.outside: is no host bridge",
        "gpus[4]: is no mapping of fields",
        "gpus[0].memoryMiB: 'lots' is no whole number from 1 to 1099511627776",
        "gpus[0].minor: '255' is no whole number from 0 to 254",
        "gpus[0].mig: 'maybe' is neither true nor false",
        "gpus[1].pci: 'nowhere' is no PCI address; one looks like 0000:65:00.0",
        "gpus[2].pci: 0000:50:01.0 is a bridge in the tree",
        "gpus[3].pci: 0000:99:00.0 is not in the tree",
        "nics[0].vendor: 'mellanox' is not a PCI id",
        "nics[0].net: is no list of interface names",
        "nics[0].kind: 'token-ring' is no kind of NIC",
        "tree: 0000:55:00.0 is in no list",
    ]


@pytest.mark.parametrize(
    ("text", "what"),
    [
        ("", "is no mapping of fields"),
        ("- a\n", "is no mapping of fields"),
        ("name: [\n", "machine.yaml:2: is no YAML: expected the node content, but found '<stream end>'"),
        ("name: a\nname: b\n", "machine.yaml:2: is no YAML: name is there twice"),
        ("? [a]\n: b\n", "machine.yaml:1: is no YAML: a field name must be text"),
        ("name: \x07\n", "is no YAML: unacceptable character #x0007: special characters are not allowed"),
        ("name: [a]\ngpus: []\ntree: {}\n", "name: is no text"),
        (
            "name: a\ngpus: []\ntree:\n  pci0000:00: &a [*a]\n",
            "machine.yaml:4: is no YAML: found unconstructable recursive node",
        ),
        ("name: a\ngpus: no\ntree: no\n", "tree: is no mapping of fields"),
        ("name: a\ngpus: []\n", "tree: is missing"),
        ("name: a\ntree: {}\n", "gpus: is missing"),
    ],
)
def test_text_that_is_no_machine_is_refused(text: str, what: str) -> None:
    """Never a traceback, whatever was saved."""
    assert what in refused(text)


def test_file_that_is_not_there_is_refused(tmp_path: Path) -> None:
    """With its path and what to do."""
    path = tmp_path / "gone.yaml"
    with pytest.raises(Refused) as error:
        read(path, node="a")
    remedy = "name a machine file such as examples/machines/hgx-h100.yaml"
    assert str(error.value) == f"{path}: cannot be read: No such file or directory ({remedy})"


def test_file_that_is_not_text_is_refused(tmp_path: Path) -> None:
    """Somebody named the wrong file."""
    path = tmp_path / "image.yaml"
    path.write_bytes(b"\xff\xfe\x00")
    with pytest.raises(Refused, match="is not UTF-8 text"):
        read(path, node="a")


_FIELDS = ("name", "gpus", "nics", "tree", "pci", "minor", "uuid", "net", "kind", "driver", "eachGpu", "pci0000:00")
_SCALARS = st.one_of(
    st.sampled_from(["0000:00:01.0", "0000:00:02.0", "pci0000:00", "0", "true", ""]), st.text(max_size=8), st.none()
)
_DOCUMENTS = st.recursive(
    _SCALARS,
    lambda inner: st.one_of(
        st.lists(inner, max_size=3),
        st.dictionaries(st.one_of(st.sampled_from(_FIELDS), st.text(max_size=4)), inner, max_size=4),
    ),
    max_leaves=12,
)


@settings(max_examples=50, deadline=None)
@given(_DOCUMENTS)
def test_any_document_is_read_or_refused(document: object) -> None:
    """No YAML whatever makes the parser raise anything but Refused."""
    try:
        parse(yaml.safe_dump(document), source="machine.yaml", node="a")
    except Refused as error:
        assert error.reason.what
        assert error.reason.remedy


@settings(max_examples=25, deadline=None)
@given(st.dictionaries(st.sampled_from(_FIELDS), _DOCUMENTS, max_size=4))
def test_any_change_to_a_good_machine_is_read_or_refused(changes: dict[str, object]) -> None:
    """Half right is the usual way of being wrong."""
    document = {**yaml.load(TWO_GPUS, Loader=yaml.BaseLoader), **changes}
    try:
        parse(yaml.safe_dump(document), source="machine.yaml", node="a")
    except Refused as error:
        assert error.reason.what


@settings(max_examples=50, deadline=None)
@given(st.text(max_size=64))
def test_any_text_is_read_or_refused(text: str) -> None:
    """Not even what is no YAML."""
    try:
        parse(text, source="machine.yaml", node="a")
    except Refused as error:
        assert error.reason.what
