"""What the API server refuses in a selector of nodes.

Source: `ValidateNodeSelector` in `pkg/apis/core/validation/validation.go` of Kubernetes 1.37.2.
"""

from __future__ import annotations

from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver import formats
from cli.sandbox.apiserver.formats import items
from cli.sandbox.apiserver.statuses import Cause, forbidden_field, invalid_value, required

_NO_LIMIT = 2**31


def faults(selector: Mapping[str, Any], at: str) -> list[Cause]:
    """Everything the API has against it."""
    here = f"{at}.nodeSelectorTerms"
    terms = selector.get("nodeSelectorTerms") or []
    if not terms:
        return [required(here, "must have at least one node selector term")]
    return items(terms, _NO_LIMIT, _term, here)


def _term(term: Mapping[str, Any], at: str) -> list[Cause]:
    expressions, fields = term.get("matchExpressions") or [], term.get("matchFields") or []
    found = items(expressions, _NO_LIMIT, _expression, f"{at}.matchExpressions")
    return found + items(fields, _NO_LIMIT, _field, f"{at}.matchFields")


def _expression(wanted: Mapping[str, Any], at: str) -> list[Cause]:
    found, values, here = [], wanted.get("values") or [], f"{at}.values"
    match wanted.get("operator", ""):
        case "In" | "NotIn":
            if not values:
                found.append(required(here, "must be specified when `operator` is 'In' or 'NotIn'"))
        case "Exists" | "DoesNotExist":
            if values:
                rule = "may not be specified when `operator` is 'Exists' or 'DoesNotExist'"
                found.append(forbidden_field(here, rule))
        case "Gt" | "Lt":
            if len(values) != 1:
                found.append(required(here, "must be specified single value when `operator` is 'Lt' or 'Gt'"))
        case other:
            found.append(invalid_value(f"{at}.operator", other, "not a valid selector operator"))
    found += formats.label_name(wanted.get("key"), f"{at}.key")
    return found + items(values, _NO_LIMIT, formats.label_value, here)


def _field(wanted: Mapping[str, Any], at: str) -> list[Cause]:
    found, values, here = [], wanted.get("values") or [], f"{at}.values"
    operator, key = wanted.get("operator", ""), wanted.get("key", "")
    if operator not in ("In", "NotIn"):
        found.append(invalid_value(f"{at}.operator", operator, "not a valid selector operator"))
    elif len(values) != 1:
        rule = "must be only one value when `operator` is 'In' or 'NotIn' for node field selector"
        found.append(required(here, rule))
    if key != "metadata.name":
        return [*found, invalid_value(f"{at}.key", key, "not a valid field selector key")]
    return found + items(values, _NO_LIMIT, formats.subdomain, here)
