"""The shards of a consumer of a subscription, and the calls in which it gets logs and says what has become of
them (docs/subscriptions-protocol.md).

The assignment of such a consumer (`loghub_consumer.assignment`) takes the place of pulls as well: the log
service decides which logs the consumer gets. Two parts have a thread each. The first part receives: its call
waits until there are logs. The second part sends what was settled, after a moment in which more may be
settled, and at once if a thread waits for the receipt; it also renews the session while nothing is received,
and leaves at the end.
`loghub_consumer.subscription_session` decides what both do.

Locks: the lock of the shard table is never taken while the session's is held.
"""

import math
import secrets
import threading
from collections.abc import Callable
from dataclasses import dataclass, field

import structlog

from loghub.backoff import Backoff
from loghub.client.port import LogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub.wire.subscriptions import DeliveredGroup, Exchange, Exchanged
from loghub_consumer import subscription_session as sessions
from loghub_consumer.acknowledgments import Deliveries, DeliveryCounts, Fate, Outbox, SettledLogs
from loghub_consumer.log_service import ReportedError
from loghub_consumer.membership.membership import MemberShard
from loghub_consumer.membership.turns import Turn
from loghub_consumer.processor import ShardLostError
from loghub_consumer.program_parts import ProgramParts
from loghub_consumer.settings import ConsumerSettings, SubscriptionOptions
from loghub_consumer.shard_table import DeliveredLogs, HeldShardEntry, ShardTable
from loghub_consumer.subscription_session import ReceiveRoom, Session, Stage
from loghub_consumer.subscription_terms import (
    damage_of,
    ends_consumer,
    reported_error,
    require_subscription,
    unsettled,
)

log = structlog.get_logger()

COLLECT_S = 0.1  # settled logs are sent together; clients of Pulsar collect acknowledgments for as long
FIRST_RETRY_S, MAX_RETRY_S = 0.2, 10.0
TICKS = 10  # in a time-out for acknowledgments; it fires late by no more than one of these
MIN_TICK_S, MAX_TICK_S = 0.05, 1.0
FLUSH_STEP_S = 1.0  # how often a thread that waits for a receipt looks whether the consumer has ended
NONCE_BYTES = 8  # random: two joins of one name never have the same


class SubscriptionCheckpoints:
    """In place of checkpoints the log service keeps the acknowledgments. Saving waits for their receipt."""

    can_save = True

    def __init__(self, assignment: "SubscriptionAssignment") -> None:
        self._assignment = assignment

    def note(self, shard: int, *, epoch: int, position: int) -> None:  # noqa: ARG002
        if not self._assignment.holds(shard, epoch):
            raise ShardLostError(f"shard {shard} is no longer assigned to this consumer")

    def send(self, shard: int, *, epoch: int) -> None:
        self._assignment.flush()
        self.note(shard, epoch=epoch, position=0)

    def require_place(self) -> None:
        """Does nothing, because the log service has a place for acknowledgments."""


@dataclass(slots=True)
class _Arrived:
    """Logs of a shard whose processor does not exist yet."""

    epoch: int
    groups: list[DeliveredGroup] = field(default_factory=list)


