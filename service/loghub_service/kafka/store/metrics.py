"""The metrics of the Kafka endpoint for Prometheus, and the lag of all Kafka groups in logs, which is
measured periodically, and only where an offset or an end has moved.

Only the lag of a group has labels with names that clients choose. Their number is bounded, and a series ends
with its group.
"""

import asyncio
from collections import Counter
from collections.abc import Iterable, Mapping, Sequence
from dataclasses import dataclass

from prometheus_client.core import CounterMetricFamily, GaugeMetricFamily, Metric

from loghub_service.connections.client_metrics import ClientMetrics
from loghub_service.connections.listener import HttpConnections
from loghub_service.connections.turns import Pauses
from loghub_service.engine import Engine
from loghub_service.kafka.broker.call import Broker
from loghub_service.kafka.coordinator.group import CommittedOffset, Group, TopicPartition
from loghub_service.kafka.coordinator.states import KafkaGroupState
from loghub_service.kafka.groups import KafkaGroupKey
from loghub_service.kafka.shard_bounds import logs_after
from loghub_service.storage.shardlog import ShardLog

LAG_INTERVAL_S = 15.0  # the usual interval of Prometheus; a shorter one counts logs that no scrape reads
MAX_GROUP_LAGS = 1000  # groups that are reported one by one: clients choose their names and number
_OFFSETS_AT_ONCE = 256  # offsets of one group in one call of a thread
_PAUSE_EVERY = 200  # this many offsets take a millisecond


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreLag:
    """The logs after the committed offsets of one group at one logstore, of all its shards together."""

    project: str
    group: str
    logstore: str
    logs: int


@dataclass(frozen=True, slots=True)
class _Measured:
    """The logs after one offset, measured when its log was as in ``seen``; None if they cannot be counted."""

    offset: int
    seen: "_Seen"
    logs: int | None


@dataclass(frozen=True, slots=True)
class _Seen:
    """A log at one moment: it grows, retention drops its begin, and it may be deleted."""

    log: ShardLog
    oldest_cursor: int
    end_cursor: int

    @classmethod
    def now(cls, log: ShardLog) -> "_Seen":
        return cls(log, log.extent.oldest_cursor, log.extent.end_cursor)


_Logs = Mapping[tuple[int, int], ShardLog]  # by logstore and shard


@dataclass(frozen=True, slots=True)
class _OfGroup:
    """The measurements of a group; ``offsets`` is the table object of the group, which a change replaces by
    another."""

    offsets: Mapping[TopicPartition, CommittedOffset]
    seen: Mapping[tuple[int, int], _Seen]
    places: Mapping[TopicPartition, _Measured]
    sums: Mapping[int, int]  # logstore -> logs, for logstores whose logs can be counted

    def is_current(self, group: Group, logs: _Logs) -> bool:
        return self.offsets is group.offsets and all(
            logs.get(key) is seen.log and _Seen.now(seen.log) == seen for key, seen in self.seen.items()
        )


class GroupLag:
    """The lag of all groups. ``total`` is None until `refresh` has finished for the first time. ``largest``
    has at most `MAX_GROUP_LAGS` lags; the total includes the ones that are ``left_out``. A logstore is
    missing in both if its log is damaged where the group reads."""

    def __init__(self, engine: Engine) -> None:
        self.total: int | None = None
        self.largest: tuple[LogstoreLag, ...] = ()
        self.left_out = 0
        self._engine = engine
        self._known: dict[KafkaGroupKey, _OfGroup] = {}

    async def refresh(self) -> None:
        """Measure the lag; call it periodically. Reads one record of the log for each offset or end that has
        moved. Groups without a movement are passed over, and other requests run meanwhile."""
        groups, pauses = self._engine.kafka_groups, Pauses(_PAUSE_EVERY)
        measured: dict[KafkaGroupKey, _OfGroup] = {}
        for project in tuple(self._engine.catalog.projects):
            for key, group in tuple(groups.of(project)):
                lags_of_group = self._known.get(key)
                if lags_of_group is None or not lags_of_group.is_current(group, self._engine.logs):
                    lags_of_group = await self._measure(group, lags_of_group, pauses)
                measured[key] = lags_of_group
                await pauses.step()
        stores = self._engine.catalog.logstores_by_id
        lags = [
            LogstoreLag(project=key.project, group=key.group_id, logstore=stores[store].saved.name, logs=logs)
            for key, lags_of_group in measured.items()
            for store, logs in lags_of_group.sums.items()
            if store in stores
        ]
        self._known, self.total = measured, sum(lag.logs for lag in lags)
        self.largest = largest_of_each_project(lags)
        self.left_out = len(lags) - len(self.largest)

    async def _measure(self, group: Group, earlier: _OfGroup | None, pauses: Pauses) -> _OfGroup:
        before = {} if earlier is None else earlier.places
        places: dict[TopicPartition, _Measured] = {}
        moved: list[tuple[TopicPartition, _Seen, int]] = []
        logs: dict[tuple[int, int], _Seen] = {}
        for place, saved in group.offsets.items():
            await pauses.step()
            key = (place.logstore, place.shard)
            log = self._engine.logs.get(key)
            if log is None:
                continue
            logs[key] = seen = _Seen.now(log)
            last = before.get(place)
            if last is not None and (last.offset, last.seen) == (saved.offset, seen):
                places[place] = last
            else:
                moved.append((place, seen, saved.offset))
        for begin in range(0, len(moved), _OFFSETS_AT_ONCE):
            some = moved[begin : begin + _OFFSETS_AT_ONCE]
            lags = await asyncio.to_thread(_lags_of, some, self._engine.now_us())
            for (place, seen, offset), lag in zip(some, lags, strict=True):
                places[place] = _Measured(offset, seen, lag)
        return _OfGroup(group.offsets, logs, places, _sums(places))


