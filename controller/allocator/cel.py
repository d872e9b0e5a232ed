"""Device selectors: CEL as Kubernetes evaluates it, by Google's C++ library.

The library is `cel_expr_python`; it is loaded when the first expression is compiled, because it takes 34 MB. What it does
other than dynamic-resource-allocation/cel/compile.go is made up for here, or refused:

* A lookup of an unknown domain gives an empty map. Domains that the expression names get one; see `celsource`.
* Quantities and versions are maps with one entry, see `celvalues`; the library takes no types of ours.
* Functions of Kubernetes' libraries for lists, sets, regular expressions, URLs, addresses and formats are not there, nor are
  macros with two variables, list functions `includes` and `first`: an expression that uses one does not compile.
* Numbers of different types that are known when it is compiled are not compared: `1 < 2.5` does not compile here.
* A list or map literal of mixed types compiles here and not in Kubernetes. The cost of an expression is not limited.
"""

from collections.abc import Mapping
from dataclasses import dataclass
from typing import TYPE_CHECKING, Any

from controller.allocator import celvalues
from controller.allocator.celsource import KNOWN, Source, read
from controller.allocator.question import Object

if TYPE_CHECKING:
    from cel_expr_python import cel as library

MAX_BYTES = 10 * 1024
"""The longest expression (resource.k8s.io/v1, CELSelectorExpressionMaxLength)."""


class CelError(Exception):
    """An expression that cannot be evaluated. `at_run_time`: it failed on one device."""

    def __init__(self, problem: str, *, at_run_time: bool) -> None:
        super().__init__(problem)
        self.at_run_time = at_run_time


@dataclass(frozen=True, slots=True)
class Input:
    """A device as expressions see it. Unqualified names are in the domain of the driver."""

    driver: str
    allow_multiple: bool
    attributes: Mapping[str, Mapping[str, Any]]
    capacity: Mapping[str, Mapping[str, Any]]
    versions: frozenset[str]
    """The attributes that are versions, as domain/name."""

    @classmethod
    def of(cls, driver: str, device: Object) -> "Input":
        """From a device of a ResourceSlice (`resource.k8s.io/v1`). CelError where a value cannot be read."""
        attributes: dict[str, dict[str, Any]] = {}
        capacity: dict[str, dict[str, Any]] = {}
        versions: set[str] = set()
        try:
            for name, value in (device.get("attributes") or {}).items():
                domain, short = _split(name, driver)
                attributes.setdefault(domain, {})[short] = celvalues.attribute(value)
                if "version" in value or "versions" in value:
                    versions.add(f"{domain}/{short}")
            for name, value in (device.get("capacity") or {}).items():
                domain, short = _split(name, driver)
                capacity.setdefault(domain, {})[short] = celvalues.quantity(str(value["value"]))
        except ValueError as error:
            raise CelError(f"{name}: {error}", at_run_time=True) from error
        return cls(driver, bool(device.get("allowMultipleAllocations")), attributes, capacity, frozenset(versions))


def _split(name: str, driver: str) -> tuple[str, str]:
    domain, slash, short = name.partition("/")
    return (domain, short) if slash else (driver, name)


class Expression:
    """A compiled selector."""

    def __init__(self, source: Source, program: "library.Expression") -> None:
        self._source = source
        self._program = program

    def matches(self, device: Input) -> bool:
        """Whether it selects the device. CelError when it fails: Kubernetes then ends the pod's allocation."""
        risky = self._source.loosely_compared(device.versions)
        if risky:
            problem = f"version {risky} is compared with == to something that may be no version; use semver(...)"
            raise CelError(problem, at_run_time=True)
        empty: dict[str, Mapping[str, Any]] = {domain: {} for domain in (*self._source.domains, device.driver)}
        data = {
            "device.driver": device.driver,
            "device.allowMultipleAllocations": device.allow_multiple,
            "device.attributes": {**empty, **device.attributes},
            "device.capacity": {**empty, **device.capacity},
            f"device.attributes{KNOWN}": device.attributes,
            f"device.capacity{KNOWN}": device.capacity,
        }
        value = self._program.eval(data=data)
        result = value.value()
        if value.type().name() == "ERROR":
            raise CelError(f"CEL runtime error: {result}", at_run_time=True)
        if not isinstance(result, bool):
            raise CelError(f"CEL result {result!r} is no bool", at_run_time=True)
        return result


class Compiler:
    """Compiles expressions, each once."""

    def __init__(self) -> None:
        self._environment: library.Env | None = None
        self._compiled: dict[str, Expression | CelError] = {}

    def compiled(self, expression: str) -> Expression:
        """The expression, ready to be evaluated. CelError when it does not compile, or cannot be evaluated here."""
        known = self._compiled.get(expression)
        if known is None:
            try:
                known = self._compile(expression)
            except CelError as error:
                known = error
            self._compiled[expression] = known
        if isinstance(known, CelError):
            raise known
        return known

    def _compile(self, expression: str) -> Expression:
        try:
            from cel_expr_python import cel as library
        except ImportError as error:
            problem = "selectors need the package cel-expr-python: pip install 'lanewise[sandbox]'"
            raise CelError(problem, at_run_time=False) from error
        if len(expression.encode()) > MAX_BYTES:
            raise CelError(f"it is longer than {MAX_BYTES} bytes", at_run_time=False)
        try:
            source = read(expression)
        except ValueError as error:
            raise CelError(str(error), at_run_time=False) from error
        if self._environment is None:
            self._environment = _environment()
        try:
            program = self._environment.compile(source.text)
        except RuntimeError as error:
            lines = str(error).removeprefix("INVALID_ARGUMENT: ").replace(KNOWN, "").splitlines()
            told = "; ".join(line.removeprefix("ERROR: <input>:") for line in lines if line.startswith("ERROR"))
            raise CelError(f"CEL compile error: {told or lines[0]}", at_run_time=False) from error
        if program.return_type() not in (library.Type.BOOL, library.Type.DYN):
            problem = f"CEL compile error: it must evaluate to bool, not {program.return_type()}"
            raise CelError(problem, at_run_time=False)
        return Expression(source, program)


def _environment() -> "library.Env":
    from cel_expr_python import cel as library
    from cel_expr_python.ext import ext_bindings, ext_optional, ext_strings

    kinds = library.Type
    attributes = kinds.Map(kinds.STRING, kinds.Map(kinds.STRING, kinds.DYN))
    capacity = kinds.Map(kinds.STRING, kinds.Map(kinds.STRING, kinds.Map(kinds.STRING, kinds.STRING)))
    variables = {
        "device.driver": kinds.STRING,
        "device.allowMultipleAllocations": kinds.BOOL,
        "device.attributes": attributes,
        "device.capacity": capacity,
        f"device.attributes{KNOWN}": attributes,
        f"device.capacity{KNOWN}": capacity,
    }
    # Strings of version 2, as in apiserver pkg/cel/environment/base.go since 1.29.
    extensions = [
        library.CelExtension("kubernetes", celvalues.functions(library)),
        ext_strings.ExtStrings(2),
        ext_optional.ExtOptional(),
        ext_bindings.ExtBindings(),
    ]
    return library.NewEnv(variables=variables, extensions=extensions)
