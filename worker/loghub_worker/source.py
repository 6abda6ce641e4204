"""The Spark data source of a worker, ``loghub-worker``: shards of a logstore as a stream of rows.

Only the worker loads it; `loghub_spark` is the data source for other programs. The positions file of
`loghub_consumer.exchange_files`, which the membership writes, determines which shards are read and from
where, so shards may be added, removed and added again while the query runs.

An "offset" of Spark is a whole plan (`loghub_consumer.batch_plan.BatchPlan.to_json`). It contains the begin
and the end of the batch's own ranges, so nothing has to be derived from two offsets. A plan begins where the
positions file says, and the driver advances a position only when the sink has the previous batch.

The processes that read share neither memory nor a disk with the driver, so an accumulator of Spark takes
their counts there. A task's counts arrive with the end of the task, and before the end of the action that it
belongs to; the counts of a task that failed, or was not read to its end, never arrive (docs/spark.md 1). An
accumulator costs nothing for a row. Spark passes the reader to its processes by way of others, so the reader
has only the id of the accumulator, and the process that reads makes its own end of it.
"""

import json
import threading
from collections.abc import Iterator, Mapping, Sequence
from dataclasses import dataclass, replace
from pathlib import Path
from typing import Any

import msgspec
import pyarrow as pa
from msgspec import structs
from pyspark.accumulators import Accumulator, AccumulatorParam
from pyspark.sql.datasource import DataSource, DataSourceStreamReader, InputPartition
from pyspark.sql.pandas.types import from_arrow_schema
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.types import StructType

from loghub.client.choice import ClientKind
from loghub.clock import SystemClock
from loghub.wire.errors import LogHubException
from loghub_consumer.batch_plan import (
    EMPTY_PLAN,
    Backlog,
    BatchLimits,
    BatchPlan,
    Range,
    Roll,
    due_retries,
    is_worth_its_files,
    leaves_log_groups,
    next_even_plan,
    next_plan,
    observed,
    pack,
)
from loghub_consumer.exchange_files import ExchangeFiles, Positions, Report
from loghub_consumer.log_service import LogServiceAddress, shared_client, shared_shard_keys
from loghub_consumer.reading.decoding import SCHEMA, Selection, schema_of
from loghub_consumer.reading.end_cursors import EndWatch
from loghub_consumer.reading.shard_reader import ReadCount, Receipts, add_counts, read_ranges
from loghub_worker.sink.logstore.sink import (
    COPIED_LOGS,
    FORMAT,
    LogGroupCopier,
    LogstoreArrowWriter,
    WriteOptions,
)

Counts = dict[Range, ReadCount]


class CountsByRange(AccumulatorParam[Counts]):
    """How Spark joins the counts of two tasks."""

    def zero(self, value: Counts) -> Counts:  # noqa: ARG002
        return {}

    # Spark calls it under exactly this name. The first value stays the object that it is, since the driver
    # clears and reads it meanwhile.
    def addInPlace(self, value1: Counts, value2: Counts) -> Counts:  # noqa: N802
        add_counts(value1, value2)
        return value1


def report_counts(accumulator_id: int, counts: Mapping[Range, ReadCount]) -> None:
    """Send counts to the driver, in a process that runs a task."""
    Accumulator(accumulator_id, {}, CountsByRange()).add(dict(counts))


LOOK_S = 0.05  # how often the positions are read while there is no batch to begin
MAX_WAIT_S = 1.0  # for a batch to begin; then Spark may do its own housekeeping


@dataclass(frozen=True, slots=True, kw_only=True)
class SourceOptions:
    """The settings of the data source, which are passed as the one option ``settings``."""

    endpoint: str
    project: str
    logstore: str
    credentials_dir: str
    exchange_dir: str
    fetch_interval_s: float
    # From the start of a batch to the start of the next one, unless log groups are waiting.
    batch_interval_s: float
    max_log_groups: int
    max_bytes: int
    max_logs: int
    cores: int
    copy_to: str = ""  # project/logstore to which log groups are copied in place of being yielded as rows
    columns: tuple[str, ...] = tuple(SCHEMA.names)  # of the view, in the order of the rows
    keys: tuple[str, ...] = ()  # of the contents, which are columns of their own
    roll_bytes: int | None = None  # the size of files that a batch waits for; None: the interval alone counts
    roll_delay_s: float = 0.0  # how long a log group waits for that at most
    # `SourceWriting.to_text`: the rows of the query are written as files where they are read, and manifests
    # are yielded; empty: rows are yielded.
    writing: str = ""
    token: str = ""  # of this start of the query; a batch's own token begins with it
    levels: bool = False  # whether no shard is read ahead of another (a stateful pipeline)
    client: ClientKind = "http"  # of the log service
    # Id of the accumulator for the counts of what is read; None: nothing is counted.
    counts: int | None = None

    @property
    def address(self) -> LogServiceAddress:
        return LogServiceAddress(
            endpoint=self.endpoint,
            project=self.project,
            credentials_dir=self.credentials_dir,
            client=self.client,
        )

    @property
    def limits(self) -> BatchLimits:
        return BatchLimits(log_groups=self.max_log_groups, bytes=self.max_bytes, logs=self.max_logs)

    @property
    def roll(self) -> Roll | None:
        if self.roll_bytes is None:
            return None
        return Roll(target_bytes=self.roll_bytes, max_delay_s=self.roll_delay_s)

    @property
    def selection(self) -> Selection:
        return Selection(view=self.columns, keys=self.keys)

    def to_option(self) -> str:
        """All settings as the value of the option ``settings``."""
        return json.dumps({name: getattr(self, name) for name in self.__slots__})

    @staticmethod
    def from_option(value: str) -> "SourceOptions":
        fields = json.loads(value)
        lists = {name: tuple(fields[name]) for name in ("columns", "keys")}
        return SourceOptions(**(fields | lists))


