"""The lag of all Kafka groups in logs, for metrics: computed now and then, and only where something moved."""

from loghub.kafka.coordinator.group import TopicPartition
from loghub.service.api.kafka_groups import lag_logs
from loghub.service.engine import Engine

LAG_INTERVAL_S = 15.0
_Place = tuple[TopicPartition, int, int]  # and the committed offset, and the end of the log


class GroupLag:
    """``total`` is None until `refresh` has come to its end for the first time."""

    def __init__(self, engine: Engine) -> None:
        self.total: int | None = None
        self._engine = engine
        self._known: dict[_Place, int] = {}

    async def refresh(self) -> None:
        """Call it periodically. Reads one record of the log for each offset or end that has moved."""
        engine = self._engine
        committed = [
            (place, saved.offset)
            for project in tuple(engine.catalog.projects)
            for _, group in engine.kafka_groups.of(project)
            for place, saved in group.offsets.items()
        ]
        found: dict[_Place, int] = {}
        total = 0
        for place, offset in committed:
            log = engine.logs.get((place.logstore, place.shard))
            if log is None:
                continue
            key = (place, offset, log.extent.end_cursor)
            if key not in found:
                known = self._known.get(key)
                found[key] = await lag_logs(engine, place, offset) if known is None else known
            total += found[key]
        self._known, self.total = found, total
