"""The reconcile loop of one consumer group on this machine.

It runs the same rounds (`loghub_operator.plan.round`) as `loghub_operator.controller.reconciler` does in the
cluster; `loghub_operator.local.backend` observes and carries out.
"""

import asyncio
from collections.abc import Callable
from typing import Protocol

from loghub.clock import Clock
from loghub.wire.errors import LogHubException
from loghub_operator.api import LogHubConsumerGroup, Phase, Status
from loghub_operator.model.actions import Action, ActionRefused, EmitEvent, RemoveFinalizer
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState
from loghub_operator.plan.round import finish, plan_round
from loghub_operator.plan.status.failure import with_failure

SETTLED_S = 2.0  # the log service does not report its changes
UNSETTLED_S = 0.5
LONGEST_BACKOFF_S = 10.0


class Objects(Protocol):
    """Where the object comes from, and where its status is written."""

    def current(self) -> LogHubConsumerGroup:
        """The object as it is now."""

    def write_status(self, status: Status) -> None:
        """Raises `OSError`."""


class Backend(Protocol):
    """Observes, and carries out."""

    async def observe(self, resource: LogHubConsumerGroup) -> ObservedState: ...

    async def carry_out(self, resource: LogHubConsumerGroup, action: Action) -> None:
        """Raises `LogHubException`, `ActionRefused` or `OSError`."""


class ReconcileLoop:
    """Reconciles one group in one event loop until the object is released."""

    def __init__(
        self,
        *,
        objects: Objects,
        backend: Backend,
        clock: Clock,
        on_round: Callable[[ObservedState, Status], None] | None = None,
    ) -> None:
        self._objects = objects
        self._backend = backend
        self._clock = clock
        self._on_round = on_round
        self._wake = asyncio.Event()
        self._failures = 0
        self._memory: Memory | None = None
        self.released = False

    def wake(self) -> None:
        """Reconcile now, because something changed."""
        self._wake.set()

    async def run(self) -> None:
        """Until the object is released; cancel it to stop before."""
        while not self.released:
            self._wake.clear()
            wait_s = await self.round()
            try:
                async with asyncio.timeout(wait_s):
                    await self._wake.wait()
            except TimeoutError:
                pass

    async def round(self) -> float:
        """One round; the seconds until the next, if nothing wakes us before."""
        resource = self._objects.current()
        observed = await self._backend.observe(resource)
        this = plan_round(resource, observed, self._memory, self._clock.unix_s())
        planned, error = this.plan, None
        try:
            for action in planned.actions:
                await self._backend.carry_out(resource, action)
                self.released = self.released or isinstance(action, RemoveFinalizer)
        except (LogHubException, ActionRefused, OSError) as raised:
            error = raised
        outcome = finish(this, error, self._clock.unix_s())
        self._memory, status, failed = outcome.memory, outcome.status, outcome.error is not None
        if status != resource.status and not self.released:
            status = self._written(resource, status)
        if self._on_round is not None:
            self._on_round(observed, status)
        self._failures = self._failures + 1 if failed else 0
        if failed:
            return min(LONGEST_BACKOFF_S, UNSETTLED_S * 2.0 ** min(self._failures, 10))
        did = any(not isinstance(action, EmitEvent) for action in planned.actions)
        return SETTLED_S if not did and status.phase is Phase.RUNNING else UNSETTLED_S

    def _written(self, resource: LogHubConsumerGroup, status: Status) -> Status:
        """A disk that is full ends no group: what is shown says so, and the next round tries again."""
        try:
            self._objects.write_status(status)
        except OSError as error:
            message, now = f"the status cannot be kept: {error}", self._clock.unix_s()
            deadline_s = resource.spec.worker.progress_deadline_seconds
            return with_failure(status, message, now, before=status, deadline_s=deadline_s)
        return status
