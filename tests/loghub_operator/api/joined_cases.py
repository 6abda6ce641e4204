"""Several cases in one object: each has the values of as many cases as go together.

An object that is accepted has no value that is refused, and of one that is refused the apiserver names each
place that is wrong. So it needs few of them where each case has one value. What a value requires of others
may be there by chance: each case alone is for `parse_resource`.
"""

import functools
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import msgspec

from loghub_operator.api import InvalidResourceError, parse_resource
from tests.loghub_operator.api.crd_cases import Case, Path, accepted_values, broken
from tests.loghub_operator.support.examples import Document, document

ABSENT = "absent"  # of a change: the field is removed
Changes = Mapping[Path, bytes]  # from a place to the value there, as JSON


@dataclass
class _Object:
    """An object that becomes one of more and more cases."""

    names: list[str] = field(default_factory=list)
    changed: dict[Path, bytes] = field(default_factory=dict)
    above: set[Path] = field(default_factory=set)  # the places that have changed ones below them

    def takes(self, name: str, added: Changes, *, valid: bool = True) -> bool:
        """Whether the values of this case go with the others, and have been added. With ``valid``, all of
        them must be accepted."""
        free = all(
            path not in self.above and self.changed.get(path, value) == value and not self._is_below(path)
            for path, value in added.items()
        )
        if not free or (valid and not _is_valid({**self.changed, **added})):
            return False
        self.names.append(name)
        self.changed |= added
        self.above |= {path[:length] for path in added for length in range(len(path))}
        return True

    def _is_below(self, path: Path) -> bool:
        return any(path[:length] in self.changed for length in range(len(path)))


@functools.cache
def joined_values() -> dict[str, Document]:
    """Objects with the values of all `accepted_values`, by the names of their cases."""
    objects: list[_Object] = []
    for name, case in accepted_values().items():
        added = changes(case.document, document())
        if not any(one.takes(name, added) for one in objects):
            objects.append(_Object())
            assert objects[-1].takes(name, added)
    return {", ".join(one.names): _whole(one.changed) for one in objects}


def joined_broken() -> list[tuple[list[Case], Document]]:
    """Objects with the values of all `broken`, of spec and status apart, and the cases of each."""
    objects: dict[str, list[_Object]] = {"spec": [], "status": []}
    cases = broken()
    for name, case in cases.items():
        added = dict(changes(case.document, document()))
        place = tuple(case.place.split("."))
        if case.bound == "required" and not any(place[:length] in added for length in range(len(place))):
            added[place] = _json(ABSENT)  # also where nothing else would have to be removed
        among = objects[place[0]]
        if not any(one.takes(name, added, valid=False) for one in among):
            among.append(_Object())
            assert among[-1].takes(name, added, valid=False)
    whole = [one for among in objects.values() for one in among]
    return [([cases[name] for name in one.names], _whole(one.changed)) for one in whole]


def changes(value: Document, base: Document, path: Path = ()) -> Changes:
    """Where the first differs from the second. A list is one value."""
    found: dict[Path, bytes] = {}
    for key in value.keys() | base.keys():
        new, old = value.get(key, ABSENT), base.get(key, ABSENT)
        if isinstance(new, dict) and new and (old == ABSENT or isinstance(old, dict)):
            found |= changes(new, {} if old == ABSENT else old, (*path, key))
        elif _json(new) != _json(old):
            found[(*path, key)] = _json(new)
    return found


def _json(value: Any) -> bytes:
    return msgspec.json.encode(value, order="sorted")


def _whole(changed: Changes) -> Document:
    result: Document = msgspec.json.decode(_json(document()))
    for path, value in changed.items():
        at = result
        for step in path[:-1]:
            at = at.setdefault(step, {})
        if value == _json(ABSENT):
            at.pop(path[-1], None)
        else:
            at[path[-1]] = msgspec.json.decode(value)
    return result


def _is_valid(changed: Changes) -> bool:
    try:
        parse_resource(_whole(changed))
    except InvalidResourceError:
        return False
    return True
