"""ResourceClaims, their templates and DeviceClasses: what the API server fills in, and what it refuses.

Source: `pkg/apis/resource/v1/defaults.go` and `validation/validation.go` of Kubernetes 1.37.2. CEL expressions are
checked for length only: compiling them takes a real API server.
"""

from __future__ import annotations

import json
from collections.abc import Mapping
from typing import Any

from cli.sandbox.apiserver import formats
from cli.sandbox.apiserver.formats import items, unique
from cli.sandbox.apiserver.quantity import canonical
from cli.sandbox.apiserver.statuses import (
    Cause,
    forbidden_field,
    invalid_value,
    required,
    too_long,
    unsupported_value,
)

Names = Mapping[str, frozenset[str]]

REQUESTS = CONSTRAINTS = CONFIGS = SELECTORS = 32
SUBREQUESTS = 8
EXPRESSION_BYTES = PARAMETER_BYTES = 10 * 1024

_NO_SUCH_REQUEST = (
    "must be the name of a request in the claim or the name of a request and a subrequest separated by '/'"
)


def fill_in(spec: Mapping[str, Any], status: Mapping[str, Any]) -> None:
    """Requests ask for exactly one device unless they say otherwise; quantities take their canonical form."""
    for request in (spec.get("devices") or {}).get("requests") or ():
        exactly = [] if request.get("exactly") is None else [request["exactly"]]
        for wish in (*exactly, *(request.get("firstAvailable") or ())):
            wish["allocationMode"] = wish.get("allocationMode") or "ExactCount"
            if wish["allocationMode"] == "ExactCount":
                wish["count"] = wish.get("count") or 1
            for toleration in wish.get("tolerations") or ():
                toleration["operator"] = toleration.get("operator") or "Equal"
            wanted = (wish.get("capacity") or {}).get("requests") or {}
            wanted.update({name: canonical(amount) for name, amount in wanted.items()})
    for result in ((status.get("allocation") or {}).get("devices") or {}).get("results") or ():
        consumed = result.get("consumedCapacity") or {}
        consumed.update({name: canonical(amount) for name, amount in consumed.items()})


