"""Makes nearly right documents out of right ones, the same ones for the same seed."""

import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

Instead = Callable[[Any, Any], Sequence[Any]]
"""Key and value of a place in a document → what might stand there as well; nothing where it is best left alone."""


def spoilt(
    document: Any,
    chance: random.Random,
    instead: Instead,
    fields: Mapping[str, Sequence[Any]],
    names: Sequence[str] = (),
) -> Any:
    """A copy with up to three changes: a value replaced, left out or said twice, a field added, or one called otherwise.

    `fields` are those worth adding to objects, with values that belong to them; `names` are new names for fields.
    """
    document = copy.deepcopy(document)
    for _ in range(chance.randrange(4)):
        known = places(document)
        if not known:
            break
        container, key = chance.choice(known)
        value = container[key]
        match chance.randrange(8):
            case 0 | 1 | 2:
                if values := instead(key, value):
                    container[key] = copy.deepcopy(chance.choice(values))
            case 3:
                del container[key]
            case 4 | 5 if fields and isinstance(value, dict):
                name = chance.choice(sorted(fields))
                value[name] = copy.deepcopy(chance.choice(fields[name]))
            case 6 if isinstance(value, list) and value:
                value.append(copy.deepcopy(value[0]))
            case 7 if isinstance(container, dict) and names:
                container[chance.choice(names)] = container.pop(key)
    return document


def places(value: Any) -> list[tuple[Any, Any]]:
    """Every (container, key) in a document."""
    keys = list(value) if isinstance(value, dict) else range(len(value)) if isinstance(value, list) else ()
    return [place for key in keys for place in ((value, key), *places(value[key]))]
