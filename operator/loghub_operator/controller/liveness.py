"""Decides whether the process is alive, from what it did last and when; ``/healthz`` returns the result.

Answering a probe does not show that a process is alive. It is alive while each group's reconciles end, the
elector's loop runs, and the watch has reported what the cluster lists
(`loghub_operator.controller.watch_check`). A reconcile that failed has ended too: a restart does not help
while the API server or the log service is unavailable. ``now`` and all ``*_s`` are monotonic seconds.
"""

from collections.abc import Iterable
from dataclasses import dataclass
from enum import StrEnum
from itertools import islice

# Longer than a reconcile whose calls to the log service all run into their bounds (30 s for cursors, 45 s for
# the targets of a reset).
MIN_BOUND_S = 120.0
# With a longer resync a reconcile may wait for longer without being stuck.
RESYNCS = 3
# Twice the Lease's duration: a follower that does not look at the Lease for so long would not take over.
LEASE_BOUND_S = 30.0
MAX_NAMED = 5


class TaskState(StrEnum):
    """The state of a group's task, and the meaning of ``since_s`` in it.

    RUNNING: a reconcile is in progress, since it began. QUEUED: a reconcile waits for others to end, since it
    was due. IDLE: between two reconciles; ``since_s`` is when the next is due.
    """

    RUNNING = "running"
    QUEUED = "queued"
    IDLE = "idle"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHealth:
    """The state of one group's task, and since when."""

    group: str
    state: TaskState
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What the process did last. ``lease_checked_s`` is None without leader election."""

    leading: bool
    lease_checked_s: float | None = None
    reconcile_ended_s: float = float("-inf")
    tasks: tuple[TaskHealth, ...] = ()
    unreported: tuple[str, ...] = ()  # groups whose change the watch did not report


def bound_s(resync_s: float) -> float:
    """How long a reconcile, or the wait for it, may last."""
    return max(RESYNCS * resync_s, MIN_BOUND_S)


def problems(inputs: HealthInputs, *, now: float, bound_s: float) -> tuple[str, ...]:
    """The reasons to restart the process; empty while it works."""
    result: list[str] = []
    checked_s = inputs.lease_checked_s
    if checked_s is not None and now - checked_s > LEASE_BOUND_S:
        result.append(f"the lease was last checked {now - checked_s:.0f} s ago")
    if not inputs.leading:
        return tuple(result)
    late = (_late(task, inputs.reconcile_ended_s, now=now, bound_s=bound_s) for task in inputs.tasks)
    result += islice((message for message in late if message), MAX_NAMED)
    if inputs.unreported:
        result.append(f"the watch does not report {_names(inputs.unreported)}")
    return tuple(result)


def _late(task: TaskHealth, reconcile_ended_s: float, *, now: float, bound_s: float) -> str:
    # While reconciles end, the queue moves; otherwise the reconciles that block it are themselves late.
    since_s = max(task.since_s, reconcile_ended_s) if task.state is TaskState.QUEUED else task.since_s
    over_s = now - since_s
    if over_s <= bound_s:
        return ""
    message = {
        TaskState.RUNNING: "has been reconciling for",
        TaskState.QUEUED: "is queued, and no reconcile has ended, for",
        TaskState.IDLE: "has been due for a reconcile for",
    }
    return f"{task.group} {message[task.state]} {over_s:.0f} s"


def _names(groups: Iterable[str]) -> str:
    return ", ".join(islice(groups, MAX_NAMED))
