"""Which operator manages the objects of a namespace, where several watch it.

Two operators of one object undo each other's changes: two releases whose `watchNamespaces` overlap, or one
that runs on a laptop next to the operator of the cluster. The scope of an operator is a set of namespaces, so
each one claims every namespace in which it finds an object, by the Lease `CLAIM` there, and keeps off the
namespaces that another operator holds. Who may manage objects in a namespace can see its Lease.

The holder is the release, not its pod, so a change of the leader within a release changes nothing. The rules
come from the leader election (`loghub_operator.leader.lease`): no operator trusts the clock of another, and a
claim that is not renewed runs out. It is renewed by the reconciles, as seldom as `CHECK_S`, and lasts longer
than any reconcile that began under it, so one that another operator took over has ended. An operator that may
not write Leases, as after an upgrade of its image alone or in a namespace that is being deleted, goes on
without a claim.
"""

import asyncio
from dataclasses import dataclass, field

import structlog

from loghub.clock import Clock
from loghub_operator.clients.kube import FORBIDDEN, Document, Kind, Kube, KubeError
from loghub_operator.leader.lease import Acquire, LeaseTimings, ObservedLease, decide, observe
from loghub_operator.leader.stored_lease import StoredLease
from loghub_operator.settings import LeaseRef

log = structlog.get_logger()


CLAIM = "loghub-consumer-groups"  # the rights in the manifests name it
# Two requests for a namespace, however many objects it has: 17 a second for 500 namespaces.
CHECK_S = 60.0
# Besides what a reconcile may last until the process counts as stuck: until the kubelet has ended it.
END_S = 60.0
NOT_FOUND = 404


def claim_duration_s(reconcile_bound_s: float) -> float:
    """How long a claim lasts after it was renewed."""
    return CHECK_S + reconcile_bound_s + END_S


@dataclass(slots=True)
class _NamespaceClaim:
    stored: StoredLease
    lock: asyncio.Lock = field(default_factory=asyncio.Lock)
    checked_s: float = float("-inf")
    observed: ObservedLease | None = None
    other: str = ""
    unclaimed: bool = False  # said already


class NamespaceClaims:
    """The claims of one operator; all processes of a release have the same ``identity``."""

    def __init__(self, kube: Kube, clock: Clock, *, identity: str, duration_s: float) -> None:
        self._kube = kube
        self._clock = clock
        self._identity = identity
        self._duration_s = duration_s
        self._claims: dict[str, _NamespaceClaim] = {}

    async def other(self, namespace: str) -> str:
        """The operator that manages the objects of this namespace instead of this one; "" if this one does.
        Raises `KubeError`."""
        claim = self._claims.setdefault(namespace, self._claim(namespace))
        async with claim.lock:
            now = self._clock.monotonic_s()
            if now - claim.checked_s >= CHECK_S:
                await self._check(namespace, claim)
                claim.checked_s = now  # from before the claim was written
            return claim.other

    def _claim(self, namespace: str) -> _NamespaceClaim:
        lease = LeaseRef(namespace=namespace, name=CLAIM)
        return _NamespaceClaim(StoredLease(self._kube, self._clock, lease, duration_s=self._duration_s))

    async def _check(self, namespace: str, claim: _NamespaceClaim) -> None:
        try:
            await self._claim_or_wait(namespace, claim)
        except KubeError as error:
            if error.status not in (FORBIDDEN, NOT_FOUND):
                raise
            claim.other = ""
            if not claim.unclaimed:
                log.warning("namespace not claimed", namespace=namespace, error=str(error))
            claim.unclaimed = True

    async def _claim_or_wait(self, namespace: str, claim: _NamespaceClaim) -> None:
        record, now = await claim.stored.read(), self._clock.monotonic_s()
        claim.observed = observe(claim.observed, record, now=now)
        timings = LeaseTimings(lease_duration_s=self._duration_s)
        decision = decide(claim.observed, identity=self._identity, deadline_s=None, now=now, timings=timings)
        before, holder = claim.other, "" if claim.observed is None else claim.observed.record.holder
        if not isinstance(decision, Acquire):
            claim.other = holder
        elif await claim.stored.write(record, holder=self._identity, transitions=decision.transitions):
            claim.other = ""
        else:  # another one wrote at this moment
            raise KubeError(409, "Conflict", f"Lease {CLAIM} in namespace {namespace} has just changed")
        if claim.other != before:
            log.warning("operator of the namespace", namespace=namespace, operator=claim.other or "this one")


class ManagedElsewhere(Exception):  # noqa: N818 - no error: it is another operator's
    """Another operator manages the object."""

    def __init__(self, operator: str, document: Document) -> None:
        super().__init__(f"it is managed by {operator}")
        self.operator = operator
        self.document = document


class ClaimedObjects:
    """Reads objects; the claim of their namespace is made or renewed by that."""

    def __init__(self, kube: Kube, claims: NamespaceClaims) -> None:
        self._kube = kube
        self._claims = claims

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """None: it does not exist. Raises `KubeError` and `ManagedElsewhere`."""
        document = await self._kube.get(kind, namespace, name)
        if document is not None and (operator := await self._claims.other(namespace)):
            raise ManagedElsewhere(operator, document)
        return document
