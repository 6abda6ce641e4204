"""Which lines get into the log: a client may cause any of them as often as it likes.

One limit for all lines, and not one at each place that writes some, so that none is forgotten. A line that
repeats one of the last minute is left out, and so is what exceeds a number of lines of its kind in a minute:
an attacker may give a new name each time. The next line of the kind says how many were left out.
"""

import threading
from collections import OrderedDict, deque
from collections.abc import Callable, MutableMapping
from dataclasses import dataclass, field
from typing import Any

import structlog

_QUIET_S = 60.0
MOST_LINES = 60  # of a kind within `_QUIET_S`: one a second
_MOST_KNOWN = 1000  # lines of a kind that are remembered
_MOST_KINDS = 1000  # far above the number of kinds
_ALWAYS = "critical"


@dataclass(slots=True)
class _Kind:
    lines: deque[float] = field(default_factory=lambda: deque(maxlen=MOST_LINES))
    known: OrderedDict[str, float] = field(default_factory=OrderedDict)
    left_out: int = 0  # since the last line


class LineLimit:
    """Decides for each line by its kind, which is its text, and by what it says besides. Any thread may use
    it."""

    def __init__(self) -> None:
        self.left_out = 0  # of all kinds, ever
        self._kinds: OrderedDict[str, _Kind] = OrderedDict()
        self._lock = threading.Lock()

    def left_out_before(self, kind: str, says: str, *, now_s: float) -> int | None:
        """How many lines of the kind were left out before this one; None if this one is left out, too."""
        with self._lock:
            seen = self._kinds.setdefault(kind, _Kind())
            self._kinds.move_to_end(kind)
            while len(self._kinds) > _MOST_KINDS:
                self._kinds.popitem(last=False)
            if not self._is_news(seen, says, now_s):
                seen.left_out += 1
                self.left_out += 1
                return None
            left_out, seen.left_out = seen.left_out, 0
            return left_out

    @staticmethod
    def _is_news(seen: _Kind, says: str, now_s: float) -> bool:
        last_s = seen.known.get(says)
        if last_s is not None and now_s - last_s < _QUIET_S:
            return False
        if len(seen.lines) == MOST_LINES and now_s - seen.lines[0] < _QUIET_S:
            return False
        seen.lines.append(now_s)
        seen.known[says] = now_s
        seen.known.move_to_end(says)
        while len(seen.known) > _MOST_KNOWN:
            seen.known.popitem(last=False)
        return True


def limited(limit: LineLimit, now_s: Callable[[], float]) -> structlog.types.Processor:
    """The limit as structlog's first processor. What ends the service is never left out."""

    def process(_: Any, method: str, line: MutableMapping[str, Any]) -> MutableMapping[str, Any]:
        if method == _ALWAYS:
            return line
        says = repr([(name, value) for name, value in line.items() if name != "exc_info"])
        left_out = limit.left_out_before(str(line.get("event")), says, now_s=now_s())
        if left_out is None:
            raise structlog.DropEvent
        if left_out:
            line["left_out"] = left_out
        return line

    return process
