"""The lag of all Kafka groups in logs, for metrics: computed now and then, and only where something moved."""

from collections import Counter
from collections.abc import Iterable
from dataclasses import dataclass

from loghub.kafka.coordinator.group import TopicPartition
from loghub.service.api.kafka_groups import lag_logs
from loghub.service.engine import Engine

LAG_INTERVAL_S = 15.0
MOST_GROUP_LAGS = 1000  # that are reported one by one: clients choose the names, and how many there are
_Place = tuple[TopicPartition, int, int]  # and the committed offset, and the end of the log


@dataclass(frozen=True, slots=True, kw_only=True)
class LogstoreLag:
    """The logs after the committed offsets of one group at one logstore, of all its shards together."""

    project: str
    group: str
    logstore: str
    logs: int


class GroupLag:
    """``total`` is None until `refresh` has come to its end for the first time. ``largest`` has at most
    `MOST_GROUP_LAGS`; the total includes those that are ``left_out``."""

    def __init__(self, engine: Engine) -> None:
        self.total: int | None = None
        self.largest: tuple[LogstoreLag, ...] = ()
        self.left_out = 0
        self._engine = engine
        self._known: dict[_Place, int] = {}

    async def refresh(self) -> None:
        """Call it periodically. Reads one record of the log for each offset or end that has moved."""
        engine = self._engine
        committed = [
            (project, group.group_id, place, saved.offset)
            for project in tuple(engine.catalog.projects)
            for _, group in engine.kafka_groups.of(project)
            for place, saved in group.offsets.items()
        ]
        found: dict[_Place, int] = {}
        sums: Counter[tuple[str, str, int]] = Counter()
        for project, group_id, place, offset in committed:
            log = engine.logs.get((place.logstore, place.shard))
            if log is None:
                continue
            key = (place, offset, log.extent.end_cursor)
            if key not in found:
                known = self._known.get(key)
                found[key] = await lag_logs(engine, place, offset) if known is None else known
            sums[project, group_id, place.logstore] += found[key]
        stores = engine.catalog.logstores_by_id
        lags = [
            LogstoreLag(project=project, group=group_id, logstore=stores[store].saved.name, logs=logs)
            for (project, group_id, store), logs in sums.items()
            if store in stores
        ]
        self._known, self.total = found, sum(lag.logs for lag in lags)
        self.largest = largest_of_each_project(lags)
        self.left_out = len(lags) - len(self.largest)


def largest_of_each_project(
    lags: Iterable[LogstoreLag], most: int = MOST_GROUP_LAGS
) -> tuple[LogstoreLag, ...]:
    """The largest of each project, then the second largest of each and so on, so that a project with many
    groups leaves out its own first."""
    ranks: Counter[str] = Counter()
    ranked = []
    for lag in sorted(lags, key=lambda lag: (-lag.logs, lag.project, lag.group, lag.logstore)):
        ranked.append((ranks[lag.project], lag))
        ranks[lag.project] += 1
    ranked.sort(key=lambda one: one[0])  # keeps the order of equal ranks
    return tuple(lag for _, lag in ranked[:most])
