"""Leader-election rules: decides what to do about the Lease from its record and the time of observation.

At most one of several operators writes; the others wait until it stops. `loghub_operator.leader.elector`
carries the decisions out, and `loghub_operator.leader.fencing` prevents writes after the deadline.

The rules are the rules of Kubernetes' own leader election. A follower does not trust the holder's clock: it
measures with its own clock how long the record has been unchanged. A holder measures from before its last
successful write was sent, and its deadline is shorter than a follower's wait, so it has stopped writing
before another operator begins. Every write names the resource version that the decision is based on, so only
one of two candidates that try to acquire the Lease at the same time succeeds. ``now`` is in monotonic
seconds.
"""

from dataclasses import dataclass, replace


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseTimings:
    """Durations; ``retry_period_s`` < ``renew_deadline_s`` < ``lease_duration_s``."""

    lease_duration_s: float = 15.0  # how long a follower waits after the record last changed
    renew_deadline_s: float = 10.0  # how long a holder leads after its last successful write
    retry_period_s: float = 2.0  # between two attempts of a follower or a holder


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRecord:
    """The record as it was read. ``holder`` "" means that the Lease was released."""

    holder: str
    duration_s: float  # set by the holder; a follower waits this long
    renewed: str  # by the holder's clock, so only compared for equality
    transitions: int
    version: str  # the API server's resource version


@dataclass(frozen=True, slots=True)
class ObservedLease:
    """A record, and when it was first observed, in monotonic seconds. ``deleted``: the Lease has been deleted
    since, so the holder may not know yet that it has to stop.
    """

    record: LeaseRecord
    since_s: float
    deleted: bool = False


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


LeaseDecision = Acquire | Renew | Wait | Lost


def observe(before: ObservedLease | None, seen: LeaseRecord | None, *, now: float) -> ObservedLease | None:
    """The observation after reading ``seen``. A change of the resource version alone does not show that the
    holder is alive."""
    if seen is None:
        return None if before is None else replace(before, deleted=True)
    same = before is not None and _holder_fields(before.record) == _holder_fields(seen)
    return ObservedLease(seen, before.since_s if same and before is not None else now)


def _holder_fields(record: LeaseRecord) -> tuple[str, str, int]:
    return record.holder, record.renewed, record.transitions


def decide(
    observed: ObservedLease | None,
    *,
    identity: str,
    deadline_s: float | None,
    now: float,
    timings: LeaseTimings,
) -> LeaseDecision:
    """Decides what to do now. This operator leads until ``deadline_s``; None: it does not lead."""
    if deadline_s is not None:
        return _as_holder(observed, identity=identity, deadline_s=deadline_s, now=now)
    if observed is None:
        return Acquire(0)
    record = observed.record
    if record.holder == identity:  # our own write, whose response was lost
        return Acquire(record.transitions)
    left_s = observed.since_s + record.duration_s - now
    if not record.holder or left_s <= 0:
        return Acquire(record.transitions + 1)
    return Wait(min(timings.retry_period_s, left_s))


def _as_holder(
    observed: ObservedLease | None, *, identity: str, deadline_s: float, now: float
) -> LeaseDecision:
    if now >= deadline_s:
        return Lost("it could not be renewed in time")
    if observed is None or observed.deleted:  # it is ours while no other operator creates it
        return Acquire(0)
    if observed.record.holder != identity:
        return Lost(f"it is held by {observed.record.holder or 'nobody'}")
    return Renew(observed.record.transitions)
