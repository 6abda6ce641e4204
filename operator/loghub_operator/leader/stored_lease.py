"""Reads and writes a Lease for the callers that decide by `loghub_operator.leader.lease`."""

from datetime import UTC, datetime

from loghub.clock import Clock
from loghub_operator.clients.kube import LEASE, Document, Kube, KubeError
from loghub_operator.leader.lease import LeaseRecord
from loghub_operator.settings import LeaseRef


class StoredLease:
    """One Lease. ``duration_s`` is how long the others wait after a write of ours."""

    def __init__(self, kube: Kube, clock: Clock, lease: LeaseRef, *, duration_s: float) -> None:
        self._kube = kube
        self._clock = clock
        self._lease = lease
        self._duration_s = duration_s

    async def read(self) -> LeaseRecord | None:
        """None if there is none. Raises `KubeError`."""
        lease = await self._kube.get(LEASE, self._lease.namespace, self._lease.name)
        return None if lease is None else self._record_of(lease)

    async def write(self, record: LeaseRecord | None, *, holder: str, transitions: int) -> LeaseRecord | None:
        """Writes over ``record``, or creates the Lease; None if it has changed since it was observed, so that
        nothing was written. Raises `KubeError`."""
        now = datetime.fromtimestamp(self._clock.unix_s(), UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ")
        spec: Document = {
            "holderIdentity": holder,
            "leaseDurationSeconds": round(self._duration_s),
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
            duration_s=float(spec.get("leaseDurationSeconds") or self._duration_s),
            renewed=spec.get("renewTime") or "",
            transitions=int(spec.get("leaseTransitions") or 0),
            version=document["metadata"]["resourceVersion"],
        )
