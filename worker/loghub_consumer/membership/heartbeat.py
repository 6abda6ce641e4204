"""Sends the requests that `loghub_consumer.membership.membership.Membership` decides on, and tells it when
its shards change, if the log service can report that.

Heartbeats have a connection, and in a worker a thread, that do nothing else, so that they are sent on time
whatever a batch, a sink or the slow opening of a shard does. `loghub_consumer.membership.shard_manager` sends
the slower requests for the held shards.

A heartbeat learns of a change only when it is sent, up to an interval later. A watch of the group
(docs/sls-protocol.md 8) is answered at once, and the membership then sends the next heartbeat early if the
change concerns this consumer. The watch itself is no heartbeat: it neither extends the session nor assigns
anything.

If the consumer has its session's timeout from the group, the watch reads it again periodically: it may be
changed, and a consumer that does not know would send heartbeats too rarely, or trust its session too long.
"""

import secrets
from collections.abc import Callable

import structlog

from loghub.backoff import Backoff
from loghub.client.port import LogHub, Poll
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_consumer.log_service import ConsumerIdentity, ReportedError, to_reported_error
from loghub_consumer.membership.membership import LeaveRequest, MembershipTimings, MemberState, SendHeartbeat
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.membership.turns import OwnThreads, Turn, Turns

log = structlog.get_logger()


POLL_S = 20.0  # shorter than a client waits for the first byte of an answer
MIN_PAUSE_S = 0.05  # between two answers: a rebalance of many consumers has many changes
FIRST_RETRY_S, MAX_RETRY_S = 1.0, 10.0
ABSENT_S = 60.0  # how often to ask a service without the call whether it has it now
TIMINGS_S = 20.0  # how often the timeout of the group is read


class GroupWatch:
    """`wait_s` is how long a watch waits for a change. `timings` asks the log service, and may raise
    `LogHubException`; None: the membership keeps its timings, as for a group that does not exist. Without
    `polls` only the timings are watched, because a watch occupies a thread while it waits."""

    def __init__(
        self,
        shared_state: SharedState,
        client: LogHub,
        identity: ConsumerIdentity,
        *,
        wait_s: float = POLL_S,
        timings: Callable[[], MembershipTimings | None] | None = None,
        polls: bool = True,
    ) -> None:
        self._shared_state = shared_state
        self._client = client
        self._identity = identity
        self._poll = Poll(name=secrets.token_hex(8), wait_s=wait_s)
        self._retries = Backoff(first_s=FIRST_RETRY_S, max_s=MAX_RETRY_S, random=shared_state.random)
        self._failures = 0  # consecutive
        self._revision = 0  # the last answered revision
        self._timings = timings
        self._timings_due_s = float("-inf")
        self._polls = polls
        self._awaits_member = False
        self._is_stopped = False
        self._turn: Turn | None = None
        self.failure: BaseException | None = None  # an unexpected error of the thread itself

    def start(self, turns: Turns | None = None) -> None:
        """Begin to watch in `turns`; None: in a thread of its own."""
        self._turn = (turns or OwnThreads()).start("group-watch", self._take_turn)
        self._shared_state.call_on_change(self._changed)
        self._turn.wake()  # for changes since the membership was made

    def stop(self) -> None:
        """Stop watching. A request that is under way ends by itself, and its failure concerns nobody."""
        self._is_stopped = True
        if self._turn is not None:
            self._turn.stop(0.0)

    def _changed(self) -> None:
        if self._awaits_member and self._turn is not None:
            self._turn.wake()

    def _take_turn(self) -> float:
        try:
            return self.step()
        except BaseException as failure:
            self.failure = failure
            raise

    def step(self) -> float:
        """Ask for changes; returns the seconds to wait before the next time."""
        self._awaits_member = True  # set before the request, so that a change that follows it ends the wait
        with self._shared_state.use() as (membership, _):
            is_member = membership.state is MemberState.MEMBER
        if not is_member:
            return ABSENT_S
        self._awaits_member = False
        try:
            self._follow_timings()
            if not self._polls or not self._client.has_polls():
                return ABSENT_S if self._timings is None else TIMINGS_S
            answer = self._client.await_group(
                self._identity.logstore,
                self._identity.group,
                consumer=self._identity.consumer,
                revision=self._revision,
                poll=self._poll,
            )
        except LogHubException as error:
            self._failures += 1
            if self._failures == 1 and not self._is_stopped:
                log.info("group not watched, heartbeats go on", reason=to_reported_error(error).reason)
            return self._retries.pause_s(self._failures)
        self._failures, self._revision = 0, answer.revision
        with self._shared_state.use() as (membership, now):
            membership.assignment_seen(answer.assigned, now=now)
        return MIN_PAUSE_S

    def _follow_timings(self) -> None:
        now = self._shared_state.clock.monotonic_s()
        if self._timings is None or now < self._timings_due_s:
            return
        timings, self._timings_due_s = self._timings(), now + TIMINGS_S
        if timings is not None:
            with self._shared_state.use() as (membership, _):
                membership.retimed(timings)


