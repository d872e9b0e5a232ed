"""What the validator refuses, and with which words."""

import copy
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from kubeletplugin.cdi.spec import VERSIONS, CdiDevice, DeviceNode, Edits, Hook, Mount, Spec, to_document
from kubeletplugin.cdi.validate import problems
from tests.support.cdi_schema import accepts
from tests.support.properties import FEW


def a_document() -> dict[str, Any]:
    return {
        "cdiVersion": "0.7.0",
        "kind": "gpu.lanewise.dev/claim",
        "devices": [
            {
                "name": "uid-gpu-0",
                "containerEdits": {
                    "env": ["A=1"],
                    "deviceNodes": [
                        {"path": "/dev/nvidia0", "type": "c", "major": 195, "minor": 0, "permissions": "rw"}
                    ],
                    "mounts": [{"hostPath": "/a", "containerPath": "/b", "options": ["ro"]}],
                    "hooks": [{"hookName": "createContainer", "path": "/hook", "args": ["hook"], "env": ["D=1"]}],
                    "additionalGids": [44],
                },
            }
        ],
        "containerEdits": {"env": ["B=2"]},
    }


def at(path: str, value: Any) -> dict[str, Any]:
    """The valid document with one value replaced, or removed (`...`), at a path such as `devices.0.name`."""
    document = a_document()
    *parents, last = [int(part) if part.isdigit() else part for part in path.split(".")]
    place: Any = document
    for part in parents:
        place = place[part]
    if value is ...:
        del place[last]
    else:
        place[last] = value
    return document


EDITS = "devices.0.containerEdits"
NET = {"hostInterfaceName": "a", "name": "b"}

SHORT = {
    "@.": "devices[0].containerEdits.",
    "@number": "no whole number from 0 to 9223372036854775807",
    "@grammar": "it begins with a letter, ends with a letter or digit, and has -_. inside",
    "@hooks": "none of prestart, createRuntime, createContainer, startContainer, poststart, poststop",
}


@pytest.mark.parametrize(
    ("path", "value", "says"),
    [
        ("cdiVersion", "9.9.9", "cdiVersion: '9.9.9' is no version of CDI; the newest is 1.1.0"),
        ("cdiVersion", ..., "cdiVersion: missing"),
        ("kind", "nvidia", "kind: 'nvidia' is not vendor/class"),
        ("kind", "1gpu.x/claim", "kind: '1gpu.x' is no vendor: @grammar"),
        ("kind", "v/", "kind: '' is no class: @grammar"),
        ("devices", [], "devices: empty; at least one device is needed"),
        ("devices", {}, "devices: an object where a list belongs"),
        ("devices.0.name", "-x", "devices[0].name: '-x' is no device name: letters and digits at both ends, -_.: inside"),
        ("devices.0.nmae", "x", "devices[0].nmae: no field of CDI"),
        (f"{EDITS}.env.0", "A", "@.env[0]: 'A' is not NAME=value"),
        (f"{EDITS}.env.0", "=A", "@.env[0]: '=A' is not NAME=value"),
        (f"{EDITS}.env.0", 1, "@.env[0]: a number where a text belongs"),
        (f"{EDITS}.env.0", "A=\0", "@.env[0]: 'A=\\x00' has a null character in it"),
        (f"{EDITS}.env.0", "A=\udcff", "@.env[0]: 'A=\\udcff' is no UTF-8"),
        (f"{EDITS}.env", None, "@.env: nothing where a list belongs"),
        (f"{EDITS}.deviceNodes.0.type", "d", "@.deviceNodes[0].type: 'd' is none of b, c, u, p"),
        (f"{EDITS}.deviceNodes.0.path", "dev", "@.deviceNodes[0].path: 'dev' is no absolute path"),
        (f"{EDITS}.deviceNodes.0.permissions", "rx", "@.deviceNodes[0].permissions: 'rx' is not made of r, w and m, nor none"),
        (f"{EDITS}.deviceNodes.0.minor", -1, "@.deviceNodes[0].minor: -1 is @number"),
        (f"{EDITS}.deviceNodes.0.minor", True, "@.deviceNodes[0].minor: True is @number"),
        (f"{EDITS}.mounts.0.hostPath", ..., "@.mounts[0].hostPath: missing"),
        (f"{EDITS}.mounts.0.containerPath", "", "@.mounts[0].containerPath: '' is no absolute path"),
        (f"{EDITS}.mounts.0.options.0", "", "@.mounts[0].options[0]: empty"),
        (f"{EDITS}.hooks.0.hookName", "before", "@.hooks[0].hookName: 'before' is @hooks"),
        (f"{EDITS}.hooks.0.path", "", "@.hooks[0].path: '' is no absolute path"),
        (f"{EDITS}.hooks.0.env.0", "D", "@.hooks[0].env[0]: 'D' is not NAME=value"),
        (f"{EDITS}.additionalGids.0", 2**32, "@.additionalGids[0]: 4294967296 is no whole number from 0 to 4294967295"),
        ("containerEdits.gpus", [], "containerEdits.gpus: no field of CDI"),
        ("annotations", {"-": "x"}, "annotations: '-' is no annotation key"),
        (f"{EDITS}.netDevices", [NET, NET | {"name": "c"}], "@.netDevices[1].hostInterfaceName: 'a' occurs twice"),
        (f"{EDITS}.netDevices", [NET, NET | {"hostInterfaceName": "c"}], "@.netDevices[1].name: 'b' occurs twice"),
        (f"{EDITS}.intelRdt", {"closID": "a/b"}, "@.intelRdt.closID: 'a/b' is no name of a directory"),
        (f"{EDITS}.intelRdt", {"enableCMT": True}, "@.intelRdt.enableCMT: no field of CDI"),
    ],
)  # fmt: skip
def test_fault_is_told_with_its_place(path: str, value: Any, says: str):
    """One line a reader can act on."""
    for short, long in SHORT.items():
        says = says.replace(short, long)
    document = at(path, value)
    if path != "cdiVersion":
        document["cdiVersion"] = VERSIONS[-1]  # high enough for whatever the case is about
    assert [str(problem) for problem in problems(document)] == [says]