def batch_token(token: str, plan: int) -> str:
    """The token that names a batch whose source writes its files: the number of the plan is known where it is
    planned, where it is read, and where it is delivered."""
    return f"{token}{plan:x}"


def copied_schema() -> pa.Schema:
    """The schema of a source that copies: for each range the number of logs in the log groups that it
    copied."""
    return pa.schema([pa.field(COPIED_LOGS, pa.int64())])


MANIFEST = "manifest"  # the only column of a source that writes: of each task one `task_files.Manifest`


def manifest_schema() -> pa.Schema:
    """The schema of a source that writes the files of the sink."""
    return pa.schema([pa.field(MANIFEST, pa.string())])


class GroupDataSource(DataSource):
    """Registered once per session; Spark passes it to its other processes by name."""

    @classmethod
    def name(cls) -> str:
        return FORMAT

    def schema(self) -> StructType:
        if "settings" not in self.options:
            return from_arrow_schema(SCHEMA)
        settings = SourceOptions.from_option(self.options["settings"])
        if settings.copy_to:
            return from_arrow_schema(copied_schema())
        if settings.writing:
            return from_arrow_schema(manifest_schema())
        return from_arrow_schema(schema_of(settings.selection))

    # Spark passes the schema under exactly this name.
    def streamReader(self, schema: StructType) -> "GroupStreamReader":  # noqa: ARG002, N802
        return GroupStreamReader(SourceOptions.from_option(self.options["settings"]))

    def writer(self, schema: StructType, overwrite: bool) -> LogstoreArrowWriter:  # noqa: ARG002
        return LogstoreArrowWriter(WriteOptions.from_option(self.options["settings"]))


@dataclass
class GroupRangePartition(InputPartition):
    """What one task reads."""

    plan: int
    ranges: tuple[Range, ...]
    latest_s: int | None  # see `BatchPlan`

    def __post_init__(self) -> None:
        super().__init__(self.plan)


