"""Our CDI files, and our validator, before the library with which runtimes read CDI files."""

import itertools
import random
import re
from pathlib import Path

import pytest

from kubeletplugin.cdi.builtin import BuiltinContent, Places
from kubeletplugin.cdi.content import ClaimDevice, claim_spec
from kubeletplugin.cdi.files import CdiFiles
from kubeletplugin.cdi.naming import cdi_id, file_name
from kubeletplugin.cdi.roots import Root
from kubeletplugin.cdi.simulated import SimulatedContent
from kubeletplugin.cdi.spec import Spec, encode
from kubeletplugin.cdi.validate import problems
from kubeletplugin.discovery.simulated import SimulatedSource
from kubeletplugin.disk import LocalDisk
from tests.support.driver_root import device_numbers, make_driver_root
from tests.support.gpus import a_machine
from tests.support.machines import ALL, HGX_H100
from tests.upstream.cdi_documents import FIELDS, FULL, PLAIN, anything
from tests.upstream.judge import Judge
from tests.upstream.spoiling import spoilt

DRIVER = "gpu.lanewise.dev"
UID = "0b5fa1a3-6c5c-4f0c-9a53-6f0f5d0f4a11"
CASES = 8_000

STRICTER = {
    r"nothing where .* belongs|None is no|None is none of|None is not": "YAML takes null for a field that is left out",
    r"(a number|true or false) where a text belongs": "YAML makes text of numbers and of true and false",
    r"(\d|True|False) is no device name": "the same: a number for a name",
    r"a text where true or false belongs": "YAML takes yes and no for true and false",
    r"\d\.\d is no whole number": "YAML cuts the fraction off a number",
    r"-\d+ is no whole number": "a timeout below zero means nothing to a runtime",
    r"is no whole number from 0 to 4095": "more than a file's mode has bits",
    r"is no absolute path": "the library looks only for paths that are empty; a container has no current directory",
    r"has a null character in it": "no environment or path can have one: the container fails later, for no reason that is told",
    r"is no annotation key|^annotations: an? ": "the library means to check annotations, and forgets it when it reads a file",
    r"^cdiVersion: 'v1\.1\.0' is no version": "the library passes over a v; the specification does not know it",
    r"options\[0\]: empty": "an option without a name",
}
"""What we refuse and the library does not, with the reason. Nothing is the other way round."""


@pytest.fixture(scope="module")
def judge(built):
    with Judge(built("cdi")) as running:
        yield running


@pytest.fixture
def folder(tmp_path: Path) -> Path:
    (tmp_path / "cdi").mkdir()
    return tmp_path / "cdi"


def write(folder: Path, uid: str, machine, content, chosen) -> tuple[Spec, list[str]]:
    """The claim's file as the plugin writes it, with the ids that the kubelet is told."""
    devices = [ClaimDevice(f"gpu-{number}", gpu) for number, gpu in enumerate(chosen)]
    spec = claim_spec(DRIVER, uid, devices, machine, content)
    CdiFiles(folder, DRIVER, LocalDisk()).write(uid, spec)
    return spec, [cdi_id(DRIVER, uid, device.name) for device in devices]


def assert_injected(told, *specs: Spec) -> None:
    """The container has what the specs say, once, and nothing else."""
    edits = [part for spec in specs for part in (spec.edits, *(device.edits for device in spec.devices))]
    container = told["oci"]
    assert told["error"] == "" and not told["unresolved"]
    env = {item.partition("=")[0]: item for part in edits for item in part.env}
    assert sorted(container["process"]["env"]) == sorted(env.values())
    nodes = {node.path: (node.type, node.major, node.minor) for part in edits for node in part.device_nodes}
    linux = container.get("linux", {})
    found = {node["path"]: (node["type"], node["major"], node["minor"]) for node in linux.get("devices", [])}
    assert found == nodes
    allowed = {(rule["type"], rule["major"], rule["minor"]) for rule in linux.get("resources", {}).get("devices", [])}
    assert allowed == set(nodes.values())
    assert {rule["access"] for rule in linux.get("resources", {}).get("devices", [])} <= {"rw"}
    mounts = {mount.container_path: mount.host_path for part in edits for mount in part.mounts}
    assert {mount["destination"]: mount["source"] for mount in container.get("mounts", [])} == mounts
    hooks = list(itertools.chain.from_iterable((hook.path, *hook.args) for part in edits for hook in part.hooks))
    made = container.get("hooks", {}).get("createContainer", [])
    assert list(itertools.chain.from_iterable((hook["path"], *hook["args"]) for hook in made)) == hooks


