"""Acquires, renews and releases the Lease.

The elector carries out what `loghub_operator.leader.lease` decides, and extends the deadline of
`loghub_operator.leader.fencing` with each successful write. `loghub_operator.controller.app` waits for it
before it reconciles, and ends the process when the Lease is lost.
"""

import asyncio
from datetime import UTC, datetime

import structlog

from loghub.clock import Clock
from loghub_operator.clients.kube import LEASE, Document, Kube, KubeError
from loghub_operator.leader.fencing import WriteFence
from loghub_operator.leader.lease import (
    Acquire,
    LeaseSeen,
    LeaseTimings,
    Lost,
    ObservedLease,
    Renew,
    Wait,
    decide,
    observe,
)
from loghub_operator.settings import LeaseRef

log = structlog.get_logger()

# Limit of one read and write together; several fit into the renewal deadline.
CALL_BOUND_S = 4.0
RELEASE_POLL_S = 0.05
RELEASE_TRIES = 3


class LeaderElector:
    """A candidate for leadership. ``me`` is unique, even among successive processes of the same pod."""

    def __init__(
        self,
        *,
        kube: Kube,
        guard: WriteFence,
        clock: Clock,
        place: LeaseRef,
        me: str,
        terms: LeaseTimings | None = None,
    ) -> None:
        self._kube = kube
        self._guard = guard
        self._clock = clock
        self._place = place
        self._me = me
        self._terms = terms or LeaseTimings()
        self._watched: ObservedLease | None = None
        self._stale = True  # the observed record may be out of date
        self._deadline_s: float | None = None
        self.turned_s = clock.monotonic_s()

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
        log.info("leading", lease=f"{self._place.namespace}/{self._place.name}", holder=self._me)

    async def hold(self) -> str:
        """Renews the Lease until it is lost; returns why. The fence rejects writes from the deadline on."""
        while self._deadline_s is not None:
            left_s = self._deadline_s - self._clock.monotonic_s()
            await asyncio.sleep(max(0.0, min(self._terms.retry_period_s, left_s)))
            done = await self.try_acquire_or_renew()
            if isinstance(done, Lost):
                self._guard.close()
                self._deadline_s = None
                return done.why
        return "it was given back"

    async def release(self) -> None:
        """Releases the Lease so that another candidate acquires it at once, but not while one of our writes
        may still arrive."""
        deadline_s, self._deadline_s = self._deadline_s, None
        self._guard.close()
        if deadline_s is None:
            return
        while self._guard.under_way:
            if self._clock.monotonic_s() >= deadline_s:
                return
            await asyncio.sleep(RELEASE_POLL_S)
        try:
            async with asyncio.timeout(CALL_BOUND_S):
                await self._give_back()
        except (KubeError, TimeoutError) as error:
            log.warning("lease not given back; it runs out by itself", error=str(error))

    async def _give_back(self) -> None:
        """Retries, because a renewal that timed out may have changed the version, or may still do so."""
        for _ in range(RELEASE_TRIES):
            found = await self._kube.get(LEASE, self._place.namespace, self._place.name)
            seen = None if found is None else self._seen(found)
            if seen is None or seen.holder != self._me:
                return
            if await self._write(seen, holder="", transitions=seen.transitions) is not None:
                log.info("lease given back")
                return

    @property
    def _holder(self) -> str | None:
        return None if self._watched is None else self._watched.record.holder

    async def try_acquire_or_renew(self) -> float | Lost:
        """Reads the Lease if necessary, decides, and writes at most once; returns seconds until the next
        attempt, or why the Lease is lost."""
        try:
            async with asyncio.timeout(CALL_BOUND_S):
                return await self._look_and_do()
        except (KubeError, TimeoutError) as error:
            self._stale = True
            log.warning("lease not reached", error=str(error) or type(error).__name__)
            now = self._clock.monotonic_s()
            late = self._deadline_s is not None and now >= self._deadline_s
            return Lost("it could not be renewed in time") if late else self._terms.retry_period_s
        finally:
            self.turned_s = self._clock.monotonic_s()

    async def _look_and_do(self) -> float | Lost:
        if self._stale or self._deadline_s is None:
            found = await self._kube.get(LEASE, self._place.namespace, self._place.name)
            seen = None if found is None else self._seen(found)
            self._watched = observe(self._watched, seen, now=self._clock.monotonic_s())
            self._stale = False
        now = self._clock.monotonic_s()
        match decide(self._watched, me=self._me, deadline_s=self._deadline_s, now=now, terms=self._terms):
            case Lost() as lost:
                return lost
            case Wait(seconds):
                return seconds
            case Acquire(transitions) | Renew(transitions):
                await self._take(transitions, sent_s=now)
        return self._terms.retry_period_s

    async def _take(self, transitions: int, *, sent_s: float) -> None:
        """Counts the deadline from before the write is sent, because a follower's wait begins after it."""
        record = None if self._watched is None else self._watched.record
        written = await self._write(record, holder=self._me, transitions=transitions)
        if written is None:
            self._stale = True
            return
        self._watched = ObservedLease(written, self._clock.monotonic_s())
        self._deadline_s = sent_s + self._terms.renew_deadline_s
        self._guard.extend(deadline_s=self._deadline_s, end_s=sent_s + self._terms.lease_duration_s)

    async def _write(self, record: LeaseSeen | None, *, holder: str, transitions: int) -> LeaseSeen | None:
        """None if the Lease has changed since it was observed, so that nothing was written."""
        now = datetime.fromtimestamp(self._clock.unix_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Document = {
            "holderIdentity": holder,
            "leaseDurationSeconds": round(self._terms.lease_duration_s),
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        if record is None or record.holder != holder:
            spec["acquireTime"] = now
        try:
            answer = await self._send(record, spec)
        except KubeError as error:
            if error.status != 409:
                raise
            return None
        return None if answer is None else self._seen(answer)

    async def _send(self, record: LeaseSeen | None, spec: Document) -> Document | None:
        about: Document = {"name": self._place.name, "namespace": self._place.namespace}
        if record is None:
            made = {"apiVersion": LEASE.api_version, "kind": LEASE.kind, "metadata": about, "spec": spec}
            return await self._kube.create(made)
        patch = {"metadata": {"resourceVersion": record.version}, "spec": spec}
        return await self._kube.patch(LEASE, self._place.namespace, self._place.name, patch)

    def _seen(self, document: Document) -> LeaseSeen:
        spec = document.get("spec") or {}
        return LeaseSeen(
            holder=spec.get("holderIdentity") or "",
            duration_s=float(spec.get("leaseDurationSeconds") or self._terms.lease_duration_s),
            renewed=spec.get("renewTime") or "",
            transitions=int(spec.get("leaseTransitions") or 0),
            version=document["metadata"]["resourceVersion"],
        )
