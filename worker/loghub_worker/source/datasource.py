"""The Spark data source ``loghub``: shards of a logstore as a stream of rows.

What for: ``spark.readStream.format("loghub")``. Which shards are read and from where is told by
the positions file of `loghub_worker.exchange_files`, which the membership writes; so a shard may come,
go and come back while the query runs. What it must not know: heartbeats, sinks.
Read next: `loghub_worker.batch_plan`, `loghub_worker.source.arrow_decoder`.

An "offset" of Spark is a whole plan (`loghub_worker.batch_plan.Plan.to_json`): it names the batch's own
ranges, begin and end, so nothing has to be worked out from two of them. A plan begins where the positions
file says, which the driver moves only when the sink has the batch before."""

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
from loghub_worker.batch_plan import NOTHING, Bounds, Plan, Range, next_plan, pack
from loghub_worker.exchange_files import Count, Handover, Report
from loghub_worker.log_service import Address, decode_cursor, encode_cursor, shared
from loghub_worker.sink.logstore import FORMAT, LogstoreArrowWriter, WriteOptions
from loghub_worker.source.arrow_decoder import SCHEMA, decode
from loghub_worker.source.end_cursors import EndWatch

PULL_LOG_GROUPS = 1000  # the most that one PullLogs may ask for (docs/sls-protocol.md 5)


@dataclass(frozen=True, slots=True, kw_only=True)
class Options:
    """The options of the data source, by their names in ``.option(name, value)``."""

    endpoint: str
    project: str
    logstore: str
    credentials_dir: str
    handover: str  # folder of the files
    fetch_interval_s: float
    max_log_groups: int
    max_bytes: int
    cores: int

    @property
    def address(self) -> Address:
        return Address(endpoint=self.endpoint, project=self.project, credentials_dir=self.credentials_dir)

    @property
    def bounds(self) -> Bounds:
        return Bounds(log_groups=self.max_log_groups, bytes=self.max_bytes)

    def to_option(self) -> str:
        """All of them as the one option ``settings``."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @staticmethod
    def from_option(value: str) -> "Options":
        return Options(**json.loads(value))


class ShortReadError(Exception):
    """The service gave fewer log groups than its own end cursor had promised."""


class LogHubDataSource(DataSource):
    """Registered once a session; Spark sends it to its other processes by name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        return from_arrow_schema(SCHEMA)

    # Spark hands the schema over by this very name.
    def streamReader(self, schema: StructType) -> "LogHubStreamReader":  # noqa: ARG002, N802
        return LogHubStreamReader(Options.from_option(self.options["settings"]))

    def writer(self, schema: StructType, overwrite: bool) -> LogstoreArrowWriter:  # noqa: ARG002
        return LogstoreArrowWriter(WriteOptions.from_option(self.options["settings"]))


@dataclass
class Piece(InputPartition):
    """What one task reads."""

    plan: int
    ranges: tuple[Range, ...]

    def __post_init__(self) -> None:
        super().__init__(self.plan)


class LogHubStreamReader(DataSourceStreamReader):
    """Planning runs in one process for the life of a query, reading in many, each on a copy of this."""

    def __init__(self, options: Options) -> None:
        self.options = options
        self._ends: EndWatch | None = None
        self._reported: Report | None = None

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return NOTHING.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The next plan, or `start` unchanged when nothing is to be read. Asks the service only as
        often as the fetch interval says, whatever Spark's trigger does."""
        handover = Handover(Path(self.options.handover))
        positions = handover.positions()
        ends = self._watch().ends(positions.shards, now=SystemClock().monotonic_s())
        self._report(handover, version=positions.version)
        last = Plan.from_json(start)
        plan = next_plan(
            last,
            positions=positions.shards,
            ends=ends,
            sizes=positions.group_bytes,
            bounds=self.options.bounds,
        )
        return start if plan is last else plan.to_json()

    def _watch(self) -> EndWatch:
        if self._ends is None:
            self._ends = EndWatch(
                shared(self.options.address),
                logstore=self.options.logstore,
                interval_s=self.options.fetch_interval_s,
            )
        return self._ends

    def _report(self, handover: Handover, *, version: int) -> None:
        watch = self._watch()
        trouble = watch.trouble
        report = Report(version=version, ends=watch.known, reason=trouble.reason, message=trouble.message)
        if report != self._reported:
            handover.write_report(report)
            self._reported = report

    def partitions(self, start: dict[str, Any], end: dict[str, Any]) -> Sequence[InputPartition]:
        if start == end:
            return []
        plan = Plan.from_json(end)
        return [Piece(plan.number, ranges) for ranges in pack(plan.ranges, bins=self.options.cores)]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, Piece)
        handover = Handover(Path(self.options.handover))
        hub = shared(self.options.address)
        for piece in partition.ranges:
            tally = Tally()
            yield from read_range(hub, self.options.logstore, piece, tally)
            handover.write_count(tally.count(), plan=partition.plan, shard=piece.shard)


class Tally:
    """Counts of one range while it is read."""

    def __init__(self) -> None:
        self.logs = self.bytes = self.replaced = self.missing = self.oldest = 0

    def count(self) -> Count:
        return Count(
            logs=self.logs,
            bytes=self.bytes,
            replaced=self.replaced,
            missing=self.missing,
            oldest=self.oldest,
        )


def read_range(hub: LogHub, logstore: str, piece: Range, tally: Tally) -> Iterator[pa.RecordBatch]:
    """Rows of one range, a record batch an answer. Each step of the loop moves the cursor on.

    Groups that have expired are passed over and counted: the service then answers with the
    oldest it has (docs/sls-protocol.md 7.8), and an answer's groups are numbered back from its next cursor.
    """
    cursor = piece.begin
    while cursor < piece.end:
        pulled = hub.pull_logs(
            logstore,
            piece.shard,
            cursor=encode_cursor(cursor),
            count=min(PULL_LOG_GROUPS, piece.end - cursor),
            end_cursor=encode_cursor(piece.end),
        )
        after = decode_cursor(pulled.next_cursor) if pulled.next_cursor else cursor
        if after <= cursor:
            raise ShortReadError(
                f"shard {piece.shard}: nothing at cursor {cursor}, though {piece.end} was the end"
            )
        first = max(cursor, after - pulled.count)
        tally.missing += min(first, piece.end) - cursor
        tally.oldest = after if not pulled.count and after > piece.end else 0
        if pulled.count:
            yield _rows_before(piece, pulled.body, first_cursor=first, tally=tally)
        cursor = after


def _rows_before(piece: Range, body: bytes, *, first_cursor: int, tally: Tally) -> pa.RecordBatch:
    decoded = decode(body, shard=piece.shard, first_cursor=first_cursor)
    rows = decoded.rows.filter(pc.less(decoded.rows.column("__cursor__"), piece.end))
    tally.logs += rows.num_rows
    tally.bytes += len(body)
    tally.replaced += decoded.replaced
    return rows
