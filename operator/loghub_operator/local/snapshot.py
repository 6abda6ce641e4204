"""The state of the group at one moment, and the interface of whatever shows it."""

from dataclasses import dataclass
from typing import Protocol

from loghub_operator.api import Phase, Status
from loghub_operator.local.processes.supervisor import WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """The group at one moment, for a person."""

    at_unix_s: float
    status: Status
    workers: tuple[WorkerView, ...]

    @property
    def caught_up(self) -> bool:
        """Every worker is ready, and no shard has anything left."""
        lag = self.status.lag
        return self.status.phase is Phase.RUNNING and lag is not None and lag.logs == 0


class Audience(Protocol):
    """Whom to tell."""

    def say(self, text: str) -> None:
        """One sentence, when it happens."""

    def look(self, look: GroupSnapshot) -> None:
        """After every round."""
