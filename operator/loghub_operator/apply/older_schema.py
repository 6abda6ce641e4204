"""Leaves out of a status what the CRD in the cluster, of an older release, does not know.

An operator may be upgraded before its CRD. The API server refuses the whole of a status with one field or one
value of an enumeration that its schema does not have, so that nothing would be reported at all. Its message
names what it refuses. Fields that decisions rest on are never left out: without them a checkpoint reset, for
example, would begin again.
"""

import copy
import re
from collections.abc import Iterator
from typing import Any

from loghub.clock import Clock
from loghub_operator.model.revision import Document

FORGOTTEN_S = 300.0  # after this the API server is asked again: its CRD may have been upgraded
_NEEDED = ("checkpointReset", "groupOrigin", "observedGeneration", "ownership")
_ITEM = "[]"
_UNDECLARED = re.compile(r"\.status((?:\.\w+|\[[^\]]*\])+): field not declared in schema")
_REFUSED = re.compile(r"\bstatus((?:\.\w+|\[\d+\])+): (Unsupported value|Required value)")
_PART = re.compile(r"\.(\w+)|\[([^\]]*)\]")
Path = tuple[str | int, ...]


class OlderSchema:
    """Remembers which fields the API server does not know."""

    def __init__(self, clock: Clock) -> None:
        self._clock = clock
        self._undeclared: frozenset[Path] = frozenset()
        self._since_s = 0.0

    def known_part(self, status: Document) -> Document:
        """The status without the fields that are known to be refused."""
        if self._clock.monotonic_s() - self._since_s >= FORGOTTEN_S:
            self._undeclared = frozenset()
        return _without(status, self._undeclared) if self._undeclared else status

    def reduced(self, status: Document, message: str) -> Document | None:
        """The status without what the API server's ``message`` refuses; None if that is nothing of the
        status, or something that it cannot do without.
        """
        undeclared = frozenset(_field(text) for text in _UNDECLARED.findall(message))
        refused = frozenset(_refused(*found) for found in _REFUSED.findall(message))
        if any(not path or path[0] in _NEEDED for path in undeclared | refused):
            return None
        smaller = _without(status, undeclared | refused)
        if smaller == status:
            return None
        if undeclared:
            self._undeclared, self._since_s = self._undeclared | undeclared, self._clock.monotonic_s()
        return smaller


def _field(text: str) -> Path:
    """The path of a field in every item of a list, such as ``("shards", "[]", "readOnly")``."""
    return tuple(name or _ITEM for name, _ in _PART.findall(text))


def _refused(text: str, problem: str) -> Path:
    """The path of a value. An item of a list is left out whole, and so is what lacks a required field."""
    path: Path = tuple(name or int(number) for name, number in _PART.findall(text))
    items = [place for place, part in enumerate(path) if isinstance(part, int)]
    if items:
        return path[: items[-1] + 1]
    return path[:-1] if problem == "Required value" else path


def _without(status: Document, paths: frozenset[Path]) -> Document:
    result = copy.deepcopy(status)
    # From the last item on, so that removing one does not move those to come.
    for path in sorted(paths, key=lambda one: [str(part).zfill(9) for part in one], reverse=True):
        *parents, last = path
        for parent in _places(result, tuple(parents)):
            if isinstance(parent, dict):
                parent.pop(last, None)
            elif isinstance(parent, list) and isinstance(last, int) and last < len(parent):
                del parent[last]
    return result


def _places(value: Any, path: Path) -> Iterator[Any]:
    if not path:
        yield value
    elif path[0] == _ITEM and isinstance(value, list):
        for item in value:
            yield from _places(item, path[1:])
    elif isinstance(value, dict) and path[0] in value:
        yield from _places(value[path[0]], path[1:])
