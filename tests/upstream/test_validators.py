"""What the controller and the sandbox's API server refuse, beside what the real API server refuses, by its own code.

Thousands of nearly right objects, the same ones each time. They differ where it is listed here, with the reason.
"""

import copy
import random
import re
from collections import Counter

import pytest

from api import quantities
from cli.sandbox.apiserver import rules
from cli.sandbox.apiserver.builtin import BUILTIN
from cli.sandbox.apiserver.quantity import canonical
from cli.sandbox.apiserver.statuses import ApiError
from controller.validate import faults_of_pool
from tests.upstream.api_documents import ALLOCATED, CLAIMS, CLASSES, SLICES
from tests.upstream.api_values import FIELDS, NAMES, same_type
from tests.upstream.judge import Judge
from tests.upstream.spoiling import spoilt

CASES = 2000
KINDS = {kind.kind: kind for kind in BUILTIN}
NOW = "2026-12-01T10:00:00Z"
STATUS_FIELDS = {name: values for name, values in FIELDS.items() if name != "devices"}  # those are of slices
OTHER_WORDS = {
    "metadata.namespace": "of the path, where the sandbox has it from",
    "cel.expression": "no text is no expression, for the sandbox a missing one: it compiles none",
}
"""Faults that only one of the two finds, by their field, with the reason."""

STRICTER = {
    r"'None' is no quantity": "a capacity without a value counts as zero for the server; we would never mean that",
    r"'(1 |Gi)' is no quantity": "the server trims, and takes a suffix alone for zero",
    r"'A\.b/c' is no attribute name": "the server takes a domain in upper case here, but not in a claim's constraint",
    r"'a/b/c' is no attribute name": "the server forgets to look at names with two slashes (there is a TODO in its code)",
    r"^slice 0: \d+ devices are more than 64": "the first taint would make the slice invalid (Case I3)",
    r"resourceSliceCount is \d+, the pool has 1": "the server sees one slice; the scheduler would wait for the others",
    r"'18446744073709551616\.0\.0'": "the server takes numbers of any size; CEL's semver cannot compare those over 64 bits",
    r"name '\w{64,}' is no DNS|name '\w{64,}' is not made": "a node of such a name has no valid hostname label",
    r"driver's name '[A-Za-z.]+' is no DNS": "the server takes a driver's name in upper case, and warns; we never have one",
}
"""What the controller refuses and the real server does not, with the reason. Nothing is the other way round."""


@pytest.fixture(scope="module")
def judge(built):
    with Judge(built("validate")) as running:
        yield running


def nearly_right(bases, chance: random.Random):
    """Without end; what tells which object it is stays."""
    while True:
        base = chance.choice(bases)
        fixed = {name: base[name] for name in ("apiVersion", "kind")}
        inner = {name: value for name, value in base.items() if name not in fixed}
        obj = {**fixed, **spoilt(inner, chance, same_type, FIELDS, NAMES)}
        if isinstance(obj.get("spec"), dict) and isinstance(obj.get("metadata"), dict) and obj["metadata"].get("name"):
            yield obj


def sandbox(obj, old=None, subresource: str = ""):
    """What the sandbox's API server says: why it cannot read the object, its faults, what it would store."""
    kind = KINDS[obj["kind"]]
    try:
        old = rules.prepared(kind, old, NOW) if old else None
        fit = rules.prepared(kind, obj, NOW, old)
    except ApiError as error:
        return str(error), set(), None
    return "", {(cause.what, cause.field) for cause in rules.faults(kind, fit, old, subresource)}, fit


def listed(fault: tuple[str, str]) -> bool:
    return any(fault[1].endswith(field) for field in OTHER_WORDS)


def tidy(value):
    """What two servers store alike: empty fields count as absent, times as times, amounts as amounts."""
    match value:
        case dict():
            kept = {name: tidy(item) for name, item in value.items() if name != "timeAdded"}
            return {name: item for name, item in kept.items() if item not in (None, "", [], {}, 0)}
        case list():
            return [tidy(item) for item in value]
        case str():
            try:
                return str(quantities.parse(value))
            except ValueError:
                return value
        case _:
            return value


