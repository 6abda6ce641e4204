"""The Spark data source of a worker, ``loghub-worker``: shards of a logstore as a stream of rows.

Only the worker loads it; `loghub_spark` is the one for other programs. The positions file of
`loghub_worker.exchange_files`, which the membership writes, determines which shards are read and from where,
so shards may be added, removed and added again while the query runs.

An "offset" of Spark is a whole plan (`loghub_worker.batch_plan.BatchPlan.to_json`). It contains the begin and
the end of the batch's own ranges, so nothing has to be derived from two offsets. A plan begins where the
positions file says, and the driver advances a position only when the sink has the previous batch."""

import json
from collections.abc import Iterator, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import pyarrow as pa
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from loghub.clock import SystemClock
from loghub_worker.batch_plan import EMPTY_PLAN, BatchLimits, BatchPlan, Range, due_retries, next_plan, pack
from loghub_worker.exchange_files import ExchangeFiles, Report
from loghub_worker.log_service import Address, shared_client, shared_shard_keys
from loghub_worker.sink.logstore import FORMAT, LogstoreArrowWriter, WriteOptions
from loghub_worker.sink.sinks import COPIED_LOGS
from loghub_worker.source.arrow_decoder import SCHEMA
from loghub_worker.source.end_cursors import EndWatch
from loghub_worker.source.log_group_copier import LogGroupCopier
from loghub_worker.source.shard_reader import RangeCounts, read_range

# What a source that copies yields for each range: the number of logs in the log groups that it copied.
COPIED = pa.schema([pa.field(COPIED_LOGS, pa.int64())])


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
    copy_to: str = ""  # project/logstore to which log groups are copied in place of being yielded as rows

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


class LogHubDataSource(DataSource):
    """Registered once per session; Spark passes it to its other processes by name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        settings = json.loads(self.options.get("settings", "{}"))
        return from_arrow_schema(COPIED if settings.get("copy_to") else SCHEMA)

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
        positions, now = exchange.positions(), SystemClock().monotonic_s()
        ends = self._watch().ends(positions.shards, now=now)
        self._report(exchange, version=positions.version)
        last = BatchPlan.from_json(start)
        plan = next_plan(
            last,
            positions=positions.shards,
            ends=ends,
            sizes=positions.group_bytes,
            limits=self.options.limits,
            retries=due_retries(exchange.retries().shards, positions.shards, now=now),
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
        report = Report(
            version=version,
            ends=watch.known,
            reason=error.reason,
            message=error.message,
            beyond_end=watch.beyond_end,
        )
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
        if self.options.copy_to:
            yield self._copy(partition, exchange)
            return
        for shard_range in partition.ranges:
            counts = RangeCounts()
            yield from read_range(client, self.options.logstore, shard_range, counts)
            exchange.write_count(counts.count(), plan=partition.plan, shard=shard_range.shard)

    def _copy(self, partition: RangePartition, exchange: ExchangeFiles) -> pa.RecordBatch:
        options = self.options
        project, _, logstore = options.copy_to.partition("/")
        copier = LogGroupCopier(
            shared_client(options.address),
            options.logstore,
            target=shared_client(replace(options.address, project=project)),
            target_logstore=logstore,
            begin_key=shared_shard_keys(options.address, options.logstore).begin_key,
        )
        counts = copier.copy_all(partition.ranges)
        for shard_range, count in counts.items():
            exchange.write_count(count, plan=partition.plan, shard=shard_range.shard)
        return pa.RecordBatch.from_pydict(
            {COPIED_LOGS: [count.logs for count in counts.values()]}, schema=COPIED
        )
