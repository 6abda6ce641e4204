"""Computes how fast logs arrive, how fast they are consumed, and what one worker can consume.

Rates are log groups per second, from samples of cursors. Cursors count only as long as they continue from
their earlier values: a recreated logstore, a checkpoint that was reset, or logs removed by retention begin a
new series. A worker's rate is measured only while it is never short of logs: a worker that keeps up consumes
what arrives, which would make any number of workers look too small.
"""

import math
from collections.abc import Callable, Collection, Mapping, Sequence
from dataclasses import dataclass
from itertools import pairwise

from loghub_operator.model.memory import Sample, SampleWindow, ShardMark, WorkerRate

# Cursors move by whole batches: over a shorter span one batch more or less would decide the rate.
MIN_SPAN_S = 5.0
MAX_PER_S = 1e6  # of one shard; a higher rate is a cursor that jumped
WARM_S = 20.0  # of being ready, before a worker's pace means much
# A worker that keeps up has at most two steps left, so it consumes what arrives and shows nothing of what it
# could. A step is what is consumed between two observations.
SATURATED_STEPS = 3
# A rate is known half a minute after a worker is warm, which is soon enough to scale on, and spans several
# batches.
MIN_MEASURE_S = 15.0
# The time in which a change of the rate is followed to two thirds: longer than a slow batch, shorter than the
# stabilization windows.
SMOOTHING_S = 60.0


@dataclass(frozen=True, slots=True)
class Point:
    """One shard at one time."""

    at_unix_s: float
    mark: ShardMark


ShardSeries = tuple[Point, ...]


def series_by_shard(
    samples: Sequence[Sample], shards: Collection[int] | None = None
) -> dict[int, ShardSeries]:
    """The series of each current shard, or of these, from where it first appears in the samples; oldest
    first."""
    if not samples:
        return {}
    if all(one.marks is samples[-1].marks for one in samples):  # idle: two points are enough
        samples = (samples[0], samples[-1])
    by_shard: dict[int, list[Point]] = {
        mark.shard: [] for mark in samples[-1].marks if shards is None or mark.shard in shards
    }
    for sample in samples:
        for mark in sample.marks:
            if mark.shard in by_shard:
                by_shard[mark.shard].append(Point(sample.at_unix_s, mark))
    return {shard: tuple(points) for shard, points in by_shard.items()}


def arrival_per_s(series: ShardSeries) -> float | None:
    """Log groups written; None while unknown."""
    if series and series[-1].mark.read_only:
        return 0.0
    unbroken = _unbroken(series, _written_continues)
    span_s = _span_s(unbroken)
    if span_s < MIN_SPAN_S:
        return None
    first, last = unbroken[0].mark.written, unbroken[-1].mark.written
    return None if first is None or last is None else (last - first) / span_s


def consumed_per_s(series: ShardSeries) -> float | None:
    """Log groups checkpointed, by the times of the checkpoints; None while unknown."""
    unbroken = _unbroken(series, _consumed_continues)
    if _span_s(unbroken) < MIN_SPAN_S or unbroken[-1].mark.consumed is None:
        return None
    return _pace_of(_checkpoints(unbroken), _span_s(unbroken))


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerPace:
    """What one worker consumed while it held the same shards; ``saturated``: it was never short of logs."""

    worker: str
    per_s: float
    saturated: bool


def worker_paces(
    samples: Sequence[Sample], ready_since: Mapping[str, float], pace: SampleWindow
) -> tuple[WorkerPace, ...]:
    """The pace of every warm worker that was observed long enough."""
    holders = sorted({mark.holder for mark in samples[-1].marks if mark.holder}) if samples else []
    paces = (
        _worker_pace(worker, samples, ready_since[worker] + WARM_S, pace)
        for worker in holders
        if worker in ready_since and _has_work(worker, samples[-1])
    )
    return tuple(one for one in paces if one is not None)


def shared_pace(
    samples: Sequence[Sample], warm_from: float, workers: int, pace: SampleWindow
) -> WorkerPace | None:
    """The part that each of the ``workers`` has in what they consume together since ``warm_from``; None while
    that is not known. The samples have one mark each, which is about the whole.
    """
    tail = [sample for sample in samples if sample.at_unix_s >= warm_from]
    if not workers or len(tail) < 3:
        return None
    span_s = tail[-1].at_unix_s - tail[0].at_unix_s
    if span_s < max(MIN_MEASURE_S, 2.0 * pace.cycle_s) or not tail[-1].marks[0].lag:
        return None
    series = tuple(Point(sample.at_unix_s, sample.marks[0]) for sample in tail)
    if len(_unbroken(series, _consumed_continues)) < len(series):
        return None
    per_s = _pace_of(_checkpoints(series), span_s)
    return WorkerPace(worker="", per_s=per_s / workers, saturated=per_s > 0.0 and _saturated([series]))


