"""Who acts: decide about the Lease from what was seen of it, and since when.

What for: of several operators at most one writes; the others wait for it to stop. What it must
not know: how the Lease is read and written, real time. Read next: `loghub_operator.leader.elector`
(carries it out), `loghub_operator.leader.fencing` (nothing is written after the deadline).

The rules are those of Kubernetes' own leader election. A follower does not believe the holder's
clock: it measures on its own for how long the record has not changed. A holder measures from
before its last good write was sent, and its deadline is shorter than what a follower waits, so it
has stopped writing before another begins. Every write names the version it was decided on, so of
two that want the Lease at once only one gets it. ``now`` is monotonic seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimings:
    """How long; ``retry_period_s`` < ``renew_deadline_s`` < ``lease_duration_s``."""

    lease_duration_s: float = 15.0  # a follower waits so long since the record changed
    renew_deadline_s: float = 10.0  # a holder acts so long after its last good write
    retry_period_s: float = 2.0  # between two tries of either


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSeen:
    """The record as it was read. ``holder`` "" : nobody, it was given back."""

    holder: str
    duration_s: float  # the holder's own word, by which a follower waits
    renewed: str  # the holder's clock: compared, never read
    transitions: int
    version: str  # the apiserver's


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A record, and when this one was seen first."""

    record: LeaseSeen
    since_s: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """Write ourselves into it (make it where there is none)."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Write a new time into what is ours."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Somebody else acts; look again after so long."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """We acted, and may not any more: end at once."""

    why: str


Decision = Acquire | Renew | Wait | Lost


def observe(before: ObservedLease | None, seen: LeaseSeen | None, *, now: float) -> ObservedLease | None:
    """What is known after a look. A version alone that moved is no sign of life of the holder."""
    if seen is None:
        return None
    same = before is not None and _told(before.record) == _told(seen)
    return ObservedLease(seen, before.since_s if same and before is not None else now)


def _told(record: LeaseSeen) -> tuple[str, str, int]:
    return record.holder, record.renewed, record.transitions


def decide(
    watched: ObservedLease | None, *, me: str, deadline_s: float | None, now: float, terms: LeaseTimings
) -> Decision:
    """What to do now. ``deadline_s``: until when we may act; None: we do not."""
    if deadline_s is not None:
        return _as_holder(watched, me=me, deadline_s=deadline_s, now=now)
    if watched is None:
        return Acquire(0)
    record = watched.record
    if record.holder == me:  # written by us, and the answer was lost
        return Acquire(record.transitions)
    left_s = watched.since_s + record.duration_s - now
    if not record.holder or left_s <= 0:
        return Acquire(record.transitions + 1)
    return Wait(min(terms.retry_period_s, left_s))


def _as_holder(watched: ObservedLease | None, *, me: str, deadline_s: float, now: float) -> Decision:
    if now >= deadline_s:
        return Lost("it could not be renewed in time")
    if watched is None:  # somebody removed it: ours as long as nobody makes another
        return Acquire(0)
    if watched.record.holder != me:
        return Lost(f"it is held by {watched.record.holder or 'nobody'}")
    return Renew(watched.record.transitions)
