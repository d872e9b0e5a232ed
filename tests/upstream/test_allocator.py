"""The stand-in scheduler chooses what upstream's allocator chooses, and its selectors say what Kubernetes' say."""

import os
import random
from collections import Counter

import pytest

from api.refusals import Refused
from controller.allocator import Allocated, DeviceID, Question, TooLong, allocate
from controller.allocator.cel import CelError, Compiler, Input
from tests.upstream.allocator_questions import Maker
from tests.upstream.cel_expressions import BARE, DEVICE, DRIVER, REFUSED, SAME, composed
from tests.upstream.judge import Judge

QUESTIONS = 10_000
MAX_STEPS = 20_000
"""Questions that take longer are left out: upstream's search is as long, and would take minutes."""


@pytest.fixture(scope="module")
def upstream(built):
    with Judge(built("allocator")) as judge:
        yield judge


@pytest.fixture(scope="module")
def seed():
    """Another one each time; LANEWISE_SEED repeats one."""
    chosen = int(os.environ.get("LANEWISE_SEED") or random.SystemRandom().randrange(2**31))
    print(f"LANEWISE_SEED={chosen}")
    return chosen


def our_answer(question, compiler):
    """The allocations, None where there are none on this node, or the refusal."""
    held = {DeviceID(**device): "team-b/other" for device in question["held"]}
    classes = {item["metadata"]["name"]: item for item in question["classes"]}
    asked = Question(question["node"], tuple(question["slices"]), classes, tuple(question["claims"]), held)
    try:
        answer = allocate(asked, compiler=compiler, max_steps=MAX_STEPS)
    except Refused as refused:
        return refused
    if not isinstance(answer, Allocated):
        assert answer.what
        return None
    return list(answer.allocations)


def test_allocations_are_those_of_upstream(upstream, seed):
    """On 10 000 generated questions: the same devices in the same order with the same configuration, or both refuse."""
    maker, compiler, seen = Maker(seed), Compiler(), Counter()
    while seen.total() - seen["too long"] < QUESTIONS:
        question = maker.question()
        ours = our_answer(question, compiler)
        if isinstance(ours, Refused) and isinstance(ours.reason, TooLong):
            seen["too long"] += 1
            continue
        theirs = upstream.ask(question)
        told = f"LANEWISE_SEED={seed}, question {seen.total()}: ours {ours}, theirs {theirs}; {question}"
        if isinstance(ours, Refused):
            assert "error" in theirs, told
            seen["refused"] += 1
        else:
            assert "error" not in theirs, told
            assert ours == theirs["allocations"], told
            seen["none" if ours is None else "allocated"] += 1
    # The comparison is worth something only while all three sorts of answers occur.
    assert seen["too long"] < QUESTIONS / 100, seen
    assert min(seen["allocated"], seen["none"], seen["refused"]) > QUESTIONS / 20, seen


def test_search_that_takes_too_long_is_ended():
    """A question without an answer that only an endless search would find ends with a refusal that says so."""
    maker = Maker(1)
    question = next(q for q in (maker.question() for _ in range(5000)) if _too_long(q))
    with pytest.raises(Refused) as caught:
        raise our_answer(question, Compiler())
    assert "no answer after 20000 steps" in caught.value.reason.what


def _too_long(question):
    answer = our_answer(question, Compiler())
    return isinstance(answer, Refused) and isinstance(answer.reason, TooLong)


def our_match(compiler, expression, device):
    """True, False, or the error's text."""
    try:
        return compiler.compiled(expression).matches(Input.of(DRIVER, device))
    except CelError as error:
        return str(error)


def their_match(upstream, expression, device):
    answer = upstream.ask({"expression": expression, "driver": DRIVER, "device": device})
    return answer.get("matches", answer.get("error"))


@pytest.mark.parametrize("expression", SAME)
def test_selector_says_what_it_says_in_kubernetes(upstream, expression):
    """Each of the handwritten expressions selects the same devices, or fails on the same ones."""
    compiler = Compiler()
    for device in (DEVICE, BARE):
        ours, theirs = our_match(compiler, expression, device), their_match(upstream, expression, device)
        if isinstance(theirs, str):
            assert isinstance(ours, str), (device["name"], theirs)
        else:
            assert ours is theirs, (device["name"], ours)


def test_composed_selectors_never_say_otherwise(upstream, seed):
    """Random expressions: the same answer, or here a refusal; an error of Kubernetes is an error here."""
    compiler, refused, total = Compiler(), 0, 0
    for expression in composed(seed, 3000):
        for device in (DEVICE, BARE):
            ours, theirs = our_match(compiler, expression, device), their_match(upstream, expression, device)
            told = f"LANEWISE_SEED={seed}: {expression} on {device['name']}: ours {ours}, theirs {theirs}"
            assert isinstance(ours, str) or ours is theirs, told
            total += 1
            refused += isinstance(ours, str) and not isinstance(theirs, str)
    assert refused < total / 20


@pytest.mark.parametrize("expression", REFUSED)
def test_selector_that_cannot_be_evaluated_is_refused(expression):
    """What the library has not, or has otherwise, is an error with a reason."""
    assert isinstance(our_match(Compiler(), expression, DEVICE), str)
