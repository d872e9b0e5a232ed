"""A selector's text, looked at before the library gets it: which domains it names, and what it must not do.

`device.attributes` and `device.capacity` are declared twice to the library: under their own names with an empty map for
each domain that the expression names (a lookup of an unknown domain gives an empty map), and with a suffix as they are
(`in`, `size` and macros see only what the device has). Each use is turned into the one or the other.
"""

import re
from dataclasses import dataclass

KNOWN = "__known"
"""The suffix of the variables that have only what the device has."""
FIELDS = frozenset(("driver", "attributes", "capacity", "allowMultipleAllocations"))
_MAPS = ("attributes", "capacity")
_REFUSED = ("dyn", "type")
"""Functions that would show how quantities and versions are made here."""

_TOKEN = re.compile(
    r"""
    (?P<space>\s+|//[^\n]*)
    | (?P<string>(?:[rR]?[bB]?|[bB][rR])
        (?:'{3}(?:\\.|[^\\])*?'{3}|"{3}(?:\\.|[^\\])*?"{3}|'(?:\\.|[^\\'\n])*'|"(?:\\.|[^\\"\n])*"))
    | (?P<quoted>`[^`]*`)
    | (?P<number>(?:0[xX][0-9a-fA-F]+|\d+(?:\.\d+)?(?:[eE][+-]?\d+)?|\.\d+(?:[eE][+-]?\d+)?)[uU]?)
    | (?P<name>[A-Za-z_][A-Za-z0-9_]*)
    | (?P<operator>==|!=|<=|>=|&&|\|\||\[\?|\.\?|.)
    """,
    re.VERBOSE | re.DOTALL | re.ASCII,
)


@dataclass(frozen=True, slots=True)
class Source:
    """An expression that may be compiled."""

    text: str
    """For the library."""
    domains: frozenset[str]
    """Strings and names in it, each of which may be a domain."""
    mentioned: frozenset[str]
    """Strings and names that may be an attribute."""
    compared: frozenset[str]
    """What stands before each == or != that has no semver(...) behind it: an attribute as domain/name, a name where the
    domain is not plain to see, and "" where not even the name is."""

    def loosely_compared(self, versions: frozenset[str]) -> str | None:
        """A version that may be compared with something else than a version.

        Kubernetes ends such a comparison with an error; here it would be false.
        """
        for name in sorted(versions):
            short = name.partition("/")[2]
            loose = short in self.compared or ("" in self.compared and short in self.mentioned)
            if name in self.compared or loose:
                return name
        return None


@dataclass(frozen=True, slots=True)
class _Token:
    kind: str
    text: str


def read(expression: str) -> Source:
    """The expression made ready; ValueError with what cannot be evaluated here."""
    everything = [_Token(match.lastgroup or "", match.group()) for match in _TOKEN.finditer(expression)]
    tokens = [token for token in everything if token.kind != "space"]
    texts = [token.text for token in tokens]
    renamed: set[int] = set()
    for i, token in enumerate(tokens):
        if token.kind != "name" or _before(texts, i) in (".", ".?"):
            continue
        if token.text in _REFUSED and _at(texts, i + 1) == "(":
            raise ValueError(f"{token.text}() cannot be evaluated here")
        if token.text == "device" and _check_device(texts, i):
            renamed.add(i + 2)
    literals = frozenset(_literal(token.text) for token in tokens if token.kind == "string")
    names = frozenset(token.text.strip("`") for token in tokens if token.kind in ("name", "quoted"))
    return Source(_joined(everything, renamed), literals | names, literals | names, frozenset(_compared(tokens)))


def _check_device(texts: list[str], i: int) -> bool:
    """Whether the map that `device` at i leads to is to be the one without additions; ValueError where that is unclear."""
    if _at(texts, i + 1) != "." or _at(texts, i + 2) not in FIELDS:
        raise ValueError(
            f"device has no field {_at(texts, i + 2)!r}" if _at(texts, i + 1) == "." else "device is no value"
        )
    field, after = texts[i + 2], _at(texts, i + 3)
    if texts[max(0, i - 2) : i] == ["has", "("] and after == ")":
        raise ValueError(f"has(device.{field}) cannot be evaluated here")
    if field not in _MAPS:
        return False
    method = after == "." and _at(texts, i + 5) == "("
    if after in ("[", "[?", ".?") or (after == "." and not method):
        return False
    sized = texts[max(0, i - 2) : i] == ["size", "("] and after == ")"
    if method or sized or _before(texts, i) == "in":
        return True
    raise ValueError(f"device.{field} as a whole cannot be evaluated here; look up a domain in it")


def _compared(tokens: list[_Token]) -> list[str]:
    found: list[str] = []
    for i, token in enumerate(tokens):
        if token.text not in ("==", "!=") or (i + 1 < len(tokens) and tokens[i + 1].text == "semver"):
            continue
        last, before = tokens[i - 1] if i else token, tokens[i - 2].text if i > 1 else ""
        if last.kind in ("name", "quoted"):
            # A name by itself may be bound to anything.
            found.append(_domain(tokens, i - 3) + last.text.strip("`") if before in (".", ".?") else "")
        elif last.text == "]":
            plain = i > 1 and tokens[i - 2].kind == "string"
            found.append(_domain(tokens, i - 4) + _literal(tokens[i - 2].text) if plain else "")
        elif last.text == ")" and _called([t.text for t in tokens], i - 1) in ("orValue", "value", "", "bind"):
            found.append("")
    return found


def _domain(tokens: list[_Token], end: int) -> str:
    """`domain/` where the tokens up to `end` are device.attributes["domain"], else nothing."""
    path = tokens[max(0, end - 5) : end + 1]
    texts = [token.text for token in path]
    plain = texts[:4] == ["device", ".", "attributes", "["] and texts[5:] == ["]"] and path[4].kind == "string"
    return f"{_literal(texts[4])}/" if plain else ""


def _called(texts: list[str], closing: int) -> str:
    """The function whose argument list ends at `closing`, or empty for plain parentheses."""
    depth = 0
    for i in range(closing, -1, -1):
        depth += (texts[i] == ")") - (texts[i] == "(")
        if depth == 0:
            name = _before(texts, i)
            return name if name.isidentifier() else ""
    return ""


def _joined(tokens: list[_Token], renamed: set[int]) -> str:
    """The text again, with the suffix on the renamed ones (counted without space)."""
    parts: list[str] = []
    index = 0
    for token in tokens:
        parts.append(token.text)
        if token.kind != "space":
            if index in renamed:
                parts.append(KNOWN)
            index += 1
    return "".join(parts)


def _literal(text: str) -> str:
    """A string literal's value, near enough for domains and names, which need no escapes."""
    body = text.lstrip("rRbB")
    return body[3:-3] if body[:3] in ('"""', "'''") else body[1:-1]


def _at(texts: list[str], i: int) -> str:
    return texts[i] if i < len(texts) else ""


def _before(texts: list[str], i: int) -> str:
    return texts[i - 1] if i > 0 else ""
