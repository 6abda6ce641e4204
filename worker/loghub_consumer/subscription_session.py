"""The session of one consumer in a subscription as values: what to send next, and which shards it has.

An event is a function from one `Session` and the time to the next; `loghub_consumer.subscription_assignment`
makes the calls. A session begins with a join, and every answered call renews it. If no call is answered for
the length of the lease, or the log service says that the session is over, everything that was delivered in
it belongs to others: the consumer gives up its shards and joins again. A call whose answer is lost is
repeated with the same number, and gets the same logs again.

Pure: times are arguments, in seconds of the monotonic clock.
"""

from collections.abc import Mapping
from dataclasses import dataclass, field, replace
from enum import Enum

from loghub.backoff import Backoff
from loghub.wire.subscriptions import MAX_ANSWER_BYTES, MAX_LOGS
from loghub_consumer.membership.membership import MARGIN_FRACTION, MAX_MARGIN_S, MemberShard, ShardPhase

# A call waits for logs for this part of the lease, so that two answers in a row may be lost, and for at most
# these seconds: less than a client waits for the first byte of an answer.
LEASE_FRACTION, MAX_WAIT_S = 1 / 3, 20.0
# Another request is of use once this part of the waiting logs is free: each request has a fixed cost.
MIN_ROOM = 0.25


class Stage(Enum):
    """How far a consumer of a subscription is."""

    SERVING = "serving"  # joins, and receives logs
    ENDING = "ending"  # receives nothing more; running batches end
    LEFT = "left"  # is no longer a consumer of the subscription


@dataclass(frozen=True, slots=True, kw_only=True)
class Session:
    """One consumer. ``name`` is empty while it has not joined; ``number`` is the number of the last receive
    that was answered. ``held`` has the epoch of each shard that it has."""

    lease_s: float
    stage: Stage = Stage.SERVING
    name: str = ""
    number: int = 0
    heard_s: float = 0.0  # when the last answered call was sent
    failures: int = 0  # consecutive
    due_s: float = 0.0  # no call before this time
    last_epoch: int = 0
    held: Mapping[int, int] = field(default_factory=dict)
    standby: tuple[int, ...] = ()  # the shards where another consumer is active

    @property
    def has_joined(self) -> bool:
        return bool(self.name)

    @property
    def is_fenced(self) -> bool:
        """Whether a session has ended, and the next one has not begun."""
        return self.stage is Stage.SERVING and not self.name and self.heard_s > 0

    @property
    def shards(self) -> tuple[MemberShard, ...]:
        """The shards that the consumer has, or gives up."""
        phase = ShardPhase.OPEN if self.stage is Stage.SERVING else ShardPhase.DRAINING
        return tuple(
            MemberShard(shard=shard, epoch=epoch, phase=phase, position=0)
            for shard, epoch in sorted(self.held.items())
        )

    @property
    def wait_s(self) -> float:
        """How long a call waits for logs."""
        return min(MAX_WAIT_S, self.lease_s * LEASE_FRACTION)

    def is_over(self, now: float) -> bool:
        """Whether the log service may have ended the session for want of calls. It is a little early, so that
        no other consumer has the shards yet."""
        margin_s = min(MAX_MARGIN_S, self.lease_s * MARGIN_FRACTION)
        return self.has_joined and now >= self.heard_s + self.lease_s - margin_s

    def renewal_due_s(self, receiving_since_s: float | None) -> float:
        """When a call is due that does nothing but renew the session. A receive that is under way renews it,
        too."""
        return max(self.heard_s, receiving_since_s or 0.0) + self.wait_s


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveBounds:
    """At most how many logs wait for their first batch, and at most how many are not acknowledged, in all
    shards together; and how many bytes an answer may have."""

    prefetch_logs: int
    max_unacknowledged: int
    max_bytes: int


@dataclass(frozen=True, slots=True, kw_only=True)
class ReceiveRoom:
    """What the next answer may have at most."""

    logs: int
    bytes: int


def room(limits: ReceiveBounds, *, unbegun: int, open_logs: int, free_bytes: int) -> ReceiveRoom | None:
    """The room for another answer; None: too little."""
    logs = min(limits.prefetch_logs - unbegun, limits.max_unacknowledged - open_logs, MAX_LOGS)
    least = max(1, int(min(limits.prefetch_logs, limits.max_unacknowledged) * MIN_ROOM))
    if logs < least or (open_logs and free_bytes < limits.max_bytes * MIN_ROOM):
        return None
    return ReceiveRoom(logs=logs, bytes=max(1, min(free_bytes, limits.max_bytes, MAX_ANSWER_BYTES)))


# -- events


def joined(session: Session, *, name: str, lease_s: float, sent_s: float) -> Session:
    """The log service has begun a session."""
    return replace(session, name=name, lease_s=lease_s, number=0, heard_s=sent_s, failures=0)


def answered(
    session: Session,
    *,
    active: tuple[int, ...],
    known: tuple[int, ...],
    sent_s: float,
    number: int | None = None,
) -> Session:
    """A call was answered; `active` are the shards of which this consumer gets logs, `known` all shards, and
    `number` is the number of a receive. A shard that comes back has another epoch, since others had its logs
    meanwhile."""
    held, epoch = {}, session.last_epoch
    for shard in active:
        if shard not in session.held:
            epoch += 1
        held[shard] = session.held.get(shard, epoch)
    if session.stage is not Stage.SERVING:  # nothing new begins
        held = {shard: of for shard, of in held.items() if shard in session.held}
    return replace(
        session,
        number=session.number if number is None else number,
        heard_s=max(session.heard_s, sent_s),
        failures=0,
        last_epoch=epoch,
        held=held,
        standby=tuple(shard for shard in known if shard not in active),
    )


def lost_shards(session: Session, shards: tuple[int, ...]) -> Session:
    """Another consumer is active in these shards."""
    held = {shard: epoch for shard, epoch in session.held.items() if shard not in shards}
    return replace(session, held=held)


def failed(session: Session, *, retries: Backoff, now: float) -> Session:
    """A call has failed: it is repeated later."""
    failures = session.failures + 1
    return replace(session, failures=failures, due_s=now + retries.pause_s(failures))


def ended(session: Session) -> Session:
    """The session is over: all shards are lost, and the consumer joins again unless it ends."""
    stage = session.stage if session.stage is Stage.SERVING else Stage.LEFT
    return replace(session, stage=stage, name="", number=0, held={}, standby=())


def given_up(session: Session) -> Session:
    """The consumer ends: nothing more is received."""
    if session.stage is not Stage.SERVING:
        return session
    return replace(session, stage=Stage.ENDING if session.has_joined else Stage.LEFT, due_s=0.0)


def released(session: Session, shard: int, *, epoch: int) -> Session:
    """The processor of the shard has ended."""
    if session.held.get(shard) != epoch:
        return session
    return lost_shards(session, (shard,))


def abandoned(session: Session) -> Session:
    """The shards are lost, even if their processors still run."""
    return replace(session, held={})


def left(session: Session) -> Session:
    """The log service knows that the consumer has left."""
    return replace(ended(session), stage=Stage.LEFT)