class Heartbeats:
    """Has a connection of its own, which carries only requests about the membership."""

    def __init__(
        self,
        shared_state: SharedState,
        client: LogHub,
        identity: ConsumerIdentity,
        *,
        create_group: Callable[[], object] | None = None,
    ) -> None:
        """`create_group`, which may raise `LogHubException`, is called whenever the group does not exist.
        None: it is created elsewhere."""
        self._shared_state = shared_state
        self._create_group = create_group
        self._client = client
        self._logstore = identity.logstore
        self._group = identity.group
        self._consumer = identity.consumer
        self._turn: Turn | None = None
        self.error = ReportedError()
        self.failure: BaseException | None = None  # an unexpected error of the thread itself

    def start(self, turns: Turns | None = None) -> None:
        """Begin to send heartbeats in `turns`; None: in a thread of its own."""
        self._turn = (turns or OwnThreads()).start("heartbeat", self._take_turn)
        self._shared_state.call_on_change(self._turn.wake)
        self._turn.wake()  # for changes since the membership was made

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop sending heartbeats. The consumer stays a member until the service times it out."""
        if self._turn is not None:
            self._turn.stop(timeout_s)

    def _take_turn(self) -> float:
        try:
            return self.step()
        except BaseException as failure:
            self.failure = failure
            raise

    def step(self) -> float:
        """Send the request that is due. Returns the seconds until the next one, unless the shared state
        changes."""
        with self._shared_state.use() as (membership, now):
            request = membership.poll(now)
            wait_s = membership.wake_in_s(now)
        if request is None:
            return wait_s
        try:
            self._send(request)
        except LogHubException as error:
            self._set_error(to_reported_error(error))
            code = error.code if isinstance(error, LogHubError) else ""
            is_forgotten = code == Code.NOT_EXIST_CONSUMER_WITH_BODY
            with self._shared_state.use() as (membership, now):
                if is_forgotten and isinstance(request, SendHeartbeat) and request.held:
                    membership.forgotten(request.number)
                else:
                    membership.failed(request.number, now=now)
            if code == Code.CONSUMER_GROUP_NOT_EXIST and self._create_group is not None:
                self._create(self._create_group)
        return 0.0

    def _create(self, create_group: Callable[[], object]) -> None:
        try:
            create_group()
            log.info("the consumer group was created again", logstore=self._logstore, group=self._group)
        except LogHubException as error:
            self._set_error(to_reported_error(error))

    def _send(self, request: SendHeartbeat | LeaveRequest) -> None:
        if isinstance(request, LeaveRequest):
            if self._client.has_extensions():
                self._client.leave(self._logstore, self._group, consumer=self._consumer)
            with self._shared_state.use() as (membership, _):
                membership.left(request.number)
            return
        assigned = self._client.heartbeat(
            self._logstore, self._group, consumer=self._consumer, held=request.held
        )
        with self._shared_state.use() as (membership, now):
            before = membership.state
            membership.answered(request.number, assigned, now=now)
            after = membership.state
        self._set_error(ReportedError())
        log.debug("heartbeat answered", held=request.held, shards=assigned)
        if before is not after:
            log.info("membership changed", before=before, after=after, shards=assigned)

    def _set_error(self, error: ReportedError) -> None:
        if error.reason and error != self.error:
            log.warning("heartbeat failed", reason=error.reason, message=error.message)
        self.error = error