class SubscriptionAssignment:
    """An `Assignment`: one consumer of a subscription."""

    def __init__(
        self,
        settings: ConsumerSettings,
        client: LogHub,
        table: ShardTable,
        *,
        parts: ProgramParts,
        random: Callable[[], float],
        is_worker: bool,
    ) -> None:
        """A worker never creates the subscription: if the subscription is missing, or differs from the
        settings, the worker reports an error until that is corrected."""
        assert settings.subscription is not None
        self._settings = settings
        self._subscription: SubscriptionOptions = settings.subscription
        self._client = client
        self._table = table
        self._program = parts
        self._is_worker = is_worker
        self._clock = table.clock
        self._retries = Backoff(first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S, random=random)
        self._changed = threading.Condition()  # guards the fields below
        self._changes = 0
        self._session = Session(lease_s=float(settings.timeout_s))
        self._nonce = secrets.token_hex(NONCE_BYTES)
        self._receiving_since_s: float | None = None
        self._arrived: dict[int, _Arrived] = {}
        self._error = ReportedError()
        self._backlog: dict[int, int | None] = {}
        self._flushing = 0  # threads that wait for a receipt
        self._collecting_since_s: float | None = None
        self._raised: LogHubException | None = None  # by the last call
        self._known = 0  # the log service knows the settled logs up to this number
        self._failure: BaseException | None = None
        self._lost: BaseException | None = (
            None  # why something that was settled got no receipt, and gets none
        )
        self._placing = threading.Lock()  # while logs find the shard's entry; taken before all others
        self._stopped = False
        self._on_change: Callable[[], None] = lambda: None
        self._turns: list[Turn] = []
        self._outbox = Outbox(self._wake_settling)  # under the lock of the table
        self.checkpoints = SubscriptionCheckpoints(self)

    # -- the port

    def start(self) -> None:
        """Raises `ExtensionMissing` and `LogHubError` if the consumer cannot join, unless in a worker."""
        if not self._is_worker:
            require_subscription(self._client, self._settings)
        self._table.call_on_pull(self._wake_receiving)
        with self._changed:
            self._turns = [
                self._program.requests.start("receive", self._kept(self._receive)),
                self._program.requests.start("settle", self._kept(self._settle)),
            ]

    def held(self) -> tuple[MemberShard, ...]:
        with self._changed:
            return self._present().shards

    @property
    def session(self) -> Session:
        """The session at the present time."""
        with self._changed:
            return self._present()

    def holds(self, shard: int, epoch: int) -> bool:
        """Whether the shard is still assigned with this epoch."""
        with self._changed:
            return self._present().held.get(shard) == epoch

    def standby(self) -> tuple[int, ...]:
        with self._changed:
            return self._session.standby

    def opened(self, entry: HeldShardEntry) -> None:
        with self._placing:
            shard, epoch = entry.state.shard, entry.state.epoch
            arrived = self._arrived.get(shard)
            if arrived is not None and arrived.epoch <= epoch:  # the logs of a later epoch wait for its entry
                del self._arrived[shard]
            with self._changed:
                name = self._session.name
            entry.unacknowledged.deliveries = Deliveries(
                outbox=self._outbox,
                session=name,
                shard=shard,
                keeps_refused=self._subscription.type.is_ordered,
            )
            if arrived is not None and arrived.epoch == epoch:
                self._deliver(entry, arrived.groups)

    def seek(self, entry: HeldShardEntry, to: int) -> None:
        """All consumers of the subscription continue there. Raises `LogHubException`."""
        self._client.seek_subscription(
            self._settings.logstore, self._name, {entry.state.shard: encode_cursor(to)}
        )

    def released(self, shard: int, *, epoch: int) -> None:
        self._apply(lambda session: sessions.released(session, shard, epoch=epoch))

    def fenced(self, shard: int, *, epoch: int) -> None:
        """Does nothing, because the log service decides whose the shard is."""

    def give_up(self, *, leaves: bool) -> None:  # noqa: ARG002 - what is out must not wait for the lease
        self._apply(sessions.given_up)
        self._release()

    def abandon(self) -> None:
        self._apply(sessions.abandoned)

    @property
    def has_joined(self) -> bool:
        with self._changed:
            return self._session.has_joined

    @property
    def is_drained(self) -> bool:
        with self._changed:
            return not self._session.held

    @property
    def has_left(self) -> bool:
        with self._changed:
            return self._session.stage is Stage.LEFT

    @property
    def failure(self) -> BaseException | None:
        return self._failure

    def errors(self) -> tuple[ReportedError, ...]:
        return (self._error,)

    @property
    def counts(self) -> DeliveryCounts:
        """What was delivered and settled so far."""
        return self._outbox.counts

    def backlog(self, shard: int) -> int | None:
        """The logs of a shard without an acknowledgment, at the last call; None: not known."""
        with self._changed:
            return self._backlog.get(shard)

    def stop(self) -> None:
        with self._changed:
            self._stopped = True
            self._changed.notify_all()
        for turn in self._turns:
            turn.stop(0.0)

    @property
    def changes(self) -> int:
        return self._changes

    def wait(self, since: int, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._changes != since, timeout_s)

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def wake(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
        self._on_change()

    # -- receipts

    def flush(self) -> None:
        """Wait until the log service has what was settled before. Raises the `LogHubException` of a call that
        fails meanwhile, or has ended the consumer, and `ShardLostError` once the consumer has left."""
        with self._table.lock:
            last = self._outbox.last
        with self._changed:
            self._flushing += 1
            failures = self._session.failures
        self._wake_settling()
        try:
            with self._changed:
                while True:
                    if self._lost is not None:
                        raise self._lost
                    if self._known >= last:
                        return
                    if self._stopped or self._session.stage is Stage.LEFT:
                        raise ShardLostError("the consumer has left the subscription")
                    if self._raised is not None and self._session.failures > failures:
                        raise self._raised
                    self._changed.wait(FLUSH_STEP_S)
        finally:
            with self._changed:
                self._flushing -= 1

    # -- the session

    @property
    def _name(self) -> str:
        return self._settings.consumer_group

    def _present(self) -> Session:
        """The session at the present time, under the lock."""
        if self._session.is_over(self._clock.monotonic_s()):
            log.warning("the session is over for want of answers: other consumers get its logs")
            self._session = sessions.ended(self._session)
        return self._session

    def _apply(self, event: Callable[[Session], Session]) -> None:
        with self._changed:
            before, self._session = self._session, event(self._session)
            if self._session == before:
                return
        self._wake_receiving()
        self._wake_settling()
        self.wake()

    def _kept(self, take: Callable[[], float | None]) -> Callable[[], float | None]:
        """A turn whose exception ends the consumer."""

        def turn() -> float | None:
            try:
                return take()
            except BaseException as failure:
                self._lost = failure
                self._fail(failure)
                raise

        return turn

    def _fail(self, failure: BaseException) -> None:
        """The consumer ends, and `Consumer.run` raises this."""
        with self._changed:
            self._failure = self._failure or failure
        self._table.fail(failure)
        self.wake()

    def _wake_receiving(self) -> None:
        for turn in self._turns[:1]:
            turn.wake()

    def _wake_settling(self) -> None:
        for turn in self._turns[1:]:
            turn.wake()

    # -- receiving

    def _receive(self) -> float | None:
        with self._changed:
            session, now = self._present(), self._clock.monotonic_s()
            if self._stopped or session.stage is not Stage.SERVING:
                return None
        if session.due_s > now:
            return session.due_s - now
        if not session.has_joined:
            self._join(session, now)
            return 0.0
        delivered = self._table.delivered()
        room = self._room(session, delivered)
        if room is None:
            return math.inf  # the table wakes this part
        exchange = Exchange(
            consumer=self._settings.consumer,
            type=self._subscription.type,
            session=session.name,
            shards=delivered.ready if delivered.is_held else None,
            number=session.number + 1,
            max_logs=room.logs,
            max_bytes=room.bytes,
            wait_s=session.wait_s,
        )
        with self._changed:
            self._receiving_since_s = now
        answer = self._call(session.name, exchange)
        with self._changed:
            self._receiving_since_s = None
        if isinstance(answer, Exchanged):
            self._received(session, answer, sent_s=now)
        return 0.0

    def _room(self, session: Session, delivered: DeliveredLogs) -> ReceiveRoom | None:
        settings = self._settings
        if session.held and not delivered.ready:
            return None  # a stand-by waits for its first shard, and others for their processors
        bounds = sessions.ReceiveBounds(
            prefetch_logs=self._subscription.prefetch_logs,
            max_unacknowledged=settings.max_unacknowledged,
            max_bytes=settings.max_bytes,
        )
        room = sessions.room(
            bounds,
            unbegun=delivered.unbegun,
            open_logs=delivered.open + self._arrived_logs(),
            free_bytes=delivered.free_bytes,
        )
        if room is None and settings.max_wait_s:
            self._table.hasten()
        return room

    def _arrived_logs(self) -> int:
        with self._placing:
            return sum(len(one.groups) for one in self._arrived.values())

    def _join(self, session: Session, now: float) -> None:
        subscription = self._subscription
        exchange = Exchange(
            consumer=self._settings.consumer,
            type=subscription.type,
            nonce=self._nonce,
            priority=subscription.priority,
            slots=subscription.slots,
            lease_s=float(self._settings.timeout_s),
        )
        answer = self._call(session.name, exchange)
        if not isinstance(answer, Exchanged):
            return
        self._nonce = secrets.token_hex(NONCE_BYTES)
        with self._changed:
            self._session = sessions.joined(
                self._session, name=answer.session, lease_s=answer.lease_s, sent_s=now
            )
        log.info("joined the subscription", type=subscription.type.value, shards=answer.active)
        self._note(answer, name=answer.session, sent_s=now)

    def _received(self, session: Session, answer: Exchanged, *, sent_s: float) -> None:
        with self._placing:
            present = self._note(answer, name=session.name, sent_s=sent_s, number=session.number + 1)
            if present is None:
                return  # the session is over, and others get its logs
            by_shard: dict[int, list[DeliveredGroup]] = {}
            for group in answer.groups:
                by_shard.setdefault(group.shard, []).append(group)
            for shard, groups in by_shard.items():
                self._place(present, shard, groups)

    def _place(self, session: Session, shard: int, groups: list[DeliveredGroup]) -> None:
        if session.stage is not Stage.SERVING:
            if not self._subscription.type.is_ordered:
                self._give_back(session.name, shard, groups)
        elif (epoch := session.held.get(shard)) is not None:
            entry = self._table.find(shard, epoch)
            if entry is None or entry.unacknowledged.deliveries is None:
                if self._arrived.setdefault(shard, _Arrived(epoch)).epoch != epoch:
                    self._arrived[shard] = _Arrived(epoch)
                self._arrived[shard].groups += groups
            else:
                self._deliver(entry, groups)

    def _deliver(self, entry: HeldShardEntry, groups: list[DeliveredGroup]) -> None:
        assert entry.unacknowledged.deliveries is not None
        last = groups[-1]
        entry.unacknowledged.deliveries.begin = decode_cursor(last.cursor) - last.ordinal
        self._table.deliver(entry, [part for group in groups for part in unsettled(group)])
        with self._changed:
            is_ending = self._session.stage is not Stage.SERVING
        if is_ending:  # since a moment ago
            self._release()

    def _release(self) -> None:
        """Logs that no batch has yet go to others at once. In an ordered type they go with the shard."""
        if not self._subscription.type.is_ordered:
            self._table.release_unbegun()

    def _give_back(self, name: str, shard: int, groups: list[DeliveredGroup]) -> None:
        with self._table.lock:
            for group in groups:
                begin = decode_cursor(group.cursor) - group.ordinal
                place = Deliveries(outbox=self._outbox, session=name, shard=shard, keeps_refused=False)
                place.begin = begin
                place.settle(Fate.RELEASED, decode_cursor(group.cursor), group.indexes, logs=0)

    # -- settling

    def _settle(self) -> float | None:
        tick_s = self._tick()
        now = self._clock.monotonic_s()
        with self._table.lock:
            waiting = len(self._outbox)
        with self._changed:
            session = self._present()
            if self._stopped:
                return None
            due_s = self._settle_due_s(session, waiting, now)
        if due_s > now:
            return min(due_s - now, tick_s)
        with self._table.lock:
            sent = self._outbox.take()
        leaves = session.stage is Stage.ENDING and not session.held
        self._send(session, sent, leaves=leaves, now=now)
        return 0.0

    def _tick(self) -> float:
        """Refuse what was not acknowledged in time; how long until the next look."""
        timeout_s = self._settings.ack_timeout_s
        if timeout_s is None:
            return math.inf
        self._table.time_out()
        return min(MAX_TICK_S, max(MIN_TICK_S, timeout_s / TICKS))

    def _settle_due_s(self, session: Session, waiting: int, now: float) -> float:
        """When a call is due that settles, renews or leaves; under the lock."""
        since_s = self._collecting_since_s if self._collecting_since_s is not None else now
        self._collecting_since_s = since_s if waiting else None
        due_s = math.inf
        if waiting:
            is_urgent = self._flushing or session.stage is not Stage.SERVING
            due_s = now if is_urgent else since_s + COLLECT_S
        if session.has_joined:
            due_s = min(due_s, session.renewal_due_s(self._receiving_since_s))
            if session.stage is Stage.ENDING and not session.held:
                due_s = now
        return max(due_s, session.due_s)

    def _send(self, session: Session, sent: SettledLogs | None, *, leaves: bool, now: float) -> None:
        name = session.name if sent is None else sent.session
        exchange = Exchange(
            consumer=self._settings.consumer,
            type=self._subscription.type,
            session=name,
            acks={} if sent is None else sent.acks,
            nacks=() if sent is None else sent.nacks(now),
            release={} if sent is None else sent.release,
            settlement=None if sent is None else sent.number,
            leave=leaves and name == session.name,
        )
        answer = self._call(name, exchange)
        is_refused = not isinstance(answer, Exchanged) and self._ends(answer)  # its logs come again
        may_repeat = not isinstance(answer, Exchanged) and not is_refused and _may_repeat(answer)
        if sent is not None and may_repeat:
            with self._table.lock:
                self._outbox.put_back(sent)
        with self._changed:
            self._collecting_since_s = None
            if sent is not None and is_refused:
                self._lost = self._raised
            elif sent is not None and not may_repeat:
                self._known = sent.number
            self._changed.notify_all()
        if not isinstance(answer, Exchanged):
            return
        if answer.rejected:
            log.warning("acknowledgments were not taken: their logs come again", count=answer.rejected)
        self._note(answer, name=name, sent_s=now)
        if exchange.leave:
            self._apply(sessions.left)

    # -- calls

    def _call(self, name: str, exchange: Exchange) -> Exchanged | LogHubException:
        """The answer, or the error, which is noted."""
        try:
            answer = self._client.exchange(self._settings.logstore, self._name, exchange)
        except LogHubException as error:
            self._failed(name, error)
            return error
        self._raised = None
        before, self._error = self._error, damage_of(answer)
        if self._error.reason and self._error != before:
            log.warning("log data cannot be read", message=self._error.message)
        return answer

    def _failed(self, name: str, error: LogHubException) -> None:
        reported = reported_error(error)
        if self._ends(error):
            log.error("the log service refuses this consumer, which ends", message=reported.message)
            self._fail(error)
        if not _is_fenced(error):
            if reported.reason != self._error.reason and self._failure is None:
                log.warning(
                    "the subscription does not answer", reason=reported.reason, message=reported.message
                )
            self._error = reported
        now = self._clock.monotonic_s()

        def event(session: Session) -> Session:
            if not _may_repeat(error) and session.name == name:
                if session.stage is Stage.SERVING:
                    log.warning("the session has ended: others get its logs", message=reported.message)
                session = sessions.ended(session)
            if _is_fenced(error):
                return session  # join again at once
            return sessions.failed(session, retries=self._retries, now=now)

        with self._changed:
            self._raised = error
        self._apply(event)

    def _ends(self, error: LogHubException) -> bool:
        return ends_consumer(error, is_worker=self._is_worker)

    def _note(
        self, answer: Exchanged, *, name: str, sent_s: float, number: int | None = None
    ) -> Session | None:
        """Note what an answer says of the shards. None if the session that was answered is over."""
        noted: list[Session] = []

        def event(session: Session) -> Session:
            if session.name != name:
                return session
            session = sessions.answered(
                session, active=answer.active, known=tuple(answer.shards), sent_s=sent_s, number=number
            )
            noted.append(sessions.lost_shards(session, answer.fenced))
            return noted[-1]

        with self._changed:
            self._backlog |= answer.backlog
        self._apply(event)
        self._table.note_ends({shard: decode_cursor(end) for shard, end in answer.end_cursors.items()})
        return noted[-1] if noted else None


def _is_fenced(error: LogHubException) -> bool:
    return isinstance(error, LogHubError) and error.code == Code.SUBSCRIPTION_FENCED


def _may_repeat(error: LogHubException) -> bool:
    """Whether the session may still be there."""
    gone = (Code.SUBSCRIPTION_FENCED, Code.SUBSCRIPTION_NOT_EXIST)
    return not (isinstance(error, LogHubError) and error.code in gone)
