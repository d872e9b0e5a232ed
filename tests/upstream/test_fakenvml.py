"""The real pynvml with its ctypes structures, on a C library that stands in for NVIDIA's."""

import sys
import threading
from dataclasses import replace
from pathlib import Path

import pynvml
import pytest

from api.hardware import Driver
from api.inventory import Owner, encode_spec
from kubeletplugin.discovery.simulated import SimulatedSource
from tests.cluster.places import ClusterError
from tests.fakenvml.library import Says, build, installed, told
from tests.support.machines import ALL, HGX_H100
from tests.upstream.judge import Judge


@pytest.fixture(scope="module", autouse=True)
def compiled():
    try:
        build()
    except ClusterError as error:
        pytest.exit(f"the suite needs a C compiler: {error}", returncode=2)


class World:
    """A machine file rendered, a driver root with the library, and a process that asks it through pynvml."""

    def __init__(self, folder: Path, file: Path = HGX_H100, *, old_driver: bool = False) -> None:
        self.machine = SimulatedSource(file, folder / "machine", "node-a", nodes="plain").discover()
        self.gpus = self.machine.gpus
        version = self.machine.driver.version or ""
        self.driver = installed(folder / "driver", version, self.text(), old_driver=old_driver)
        roots = (folder / "driver", folder / "machine/sys", folder / "machine/proc")
        self.process = Judge(sys.executable, "-m", "tests.fakenvml.ask", *map(str, roots))

    def text(self, says=(), **more) -> str:
        return told(self.gpus, self.machine.driver, dict(says), **more)

    def say(self, says=(), **more) -> None:
        self.driver.say(self.text(says, **more))

    def ask(self, *question):
        return self.process.ask(question)

    def discover(self):
        return self.ask("discover")["answer"]

    def look(self):
        (look,) = self.ask("look")["answer"]
        return [look["readings"][gpu.uuid] for gpu in self.gpus if gpu.uuid in look["readings"]]


@pytest.fixture
def world(tmp_path):
    made = World(tmp_path)
    with made.process:
        yield made


def spec_of(machine) -> dict:
    return encode_spec(Owner("node-a", "uid"), machine)["spec"]


@pytest.mark.parametrize("file", ALL, ids=lambda path: path.stem)
def test_finds_exactly_the_machine(file: Path, tmp_path: Path):
    """Every machine of examples/, attribute by attribute."""
    world = World(tmp_path, file)
    with world.process:
        assert world.discover() == spec_of(world.machine)


def test_older_library_costs_what_it_lacks(tmp_path: Path):
    """The architecture is unknown then; CUDA's version and the memory come by their older calls."""
    world = World(tmp_path, old_driver=True)
    expected = tuple(replace(gpu, architecture=None) for gpu in world.gpus)
    with world.process:
        assert world.discover() == spec_of(replace(world.machine, gpus=expected))


def test_order_and_minor_are_the_drivers(world: World):
    """Case F5: NVML counts otherwise than the nodes are numbered."""
    world.driver.say(told(reversed(world.gpus), world.machine.driver))
    assert world.discover() == spec_of(world.machine)
    assert world.ask("call", "nvmlDeviceGetCount")["answer"] == str(len(world.gpus))


def test_unknown_symbol_is_function_not_found(world: World):
    """What a library does not have costs that fact and nothing else."""
    world.discover()
    assert world.ask("call", "nvmlSystemGetProcessName", 1)["answer"] == "NVMLError_FunctionNotFound"


@pytest.mark.parametrize("code", [pynvml.NVML_ERROR_GPU_IS_LOST, pynvml.NVML_ERROR_UNKNOWN])
@pytest.mark.parametrize("function", ["*", "nvmlDeviceGetUUID", "nvmlDeviceGetHandleByIndex_v2"])
def test_failing_gpu_is_left_out_alone(function: str, code: int, world: World):
    """The other seven are found, and NVML's words are told."""
    world.say({world.gpus[2].uuid: Says(errors={function: code})})
    found = world.discover()
    assert [gpu["uuid"] for gpu in found["gpus"]] == [gpu.uuid for gpu in world.gpus if gpu is not world.gpus[2]]
    words = {pynvml.NVML_ERROR_GPU_IS_LOST: "GPU is lost", pynvml.NVML_ERROR_UNKNOWN: "Unknown Error"}[code]
    assert any(words in item["why"] for item in found["leftOut"])


