"""A state machine as a table: every state change there is, each with its trigger and its reason.

Consumer groups have one for their shards (`loghub.domain.fsm`), the Kafka endpoint one for its groups. A
table knows neither time nor what a change leads to: the coordinator that uses it decides which trigger
occurs, and carries out the effects.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Generic, TypeVar

State = TypeVar("State", bound=StrEnum)
Trigger = TypeVar("Trigger", bound=StrEnum)


class IllegalTransition(Exception):  # noqa: N818 - says what happened, as the word for it is
    """The table has no edge from this state by this trigger; nothing has changed."""

    def __init__(self, thing: str, state: StrEnum | None, trigger: StrEnum) -> None:
        super().__init__(f"a {thing} in {state or 'no state'} has no edge for {trigger}")
        self.state = state
        self.trigger = trigger


@dataclass(frozen=True, slots=True, kw_only=True)
class Edge(Generic[State, Trigger]):
    """One row. ``number`` is the row's number on the page that explains the table; several rows may share
    one."""

    number: int
    old: State | None  # None: the thing is new
    trigger: Trigger
    new: State
    why: str


def edge(number: int, old: State | None, trigger: Trigger, new: State, why: str) -> Edge[State, Trigger]:
    """A row, in the order in which it is read."""
    return Edge(number=number, old=old, trigger=trigger, new=new, why=why)


class TransitionTable(Generic[State, Trigger]):
    """All rows of one state machine. ``thing`` names the subject in error messages. ``start`` is the state of
    every thing before its first change; None if the rows for new things say it."""

    def __init__(self, thing: str, *edges: Edge[State, Trigger], start: State | None = None) -> None:
        self.edges = edges
        self._thing = thing
        self._start = start
        self._next = {(row.old, row.trigger): row.new for row in edges}

    def transition(self, state: State | None, trigger: Trigger) -> State:
        """The state that follows; ``None`` as the state means that the thing is new.

        Raises IllegalTransition, which names the state and the trigger, for every pair without a row.
        """
        new = self._next.get((state, trigger))
        if new is None:
            raise IllegalTransition(self._thing, state, trigger)
        return new

    def mermaid(self) -> str:
        """The table as a Mermaid state diagram, for its page."""
        lines = ["stateDiagram-v2"]
        if self._start is not None:
            lines.append(f"    [*] --> {self._start}")
        lines += [f"    {row.old or '[*]'} --> {row.new}: {row.number} {row.trigger}" for row in self.edges]
        return "\n".join(lines) + "\n"