def faults(obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    """Everything the API has against a claim; once it is stored, only that its spec changed."""
    spec = obj.get("spec") or {}
    if old is not None:
        return [] if spec == old.get("spec") else [invalid_value("spec", None, "field is immutable")]
    return _spec(spec, "spec")


def template_faults(obj: Mapping[str, Any], old: Mapping[str, Any] | None) -> list[Cause]:
    """The same for a template."""
    spec = obj.get("spec") or {}
    if old is not None:
        return [] if spec == old.get("spec") else [invalid_value("spec", None, "field is immutable")]
    return _template_metadata(spec.get("metadata") or {}) + _spec(spec.get("spec") or {}, "spec.spec")


def _template_metadata(meta: Mapping[str, Any]) -> list[Cause]:
    found = []
    for key in meta.get("annotations") or {}:
        found += formats.label_name(key.lower(), "spec.metadata.annotations")
    for key, value in (meta.get("labels") or {}).items():
        found += formats.label_name(key, "spec.metadata.labels")
        found += formats.label_value(value, "spec.metadata.labels")
    others = (name for name in meta if name not in ("annotations", "labels") and meta[name])
    return found + [forbidden_field(f"spec.metadata.{name}", "cannot be set") for name in others]


def class_faults(obj: Mapping[str, Any], _old: Mapping[str, Any] | None) -> list[Cause]:
    """Everything the API has against a DeviceClass."""
    spec = obj.get("spec") or {}
    found = items(spec.get("selectors") or [], SELECTORS, _selector, "spec.selectors")
    found += items(spec.get("config") or [], CONFIGS, opaque_faults, "spec.config")
    name = spec.get("extendedResourceName")
    return found + (formats.extended_resource(name, "spec.extendedResourceName") if name is not None else [])


def request_names(spec: Mapping[str, Any]) -> Names:
    """What results and configurations may refer to: each request with its alternatives."""
    requests = (spec.get("devices") or {}).get("requests") or ()
    return {str(r.get("name")): frozenset(str(s.get("name")) for s in r.get("firstAvailable") or ()) for r in requests}


def _spec(spec: Mapping[str, Any], at: str) -> list[Cause]:
    names = request_names(spec)
    devices = spec.get("devices") or {}
    found = unique(
        devices.get("requests") or [],
        REQUESTS,
        _request,
        _name,
        f"{at}.devices.requests",
        shows_item=True,
    )
    found += items(
        devices.get("constraints") or [],
        CONSTRAINTS,
        lambda constraint, here: _constraint(constraint, here, names),
        f"{at}.devices.constraints",
    )
    return found + items(
        devices.get("config") or [],
        CONFIGS,
        lambda config, here: covered(config, here, names) + opaque_faults(config, here),
        f"{at}.devices.config",
    )


def _request(request: Mapping[str, Any], at: str) -> list[Cause]:
    found = formats.label(request.get("name"), f"{at}.name")
    exactly, alternatives = request.get("exactly"), request.get("firstAvailable") or []
    rule = "exactly one of `exactly` or `firstAvailable` is required"
    if exactly is None and not alternatives:
        found.append(required(at, rule))
    elif exactly is not None and alternatives:
        found.append(invalid_value(at, None, f"{rule}, but multiple fields are set"))
        found += unique(alternatives, SUBREQUESTS, lambda _sub, _at: [], _name, f"{at}.firstAvailable")
    elif exactly is not None:
        found += _wish(exactly, f"{at}.exactly")
    else:
        found += unique(
            alternatives,
            SUBREQUESTS,
            lambda sub, here: formats.label(sub.get("name"), f"{here}.name") + _wish(sub, here),
            _name,
            f"{at}.firstAvailable",
        )
    return found


def _name(named: Mapping[str, Any]) -> str:
    return str(named.get("name"))


def _wish(wish: Mapping[str, Any], at: str) -> list[Cause]:
    name = wish.get("deviceClassName")
    here = f"{at}.deviceClassName"
    found = formats.subdomain(name, here) if name else [required(here)]
    found += items(wish.get("selectors") or [], SELECTORS, _selector, f"{at}.selectors")
    mode, count = wish.get("allocationMode"), wish.get("count", 0)
    if mode == "All" and count:
        rule = "must not be specified when allocationMode is 'All'"
        found.append(invalid_value(f"{at}.count", count, rule))
    elif mode == "ExactCount" and count <= 0:
        found.append(invalid_value(f"{at}.count", count, "must be greater than zero"))
    elif mode not in ("All", "ExactCount"):
        found.append(unsupported_value(f"{at}.allocationMode", mode, ("All", "ExactCount")))
    for i, toleration in enumerate(wish.get("tolerations") or ()):
        found += formats.toleration(toleration, f"{at}.tolerations[{i}]")
    return found


def _selector(selector: Mapping[str, Any], at: str) -> list[Cause]:
    expression = (selector.get("cel") or {}).get("expression")
    if not expression:
        return [required(f"{at}.cel" if selector.get("cel") is None else f"{at}.cel.expression")]
    over = formats.utf8_bytes(expression) > EXPRESSION_BYTES
    return [too_long(f"{at}.cel.expression", EXPRESSION_BYTES)] if over else []


def _constraint(constraint: Mapping[str, Any], at: str, names: Names) -> list[Cause]:
    found = covered(constraint, at, names)
    given = [field for field in ("matchAttribute", "distinctAttribute") if constraint.get(field) is not None]
    if not given:
        rule = 'exactly one of "matchAttribute" or "distinctAttribute" is required, but multiple fields are set'
        return [*found, required(at, rule)]
    for field in given:
        found += formats.fully_qualified_name(constraint[field], f"{at}.{field}")
    return found


def covered(holder: Mapping[str, Any], at: str, names: Names) -> list[Cause]:
    """The requests that something is for, each once."""
    return unique(
        holder.get("requests") or [], REQUESTS, lambda n, here: reference(n, here, names), str, f"{at}.requests"
    )


def reference(name: str, at: str, names: Names) -> list[Cause]:
    """One request, or one of its alternatives."""
    parts = name.split("/")
    if len(parts) > 2:
        return [invalid_value(at, name, _NO_SUCH_REQUEST)]
    found = [cause for part in parts for cause in formats.label(part, at)]
    known = parts[0] in names and (len(parts) == 1 or parts[1] in names[parts[0]])
    return found if known else [*found, invalid_value(at, name, _NO_SUCH_REQUEST)]


def opaque_faults(config: Mapping[str, Any], at: str) -> list[Cause]:
    """A configuration, of whichever driver."""
    opaque = config.get("opaque")
    if opaque is None:
        return [required(f"{at}.opaque")]
    here = f"{at}.opaque.parameters"
    driver = formats.driver(opaque.get("driver"), f"{at}.opaque.driver")
    parameters = opaque.get("parameters")
    if parameters is None:
        return [required(here), *driver]
    found = []
    if formats.utf8_bytes(json.dumps(parameters, separators=(",", ":"), ensure_ascii=False)) > PARAMETER_BYTES:
        found.append(too_long(here, PARAMETER_BYTES))
    if not isinstance(parameters, Mapping):
        found.append(invalid_value(here, "<value omitted>", "must be a valid JSON object"))
    return found + driver
