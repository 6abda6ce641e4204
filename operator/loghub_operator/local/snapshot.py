"""The state of a group at one moment, and the interface of its viewers."""

from dataclasses import dataclass
from typing import Protocol

from loghub_operator.api import Phase, Status
from loghub_operator.local.processes.supervisor import WorkerView


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupSnapshot:
    """The group at one moment, for display."""

    at_unix_s: float
    status: Status
    workers: tuple[WorkerView, ...]

    @property
    def caught_up(self) -> bool:
        """Whether every worker is ready and no shard has any lag."""
        lag = self.status.lag
        return self.status.phase is Phase.RUNNING and lag is not None and lag.logs == 0


class RunObserver(Protocol):
    """Receives the events and the snapshots of a run."""

    def say(self, text: str) -> None:
        """Called with one sentence for each event."""

    def show(self, snapshot: GroupSnapshot) -> None:
        """Called after every reconcile."""
