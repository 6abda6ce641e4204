"""Is work done? Decide from what was done last, and when.

What for: what ``/healthz`` answers. A process that answers is not alive for that: it is while each
group's rounds end, the lease's loop turns, and what the cluster lists is what the watch told. What
it must not know: how any of it is done, real time. Read next: `loghub_operator.http_server` (who is
asked), `loghub_operator.controller.watch_check` (the watch).

A round that failed has ended too: an apiserver or a log service that is away is not cured by
another process. ``now`` and all ``*_s`` are monotonic seconds.
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
    """What a group's task is at.

    RUNNING: in a round, since it began. QUEUED: its round waits for others to end, since it
    was due. RESTING: between two rounds; ``since_s`` is when the next is due.
    """

    RUNNING = "running"
    QUEUED = "queued"
    RESTING = "resting"


@dataclass(frozen=True, slots=True, kw_only=True)
class TaskHealth:
    """One group's task."""

    group: str
    doing: Doing
    since_s: float


@dataclass(frozen=True, slots=True, kw_only=True)
class HealthInputs:
    """What was done lately. ``lease_turned_s`` None: there is no lease."""

    leading: bool
    lease_turned_s: float | None = None
    round_ended_s: float = float("-inf")
    pulses: tuple[TaskHealth, ...] = ()
    not_told: tuple[str, ...] = ()  # groups whose change the watch did not tell


def bound_s(resync_s: float) -> float:
    """How long a round, or the wait for one, may last."""
    return max(RESYNCS * resync_s, SHORTEST_BOUND_S)


def troubles(vitals: HealthInputs, *, now: float, bound_s: float) -> tuple[str, ...]:
    """Why the process is better started anew; none while it works."""
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
    # While rounds end, the queue moves; the rounds in its way are late themselves else.
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
