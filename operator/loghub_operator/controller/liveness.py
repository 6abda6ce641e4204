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

SHORTEST_BOUND_S = 120.0
RESYNCS = 3
LEASE_BOUND_S = 30.0
MOST_TOLD = 5


class Doing(StrEnum):
    """The state of a group's task, and the meaning of ``since_s`` in it.

    RUNNING: a reconcile is in progress, since it began. QUEUED: a reconcile waits for others to end, since it
    was due. RESTING: between two reconciles; ``since_s`` is when the next is due.
    """

    RUNNING = "running"
    QUEUED = "queued"
    RESTING = "resting"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHealth:
    """The state of one group's task, and since when."""

    group: str
    doing: Doing
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What the process did last. ``lease_turned_s`` is None without leader election."""

    leading: bool
    lease_turned_s: float | None = None
    round_ended_s: float = float("-inf")
    pulses: tuple[TaskHealth, ...] = ()
    not_told: tuple[str, ...] = ()  # groups whose change the watch did not report


def bound_s(resync_s: float) -> float:
    """How long a reconcile, or the wait for it, may last."""
    return max(RESYNCS * resync_s, SHORTEST_BOUND_S)


def troubles(vitals: HealthInputs, *, now: float, bound_s: float) -> tuple[str, ...]:
    """The reasons to restart the process; empty while it works."""
    found: list[str] = []
    turned_s = vitals.lease_turned_s
    if turned_s is not None and now - turned_s > LEASE_BOUND_S:
        found.append(f"the lease was last checked {now - turned_s:.0f} s ago")
    if not vitals.leading:
        return tuple(found)
    late = (_late(pulse, vitals.round_ended_s, now=now, bound_s=bound_s) for pulse in vitals.pulses)
    found += islice((one for one in late if one), MOST_TOLD)
    if vitals.not_told:
        found.append(f"the watch does not report {_names(vitals.not_told)}")
    return tuple(found)


def _late(pulse: TaskHealth, round_ended_s: float, *, now: float, bound_s: float) -> str:
    # While reconciles end, the queue moves; otherwise the reconciles that block it are themselves late.
    since_s = max(pulse.since_s, round_ended_s) if pulse.doing is Doing.QUEUED else pulse.since_s
    over_s = now - since_s
    if over_s <= bound_s:
        return ""
    words = {
        Doing.RUNNING: "is in one round for",
        Doing.QUEUED: "waits, and no round ended, for",
        Doing.RESTING: "was due for a round since",
    }
    return f"{pulse.group} {words[pulse.doing]} {over_s:.0f} s"


def _names(groups: Iterable[str]) -> str:
    return ", ".join(islice(groups, MOST_TOLD))