def test_fact_that_is_not_supported_is_left_out(world: World):
    """Unified memory, no MIG, no brand: each on its own."""
    (gpu, *_) = world.gpus
    functions = ("nvmlDeviceGetMemoryInfo", "nvmlDeviceGetMemoryInfo_v2", "nvmlDeviceGetMigMode", "nvmlDeviceGetBrand")
    world.say({gpu.uuid: Says(errors=dict.fromkeys(functions, pynvml.NVML_ERROR_NOT_SUPPORTED))})
    expected = replace(gpu, memory_bytes=None, mig_enabled=None, brand=None)
    assert world.discover() == spec_of(replace(world.machine, gpus=(expected, *world.gpus[1:])))


def test_second_form_of_a_call_is_tried(world: World):
    """Case L8: boards that answer the second version of the memory call only; CUDA's version by its older call."""
    says = {gpu.uuid: Says(errors={"nvmlDeviceGetMemoryInfo": pynvml.NVML_ERROR_NOT_SUPPORTED}) for gpu in world.gpus}
    world.say(says, first=[f"error nvmlSystemGetCudaDriverVersion_v2 {pynvml.NVML_ERROR_UNKNOWN}"])
    assert world.discover()["gpus"] == spec_of(world.machine)["gpus"]
    assert world.discover()["driver"] == spec_of(world.machine)["driver"]


def test_name_in_any_bytes_is_told(world: World):
    """Case L7: what is not UTF-8 is shown as well as can be, and the GPU is there."""
    text = world.text().encode().replace(b"NVIDIA H100", b"NVIDIA\xff H100")
    path = world.driver.library.with_name("fakenvml.txt")
    path.with_suffix(".bytes").write_bytes(text)
    path.with_suffix(".bytes").replace(path)
    assert {gpu["productName"] for gpu in world.discover()["gpus"]} == {"NVIDIA\ufffd H100 80GB HBM3"}


@pytest.mark.parametrize(
    ("code", "reason"),
    [
        (pynvml.NVML_ERROR_DRIVER_NOT_LOADED, "DriverAbsent"),
        (pynvml.NVML_ERROR_LIB_RM_VERSION_MISMATCH, "NvmlFailed"),
        (pynvml.NVML_ERROR_NO_PERMISSION, "NvmlFailed"),
        (pynvml.NVML_ERROR_UNKNOWN, "NvmlFailed"),
    ],
)
def test_driver_that_does_not_start_is_refused_with_its_reason(code: int, reason: str, world: World):
    """And found again when it does, by the same process."""
    world.say(first=[f"init {code}"])
    assert world.ask("discover")["refused"] == reason
    world.say()
    assert world.discover() == spec_of(world.machine)


def test_driver_root_without_a_library_is_refused(tmp_path: Path):
    """The file that is looked for is named."""
    process = Judge(sys.executable, "-m", "tests.fakenvml.ask", str(tmp_path), str(tmp_path), str(tmp_path))
    with process:
        told = process.ask(["discover"])
    assert told["refused"] == "DriverAbsent"
    assert "libnvidia-ml.so.1 was not found" in told["what"]


WELL = {"ecc": "0", "remapped": "0 0 0 0", "retired": "0", "sram": "0", "recovery": "0"}


