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
    LeaseRecord,
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
        self._kube = kube
        self._fence = fence
        self._clock = clock
        self._lease = lease
        self._identity = identity
        self._timings = timings or LeaseTimings()
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
            found = await self._kube.get(LEASE, self._lease.namespace, self._lease.name)
            record = None if found is None else self._record_of(found)
            if record is None or record.holder != self._identity:
                return
            if await self._write(record, holder="", transitions=record.transitions) is not None:
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
            found = await self._kube.get(LEASE, self._lease.namespace, self._lease.name)
            record = None if found is None else self._record_of(found)
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
        written = await self._write(record, holder=self._identity, transitions=transitions)
        if written is None:
            self._stale = True
            return
        self._observed = ObservedLease(written, self._clock.monotonic_s())
        self._deadline_s = sent_s + self._timings.renew_deadline_s
        self._fence.extend(deadline_s=self._deadline_s, end_s=sent_s + self._timings.lease_duration_s)

    async def _write(
        self, record: LeaseRecord | None, *, holder: str, transitions: int
    ) -> LeaseRecord | None:
        """None if the Lease has changed since it was observed, so that nothing was written."""
        now = datetime.fromtimestamp(self._clock.unix_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Document = {
            "holderIdentity": holder,
            "leaseDurationSeconds": round(self._timings.lease_duration_s),
            "renewTime": now,
            "leaseTransitions": transitions,
        }
        if record is None or record.holder != holder:
            spec["acquireTime"] = now
        try:
            stored = await self._send(record, spec)
        except KubeError as error:
            if error.status != 409:
                raise
            return None
        return None if stored is None else self._record_of(stored)

    async def _send(self, record: LeaseRecord | None, spec: Document) -> Document | None:
        metadata: Document = {"name": self._lease.name, "namespace": self._lease.namespace}
        if record is None:
            document = {
                "apiVersion": LEASE.api_version,
                "kind": LEASE.kind,
                "metadata": metadata,
                "spec": spec,
            }
            return await self._kube.create(document)
        patch = {"metadata": {"resourceVersion": record.version}, "spec": spec}
        return await self._kube.patch(LEASE, self._lease.namespace, self._lease.name, patch)

    def _record_of(self, document: Document) -> LeaseRecord:
        spec = document.get("spec") or {}
        return LeaseRecord(
            holder=spec.get("holderIdentity") or "",
            duration_s=float(spec.get("leaseDurationSeconds") or self._timings.lease_duration_s),
            renewed=spec.get("renewTime") or "",
            transitions=int(spec.get("leaseTransitions") or 0),
            version=document["metadata"]["resourceVersion"],
        )
