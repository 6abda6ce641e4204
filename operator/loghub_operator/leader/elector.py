"""Acquires, renews and releases the Lease.

The elector carries out what `loghub_operator.leader.lease` decides, and extends the deadline of
`loghub_operator.leader.fencing` with each successful write. `loghub_operator.controller.app` waits for it
before it reconciles, and ends the process when the Lease is lost.
"""

import asyncio

import structlog

from loghub.clock import Clock
from loghub_operator.clients.kube import Kube, KubeError
from loghub_operator.leader.fencing import WriteFence
from loghub_operator.leader.lease import (
    Acquire,
    LeaseTimings,
    Lost,
    ObservedLease,
    Renew,
    Wait,
    decide,
    observe,
)
from loghub_operator.leader.stored_lease import StoredLease
from loghub_operator.settings import LeaseRef

log = structlog.get_logger()

# Limit of one read and write together; several fit into the renewal deadline.
CALL_BOUND_S = 4.0
RELEASE_POLL_S = 0.05
RELEASE_TRIES = 3


class LeaderElector:
    """A candidate for leadership. ``identity`` is unique, even among successive processes of the same pod."""

    def __init__(
        self,
        *,
        kube: Kube,
        fence: WriteFence,
        clock: Clock,
        lease: LeaseRef,
        identity: str,
        timings: LeaseTimings | None = None,
    ) -> None:
        self._fence = fence
        self._clock = clock
        self._lease = lease
        self._identity = identity
        self._timings = timings or LeaseTimings()
        self._stored = StoredLease(kube, clock, lease, duration_s=self._timings.lease_duration_s)
        self._observed: ObservedLease | None = None
        self._stale = True  # the observed record may be out of date
        self._deadline_s: float | None = None
        self.last_attempt_s = clock.monotonic_s()

    async def acquire(self) -> None:
        """Returns once this candidate holds the Lease."""
        while self._deadline_s is None:
            before = self._holder
            wait = await self.try_acquire_or_renew()
            assert not isinstance(wait, Lost)  # only a holder can lose it
            if self._holder != before and self._deadline_s is None:
                log.info("waiting for the lease", holder=self._holder or "nobody")
            if self._deadline_s is None:
                await asyncio.sleep(wait)
        log.info("leading", lease=f"{self._lease.namespace}/{self._lease.name}", holder=self._identity)

    async def hold(self) -> str:
        """Renews the Lease until it is lost; returns why. The fence rejects writes from the deadline on."""
        while self._deadline_s is not None:
            left_s = self._deadline_s - self._clock.monotonic_s()
            await asyncio.sleep(max(0.0, min(self._timings.retry_period_s, left_s)))
            done = await self.try_acquire_or_renew()
            if isinstance(done, Lost):
                self._fence.close()
                self._deadline_s = None
                return done.why
        return "it was given back"

    async def release(self) -> None:
        """Releases the Lease so that another candidate acquires it at once, but not while one of our writes
        may still arrive."""
        deadline_s, self._deadline_s = self._deadline_s, None
        self._fence.close()
        if deadline_s is None:
            return
        while self._fence.under_way:
            if self._clock.monotonic_s() >= deadline_s:
                return
            await asyncio.sleep(RELEASE_POLL_S)
        try:
            async with asyncio.timeout(CALL_BOUND_S):
                await self._clear_holder()
        except (KubeError, TimeoutError) as error:
            log.warning("lease not given back; it runs out by itself", error=str(error))

    async def _clear_holder(self) -> None:
        """Retries, because a renewal that timed out may have changed the version, or may still do so."""
        for _ in range(RELEASE_TRIES):
            record = await self._stored.read()
            if record is None or record.holder != self._identity:
                return
            if await self._stored.write(record, holder="", transitions=record.transitions) is not None:
                log.info("lease given back")
                return

    @property
    def _holder(self) -> str | None:
        return None if self._observed is None else self._observed.record.holder

    async def try_acquire_or_renew(self) -> float | Lost:
        """Reads the Lease if necessary, decides, and writes at most once; returns seconds until the next
        attempt, or why the Lease is lost."""
        try:
            async with asyncio.timeout(CALL_BOUND_S):
                return await self._attempt()
        except (KubeError, TimeoutError) as error:
            self._stale = True
            log.warning("lease not reached", error=str(error) or type(error).__name__)
            now = self._clock.monotonic_s()
            late = self._deadline_s is not None and now >= self._deadline_s
            return Lost("it could not be renewed in time") if late else self._timings.retry_period_s
        finally:
            self.last_attempt_s = self._clock.monotonic_s()

    async def _attempt(self) -> float | Lost:
        if self._stale or self._deadline_s is None:
            record = await self._stored.read()
            self._observed = observe(self._observed, record, now=self._clock.monotonic_s())
            self._stale = False
        now = self._clock.monotonic_s()
        match decide(
            self._observed,
            identity=self._identity,
            deadline_s=self._deadline_s,
            now=now,
            timings=self._timings,
        ):
            case Lost() as lost:
                return lost
            case Wait(seconds):
                return seconds
            case Acquire(transitions) | Renew(transitions):
                await self._write_as_holder(transitions, sent_s=now)
        return self._timings.retry_period_s

    async def _write_as_holder(self, transitions: int, *, sent_s: float) -> None:
        """Counts the deadline from before the write is sent, because a follower's wait begins after it."""
        observed = self._observed
        record = None if observed is None or observed.deleted else observed.record
        written = await self._stored.write(record, holder=self._identity, transitions=transitions)
        if written is None:
            self._stale = True
            return
        self._observed = ObservedLease(written, self._clock.monotonic_s())
        self._deadline_s = sent_s + self._timings.renew_deadline_s
        self._fence.extend(deadline_s=self._deadline_s, end_s=sent_s + self._timings.lease_duration_s)
