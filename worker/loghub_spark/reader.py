"""Reads a logstore: a batch between two bounds, or a stream with Spark's own checkpoint.

Spark calls the planning methods of a stream in one process for the life of the query, and `read` in others,
on a copy of the reader (docs/spark.md 1). So a reader carries only options, and opens what it needs where it
is called.
"""

import logging
import os
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from functools import cached_property
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSourceReader, DataSourceStreamReader, InputPartition
from pyspark.sql.streaming.datasource import (
    ReadAllAvailable,
    ReadLimit,
    ReadMaxRows,
    SupportsTriggerAvailableNow,
)
from pyspark.sql.types import StructType

from loghub.clock import SystemClock
from loghub.wire.cursor import MAX_CURSOR
from loghub_consumer.batch_plan import BatchPlan, Range
from loghub_consumer.reading.shard_reader import ReadCount, Receipts, read_ranges
from loghub_spark.columns import ReadColumns, columns_of
from loghub_spark.connection import client_of, explained
from loghub_spark.offsets import (
    Offset,
    ShardView,
    backlog,
    beyond_end,
    levelled_ends,
    limited,
    new_shards,
    next_offset,
    ranges_between,
    ranges_of,
    split_ranges,
)
from loghub_spark.options import LATEST, Bound, DataLossError, LogstoreError, ReadOptions, Use, read_options
from loghub_spark.shards import LogstoreShards, check_inside

log = logging.getLogger("loghub_spark")

READ_ON = (
    "Set failOnDataLoss to false to go on with what there is, or choose another start (for a stream with a"
    " new checkpointLocation)"
)


@dataclass
class RangePartition(InputPartition):
    """What one task reads; None: nothing, since Spark wants at least one partition."""

    part: Range | None

    def __post_init__(self) -> None:
        super().__init__(None)


@dataclass(frozen=True)
class ReadPlan:
    """The values that a reader carries to the process in which it reads."""

    options: ReadOptions
    columns: ReadColumns

    def shards(self) -> LogstoreShards:
        where = self.options.connection
        return LogstoreShards(client_of(where), where.logstore, only=self.options.shards)

    def partitions(self, ranges: Sequence[Range]) -> list[RangePartition]:
        options = self.options
        if options.in_order:
            return [RangePartition(one) for one in ranges if one.groups > 0]
        cores = os.cpu_count() or 1
        split = split_ranges(ranges, min_partitions=options.min_partitions, cores=cores)
        return [RangePartition(one) for one in split]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        if partition.part is None:
            return
        where = self.options.connection
        with explained(where):
            for rows in read_ranges(
                client_of(where),
                where.logstore,
                (partition.part,),
                counted=self._check,
                selection=self.columns.selection,
            ):
                if rows.num_rows:
                    yield self.columns.convert(rows)

    def _check(self, part: Range, count: ReadCount) -> None:
        """Fail the task, and with it all rows that it has read, or log the loss."""
        if not count.missing:
            return
        lost = _lost(self.options, part, count.missing)
        if self.options.fail_on_data_loss:
            raise DataLossError(f"{lost}. {READ_ON}")
        log.warning("%s", lost)


def plan_of(options: Mapping[str, str], schema: StructType, use: Use) -> ReadPlan:
    """Raises `OptionError`."""
    parsed = read_options(options, use)
    return ReadPlan(parsed, columns_of(schema, fail_fast=parsed.fail_fast))


def _lost(options: ReadOptions, part: Range, missing: int) -> str:
    return (
        f"{missing} log groups of {options.connection.name}, shard"
        f" {part.shard}, from cursor {part.begin} to {part.end}, no longer exist: they expired, or were lost"
    )