class GroupStreamReader(DataSourceStreamReader):
    """Planning runs in one process for the life of a query, reading in many, each on a copy of this
    object."""

    def __init__(self, options: SourceOptions) -> None:
        self.options = options
        self._ends: EndWatch | None = None
        self._receipts: Receipts | None = None
        self._reported: Report | None = None
        self._not_before_s = 0.0  # the next batch
        self._backlogs: dict[int, Backlog] = {}
        self._clock = SystemClock()
        self._ends_changed: threading.Event | None = None  # set when the end of a shard has changed
        self._sleep = self._await_log_groups

    def initialOffset(self) -> dict[str, Any]:  # noqa: N802
        return EMPTY_PLAN.to_json()

    def latestOffset(self, start: dict[str, Any], limit: ReadLimit) -> dict[str, Any]:  # noqa: ARG002, N802
        """The next plan, or `start` unchanged if there is nothing to read for `MAX_WAIT_S`.

        Spark has no trigger of its own here and asks again at once, so this is what sets the pace: it waits
        for log groups, and for the interval between batches unless log groups are waiting already, or until
        they are worth their files. Requests
        to the service are sent only as often as the fetch interval allows."""
        exchange, last = ExchangeFiles(Path(self.options.exchange_dir)), BatchPlan.from_json(start)
        give_up_s = self._clock.monotonic_s() + MAX_WAIT_S
        while True:
            plan = self._plan(exchange, last)
            if plan is not last:
                return plan.to_json()
            if self._clock.monotonic_s() >= give_up_s:
                return start
            self._sleep(LOOK_S)

    def _plan(self, exchange: ExchangeFiles, last: BatchPlan) -> BatchPlan:
        """The next plan, or `last` if no batch may begin now. Reports in any case that it has read the
        positions: a shard is released once the source has reported that it no longer reads it."""
        positions, now = exchange.positions(), self._clock.monotonic_s()
        ends = self._watch().ends(positions.shards, now=now)
        self._report(exchange, version=positions.version)
        self._backlogs = observed(self._backlogs, positions=positions.shards, ends=ends, now=now)
        if now < self._not_before_s:
            return last
        if self.options.levels and positions.opening:
            return last  # perhaps their logs are older than the logs of the other shards
        retries = due_retries(exchange.retries().shards, positions.shards, now=now)
        plan = self._from(last, positions, ends, retries)
        roll = self.options.roll
        together = {shard: backlog for shard, backlog in self._backlogs.items() if shard not in retries}
        if roll is not None and not is_worth_its_files(
            plan,
            together,
            roll=roll,
            sizes=positions.group_sizes,
            file_share=exchange.file_share().bytes,
            now=now,
        ):
            # The other shards wait for their files, so a failed shard takes no turns with them, and waits no
            # longer.
            failed = {shard: at for shard, at in positions.shards.items() if shard in retries}
            plan = self._from(last, structs.replace(positions, shards=failed), ends, retries)
        if self.options.levels and plan is not last:
            plan = self._levelled(last, positions, now=now)
            self._report(exchange, version=positions.version)
        if plan is not last and not leaves_log_groups(plan, self._watch().known):
            self._not_before_s = now + self.options.batch_interval_s
        return plan

    def _from(
        self, last: BatchPlan, positions: Positions, ends: Mapping[int, int], retries: Mapping[int, int]
    ) -> BatchPlan:
        shards, sizes, limits = positions.shards, positions.group_sizes, self.options.limits
        if self.options.levels:  # its batches are never divided, so there are no retries
            return next_even_plan(last, positions=shards, ends=ends, sizes=sizes, limits=limits)
        return next_plan(last, positions=shards, ends=ends, sizes=sizes, limits=limits, retries=retries)

    def _levelled(self, last: BatchPlan, positions: Positions, *, now: float) -> BatchPlan:
        """The next plan by the current ends of all shards: with an end that was requested earlier, when that
        shard had nothing more to read, the other shards would be read ahead of it."""
        watch = self._watch()
        if self._receipts is None:
            self._receipts = Receipts(shared_client(self.options.address), logstore=self.options.logstore)
        ends = watch.ends_of_now(positions.shards, now=now)
        if ends is not None:
            plan = self._from(last, positions, ends, {})
            try:
                return plan if plan is last else self._receipts.level(plan, ends)
            except LogHubException as error:
                watch.note_failure(error)
        self._not_before_s = now + self.options.fetch_interval_s
        return last

    def _watch(self) -> EndWatch:
        if self._ends is None:
            # Not before: this object is copied into other processes.
            self._ends_changed = threading.Event()
            self._ends = EndWatch(
                shared_client(self.options.address),
                logstore=self.options.logstore,
                interval_s=self.options.fetch_interval_s,
                waits=self.options.roll is not None,
                on_change=self._ends_changed.set,
            )
        return self._ends

    def _await_log_groups(self, seconds: float) -> None:
        """Wait until a shard has new log groups, for at most `seconds`."""
        if self._ends_changed is not None and self._ends_changed.wait(seconds):
            self._ends_changed.clear()

    def _report(self, exchange: ExchangeFiles, *, version: int) -> None:
        watch = self._watch()
        error = watch.error
        report = Report(
            version=version,
            ends=dict(watch.known),  # a copy, or it would never differ from the previous value
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
        bins = pack(plan.ranges, bins=self.options.cores)
        return [GroupRangePartition(plan.number, ranges, plan.latest_s) for ranges in bins]

    def read(self, partition: InputPartition) -> Iterator[pa.RecordBatch]:
        assert isinstance(partition, GroupRangePartition)
        if self.options.copy_to:
            yield from self._copy(partition)
            return
        if self.options.writing:
            yield from self._write(partition)
            return
        counts: dict[Range, ReadCount] = {}
        yield from self._rows(partition, self.options.selection, counts)
        self._report_counts(counts)

    def _rows(
        self, partition: GroupRangePartition, selection: Selection, counts: dict[Range, ReadCount]
    ) -> Iterator[pa.RecordBatch]:
        return read_ranges(
            shared_client(self.options.address),
            self.options.logstore,
            partition.ranges,
            counted=counts.__setitem__,
            selection=selection,
            latest_s=partition.latest_s,
        )

    def _write(self, partition: GroupRangePartition) -> Iterator[pa.RecordBatch]:
        # It loads the libraries that write files, and most processes of Spark write none.
        from loghub_worker.sink.files.source_files import SourceWriting

        counts: dict[Range, ReadCount] = {}
        writing = SourceWriting.from_text(self.options.writing)
        rows = self._rows(partition, writing.query.selection, counts)
        manifest = writing.write(batch_token(self.options.token, partition.plan), rows)
        text = msgspec.json.encode(manifest).decode()
        yield pa.RecordBatch.from_arrays([pa.array([text], pa.string())], schema=manifest_schema())
        self._report_counts(counts)

    def _copy(self, partition: GroupRangePartition) -> Iterator[pa.RecordBatch]:
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
        logs = pa.array([count.logs for count in counts.values()], pa.int64())
        yield pa.RecordBatch.from_arrays([logs], schema=copied_schema())
        self._report_counts(counts)

    def _report_counts(self, counts: dict[Range, ReadCount]) -> None:
        if self.options.counts is not None:
            report_counts(self.options.counts, counts)