def test_health_is_read_as_the_card_tells_it(world: World):
    """Each answer in its own structure: rows, ECC, retired pages, SRAM, the recovery action."""
    world.say({gpu.uuid: Says(WELL) for gpu in world.gpus})
    world.discover()
    well = world.look()
    assert well == [well[0]] * 8
    expected = {
        "recovery": 0,
        "remap_failed": False,
        "remap_pending": False,
        "retirement_pending": False,
        "uncorrectable": 0,
        "sram_exceeded": False,
    }
    assert {name: well[0][name] for name in expected} == expected
    worse = {"ecc": "7", "remapped": "1 2 1 0", "retired": "1", "sram": "1", "recovery": "2"}
    world.say({gpu.uuid: Says(worse if gpu is world.gpus[3] else WELL) for gpu in world.gpus})
    seen = world.look()
    assert [seen[index] for index in (0, 1, 2, 4, 5, 6, 7)] == well[:7]
    expected = {
        "recovery": 2,
        "remap_failed": False,
        "remap_pending": True,
        "retirement_pending": True,
        "uncorrectable": 7,
        "sram_exceeded": True,
    }
    assert {name: seen[3][name] for name in expected} == expected


def test_card_that_tells_nothing_of_its_health_is_not_lost(world: World):
    """Not supported is no answer, and no ailment."""
    world.discover()
    readings = world.look()
    assert all(not reading["lost"] and reading["error"] is None for reading in readings)
    assert {reading["uncorrectable"] for reading in readings} == {None}


def test_health_of_an_old_driver(tmp_path: Path):
    """The newer calls are not there: what they would tell is unknown, the rest is told."""
    world = World(tmp_path, old_driver=True)
    with world.process:
        world.say({gpu.uuid: Says(WELL) for gpu in world.gpus})
        world.discover()
        (reading, *_) = world.look()
    assert (reading["uncorrectable"], reading["remap_failed"]) == (0, False)
    assert (reading["recovery"], reading["sram_exceeded"]) == (None, None)


@pytest.mark.parametrize(
    ("code", "field"),
    [
        (pynvml.NVML_ERROR_GPU_IS_LOST, "lost"),
        (pynvml.NVML_ERROR_GPU_NOT_FOUND, "lost"),
        (pynvml.NVML_ERROR_RESET_REQUIRED, "reset_required"),
        (pynvml.NVML_ERROR_UNKNOWN, "error"),
    ],
)
def test_gpu_that_fails_is_seen(code: int, field: str, world: World):
    """By what the driver says of it, and gone again when it answers."""
    world.discover()
    world.say({world.gpus[5].uuid: Says(errors={"*": code})})
    readings = world.look()
    assert [bool(reading[field]) for reading in readings] == [index == 5 for index in range(8)]
    world.say()
    assert not any(reading[field] for reading in world.look())


def test_xid_is_heard_and_told_of_its_gpu(world: World):
    """Through NVML's event set, while the probe waits: which GPU, and which number."""
    says = {gpu.uuid: Says({"events": "8"}) for gpu in world.gpus}
    world.say(says)
    world.discover()
    answered, answers = threading.Event(), []

    def ask() -> None:
        answers.append(world.ask("look", 2)["answer"])
        answered.set()

    asking = threading.Thread(target=ask)
    asking.start()
    xids: list[tuple[int, int]] = []
    while not answered.wait(0.05) and len(xids) < 600:  # what happens before the probe listens is not told, as in life
        xids.append((6, 79))
        world.say(says, xids=xids)
    asking.join(timeout=90)
    first, second = answers[0]
    assert first["xids"] == []
    assert second["xids"] == [[world.gpus[6].uuid, 79]]
    assert all(reading["xids_watched"] for reading in first["readings"].values())


def test_old_and_new_driver_are_told_apart(tmp_path: Path):
    """The judge can say no: another machine than the rendered one shows."""
    world = World(tmp_path)
    with world.process:
        other = replace(world.gpus[0], product_name="NVIDIA L4", memory_bytes=1 << 30)
        world.driver.say(told((other, *world.gpus[1:]), Driver("1.2.3", "12.4")))
        found = world.discover()
    assert found != spec_of(world.machine)
    assert found["driver"] == {"version": "1.2.3", "cudaVersion": "12.4"}
