"""What the API server refuses in a policy that says which amounts of a shared device's capacity may be asked for.

Source: `validateRequestPolicy` in `pkg/apis/resource/validation/validation.go` of Kubernetes 1.37.2, without the feature
DRAFractionalCapacityRange, which a server that could still be rolled back to 1.36 has not: fractions are rounded up.
"""

from __future__ import annotations

import math
from collections.abc import Mapping
from fractions import Fraction
from typing import Any

from cli.sandbox.apiserver.quantity import value_of
from cli.sandbox.apiserver.statuses import Cause, duplicate, forbidden_field, invalid_value, required, too_many

VALUES = 10


def faults(capacity: Mapping[str, Any], at: str) -> list[Cause]:
    """Everything the API has against the policy of this capacity, which has one; quantities are canonical."""
    policy = capacity["requestPolicy"]
    values, span, default = policy.get("validValues") or [], policy.get("validRange"), policy.get("default")
    if values and span is not None:
        rule = 'exactly one policy can be specified, cannot specify "validValues" and "validRange" at the same time'
        return [forbidden_field(at, rule)]
    if not values and span is None:
        return []
    if default is None:
        kind = "validValues" if values else "validRange"
        return [required(f"{at}.default", f"required when {kind} is defined")]
    if values:
        return _values(default, capacity["value"], values, f"{at}.validValues")
    return _range(default, capacity["value"], span, f"{at}.validRange")


def _values(default: str, most: str, values: list[str], at: str) -> list[Cause]:
    amounts = [_amount(value) for value in values]
    found = [
        invalid_value(f"{at}[{i + 1}]", values[i + 1], "values must be sorted in ascending order")
        for i in range(len(values) - 1)
        if amounts[i] > amounts[i + 1]
    ]
    if len(values) > VALUES:
        found.append(too_many(at, len(values), VALUES))
    else:
        for i, amount in enumerate(amounts):
            if amount > _amount(most):
                found.append(invalid_value(f"{at}[{i}]", values[i], f"option is larger than capacity value: {most}"))
            if math.ceil(amount) in map(math.ceil, amounts[:i]):
                found.append(duplicate(f"{at}[{i}]", values[i]))
    if len(values) > VALUES or _amount(default) not in amounts:
        found.append(invalid_value(at, default, "default value is not valid according to the requestPolicy"))
    return found


def _range(default: str, most: str, span: Mapping[str, str], at: str) -> list[Cause]:
    least, highest, step = span.get("min"), span.get("max"), span.get("step")
    if least is None:
        return [required(f"{at}.min", "required when validRange is defined")]
    found = []
    if _amount(least) > _amount(most):
        found.append(invalid_value(f"{at}.min", least, f"min is larger than capacity value: {most}"))
    if _amount(default) < _amount(least):
        found.append(invalid_value(f"{at}.default", default, f"default is less than min: {least}"))
    if highest is not None:
        if _amount(least) > _amount(highest):
            found.append(invalid_value(f"{at}.max", least, f"min is larger than max: {highest}"))
        if _amount(highest) > _amount(most):
            found.append(invalid_value(f"{at}.max", highest, f"max is larger than capacity value: {most}"))
        if _amount(default) > _amount(highest):
            found.append(invalid_value(f"{at}.default", default, f"default is more than max: {highest}"))
    given = {"default": default, "min": least, "max": highest, "step": step}
    return found + (_step({name: text for name, text in given.items() if text is not None}, most, at) if step else [])


def _step(given: Mapping[str, str], most: str, at: str) -> list[Cause]:
    here, step, least = f"{at}.step", given["step"], given["min"]
    if _amount(step) <= 0:
        return [invalid_value(here, step, "must be greater than zero")]
    found = []
    if (one := _amount(least) + _amount(step)) > _amount(most):
        found.append(invalid_value(here, step, f"one step {one} is larger than capacity value: {most}"))
    unsafe = [
        invalid_value(f"{at}.{name}", text, rule)
        for name, text in given.items()
        if (rule := _unsafe(_amount(text))) is not None
    ]
    if unsafe:
        return found + unsafe
    for name in ("default", "max"):
        if name in given and (_rounded(given[name]) - _rounded(least)) % _rounded(step):
            rule = f"value is not a multiple of a given step ({step}) from ({least})"
            found.append(invalid_value(here, given[name], rule))
    return found


def _unsafe(amount: Fraction) -> str | None:
    if amount < 0:
        return "must be greater than or equal to 0"
    return "must not be larger than 9223372036854775807" if amount > 2**63 - 1 else None


def _amount(text: str) -> Fraction:
    return value_of(text)[0]


def _rounded(text: str) -> int:
    return math.ceil(_amount(text))
