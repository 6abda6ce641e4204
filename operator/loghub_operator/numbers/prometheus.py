"""``/metrics``: the board and the meters as Prometheus reads them.

What for: one table of names, and the text. What it must not know: HTTP. Read next:
`loghub_operator.numbers.meters` (the counters), `loghub_operator.numbers.board`.

Series of a group have the labels ``namespace`` and ``name`` of its LogHubConsumerGroup. What is
not known has no series at that time; a group whose rounds fail loses all but
``loghub_operator_group_observed_timestamp_seconds``. The number of series is bounded by that of
groups; those of single shards by `LOGHUB_SHARD_SERIES` over all groups.
"""

from collections import Counter as Tally
from collections.abc import Callable, Iterable, Iterator
from typing import get_args

from prometheus_client import CollectorRegistry
from prometheus_client.core import GaugeMetricFamily
from prometheus_client.exposition import CONTENT_TYPE_PLAIN_0_0_4, generate_latest
from prometheus_client.registry import Collector

from loghub_operator.api.status import ShardStateText
from loghub_operator.numbers.board import Board, Posted
from loghub_operator.numbers.meters import Meters
from loghub_operator.scaling.readings import GroupReadings, ShardReadings

CONTENT_TYPE = CONTENT_TYPE_PLAIN_0_0_4
_GROUP = "loghub_operator_group_"
_LABELS = ["namespace", "name"]
_STATES: tuple[str, ...] = get_args(ShardStateText)
Value = Callable[[GroupReadings], float | int | None]

# One series a group each.
_PLAIN: tuple[tuple[str, str, Value], ...] = (
    ("lag_seconds", "Age of the oldest log not yet checkpointed.", lambda of: of.lag_seconds),
    ("lag_log_groups", "Log groups not yet checkpointed.", lambda of: of.lag_groups),
    ("lag_logs", "Logs not yet checkpointed, where the endpoint can say.", lambda of: of.lag_logs),
    ("arrival_log_groups_per_second", "Log groups written.", lambda of: of.arrival_per_s),
    ("consumed_log_groups_per_second", "Log groups checkpointed.", lambda of: of.consumed_per_s),
    ("worker_log_groups_per_second", "Log groups that one worker consumes.", lambda of: of.worker_per_s),
    ("assignable_shards", "Shards that a worker can hold.", lambda of: of.assignable),
    ("paused", "1 while suspended or repositioning.", lambda of: int(of.paused)),
)
# Kinds of one family.
_WORKERS: tuple[tuple[str, Value], ...] = (
    ("wanted", lambda of: of.wanted),
    ("recommended", lambda of: of.recommended),
    ("applied", lambda of: of.applied),
    ("ready", lambda of: of.ready),
)


class BoardCollector(Collector):
    """The board's series, made when asked for."""

    def __init__(self, board: Board, *, shard_series: int) -> None:
        self._board = board
        self._shard_series = shard_series

    def collect(self) -> Iterator[GaugeMetricFamily]:
        """All families; those without a series too, so that their names can be found."""
        posted = self._board.posted()
        yield GaugeMetricFamily("loghub_operator_groups", "Groups that are looked after.", len(posted))
        yield _observed(posted)
        fresh = [one for one in posted if one.fresh]
        yield from (_plain(*row, fresh) for row in _PLAIN)
        yield _workers(fresh)
        yield _shards(fresh)
        yield _conditions(fresh)
        yield from _each_shard(fresh, most=self._shard_series)


def _observed(posted: Iterable[Posted]) -> GaugeMetricFamily:
    words = "When the group was looked at last."
    family = GaugeMetricFamily(f"{_GROUP}observed_timestamp_seconds", words, labels=_LABELS)
    for one in posted:
        family.add_metric(_names(one.readings), one.readings.at_unix_s)
    return family


def _plain(name: str, words: str, value: Value, fresh: Iterable[Posted]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_GROUP}{name}", words, labels=_LABELS)
    for one in fresh:
        _add(family, _names(one.readings), value(one.readings))
    return family


def _workers(fresh: Iterable[Posted]) -> GaugeMetricFamily:
    words = "Workers: wanted by the formula, recommended within bounds, applied, ready."
    family = GaugeMetricFamily(f"{_GROUP}workers", words, labels=[*_LABELS, "kind"])
    for one in fresh:
        for kind, value in _WORKERS:
            _add(family, [*_names(one.readings), kind], value(one.readings))
    return family


def _shards(fresh: Iterable[Posted]) -> GaugeMetricFamily:
    family = GaugeMetricFamily(f"{_GROUP}shards", "Shards in this state.", labels=[*_LABELS, "state"])
    for one in fresh:
        tally = Tally(shard.state for shard in one.readings.shards)
        for state in _STATES:
            _add(family, [*_names(one.readings), state], tally[state])  # type: ignore[index]
    return family


def _conditions(fresh: Iterable[Posted]) -> GaugeMetricFamily:
    words = "1: the condition is True, 0: False; no series while it is Unknown."
    family = GaugeMetricFamily(f"{_GROUP}condition", words, labels=[*_LABELS, "type"])
    for one in fresh:
        for condition in one.conditions:
            value = {"True": 1, "False": 0}.get(condition.status)
            _add(family, [*_names(one.readings), condition.type], value)
    return family


def _each_shard(fresh: Iterable[Posted], *, most: int) -> Iterator[GaugeMetricFamily]:
    """Whole groups, in order, as long as there is room: a series must not come and go by chance."""
    labels = [*_LABELS, "shard"]
    lag = GaugeMetricFamily("loghub_operator_shard_lag_seconds", "As of the group.", labels=labels)
    hot = GaugeMetricFamily("loghub_operator_shard_hot", "1: more workers cannot help it.", labels=labels)
    left_out, room = 0, most
    for one in fresh:
        shards = one.readings.shards
        if len(shards) > room:
            left_out += len(shards)
            continue
        room -= len(shards)
        for shard in shards:
            _add_shard(lag, hot, _names(one.readings), shard)
    yield lag
    yield hot
    words = "Shards without series of their own, see LOGHUB_SHARD_SERIES."
    yield GaugeMetricFamily("loghub_operator_shards_left_out", words, left_out)


def _add_shard(
    lag: GaugeMetricFamily, hot: GaugeMetricFamily, names: list[str], shard: ShardReadings
) -> None:
    labels = [*names, str(shard.shard)]
    _add(lag, labels, shard.lag_seconds)
    _add(hot, labels, int(shard.hot))


def _names(readings: GroupReadings) -> list[str]:
    return [readings.namespace, readings.name]


def _add(family: GaugeMetricFamily, labels: list[str], value: float | int | None) -> None:
    if value is not None:
        family.add_metric(labels, value)


class Exposition:
    """The whole text."""

    def __init__(self, meters: Meters, board: Board, *, shard_series: int) -> None:
        self._registries = (meters.registry, CollectorRegistry())
        self._registries[1].register(BoardCollector(board, shard_series=shard_series))

    def text(self) -> bytes:
        """Some tenths of a second for thousands of series, so better not in the loop."""
        return b"".join(generate_latest(registry) for registry in self._registries)
