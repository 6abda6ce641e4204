"""The latest metrics of each group, for as long as they are fresh, and the interface by which reconciles
report.

Reconciles update the metrics; Prometheus, KEDA and the external metrics API read them. Each existing group
has one entry, removed with the group. A group that exists and was not reconciled yet, as after a change of
the leader, is unknown too: the sum over the reconciled groups would be too small. An entry older than
`fresh_s` counts as unknown: nothing must scale on an outdated value. All methods are called in the event
loop, except `snapshot`, which is thread-safe.

A `MetricsReporter` gets what each reconcile observed and how it ended. It ignores everything;
`loghub_operator.controller.exporters` has the implementation that updates the metrics.
"""

import asyncio
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass

from loghub.clock import Clock
from loghub_operator.api.status import Condition
from loghub_operator.model.group_metrics import GroupMetrics


class MetricsReporter:
    """Ignores every report."""

    def observed(self, metrics: GroupMetrics, conditions: tuple[Condition, ...]) -> None:
        """A reconcile observed this."""

    def unobserved(self, namespace: str, name: str, conditions: tuple[Condition, ...]) -> None:
        """A reconcile could not observe the group, and reported these conditions instead, if any."""

    def deleted(self, namespace: str, name: str) -> None:
        """The group is deleted or being deleted."""

    def managed_elsewhere(self, namespace: str, name: str, operator: str) -> None:
        """Another operator manages the group."""

    def group_left_behind(self) -> None:
        """A consumer group was left at its log service although it should be deleted, or its object moved to
        another endpoint.
        """

    def reconciled(self, result: str, seconds: float) -> None:
        """A reconcile ended with ``success``, ``error`` or ``panic``."""


# A value may miss two resyncs before nothing may scale on it; with short resyncs, as many as a minute has.
MIN_FRESH_S = 60.0
RESYNCS = 3
NamespacedName = tuple[str, str]  # namespace, name
# The names of the groups of a namespace; None: they have not been listed yet.
Existing = Callable[[str], frozenset[str] | None]


class UnknownGroupError(LookupError):
    """The group does not exist."""


class UnknownValueError(LookupError):
    """The value is currently unknown; the message says why. It must never be reported as 0."""


@dataclass(frozen=True, slots=True)
class StoredMetrics:
    """The result of one reconcile. ``readings`` is None if the group could not be observed.
    ``observed_at_unix_s`` is the time of the last observation, or of the first attempt. ``fresh`` is False
    once all of it is outdated.
    """

    name: NamespacedName
    readings: GroupMetrics | None
    conditions: tuple[Condition, ...]
    observed_at_unix_s: float
    fresh: bool = True


@dataclass(frozen=True, slots=True)
class _StoredMetrics:
    readings: GroupMetrics | None
    conditions: tuple[Condition, ...]
    observed_at_unix_s: float
    since_s: float


def fresh_s(resync_s: float) -> float:
    """How many seconds an entry is fresh, which allows for several failed reconciles."""
    return max(RESYNCS * resync_s, MIN_FRESH_S)


class MetricsStore:
    """The latest metrics of all groups."""

    def __init__(self, clock: Clock, *, fresh_s: float) -> None:
        self._clock = clock
        self._fresh_s = fresh_s
        self._existing: Existing = lambda _: frozenset()
        self._entries: dict[NamespacedName, _StoredMetrics] = {}
        self._elsewhere: dict[NamespacedName, str] = {}
        self._listeners: dict[NamespacedName, set[asyncio.Event]] = {}

    def follow(self, existing: Existing) -> None:
        """From now on the groups that exist are known from there."""
        self._existing = existing

    def update(self, readings: GroupMetrics, conditions: tuple[Condition, ...]) -> None:
        """Replace a group's metrics and conditions with the result of the latest reconcile."""
        name = (readings.namespace, readings.name)
        self._elsewhere.pop(name, None)
        self._entries[name] = _StoredMetrics(
            readings, conditions, readings.at_unix_s, self._clock.monotonic_s()
        )
        self._notify(name)

    def update_unobserved(self, namespace: str, name: str, conditions: tuple[Condition, ...]) -> None:
        """Record a group that could not be observed, and the conditions that say so. Without conditions, as
        for a request that failed, what was observed before stays and becomes outdated.
        """
        stored = self._entries.get((namespace, name))
        self._elsewhere.pop((namespace, name), None)
        if stored is not None and not conditions:
            return
        observed_at = self._clock.unix_s() if stored is None else stored.observed_at_unix_s
        entry = _StoredMetrics(None, conditions, observed_at, self._clock.monotonic_s())
        self._entries[namespace, name] = entry
        self._notify((namespace, name))

    def update_elsewhere(self, namespace: str, name: str, operator: str) -> None:
        """Record that another operator manages a group, which therefore has no metrics here."""
        self.remove(namespace, name)
        self._elsewhere[namespace, name] = operator

    def elsewhere(self) -> dict[NamespacedName, str]:
        """The groups that other operators manage, and which ones."""
        return self._elsewhere.copy()

    def remove(self, namespace: str, name: str) -> None:
        """Remove a group that no longer exists."""
        self._entries.pop((namespace, name), None)
        self._elsewhere.pop((namespace, name), None)
        self._notify((namespace, name))

    def read(self, namespace: str, name: str) -> GroupMetrics:
        """A group's metrics, if they are fresh. Raises `UnknownGroupError`, `UnknownValueError`."""
        entry = self._entries.get((namespace, name))
        if entry is None:
            if operator := self._elsewhere.get((namespace, name)):
                raise UnknownValueError(
                    f"operator {operator} manages {namespace}/{name}, and has its metrics"
                )
            if name in self.names(namespace):
                raise UnknownValueError(
                    f"{namespace}/{name} has not been reconciled yet; the operator started"
                )
            raise UnknownGroupError(f"no LogHubConsumerGroup {name} in namespace {namespace}")
        if entry.readings is None:
            raise UnknownValueError(f"{namespace}/{name} could not be observed; see its conditions")
        if not self._fresh(entry):
            raise UnknownValueError(f"{namespace}/{name} has not been reconciled recently")
        return entry.readings

    def names(self, namespace: str) -> tuple[str, ...]:
        """The groups of a namespace, sorted. Raises `UnknownValueError` if they have not been listed yet."""
        existing = self._existing(namespace)
        if existing is None:
            raise UnknownValueError("the operator has just started and has not listed the groups yet")
        return tuple(sorted(existing | {name for space, name in tuple(self._entries) if space == namespace}))

    def snapshot(self) -> tuple[StoredMetrics, ...]:
        """All entries, sorted by namespace and name."""
        entries = sorted(self._entries.copy().items())
        return tuple(
            StoredMetrics(
                name, entry.readings, entry.conditions, entry.observed_at_unix_s, self._fresh(entry)
            )
            for name, entry in entries
        )

    @contextmanager
    def listening(self, namespace: str, name: str) -> Iterator[asyncio.Event]:
        """An event that is set at each update of this group and at its removal; the listener clears it."""
        event, key = asyncio.Event(), (namespace, name)
        self._listeners.setdefault(key, set()).add(event)
        try:
            yield event
        finally:
            self._listeners[key].discard(event)
            if not self._listeners[key]:
                del self._listeners[key]

    def _fresh(self, entry: _StoredMetrics) -> bool:
        return self._clock.monotonic_s() - entry.since_s <= self._fresh_s

    def _notify(self, name: NamespacedName) -> None:
        for event in self._listeners.get(name, ()):
            event.set()