class LogHubReader(DataSourceReader):
    """Reads once, between two bounds that are resolved when Spark plans the query."""

    def __init__(self, plan: ReadPlan) -> None:
        self._plan = plan

    def partitions(self) -> Sequence[InputPartition]:
        options = self._plan.options
        with explained(options.connection):
            shards = self._plan.shards()
            views = shards.views()
            ends = {shard: view.end for shard, view in views.items()}
            if options.end != Bound(everywhere=LATEST):
                ends = shards.resolve(options.end, views)
                # A time may be resolved to an end that has moved on since.
                ends = {s: min(end, views[s].end) if options.end.unix_s else end for s, end in ends.items()}
                check_inside(ends, views, "endingOffsets")
            begins = _start(options, shards, views)
        ranges = [Range(shard, begins[shard], ends[shard]) for shard in sorted(ends)]
        return self._plan.partitions(ranges) or [RangePartition(None)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.read(partition)


def _start(options: ReadOptions, shards: LogstoreShards, views: dict[int, ShardView]) -> dict[int, int]:
    """The cursors at which the reading begins."""
    if options.start == Bound(everywhere=LATEST):
        return {shard: view.end for shard, view in views.items()}
    begins = shards.resolve(options.start, views)
    if options.start.by_shard is not None:
        check_inside(begins, views, "startingOffsets")
    return begins


class LogHubStreamReader(DataSourceStreamReader, SupportsTriggerAvailableNow):
    """Reads on and on. The offsets in Spark's checkpoint say where each shard stands."""

    def __init__(self, options: Mapping[str, str], schema: StructType) -> None:
        self._given = (dict(options), schema)
        self._shards: LogstoreShards | None = None
        self._views: dict[int, ShardView] = {}
        self._requested_s: float | None = None
        # For AvailableNow: the shards at the start of the query.
        self._last: dict[int, ShardView] | None = None

    @cached_property
    def _plan(self) -> ReadPlan:
        """Not made by the constructor, whose errors Spark replaces by one of its own (docs/spark.md 1)."""
        options, schema = self._given
        return plan_of(options, schema, Use.STREAM_READ)

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802 - Spark's names, here and below
        options = self._plan.options
        with explained(options.connection):
            views = self._last or self._refreshed()
            cursors = _start(options, self._known_shards(), views)
        return Offset(cursors, logstore=options.connection.name).to_json()

    def prepareForTriggerAvailableNow(self) -> None:  # noqa: N802
        with explained(self._plan.options.connection):
            self._last = self._refreshed()

    def getDefaultReadLimit(self) -> ReadLimit:  # noqa: N802
        """Any limit says that the options apply: Spark knows no other way for more than one of them."""
        limits = self._plan.options.limits
        return ReadMaxRows(limits.log_groups or limits.logs or 1) if limits else ReadAllAvailable()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: N802
        options, here = self._plan.options, self._offset(start)
        with explained(options.connection):
            views = self._up_to_now(here)
            self._check_loss(here, views)
            allowed = backlog(here, views, in_order=options.in_order)
            if options.limits and not isinstance(limit, ReadAllAvailable):
                allowed = self._limited(here, allowed, views)
            begins = self._known_shards().cursors(dict.fromkeys(new_shards(here, views), "begin"))
        end = next_offset(here, views, begins=begins, allowed=allowed)
        return start if end is here else end.to_json()

    def reportLatestOffset(self) -> dict[str, Any] | None:  # noqa: N802
        ends = {shard: view.end for shard, view in self._views.items()}
        return Offset(ends, logstore=self._plan.options.connection.name).to_json()

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        return self._plan.partitions(ranges_between(self._offset(start), self._offset(end)))

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        return self._plan.read(partition)

    def _offset(self, value: dict[str, Any]) -> Offset:
        offset, name = Offset.from_json(value), self._plan.options.connection.name
        if offset.logstore != name:
            raise LogstoreError(
                f"the checkpoint is of the logstore {offset.logstore}, and its cursors mean nothing in {name}"
                "; use another checkpointLocation"
            )
        return offset

    def _known_shards(self) -> LogstoreShards:
        if self._shards is None:
            self._shards = self._plan.shards()
        return self._shards

    def _refreshed(self) -> dict[int, ShardView]:
        self._views = self._known_shards().views()
        self._requested_s = SystemClock().monotonic_s()
        return self._views

    def _up_to_now(self, here: Offset) -> dict[int, ShardView]:
        """The shards, requested no more often than the option says, whatever Spark's trigger does. With
        AvailableNow they end at their ends at the start of the query."""
        now = SystemClock().monotonic_s()
        due = self._requested_s is None or now >= self._requested_s + self._plan.options.fetch_interval_s
        views = self._refreshed() if due or beyond_end(here, self._views) else self._views
        if self._last is None:
            return views
        return {
            shard: replace(view, end=max(view.end, min(here.shards.get(shard, 0), views[shard].end)))
            for shard, view in self._last.items()
            if shard in views
        }

    def _limited(self, here: Offset, there: dict[int, int], views: Mapping[int, ShardView]) -> dict[int, int]:
        """The part of the backlog that the limits allow, and no log group that was received later than the
        log groups that it leaves in another shard, because a query has one watermark."""
        options = self._plan.options
        limits = options.limits
        samples = self._known_shards().samples(here.shards, there) if limits.needs_sizes else {}
        allowed = limited(there, limits, samples)
        if allowed == there:
            return allowed
        # For a shard without room in the batch, the receive time of its next log group must be known.
        plan = BatchPlan(0, ranges_of(here, {shard: allowed.get(shard, 1) for shard in there}))
        level = self._receipts.level(plan, levelled_ends(there, views, in_order=options.in_order))
        left = {part.shard: part.groups for part in level.ranges}
        return left if allowed.keys() == there.keys() else limited(left, limits, samples)

    @cached_property
    def _receipts(self) -> Receipts:
        where = self._plan.options.connection
        return Receipts(client_of(where), logstore=where.logstore)

    def _check_loss(self, here: Offset, views: dict[int, ShardView]) -> None:
        lost = [
            f"shard {shard} was read up to cursor {here.shards[shard]}, but ends at {views[shard].end}"
            for shard in beyond_end(here, views)
        ]
        lost += [
            f"shard {shard} no longer exists, and was read up to cursor {here.shards[shard]} only"
            for shard in sorted(here.shards.keys() - views.keys() - here.finished)
            if here.shards[shard] < self._known_shards().final_ends.get(shard, MAX_CURSOR)
        ]
        if lost and self._plan.options.fail_on_data_loss:
            raise DataLossError(f"the log service has lost logs: {'; '.join(lost)}. {READ_ON}")
        for line in lost:
            log.warning("%s", line)