def test_valid_document_has_no_problems():
    """The base of all others here."""
    assert problems(a_document()) == ()
    assert accepts(a_document())


@pytest.mark.parametrize("edits", [{}, {"env": []}, {"env": [], "mounts": []}])
def test_device_without_edits_is_refused(edits: dict[str, Any]):
    """Case F3: a device with a name only, its edits at spec level, makes the file unresolvable."""
    assert [str(problem) for problem in problems(at(EDITS, edits))] == [
        "devices[0].containerEdits: empty; a device needs at least one edit, or no device of the file resolves"
    ]


def test_device_without_containerEdits_is_refused():  # noqa: N802  # the field's name
    """Case F3, with the field left out."""
    assert [str(problem) for problem in problems(at(EDITS, ...))] == ["devices[0].containerEdits: missing"]


def test_two_devices_of_one_name_are_refused():
    """Which of them would be meant?"""
    document = a_document()
    document["devices"].append(copy.deepcopy(document["devices"][0]))
    assert [str(problem) for problem in problems(document)] == ["devices[1].name: 'uid-gpu-0' occurs twice"]


@pytest.mark.parametrize("stated", VERSIONS)
@pytest.mark.parametrize(
    ("path", "value", "needs"),
    [
        ("devices.0.name", "0-gpu", "0.5.0"),
        ("kind", "v/a.b", "0.6.0"),
        (f"{EDITS}.mounts.0.type", "bind", "0.4.0"),
        (f"{EDITS}.deviceNodes.0.hostPath", "/x", "0.5.0"),
        (f"{EDITS}.netDevices", [{"hostInterfaceName": "a", "name": "b"}], "1.1.0"),
        (f"{EDITS}.intelRdt", {"closID": "x"}, "0.7.0"),
        (f"{EDITS}.intelRdt", {"enableMonitoring": True}, "1.1.0"),
        ("annotations", {"a": "b"}, "0.6.0"),
        ("devices.0.annotations", {"a": "b"}, "0.6.0"),
        (f"{EDITS}.additionalGids", [1], "0.7.0"),
    ],
)
def test_version_below_what_is_used_is_refused(stated: str, path: str, value: Any, needs: str):
    """The runtime says "the spec version must be at least", and resolves no device of the file."""
    document = at(path, value)
    if "additionalGids" not in path:
        del document["devices"][0]["containerEdits"]["additionalGids"]
    document["cdiVersion"] = stated
    too_low = VERSIONS.index(stated) < max(VERSIONS.index(needs), VERSIONS.index("0.3.0"))
    assert [problem.path for problem in problems(document)] == (["cdiVersion"] if too_low else [])


