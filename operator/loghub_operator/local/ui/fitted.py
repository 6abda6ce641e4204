"""Which parts of the live view are shown on a terminal that is too small for all of them. Pure.

Failures, workers and events come before shards: there may be hundreds of shards, and one line says what is
wrong with them.
"""

from collections.abc import Sequence
from typing import Protocol, TypeVar


class _HasUrgency(Protocol):
    @property
    def urgency(self) -> int: ...


T = TypeVar("T", bound=_HasUrgency)


def heights(room: int, wanted: Sequence[int], least: Sequence[int]) -> tuple[int, ...]:
    """The lines of each part, in the order of importance: each one gets its least first, then what is left
    goes to the first ones that want more."""
    given = [0] * len(wanted)
    for bounds in (map(min, wanted, least), wanted):
        for part, most in enumerate(bounds):
            more = min(most - given[part], room)
            given[part] += more
            room -= more
    return tuple(given)


def folded(rows: Sequence[T], lines: int) -> tuple[tuple[T, ...], int]:
    """As many rows as fit, and how many do not, for which one line is kept. The most urgent ones are shown,
    in the order that they had."""
    if len(rows) <= lines:
        return tuple(rows), 0
    shown = max(lines - 1, 0)
    chosen = sorted(range(len(rows)), key=lambda number: -rows[number].urgency)[:shown]
    return tuple(rows[number] for number in sorted(chosen)), len(rows) - shown