def smoothed(
    before: WorkerRate | None, paces: Sequence[WorkerPace], *, at_unix_s: float
) -> WorkerRate | None:
    """The rate of one worker after this observation. Saturated workers determine it; the others only show
    that it is not lower.
    """
    full = [one.per_s for one in paces if one.saturated]
    if full:
        return _towards(before, math.fsum(full) / len(full), at_unix_s)
    maximum = max((one.per_s for one in paces), default=0.0)
    if before is not None and maximum > before.per_s:
        return WorkerRate(per_s=maximum, at_unix_s=at_unix_s)
    return before


def _towards(before: WorkerRate | None, new: float, at_unix_s: float) -> WorkerRate:
    if before is None:
        return WorkerRate(per_s=new, at_unix_s=at_unix_s)
    elapsed_s = max(0.0, at_unix_s - before.at_unix_s)
    weight = 1.0 - math.exp(-elapsed_s / SMOOTHING_S)
    return WorkerRate(per_s=before.per_s + weight * (new - before.per_s), at_unix_s=at_unix_s)


def _worker_pace(
    worker: str, samples: Sequence[Sample], warm_from: float, pace: SampleWindow
) -> WorkerPace | None:
    tail = _same_shards(worker, samples, warm_from)
    if len(tail) < 3 or tail[-1].at_unix_s - tail[0].at_unix_s < max(MIN_MEASURE_S, 2.0 * pace.cycle_s):
        return None
    own = list(series_by_shard(tail, _held(worker, tail[-1])).values())
    if any(len(_unbroken(series, _consumed_continues)) < len(series) for series in own):
        return None
    span_s = tail[-1].at_unix_s - tail[0].at_unix_s
    # The first checkpoint may be from before the worker held the shard.
    per_s = math.fsum(_pace_of(_checkpoints(series)[1:], span_s) for series in own)
    return WorkerPace(worker=worker, per_s=per_s, saturated=per_s > 0.0 and _saturated(own))


def _saturated(own: Sequence[ShardSeries]) -> bool:
    """Never short of logs: at each observation, more was left than several steps consume.

    A worker that keeps up has at most two steps left: what arrived during its batch, and what arrived since.
    """
    columns = list(zip(*own, strict=True))  # one column per sample
    steps = [
        sum((new.mark.consumed or 0) - (old.mark.consumed or 0) for old, new in zip(left, right, strict=True))
        for left, right in pairwise(columns)
    ]
    lags = [[point.mark.lag for point in column] for column in columns]
    if any(lag is None for column in lags for lag in column) or sum(step > 0 for step in steps) < 2:
        return False
    minimum = min(sum(lag or 0 for lag in column) for column in lags)
    return minimum >= SATURATED_STEPS * max(steps)


def _same_shards(worker: str, samples: Sequence[Sample], warm_from: float) -> list[Sample]:
    """The latest samples in which the worker held its current shards, and was warm."""
    held, tail = _held(worker, samples[-1]), []
    for sample in reversed(samples):
        if sample.at_unix_s < warm_from or _held(worker, sample) != held:
            break
        tail.append(sample)
    return tail[::-1]


def _has_work(worker: str, sample: Sample) -> bool:
    """The worker holds a shard that has lag, so its pace means something."""
    return any(mark.holder == worker and mark.lag for mark in sample.marks)


def _held(worker: str, sample: Sample) -> frozenset[int]:
    return frozenset(mark.shard for mark in sample.marks if mark.holder == worker)


def _checkpoints(series: ShardSeries) -> list[tuple[float, int]]:
    """Each observed checkpoint once, with its time."""
    checkpoints: list[tuple[float, int]] = []
    for point in series:
        consumed, at = point.mark.consumed, point.mark.consumed_at_unix_s
        if consumed is not None and (not checkpoints or checkpoints[-1][1] != consumed):
            checkpoints.append((point.at_unix_s if at is None else at, consumed))
    return checkpoints


def _pace_of(checkpoints: Sequence[tuple[float, int]], span_s: float) -> float:
    """Between the first and the last checkpoint; over the whole span if their times do not differ."""
    if len(checkpoints) < 2:
        return 0.0
    (begin, first), (end, last) = checkpoints[0], checkpoints[-1]
    elapsed_s = end - begin
    return (last - first) / (elapsed_s if elapsed_s > 0.0 else span_s)


def _span_s(series: ShardSeries) -> float:
    return series[-1].at_unix_s - series[0].at_unix_s if series else 0.0


def _unbroken(series: ShardSeries, continues: Callable[[Point, Point], bool]) -> ShardSeries:
    start = len(series) - 1
    while start > 0 and continues(series[start - 1], series[start]):
        start -= 1
    return series[max(0, start) :]


def _written_continues(old: Point, new: Point) -> bool:
    before, after = old.mark.written, new.mark.written
    if before is None or after is None:
        return False
    return 0 <= after - before <= MAX_PER_S * max(0.0, new.at_unix_s - old.at_unix_s)


def _consumed_continues(old: Point, new: Point) -> bool:
    """A checkpoint that moved over more than there was to consume was set, or skipped logs that no longer
    exist.
    """
    before, after = old.mark.consumed, new.mark.consumed
    if before is None or after is None or not _written_continues(old, new):
        return False
    if old.mark.lag is None:
        return after == before
    came = (new.mark.written or 0) - (old.mark.written or 0)
    return 0 <= after - before <= old.mark.lag + came
