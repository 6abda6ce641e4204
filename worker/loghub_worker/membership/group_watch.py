"""Tells the membership when its shards change, where the log service can say so.

A heartbeat learns of a change only when it is sent, up to an interval later. A watch of the group
(docs/sls-protocol.md 8) is answered at once, and the membership then sends the next heartbeat early if the
change concerns this consumer. The watch itself is no heartbeat: it neither extends the session nor assigns
anything.

Where the consumer has its session's timeout from the group, that is read again now and then: it may be
changed, and a consumer that does not know would send heartbeats too rarely, or trust its session too long.
"""

import secrets
from collections.abc import Callable

import structlog

from loghub.client.port import LogHub, Poll
from loghub.wire.errors import LogHubException
from loghub_worker.backoff import Backoff
from loghub_worker.log_service import ConsumerIdentity, to_reported_error
from loghub_worker.membership.membership import MembershipTimings, MemberState
from loghub_worker.membership.shared_membership import SharedState
from loghub_worker.membership.turns import OwnThreads, Turn, Turns

log = structlog.get_logger()

POLL_S = 20.0  # less than a client waits for the first byte of an answer
LEAST_PAUSE_S = 0.05  # between two answers: a rebalance of many consumers has many changes
FIRST_RETRY_S, LONGEST_RETRY_S = 1.0, 10.0
ABSENT_S = 60.0  # how often a service without the call is asked whether it has it
TIMINGS_S = 20.0  # how often the timeout of the group is read


class GroupWatch:
    """`wait_s` is how long a watch waits for a change. `timings` asks the log service, and may raise
    `LogHubException`; None: those of the membership stay, as for a group that does not exist. Without `polls`
    nothing is watched but these: a watch holds a thread for as long as it waits."""

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
        self._retries = Backoff(first_s=FIRST_RETRY_S, longest_s=LONGEST_RETRY_S, random=shared_state.random)
        self._failures = 0  # consecutive
        self._revision = 0  # as last answered
        self._timings = timings
        self._timings_due_s = float("-inf")
        self._polls = polls
        self._awaits_member = False
        self._turn: Turn | None = None
        self.failure: BaseException | None = None  # an unexpected error of the thread itself

    def start(self, turns: Turns | None = None) -> None:
        """In these threads; None: in one of its own."""
        self._turn = (turns or OwnThreads()).start("group-watch", self._take_turn)
        self._shared_state.call_on_change(self._changed)
        self._turn.wake()  # for what has changed meanwhile

    def stop(self) -> None:
        """Watch no longer. A request that is under way ends by itself."""
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
        """Ask what has changed; the seconds to wait before the next time."""
        self._awaits_member = True  # before the look: a change that follows it ends the wait
        with self._shared_state.use() as (membership, _):
            is_member = membership.state is MemberState.MEMBER
        if not is_member:
            return ABSENT_S
        self._awaits_member = False
        try:
            self._follow_timings()
            if not self._polls or not self._client.has_polls():
                return ABSENT_S if self._timings is None else TIMINGS_S
            found = self._client.await_group(
                self._identity.logstore,
                self._identity.group,
                consumer=self._identity.consumer,
                revision=self._revision,
                poll=self._poll,
            )
        except LogHubException as error:
            self._failures += 1
            if self._failures == 1:
                log.info("group not watched, heartbeats go on", reason=to_reported_error(error).reason)
            return self._retries.pause_s(self._failures)
        self._failures, self._revision = 0, found.revision
        with self._shared_state.use() as (membership, now):
            membership.assignment_seen(found.assigned, now=now)
        return LEAST_PAUSE_S

    def _follow_timings(self) -> None:
        now = self._shared_state.clock.monotonic_s()
        if self._timings is None or now < self._timings_due_s:
            return
        timings, self._timings_due_s = self._timings(), now + TIMINGS_S
        if timings is not None:
            with self._shared_state.use() as (membership, _):
                membership.retimed(timings)
