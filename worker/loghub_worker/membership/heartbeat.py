"""The heartbeat thread: sends the requests that `loghub_worker.membership.membership.Membership` decides on.

The thread has its own connection and does nothing else, so that heartbeats are sent on time whatever a batch,
a sink or the slow opening of a shard does. `loghub_worker.membership.shard_manager` sends the slower requests
for the held shards.
"""

import threading
from collections.abc import Callable

import structlog

from loghub.client.port import LogHub
from loghub.wire.errors import Code, LogHubError, LogHubException
from loghub_worker.log_context import inherited
from loghub_worker.log_service import ConsumerIdentity, ReportedError, to_reported_error
from loghub_worker.membership.requests import HeartbeatRequest, LeaveRequest
from loghub_worker.membership.shared_membership import SharedState

log = structlog.get_logger()


class HeartbeatThread:
    """One thread with a connection of its own, which carries only requests about the membership."""

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
        self._stop = threading.Event()
        self._thread = threading.Thread(target=inherited(self._run), name="heartbeat", daemon=True)
        self.error = ReportedError()
        self.failure: BaseException | None = None  # an unexpected error of the thread itself

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop sending heartbeats. The consumer stays a member until the service times it out."""
        self._stop.set()
        self._shared_state.wake()
        self._thread.join(timeout_s)

    def _run(self) -> None:
        try:
            while not self._stop.is_set():
                self.step()
        except BaseException as failure:
            self.failure = failure
            raise

    def step(self) -> None:
        """One iteration of the thread's loop."""
        with self._shared_state.use() as (membership, now):
            request = membership.poll(now)
            wait_s = membership.wake_in_s(now)
            since = self._shared_state.changes
        if request is None:
            if not self._stop.is_set():  # its change may already be counted in ``since``
                self._shared_state.wait(since, wait_s)
            return
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
