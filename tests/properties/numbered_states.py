"""A step function as a table of numbered states, for searches over many systems.

A search reaches the same state of a group with many states of its clients and of the network. Each state gets
a number and each step is taken, checked and counted once; afterwards it is a lookup. A step is pure, so this
leaves nothing out.
"""

from abc import ABC, abstractmethod
from collections import Counter
from collections.abc import Callable, Hashable, Iterable
from dataclasses import dataclass, field
from enum import Enum
from typing import Any, Generic, TypeVar

from loghub.domain.table import Edge

State = TypeVar("State")
Result = TypeVar("Result")
Row = tuple[Enum | None, Enum, Enum]  # the old state, the trigger, the new state


@dataclass
class Coverage:
    """How many different steps of a search applied each kind of event, used each row of the table, and
    refused, or answered an error, for each reason."""

    events: Counter[str] = field(default_factory=Counter)
    rows: Counter[Row] = field(default_factory=Counter)
    refusals: Counter[Enum] = field(default_factory=Counter)

    def add(self, other: "Coverage") -> None:
        self.events += other.events
        self.rows += other.rows
        self.refusals += other.refusals

    def missed(
        self, *, edges: Iterable[Edge[Any, Any]], events: Iterable[type], refusals: Iterable[Enum]
    ) -> set[str]:
        """What no step used, in words. All counts are printed."""
        counts = {
            f"row {e.number} {e.old} {e.trigger} {e.new}": self.rows[e.old, e.trigger, e.new] for e in edges
        }
        counts |= {f"event {kind.__name__}": self.events[kind.__name__] for kind in events}
        counts |= {f"refusal {reason.name}": self.refusals[reason] for reason in refusals}
        for what, count in counts.items():
            print(f"{count:9} {what}")
        return {what for what, count in counts.items() if not count}


class NumberedStates(ABC, Generic[State]):
    """States by their numbers, which begin with 0."""

    def __init__(self) -> None:
        self.coverage = Coverage()
        self._states: list[State] = []
        self._numbers: dict[Hashable, int] = {}
        self._results: dict[tuple[int, Hashable], Any] = {}

    def __getitem__(self, number: int) -> State:
        return self._states[number]

    def __len__(self) -> int:
        return len(self._states)

    @abstractmethod
    def canonical(self, state: State) -> tuple[Hashable, State]:
        """What two states have in common that go on alike, and the state without what no decision reads."""

    def number_of(self, state: State) -> int:
        key, kept = self.canonical(state)
        number = self._numbers.setdefault(key, len(self._states))
        if number == len(self._states):
            self._states.append(kept)
        return number

    def once(self, number: int, what: Hashable, work: Callable[[State], Result]) -> Result:
        """``work`` on this state, which is done for the first ``what`` only; the result is kept."""
        result: Result | None = self._results.get((number, what))
        if result is None:
            result = self._results[number, what] = work(self._states[number])
        return result
