"""Builds and writes Events about a LogHubConsumerGroup, so that what repeats is one object with a count.

An endpoint that comes and goes would otherwise leave an object for each time. The name of an event follows
from what it says, so that this process, and the same pod after a restart, find the stored event and count in
its ``series``; the API server lets nothing else of an event change. Each group may cause as many writes as
with client-go's event recorder: 25 at once, then one in five minutes. What is not written is counted, and is
in the next write of that event.
"""

import hashlib
from collections import OrderedDict
from dataclasses import dataclass, field
from datetime import UTC, datetime

from loghub.clock import Clock
from loghub_operator.api.labels import MANAGER
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup
from loghub_operator.clients.kube import EVENT, Kube, KubeError
from loghub_operator.model import actions
from loghub_operator.model.actions import EmitEvent
from loghub_operator.model.revision import Document

MAX_NOTE_BYTES = 1024  # the limit of the API server


def event_of(
    resource: LogHubConsumerGroup, event: actions.EmitEvent, *, instance: str, unix_s: float
) -> Document:
    """An Event about the CR, without a name; ``instance`` is the name of the operator's pod."""
    name, namespace = resource.metadata.name, resource.metadata.namespace
    regarding = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "namespace": namespace,
        "uid": resource.metadata.uid,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace},
        "eventTime": datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"loghub.dev/{MANAGER}",
        "reportingInstance": instance,
        "action": "Reconcile",
        "reason": event.reason,
        # The API server's limit is in bytes.
        "note": event.message.encode()[:MAX_NOTE_BYTES].decode(errors="ignore"),
        "type": event.type,
        "regarding": regarding,
    }


def series_of(count: int, last: Document) -> Document:
    """The series of an Event that happened so often, and last as the Event ``last`` says."""
    return {"count": count, "lastObservedTime": last["eventTime"]}


BURST = 25  # of one group: client-go's default for one object
REFILL_S = 300.0  # one more in five minutes: client-go's default
MAX_GROUPS = 4096  # client-go's default size of the cache; 500 groups are the largest number that was run
MAX_EVENTS = 64  # of one group: more than there are reasons
CONFLICT = 409  # RFC 9110, section 15.5.10


@dataclass(slots=True)
class _Series:
    """How often an event happened: in what is stored, None if that is not known, and since then."""

    stored: int | None = None
    pending: int = 0


@dataclass(slots=True)
class _Group:
    """What is remembered of one group: a token bucket, and its last events by name."""

    tokens: float = BURST
    at_s: float = 0.0
    events: OrderedDict[str, _Series] = field(default_factory=OrderedDict)


class EventRecorder:
    """Records the events of all groups; ``instance`` is the name of this pod."""

    def __init__(self, *, kube: Kube, clock: Clock, instance: str) -> None:
        self._kube = kube
        self._clock = clock
        self._instance = instance
        self._groups: OrderedDict[str, _Group] = OrderedDict()

    @property
    def remembered(self) -> int:
        """How many events are remembered."""
        return sum(len(group.events) for group in self._groups.values())

    async def record(self, resource: LogHubConsumerGroup, event: EmitEvent) -> None:
        """Counts the event, and writes it if the group's budget allows. Raises `KubeError`."""
        document = event_of(resource, event, instance=self._instance, unix_s=self._clock.unix_s())
        document["metadata"]["name"] = name = _name(resource, document)
        group = self._group(resource.metadata.uid)
        series = group.events.setdefault(name, _Series())
        group.events.move_to_end(name)
        while len(group.events) > MAX_EVENTS:
            group.events.popitem(last=False)
        series.pending += 1
        if not self._take_token(group):
            return
        if series.stored is None:
            await self._create(document, series)
        elif not await self._count(document, series):
            await self._create(document, series)  # it has expired

    def _group(self, uid: str) -> _Group:
        group = self._groups.setdefault(uid, _Group(at_s=self._clock.monotonic_s()))
        self._groups.move_to_end(uid)
        while len(self._groups) > MAX_GROUPS:
            self._groups.popitem(last=False)
        return group

    def _take_token(self, group: _Group) -> bool:
        now = self._clock.monotonic_s()
        group.tokens = min(BURST, group.tokens + (now - group.at_s) / REFILL_S)
        group.at_s = now
        if group.tokens < 1.0:
            return False
        group.tokens -= 1.0
        return True

    async def _create(self, document: Document, series: _Series) -> None:
        series.stored = 0
        repeated = {"series": series_of(series.pending, document)} if series.pending > 1 else {}
        try:
            await self._kube.create({**document, **repeated})
        except KubeError as error:
            series.stored = None
            if error.status != CONFLICT:
                raise
        else:
            series.stored, series.pending = series.pending, 0
            return
        metadata = document["metadata"]
        existing = await self._kube.get(EVENT, metadata["namespace"], metadata["name"])
        if existing is not None:
            series.stored = (existing.get("series") or {}).get("count", 1)
            await self._count(document, series)

    async def _count(self, document: Document, series: _Series) -> bool:
        """Adds what is pending to the stored event; False if it does not exist any more."""
        metadata, count = document["metadata"], (series.stored or 0) + series.pending
        patch = {"series": series_of(count, document)}
        if await self._kube.patch(EVENT, metadata["namespace"], metadata["name"], patch) is None:
            return False
        series.stored, series.pending = count, 0
        return True


def _name(resource: LogHubConsumerGroup, event: Document) -> str:
    """One name for each event about one object by one pod."""
    said = (resource.metadata.uid, *(event[key] for key in ("reportingInstance", "type", "reason", "note")))
    return f"{resource.metadata.name}.{hashlib.sha256(repr(said).encode()).hexdigest()[:16]}"
