"""Heartbeats: sends the requests that `loghub_worker.membership.membership.Membership` decides on.

They have a connection, and in a worker a thread, that do nothing else, so that they are sent on time whatever
a batch, a sink or the slow opening of a shard does. `loghub_worker.membership.shard_manager` sends the slower
requests for the held shards.
"""

from collections.abc import Callable

import structlog

from loghub.client.port import LogHub
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_worker.log_service import ConsumerIdentity, ReportedError, to_reported_error
from loghub_worker.membership.requests import HeartbeatRequest, LeaveRequest
from loghub_worker.membership.shared_membership import SharedState
from loghub_worker.membership.turns import OwnThreads, Turn, Turns

log = structlog.get_logger()


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
        """In these threads; None: in one of its own."""
        self._turn = (turns or OwnThreads()).start("heartbeat", self._take_turn)
        self._shared_state.call_on_change(self._turn.wake)
        self._turn.wake()  # for what has changed meanwhile

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
        """Send what is due. Returns how long nothing is, unless the shared state changes."""
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
                if is_forgotten and isinstance(request, HeartbeatRequest) and request.held:
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

    def _send(self, request: HeartbeatRequest | LeaveRequest) -> None:
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
