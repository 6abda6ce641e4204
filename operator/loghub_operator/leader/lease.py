"""Leader-election rules: decides what to do about the Lease from its record and the time of observation.

At most one of several operators writes; the others wait until it stops. `loghub_operator.leader.elector`
carries the decisions out, and `loghub_operator.leader.fencing` prevents writes after the deadline.

The rules are those of Kubernetes' own leader election. A follower does not trust the holder's clock: it
measures with its own clock how long the record has been unchanged. A holder measures from before its last
successful write was sent, and its deadline is shorter than a follower's wait, so it has stopped writing
before another operator begins. Every write names the resource version that the decision is based on, so only
one of two candidates that try to acquire the Lease at the same time succeeds. ``now`` is in monotonic
seconds.
"""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimings:
    """Durations; ``retry_period_s`` < ``renew_deadline_s`` < ``lease_duration_s``."""

    lease_duration_s: float = 15.0  # how long a follower waits after the record last changed
    renew_deadline_s: float = 10.0  # how long a holder leads after its last successful write
    retry_period_s: float = 2.0  # between two attempts of a follower or a holder


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseSeen:
    """The record as it was read. ``holder`` "" means that the Lease was released."""

    holder: str
    duration_s: float  # set by the holder; a follower waits this long
    renewed: str  # by the holder's clock, so only compared for equality
    transitions: int
    version: str  # the API server's resource version


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A record, and when it was first observed, in monotonic seconds."""

    record: LeaseSeen
    since_s: float


@dataclass(frozen=True, slots=True)
class Acquire:
    """Write this operator as the holder; create the Lease if there is none."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Renew:
    """Write a new renewal time into the Lease that this operator holds."""

    transitions: int


@dataclass(frozen=True, slots=True)
class Wait:
    """Another operator leads; check again after ``seconds``."""

    seconds: float


@dataclass(frozen=True, slots=True)
class Lost:
    """This operator led and may no longer write: end the process at once."""

    why: str


Decision = Acquire | Renew | Wait | Lost


def observe(before: ObservedLease | None, seen: LeaseSeen | None, *, now: float) -> ObservedLease | None:
    """The observation after reading ``seen``. A change of the resource version alone does not show that the
    holder is alive."""
    if seen is None:
        return None
    same = before is not None and _told(before.record) == _told(seen)
    return ObservedLease(seen, before.since_s if same and before is not None else now)


def _told(record: LeaseSeen) -> tuple[str, str, int]:
    return record.holder, record.renewed, record.transitions


def decide(
    watched: ObservedLease | None, *, me: str, deadline_s: float | None, now: float, terms: LeaseTimings
) -> Decision:
    """Decides what to do now. This operator leads until ``deadline_s``; None: it does not lead."""
    if deadline_s is not None:
        return _as_holder(watched, me=me, deadline_s=deadline_s, now=now)
    if watched is None:
        return Acquire(0)
    record = watched.record
    if record.holder == me:  # our own write, whose response was lost
        return Acquire(record.transitions)
    left_s = watched.since_s + record.duration_s - now
    if not record.holder or left_s <= 0:
        return Acquire(record.transitions + 1)
    return Wait(min(terms.retry_period_s, left_s))


def _as_holder(watched: ObservedLease | None, *, me: str, deadline_s: float, now: float) -> Decision:
    if now >= deadline_s:
        return Lost("it could not be renewed in time")
    if watched is None:  # the Lease was deleted: it is ours while no other operator creates it
        return Acquire(0)
    if watched.record.holder != me:
        return Lost(f"it is held by {watched.record.holder or 'nobody'}")
    return Renew(watched.record.transitions)