@pytest.mark.parametrize("bases", [SLICES, CLAIMS, CLASSES], ids=["slices", "claims and templates", "classes"])
def test_sandbox_judges_as_the_real_server(bases, judge):
    """The same verdict, the same faults at the same fields, and what is taken is stored the same."""
    objects, told = nearly_right(bases, random.Random(1)), Counter()
    for _ in range(CASES):
        obj = next(objects)
        theirs = judge.ask({"object": obj})
        unreadable, ours, stored = sandbox(obj)
        assert bool(theirs["unreadable"]) == bool(unreadable), f"{obj}\n{theirs}\n{unreadable}"
        if unreadable:
            told["unreadable"] += 1
            continue
        faults = {(fault["type"], fault["field"]) for fault in theirs["faults"]}
        differing = {fault for fault in faults ^ ours if not listed(fault)}
        assert not differing, f"{obj}\ntheirs: {theirs['faults']}\nours: {ours}"
        told["bad" if faults else "good"] += 1
        if not faults:
            assert tidy(theirs["stored"]["spec"]) == tidy(stored["spec"]), f"{obj}"
    assert min(told["good"], told["bad"]) > CASES / 10


def test_sandbox_judges_a_claims_status_as_the_real_server(judge):
    """What schedulers and drivers write there."""
    chance, told = random.Random(2), Counter()
    before = {**ALLOCATED, "status": {}}
    for number in range(CASES):
        status = spoilt(ALLOCATED["status"], chance, same_type, STATUS_FIELDS, NAMES)
        obj = {**copy.deepcopy(ALLOCATED), "status": status}
        old = ALLOCATED if number % 2 else before
        theirs = judge.ask({"object": obj, "old": old, "status": True})
        unreadable, ours, _ = sandbox(obj, old, "status")
        assert bool(theirs["unreadable"]) == bool(unreadable), f"{status}\n{theirs}\n{unreadable}"
        if unreadable:
            continue
        faults = {(fault["type"], fault["field"]) for fault in theirs["faults"]}
        assert faults == ours, f"{status}\ntheirs: {theirs['faults']}\nours: {ours}"
        told["bad" if faults else "good"] += 1
    assert min(told["good"], told["bad"]) > CASES / 10


def test_controller_refuses_what_the_real_server_would(judge):
    """A slice found good is taken, always; and where the controller is stricter, the reason is known."""
    chance, told, unlisted = random.Random(3), Counter(), []
    unseen = set(STRICTER)
    base = SLICES[0]
    while told.total() < 2 * CASES:
        obj = {**base, "spec": spoilt(base["spec"], chance, same_type, {}, NAMES)}
        obj["spec"].get("pool", {})["generation"] = 1  # the plan's part
        try:
            ours = faults_of_pool([obj["spec"]])
        except (KeyError, AttributeError):
            continue  # not of the shape in which the controller makes slices
        theirs = judge.ask({"object": obj})
        refused = theirs["unreadable"] or theirs["faults"]
        told["bad" if refused else "good"] += 1
        assert ours or not refused, f"only the server refuses {obj}: {refused}"
        for fault in () if refused else ours:
            reasons = {reason for reason in STRICTER if re.search(reason, fault)}
            unseen -= reasons
            if not reasons:
                unlisted.append(fault)
    assert unlisted == []
    assert unseen == set(), "these differences are gone"
    assert min(told["good"], told["bad"]) > CASES / 10


@pytest.mark.parametrize(
    ("text", "theirs"),
    [("+1", "+1"), ("1.", "1."), ("0010", "0010"), ("1E3", "1E3"), ("9Ei", str(2**63 - 1)), ("-9Ei", str(1 - 2**63))],
)
def test_sandbox_keeps_odd_amounts_otherwise(text: str, theirs: str, judge):
    """Known differences: the server keeps some spellings, and no amount beyond 64 bits; nobody here writes such."""
    obj = copy.deepcopy(SLICES[0])
    obj["spec"]["devices"][0]["capacity"]["memory"]["value"] = text
    assert judge.ask({"object": obj})["stored"]["spec"]["devices"][0]["capacity"]["memory"]["value"] == theirs
    assert canonical(text) != theirs
