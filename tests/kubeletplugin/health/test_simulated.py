"""A machine file's GPUs fall ill and recover as the file is edited."""

import pytest

from api.refusals import Refused
from kubeletplugin.discovery.machinefile import parse
from kubeletplugin.discovery.simulated import SimulatedSource
from kubeletplugin.health.course import Reading
from kubeletplugin.health.simulated import SimulatedProbe
from tests.support.machines import TWO_GPUS

PLAIN = "- {pci: 0000:53:00.0, numa: 0}"


def with_health(text):
    return TWO_GPUS.replace(PLAIN, f"- {{pci: 0000:53:00.0, numa: 0, health: {text}}}")


class Once:
    """A bedside for one look."""

    def __init__(self):
        self.looks = []

    def leaving(self):
        return bool(self.looks)

    def looked(self, look):
        self.looks.append(look)

    def rest(self, seconds):
        pass


@pytest.fixture
def file(tmp_path):
    path = tmp_path / "machine.yaml"
    path.write_text(TWO_GPUS)
    return path


def readings(file):
    bedside = Once()
    SimulatedProbe(file, "node-a").attend(bedside, 10)
    return list(bedside.looks[0].readings.values())


def test_a_gpu_of_which_nothing_is_said_is_well(file):
    """It answers all that an H100 does."""
    well = Reading(
        recovery=0,
        remap_failed=False,
        remap_pending=False,
        uncorrectable=0,
        sram_exceeded=False,
        error_code="error",
        xids=frozenset(),
        xids_watched=True,
    )
    assert readings(file) == [well, well]


@pytest.mark.parametrize(
    ("text", "expected"),
    [
        ("{lost: true}", {"lost": True}),
        ("{xids: [48, 31]}", {"xids": frozenset({48, 31})}),
        ("{xids: 48}", {"xids": frozenset({48})}),
        ("{recovery: 2}", {"recovery": 2}),
        ("{remapFailed: true, remapPending: true}", {"remap_failed": True, "remap_pending": True}),
        ("{uncorrectable: 3, retirementPending: false}", {"uncorrectable": 3, "retirement_pending": False}),
        ("{sramExceeded: true}", {"sram_exceeded": True}),
        ("{error: Unknown Error}", {"error": "Unknown Error", "error_code": "unknown-error"}),
        ("{unwatched: true}", {"xids_watched": False}),
    ],
)
def test_what_is_said_is_what_is_read(file, text, expected):
    """Of this GPU, and of no other."""
    file.write_text(with_health(text))
    first, second = readings(file)
    assert {field: getattr(first, field) for field in expected} == expected
    assert second.xids_watched and not second.lost


def test_faults_are_said_with_their_field(file):
    """As in the rest of the file; health is one GPU's own."""
    with pytest.raises(Refused) as refused:
        parse(with_health("{lots: true, xids: [x], recovery: -1}"), source="m.yaml", node="n")
    assert [reason.what for reason in refused.value.reason.reasons] == [
        "m.yaml: gpus[0].health.lots: is no field",
        "m.yaml: gpus[0].health.xids: 'x' is no whole number from 1 to 65536",
        "m.yaml: gpus[0].health.recovery: '-1' is no whole number from 0 to 255",
    ]
    with pytest.raises(Refused, match=r"eachGpu\.health: is no field"):
        parse(TWO_GPUS.replace("eachGpu: {", "eachGpu: {health: {lost: true}, "), source="m.yaml", node="n")


def test_a_lost_gpu_is_not_listed_and_its_device_node_stays(file, tmp_path):
    """As NVML leaves it out, while running containers hold the node."""
    source = SimulatedSource(file, tmp_path / "root", "node-a", nodes="plain")
    whole = source.discover()
    file.write_text(with_health("{lost: true}"))
    found = source.discover()
    assert found.gpus == whole.gpus[1:]
    assert [(item.what, item.why) for item in found.left_out] == [("0000:53:00.0", "NVML: GPU is lost")]
    assert (tmp_path / "root/dev/nvidia0").exists()
    file.write_text(TWO_GPUS)
    assert source.discover() == whole


def test_a_machine_of_another_name_is_another_boot(file, tmp_path):
    """What one machine lost is nothing that the other misses."""
    source = SimulatedSource(file, tmp_path / "root", "node-a", nodes="plain")
    first = source.discover().boot_id
    file.write_text(TWO_GPUS.replace("name: two", "name: other"))
    second = source.discover().boot_id
    assert second != first
    file.write_text(with_health("{lost: true}").replace("name: two", "name: other"))
    assert source.discover().boot_id == second