def test_all_faults_are_told_at_once():
    """A file is mended in one go."""
    document = at("kind", "x")
    document["devices"][0]["containerEdits"]["env"] = ["A", "B=1", "C"]
    document["more"] = 1
    assert [problem.path for problem in problems(document)] == [
        "kind",
        "devices[0].containerEdits.env[0]",
        "devices[0].containerEdits.env[2]",
        "more",
    ]


TEXT = st.text(st.characters(exclude_categories=["Cs"], exclude_characters="\0"), max_size=8)
PATH = TEXT.map("/{}".format)
ENV = st.builds("{}={}".format, st.text("ABC_", min_size=1, max_size=4), TEXT)
NODES = st.builds(
    DeviceNode,
    PATH,
    st.none() | PATH,
    st.sampled_from([None, "c", "b"]),
    st.none() | st.integers(0, 4095),
    st.none() | st.integers(0, 2**20),
    st.sampled_from([None, "r", "rw", "rwm", "none"]),
    st.none() | st.integers(0, 0o777),
)
MOUNTS = st.builds(
    Mount, PATH, PATH, st.lists(st.sampled_from(["ro", "rbind"])).map(tuple), st.sampled_from([None, "bind"])
)
HOOKS = st.builds(Hook, st.sampled_from(["prestart", "createContainer"]), PATH, st.lists(TEXT).map(tuple))


def few(items: st.SearchStrategy[Any]) -> st.SearchStrategy[tuple[Any, ...]]:
    return st.lists(items, max_size=2).map(tuple)


EDITS_ANY = st.builds(Edits, few(ENV), few(NODES), few(MOUNTS), few(HOOKS), few(st.integers(0, 2**32 - 1)))
NAMES = st.from_regex(r"[a-z0-9]([a-z0-9-]{0,8}[a-z0-9])?", fullmatch=True)
SPECS = st.builds(
    Spec,
    st.sampled_from(["gpu.lanewise.dev/claim", "v/c.d"]),
    st.lists(
        st.builds(CdiDevice, NAMES, EDITS_ANY.filter(bool)), min_size=1, max_size=2, unique_by=lambda d: d.name
    ).map(tuple),
    EDITS_ANY,
)


@FEW
@given(SPECS)
def test_every_spec_makes_a_valid_document(spec: Spec):
    """Ours and the schema agree, and the version is high enough."""
    document = to_document(spec)
    assert problems(document) == ()
    assert accepts(document)


@FEW
@given(SPECS)
def test_no_lower_version_would_do(spec: Spec):
    """The lowest means that the one below is refused."""
    document = to_document(spec)
    below = VERSIONS.index(document["cdiVersion"]) - 1
    document["cdiVersion"] = VERSIONS[below]
    assert [problem.path for problem in problems(document)] == ["cdiVersion"]


JSON = st.recursive(
    st.none() | st.booleans() | st.integers(-2, 5) | TEXT,
    lambda items: st.lists(items, max_size=2) | st.dictionaries(TEXT, items, max_size=2),
)


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]


@FEW
@given(SPECS, st.data())
def test_what_the_schema_refuses_is_refused(spec: Spec, data: st.DataObject):
    """Any one value replaced by anything: the validator never breaks, and is never more lenient than the schema."""
    document = to_document(spec)
    container, key = data.draw(st.sampled_from(places(document)))
    container[key] = data.draw(JSON)
    if not accepts(document):
        assert problems(document)


@FEW
@given(JSON)
def test_anything_at_all_is_judged(document: Any):
    """Garbage has problems, and raises nothing."""
    assert problems(document)
