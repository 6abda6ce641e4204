"""The heartbeat thread: sends the requests that `loghub_worker.membership.state.Membership` decides on.

The thread has its own connection and does nothing else, so that heartbeats are sent on time whatever a batch,
a sink or the slow opening of a shard does. `loghub_worker.membership.shard_manager` sends the slower requests
for the held shards.
"""

import threading

import structlog

from loghub.client.port import LogHub
from loghub.wire.errors import LogHubException
from loghub_worker.log_service import ServiceError, trouble_of
from loghub_worker.membership.shared_state import SharedState
from loghub_worker.membership.state import Beat, Leave

log = structlog.get_logger()


class HeartbeatThread:
    """One thread with a connection of its own, which carries only requests about the membership."""

    def __init__(self, session: SharedState, hub: LogHub, *, logstore: str, group: str, name: str) -> None:
        self._session = session
        self._hub = hub
        self._logstore = logstore
        self._group = group
        self._name = name
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run, name="membership", daemon=True)
        self.trouble = ServiceError()
        self.failure: BaseException | None = None  # an unexpected error of the thread itself

    def start(self) -> None:
        self._thread.start()

    def stop(self, timeout_s: float = 10.0) -> None:
        """Stop sending heartbeats. The consumer stays a member until the service times it out."""
        self._stop.set()
        self._session.wake()
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
        with self._session.use() as (consumer, now):
            request = consumer.poll(now)
            wait_s = consumer.wake_in_s(now)
            since = self._session.changes
        if request is None:
            self._session.wait(since, wait_s)
            return
        try:
            self._carry_out(request)
        except LogHubException as error:
            self._note(trouble_of(error))
            with self._session.use() as (consumer, now):
                consumer.failed(request.number, now=now)

    def _carry_out(self, request: Beat | Leave) -> None:
        if isinstance(request, Leave):
            if self._hub.has_extensions():
                self._hub.leave(self._logstore, self._group, consumer=self._name)
            with self._session.use() as (consumer, _):
                consumer.left(request.number)
            return
        named = self._hub.heartbeat(self._logstore, self._group, consumer=self._name, held=request.held)
        with self._session.use() as (consumer, now):
            before = consumer.standing
            consumer.answered(request.number, named, now=now)
            after = consumer.standing
        self._note(ServiceError())
        if before is not after:
            log.info("standing", before=before, after=after, shards=named)

    def _note(self, trouble: ServiceError) -> None:
        if trouble.reason and trouble != self.trouble:
            log.warning("heartbeat failed", reason=trouble.reason, message=trouble.message)
        self.trouble = trouble