def _lags_of(moved: Sequence[tuple[TopicPartition, _Seen, int]], now_us: int) -> list[int | None]:
    return [logs_after(seen.log, offset, now_us=now_us) for _, seen, offset in moved]


def _sums(places: Mapping[TopicPartition, _Measured]) -> dict[int, int]:
    sums: Counter[int] = Counter()
    unknown = set()
    for place, measured in places.items():
        if measured.logs is None:
            unknown.add(place.logstore)
        else:
            sums[place.logstore] += measured.logs
    return {logstore: logs for logstore, logs in sums.items() if logstore not in unknown}


def largest_of_each_project(
    lags: Iterable[LogstoreLag], maximum: int = MAX_GROUP_LAGS
) -> tuple[LogstoreLag, ...]:
    """The largest lag of each project, then the second largest of each and so on, so that a project with many
    groups leaves out its own first."""
    ranks: Counter[str] = Counter()
    ranked = []
    for lag in sorted(lags, key=lambda lag: (-lag.logs, lag.project, lag.group, lag.logstore)):
        ranked.append((ranks[lag.project], lag))
        ranks[lag.project] += 1
    ranked.sort(key=lambda ranked_lag: ranked_lag[0])  # keeps the order of equal ranks
    return tuple(lag for _, lag in ranked[:maximum])


_METRICS = ClientMetrics("Kafka", requests="requests", answers="answers")
_PREFIX = _METRICS.prefix


def collect(broker: Broker, connections: HttpConnections) -> Iterable[Metric]:
    counts = broker.counts
    yield from _METRICS.collect(counts, connections, label="api")
    errors = CounterMetricFamily(
        _PREFIX + "errors", "Errors that Kafka clients were answered with.", labels=("api", "error")
    )
    for labels, number in counts.errors.items():
        errors.add_metric(labels, number)
    yield errors
    yield from _METRICS.totals({"fetched_logs": ("Logs that Kafka clients were sent.", counts.fetched_logs)})
    yield GaugeMetricFamily(
        _PREFIX + "producers", "Idempotent producers that are remembered.", value=len(broker.producers)
    )


def collect_groups(engine: Engine, lag: GroupLag) -> Iterable[Metric]:
    """The metrics of all projects together. The lag is left out while it is not known."""
    groups = list(engine.kafka_groups.all())
    states = Counter(group.state.value for group in groups)
    yield _METRICS.by_label(
        "groups",
        "Consumer groups of Kafka clients, by state.",
        {state.value: states[state.value] for state in KafkaGroupState},
        label="state",
    )
    yield GaugeMetricFamily(
        _PREFIX + "members",
        "Members of the consumer groups of Kafka clients.",
        value=sum(len(group.members) for group in groups),
    )
    if lag.total is not None:
        yield from _lag_metrics(lag, lag.total)


def _lag_metrics(lag: GroupLag, total: int) -> Iterable[Metric]:
    yield GaugeMetricFamily(
        _PREFIX + "lag_logs", "Logs after the committed offsets of all groups.", value=total
    )
    by_group = GaugeMetricFamily(
        _PREFIX + "group_lag_logs",
        "Logs after the committed offsets of a group at a logstore; the largest of each project.",
        labels=("project", "group", "logstore"),
    )
    for group_lag in lag.largest:
        by_group.add_metric((group_lag.project, group_lag.group, group_lag.logstore), group_lag.logs)
    yield by_group
    yield GaugeMetricFamily(
        _PREFIX + "group_lags_left_out",
        "Lags of groups at logstores that group_lag_logs does not have, since there are too many.",
        value=lag.left_out,
    )
