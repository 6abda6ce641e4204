"""The Spark data source ``loghub``: shards of a logstore as a stream of rows.

Spark loads it with ``spark.readStream.format("loghub")``. The positions file of
`loghub_worker.exchange_files`, which the membership writes, determines which shards are read and from where,
so shards may be added, removed and added again while the query runs.

An "offset" of Spark is a whole plan (`loghub_worker.batch_plan.BatchPlan.to_json`). It contains the begin and
the end of the batch's own ranges, so nothing has to be derived from two offsets. A plan begins where the
positions file says, and the driver advances a position only when the sink has the previous batch."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pyarrow as pa
import pyarrow.compute as pc
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from loghub.client.port import LogHub
from loghub.clock import SystemClock
from loghub_worker.batch_plan import EMPTY_PLAN, BatchLimits, BatchPlan, Range, next_plan, pack
from loghub_worker.exchange_files import ExchangeFiles, ReadCount, Report
from loghub_worker.log_service import Address, decode_cursor, encode_cursor, shared_client
from loghub_worker.sink.logstore import FORMAT, LogstoreArrowWriter, WriteOptions
from loghub_worker.source.arrow_decoder import SCHEMA, decode
from loghub_worker.source.end_cursors import EndWatch

PULL_LOG_GROUPS = 1000  # the most that one PullLogs may request (docs/sls-protocol.md 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The settings of the data source, which are passed as the one option ``settings``."""

    endpoint: str
    project: str
    logstore: str
    credentials_dir: str
    exchange_dir: str
    fetch_interval_s: float
    max_log_groups: int
    max_bytes: int
    cores: int

    @property
    def address(self) -> Address:
        return Address(endpoint=self.endpoint, project=self.project, credentials_dir=self.credentials_dir)

    @property
    def limits(self) -> BatchLimits:
        return BatchLimits(log_groups=self.max_log_groups, bytes=self.max_bytes)

    def to_option(self) -> str:
        """All settings as the value of the option ``settings``."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @staticmethod
    def from_option(value: str) -> "SourceOptions":
        return SourceOptions(**json.loads(value))


class ShortReadError(Exception):
    """The service returned fewer log groups than its own end cursor promised."""


class LogHubDataSource(DataSource):
    """Registered once per session; Spark passes it to its other processes by name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    # Spark passes the schema under exactly this name.
    def streamReader(self, schema: StructType) -> "LogHubStreamReader":  # noqa: ARG002, N802
        return LogHubStreamReader(SourceOptions.from_option(self.options["settings"]))

    def writer(self, schema: StructType, overwrite: bool) -> LogstoreArrowWriter:  # noqa: ARG002
        return LogstoreArrowWriter(WriteOptions.from_option(self.options["settings"]))


@dataclass
class RangePartition(InputPartition):
    """What one task reads."""

    plan: int
    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        super().__init__(self.plan)


class LogHubStreamReader(DataSourceStreamReader):
    """Planning runs in one process for the life of a query, reading in many, each on a copy of this
    object."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._ends: EndWatch | None = None
        self._reported: Report | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return EMPTY_PLAN.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The next plan, or `start` unchanged if there is nothing to read. Sends requests to the service only
        as often as the fetch interval allows, whatever Spark's trigger does."""
        exchange = ExchangeFiles(Path(self.options.exchange_dir))
        positions = exchange.positions()
        ends = self._watch().ends(positions.shards, now=SystemClock().monotonic_s())
        self._report(exchange, version=positions.version)
        last = BatchPlan.from_json(start)
        plan = next_plan(
            last,
            positions=positions.shards,
            ends=ends,
            sizes=positions.group_bytes,
            limits=self.options.limits,
        )
        return start if plan is last else plan.to_json()

    def _watch(self) -> EndWatch:
        if self._ends is None:
            self._ends = EndWatch(
                shared_client(self.options.address),
                logstore=self.options.logstore,
                interval_s=self.options.fetch_interval_s,
            )
        return self._ends

    def _report(self, exchange: ExchangeFiles, *, version: int) -> None:
        watch = self._watch()
        error = watch.error
        report = Report(version=version, ends=watch.known, reason=error.reason, message=error.message)
        if report != self._reported:
            exchange.write_report(report)
            self._reported = report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        plan = BatchPlan.from_json(end)
        return [RangePartition(plan.number, ranges) for ranges in pack(plan.ranges, bins=self.options.cores)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, RangePartition)
        exchange = ExchangeFiles(Path(self.options.exchange_dir))
        client = shared_client(self.options.address)
        for shard_range in partition.ranges:
            counts = RangeCounts()
            yield from read_range(client, self.options.logstore, shard_range, counts)
            exchange.write_count(counts.count(), plan=partition.plan, shard=shard_range.shard)


class RangeCounts:
    """Counts of one range while it is read."""

    def __init__(self) -> None:
        self.logs = self.bytes = self.replaced = self.missing = self.oldest = 0

    def count(self) -> ReadCount:
        return ReadCount(
            logs=self.logs,
            bytes=self.bytes,
            replaced=self.replaced,
            missing=self.missing,
            oldest=self.oldest,
        )


def read_range(
    client: LogHub, logstore: str, shard_range: Range, counts: RangeCounts
) -> Iterator[pa.RecordBatch]:
    """The rows of one range, one record batch per answer. Each iteration advances the cursor.

    Expired log groups are skipped and counted: the service then answers with the oldest that it has
    (docs/sls-protocol.md 7.8), and the groups of an answer are numbered backwards from its next cursor.
    """
    cursor = shard_range.begin
    while cursor < shard_range.end:
        pulled = client.pull_logs(
            logstore,
            shard_range.shard,
            cursor=encode_cursor(cursor),
            count=min(PULL_LOG_GROUPS, shard_range.end - cursor),
            end_cursor=encode_cursor(shard_range.end),
        )
        after = decode_cursor(pulled.next_cursor) if pulled.next_cursor else cursor
        if after <= cursor:
            raise ShortReadError(
                f"shard {shard_range.shard} returned nothing at cursor {cursor},"
                f" before its end cursor {shard_range.end}"
            )
        first = max(cursor, after - pulled.count)
        counts.missing += min(first, shard_range.end) - cursor
        counts.oldest = after if not pulled.count and after > shard_range.end else 0
        if pulled.count:
            yield _rows_before(shard_range, pulled.body, first_cursor=first, counts=counts)
        cursor = after


def _rows_before(
    shard_range: Range, body: bytes, *, first_cursor: int, counts: RangeCounts
) -> pa.RecordBatch:
    decoded = decode(body, shard=shard_range.shard, first_cursor=first_cursor)
    rows = decoded.rows.filter(pc.less(decoded.rows.column("__cursor__"), shard_range.end))
    counts.logs += rows.num_rows
    counts.bytes += len(body)
    counts.replaced += decoded.replaced
    return rows