@pytest.mark.parametrize("nodes", ["devices", "plain"])
@pytest.mark.parametrize("file", ALL, ids=lambda path: path.stem)
def test_files_of_simulated_machines_are_injected(file: Path, nodes, judge, folder: Path, tmp_path: Path):
    """Every machine of examples/, with all of its GPUs in one claim: with device nodes, and with plain files in their place."""
    machine = SimulatedSource(file, tmp_path / "machine", "node-a", nodes="plain").discover()
    numbers = {f"nvidia{gpu.minor}": (195, gpu.minor) for gpu in machine.gpus} | {"nvidiactl": (195, 255)}
    stat_of = {"stat_of": device_numbers(numbers)} if nodes == "devices" else {}
    content = SimulatedContent(Root.same(tmp_path / "machine"), **stat_of)
    spec, ids = write(folder, UID, machine, content, machine.gpus)
    told = judge.ask({"dir": str(folder), "inject": ids})
    assert told["errors"] == {}
    assert sorted(told["devices"]) == sorted(ids)
    assert_injected(told, spec)


NUMBERS = {"nvidiactl": (195, 255), "nvidia-uvm": (511, 0), "nvidia-uvm-tools": (511, 1), "nvidia-modeset": (195, 254)}


@pytest.mark.parametrize("hook", [False, True])
def test_built_in_files_are_injected(hook: bool, judge, folder: Path, tmp_path: Path):
    """A real machine's content, with NVIDIA's hook on the host and without."""
    machine = a_machine(1)
    driver = Root(make_driver_root(tmp_path / "driver", hook=hook), Path("/run/nvidia/driver"))
    numbers = NUMBERS | {f"nvidia{gpu.minor}": (195, gpu.minor) for gpu in machine.gpus}
    content = BuiltinContent(Places(driver, Root.same(Path("/"))), stat_of=device_numbers(numbers))
    spec, ids = write(folder, UID, machine, content, machine.gpus)
    told = judge.ask({"dir": str(folder), "inject": ids})
    assert told["errors"] == {}
    assert told["devices"] == ids
    assert bool(spec.edits.hooks) == hook
    assert_injected(told, spec)


def test_two_claims_meet_in_a_container(judge, folder: Path, tmp_path: Path):
    """What both have in common is there once, and neither's environment replaces the other's."""
    machine = SimulatedSource(HGX_H100, tmp_path / "machine", "node-a", nodes="plain").discover()
    content = SimulatedContent(Root.same(tmp_path / "machine"))
    made = [write(folder, f"claim-{number}", machine, content, machine.gpus[number:][:1]) for number in range(2)]
    told = judge.ask({"dir": str(folder), "inject": [id_ for _, ids in made for id_ in ids]})
    assert told["errors"] == {}
    assert_injected(told, *(spec for spec, _ in made))


def test_broken_file_of_one_claim_leaves_the_others(judge, folder: Path, tmp_path: Path):
    """The library says which file it is, resolves none of its devices, and all others."""
    machine = SimulatedSource(HGX_H100, tmp_path / "machine", "node-a", nodes="plain").discover()
    content = SimulatedContent(Root.same(tmp_path / "machine"))
    _, good = write(folder, "good", machine, content, machine.gpus[:1])
    _, bad = write(folder, "bad", machine, content, machine.gpus[1:2])
    path = folder / file_name(DRIVER, "bad")
    path.write_bytes(path.read_bytes()[:-20])
    told = judge.ask({"dir": str(folder), "inject": good})
    assert list(told["errors"]) == [path.name]
    assert (told["devices"], told["error"]) == (good, "")
    assert judge.ask({"dir": str(folder), "inject": bad})["unresolved"] == bad


def test_validator_is_never_more_lenient_than_the_library(judge):
    """On thousands of nearly right documents; and where it is stricter, the reason is known."""
    chance = random.Random(1)
    told, unlisted = {"good": 0, "bad": 0}, []
    unseen = set(STRICTER)
    for number in range(CASES):
        document = spoilt((FULL, PLAIN)[number % 2], chance, anything, FIELDS)
        theirs = judge.ask({"text": encode(document).decode(errors="surrogatepass")})["error"]
        ours = [str(problem) for problem in problems(document)]
        told["bad" if theirs else "good"] += 1
        assert ours or not theirs, f"only the library refuses {document}: {theirs}"
        for problem in () if theirs else ours:
            reasons = {reason for reason in STRICTER if re.search(reason, problem)}
            unseen -= reasons
            if not reasons:
                unlisted.append((problem, document))
    assert [problem for problem, _ in unlisted] == []
    assert unseen == set(), "these differences are gone"
    assert min(told.values()) > CASES / 4


@pytest.mark.parametrize("text", ["", "{", "[]", "null", '{"cdiVersion":"0.3.0","kind":"v/c","devices":[]}'])
def test_files_that_are_none_are_refused(text: str, judge):
    """The judge can say no to what is no document either."""
    assert judge.ask({"text": text})["error"]
