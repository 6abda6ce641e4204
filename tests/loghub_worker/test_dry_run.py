"""``python -m loghub_worker try``: what a pipeline makes of given logs, without effects.

The pairs of (SQL, Python, processor) and (good, mistyped, a log that fails); the sinks without their targets;
and what a processor says about its logs.
"""

import itertools
import os
import sys
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import get_args

import msgspec
import pytest
import structlog

from loghub.contract.dry_run import REJECTED_SHOWN, TRY, DryRunReport, LogSample, SampledGroup
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.sinks import (
    ConsoleSink,
    DeltaSink,
    JsonSink,
    KafkaSink,
    LogstoreSink,
    NoSink,
    ParquetSink,
    PostgresqlSink,
    Sink,
    SparkSink,
)
from loghub.contract.worker import Pipeline, PythonPipeline, SqlPipeline
from loghub.wire import cursor as wire_cursor
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.errors import FatalError
from loghub_consumer.failure.policy import Cause, Failure
from loghub_worker import __main__ as program
from loghub_worker import processor_dry_run
from loghub_worker.attempts import divide
from tests.loghub_worker.support import worker_config, worker_environment

NOBODY = "http://127.0.0.1:1"  # a request to a log service would fail
FIRST = 1000  # a cursor

pytestmark = pytest.mark.timeout(1800)
_modules = itertools.count()


@pytest.fixture(autouse=True)
def as_before() -> Iterator[None]:
    """Restore what the program replaces for its process."""
    path = list(sys.path)
    yield
    sys.path[:] = path
    structlog.reset_defaults()


def sampled(*values: str, shard: int = 0) -> list[SampledGroup]:
    """Log groups of two logs: one with the value, and one that is always right."""
    return [
        SampledGroup(
            shard,
            FIRST + number,
            encode(
                LogGroup(
                    logs=(
                        Log(time=1_790_000_000, contents=(("n", value), ("kind", "given"))),
                        Log(time=1_790_086_400, contents=(("n", "0"),)),
                    )
                )
            ),
        )
        for number, value in enumerate(values)
    ]


def tried(
    folder: Path,
    pipeline: Pipeline,
    groups: Sequence[SampledGroup],
    monkeypatch: pytest.MonkeyPatch,
    *,
    sink: Sink | None = None,
    stateful: bool = False,
) -> DryRunReport | str:
    """The report, or the termination message."""
    sink = sink or ParquetSink(path="/no/such/folder")
    config = worker_config(NOBODY, sink, pipeline=pipeline, stateful=stateful)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    logs, report = folder / "sample", folder / "report"
    logs.write_bytes(msgspec.msgpack.encode(LogSample(groups=list(groups), max_rows=2)))
    given = os.environ | worker_environment(folder, name="w-dry-run", credentials_dir=folder)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["loghub_worker", TRY, str(logs), str(report)])
    if program.main() == program.STOPPED:
        return msgspec.json.decode(report.read_bytes(), type=DryRunReport)
    return (folder / "termination").read_text()


def made(what: DryRunReport | str) -> DryRunReport:
    assert isinstance(what, DryRunReport), what
    return what


GOOD_SQL = "SELECT contents['n'] AS n, to_date(__time__) AS day FROM logs"
FAILING_SQL = "SELECT CAST(contents['n'] AS INT) AS n, to_date(__time__) AS day FROM logs"
GOOD_PYTHON = f"def rows(logs): return logs.sparkSession.sql({GOOD_SQL!r}.replace('logs', '{{l}}'), l=logs)"
FAILING_PYTHON = GOOD_PYTHON.replace(GOOD_SQL, FAILING_SQL)
PROCESSOR = """
from loghub_consumer import Processor
class P(Processor):
    def process(self, logs, tracker):
        for group in logs.groups:
            for log in group.logs:
                int(log.get("n"))
"""


def of_python(code: str) -> PythonPipeline:
    name = f"mine_{next(_modules)}"  # a module that was imported stays so
    return PythonPipeline(function=f"{name}:rows", files={f"{name}.py": code})


def of_processor(code: str, **settings: object) -> ProcessorPipeline:
    name = f"mine_{next(_modules)}"
    return ProcessorPipeline(factory=f"{name}:P", files={f"{name}.py": code}, **settings)  # type: ignore[arg-type]


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "pipeline", [SqlPipeline(text=GOOD_SQL), of_python(GOOD_PYTHON)], ids=["sql", "python"]
)
def test_columns_rows_and_partitions_are_those_of_the_sink(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = ParquetSink(path="/no/such/folder", partition_by=("day",))
    groups = sampled("1", "2") + sampled("3", shard=4)
    report = made(tried(tmp_path, pipeline, groups, monkeypatch, sink=sink))
    assert (report.logs, report.done, report.rows, report.rejected) == (6, 6, 6, [])
    assert [(one.name, one.type) for one in report.columns] == [("n", "string"), ("day", "date")]
    assert report.first_rows == [{"n": "1", "day": "2026-09-21"}, {"n": "0", "day": "2026-09-22"}]
    partitions = {one.partition: one.rows for one in report.partitions}
    assert partitions == {"day=2026-09-21": 3, "day=2026-09-22": 3}
    assert not Path("/no").exists()


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "pipeline", [SqlPipeline(text=FAILING_SQL), of_python(FAILING_PYTHON)], ids=["sql", "python"]
)
def test_the_log_groups_that_fail_are_named_with_their_reasons(
    pipeline: Pipeline, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    report = made(tried(tmp_path, pipeline, sampled("1", "2", "three", "4"), monkeypatch))
    assert (report.logs, report.done, report.rows) == (8, 6, 6)
    [rejected] = report.rejected
    assert (rejected.shard, rejected.logs) == (0, 2)
    assert wire_cursor.decode(rejected.cursor) == FIRST + 2
    assert rejected.reason == "PipelineFailed"
    assert rejected.message.startswith("[CAST_INVALID_INPUT] The value 'three'")
    alone = made(tried(tmp_path, pipeline, sampled("three"), monkeypatch))
    assert (alone.done, alone.rows, alone.first_rows, len(alone.rejected)) == (0, 0, [], 1)


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("pipeline", "sink", "refused"),
    [
        (SqlPipeline(text="SELEC n FROM logs"), None, "InvalidPipeline: [PARSE_SYNTAX_ERROR]"),
        (of_python("def rows(logs): return logs.nope"), None, "InvalidPipeline: "),
        (SqlPipeline(text=GOOD_SQL), ParquetSink(path="data"), "InvalidSink: a file sink needs an absolute"),
        (SqlPipeline(text=GOOD_SQL), DeltaSink(path="data"), "InvalidSink: a Delta table needs an absolute"),
        (
            SqlPipeline(text=GOOD_SQL),
            JsonSink(path="/d", partition_by=("month",)),
            "InvalidSink: ",
        ),
        (
            SqlPipeline(text=GOOD_SQL),
            KafkaSink(bootstrap_servers="b:1", topic="t", keep_order=True),
            "InvalidPipeline: the group consumes in order",
        ),
        (
            SqlPipeline(text="SELECT 1 AS __tags__ FROM logs"),
            LogstoreSink(project="p", logstore="l"),
            "InvalidPipeline: the column __tags__",
        ),
        (
            SqlPipeline(text="SELECT 1 AS xmin FROM logs"),
            PostgresqlSink(host="h", database="d", table="t"),
            "InvalidSink: the name of the column 'xmin'",
        ),
    ],
    ids=["sql", "python", "path", "table", "partition", "kafka", "logstore", "postgresql"],
)
def test_a_mistake_ends_it_with_the_message_of_a_worker(
    pipeline: Pipeline, sink: Sink | None, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = tried(tmp_path, pipeline, sampled("1"), monkeypatch, sink=sink)
    assert isinstance(message, str), message
    assert message.startswith(refused)


TAKEN: Sequence[Sink] = (
    JsonSink(path="s3://bucket/prefix"),
    DeltaSink(path="/table"),
    ConsoleSink(rows=1),
    LogstoreSink(project="p", logstore="l"),
    KafkaSink(bootstrap_servers="b:1", topic="t", sasl="PLAIN"),
    SparkSink(format="nobody has it"),
    PostgresqlSink(host="h", database="d", table="t"),
)


def test_each_sink_is_tried_without_its_target() -> None:
    assert {type(one) for one in TAKEN} | {ParquetSink, NoSink} == set(get_args(Sink))


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    "sink",
    [TAKEN[0], *(pytest.param(one, marks=pytest.mark.deep) for one in TAKEN[1:])],
    ids=lambda sink: type(sink).__name__,
)
def test_no_sink_needs_its_target(sink: Sink, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    report = made(tried(tmp_path, SqlPipeline(text=GOOD_SQL), sampled("1"), monkeypatch, sink=sink))
    assert (report.rows, report.done) == (2, 2)


MINUTES = """
from pyspark.sql import functions as F
def rows(logs):
    return logs.withWatermark("__time__", "1 minute").{then}
"""


@pytest.mark.spark
@pytest.mark.usefixtures("spark")
@pytest.mark.parametrize(
    ("then", "rows", "refused"),
    [
        pytest.param('groupBy(F.window("__time__", "1 day")).count()', 2, "", marks=pytest.mark.deep),
        ('dropDuplicatesWithinWatermark(["__topic__"]).select("__topic__")', None, "dropDuplicatesWithin"),
    ],
    ids=["aggregation", "for streams only"],
)
def test_a_stateful_pipeline_begins_with_no_state_if_a_batch_can_be_like_that(
    then: str, rows: int | None, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = of_python(MINUTES.format(then=then))
    tries = tried(tmp_path, pipeline, sampled("1", "2"), monkeypatch, stateful=True)
    if rows is None:
        assert isinstance(tries, str)
        assert tries.startswith("InvalidPipeline: ")
        assert refused in tries
    else:
        report = made(tries)
        assert (report.rows, report.done, len(report.notes)) == (rows, 4, 1)


# -- processors


@pytest.mark.parametrize(("acknowledge", "refused"), [("batch", 2), ("log", 1)])
def test_a_processor_is_done_with_what_it_does_not_refuse(
    acknowledge: str, refused: int, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    code = PROCESSOR + ("        tracker.ack()\n" if acknowledge == "log" else "")
    groups = sampled("1", "2", "three", "4") + sampled("5", shard=1)
    pipeline = of_processor(code, acknowledge=acknowledge)
    report = made(tried(tmp_path, pipeline, groups, monkeypatch, sink=NoSink()))
    assert (report.logs, report.done, report.rows) == (10, 10 - refused, None)
    [rejected] = report.rejected
    assert (rejected.shard, rejected.logs) == (0, refused)
    assert wire_cursor.decode(rejected.cursor) == FIRST + 2
    assert rejected.reason == "PipelineFailed"
    assert rejected.message.startswith("ValueError: invalid literal for int()")


def test_a_mistyped_processor_ends_it_with_the_message_of_a_worker(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    message = tried(tmp_path, of_processor("def P(: ..."), sampled("1"), monkeypatch, sink=NoSink())
    assert isinstance(message, str)
    assert ":P: SyntaxError" in message


SAYS = """
import asyncio
from loghub_consumer import Listener, Processor
class P(Processor):
    async def process(self, logs, tracker):
        for group in logs.groups:
            for log in group.logs:
                n = log.get("n")
                if n == "again":
                    tracker.nack(log, reason="the target is full")
                elif n == "never":
                    tracker.reject(log, reason="no such user")
                elif n == "away":
                    raise ConnectionError("no route")
                else:
                    asyncio.get_running_loop().call_soon(tracker.ack, log)
class L(Listener):
    def __init__(self, shards): ...
    def on_assigned(self, shards):
        raise ValueError
"""


def test_each_thing_that_a_processor_says_of_a_log_is_reported(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    pipeline = of_processor(SAYS, acknowledge="log", max_logs=2)
    pipeline = msgspec.structs.replace(pipeline, listener=pipeline.factory.replace(":P", ":L"))
    groups = sampled("1", "again", "never", "away")
    report = made(tried(tmp_path, pipeline, groups, monkeypatch, sink=NoSink()))
    assert (report.logs, report.done) == (8, 4)
    assert [(one.reason, wire_cursor.decode(one.cursor) - FIRST, one.logs) for one in report.rejected] == [
        ("Refused", 1, 1),
        ("Rejected", 2, 1),
        ("Unfinished", 3, 2),
    ]
    assert [one.message for one in report.rejected[:2]] == ["the target is full", "no such user"]
    assert report.notes == [processor_dry_run.NO_LISTENER]


def test_a_processor_that_cannot_begin_or_forgets_a_log_fails_as_a_whole(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(processor_dry_run, "MAX_S", 0.5)
    begins = PROCESSOR + "    def initialize(self, shard):\n        raise ConnectionError('gone')\n"
    for number, (code, says) in enumerate(((begins, "ConnectionError: gone"), (PROCESSOR, "TimeoutError: "))):
        folder = tmp_path / str(number)
        folder.mkdir()
        pipeline = of_processor(code, acknowledge="log")
        message = tried(folder, pipeline, sampled("1"), monkeypatch, sink=NoSink())
        assert isinstance(message, str), message
        assert message.startswith(f"PipelineFailed: {says}")


# -- the search

Attempt = Callable[[Sequence[SampledGroup]], Failure | None]


def failing(bad: set[int], cause: Cause = Cause.REJECTED) -> tuple[list[int], Attempt]:
    calls: list[int] = []

    def attempt(groups: Sequence[SampledGroup]) -> Failure | None:
        calls.append(len(groups))
        named = sorted({one.cursor for one in groups} & bad)
        return Failure(cause=cause, reason="R", message=str(named[0])) if named else None

    return calls, attempt


@pytest.mark.parametrize("bad", [set[int](), {0}, {63}, {0, 1, 31, 63}, {5, 6, 7}])
def test_the_search_finds_the_log_groups_that_fail_and_no_other(bad: set[int]) -> None:
    groups = [SampledGroup(0, number, b"") for number in range(64)]
    calls, attempt = failing(bad)
    found = divide(groups, attempt)
    assert [int(one.message) for one in found.rejected] == sorted(bad)
    assert [one.cursor for one in found.passed] == [n for n in range(64) if n not in bad]
    assert found.untried == []
    assert len(calls) <= 1 + 2 * 6 * len(bad)  # 64 = 2^6


def test_the_search_ends_after_so_many_and_does_not_blame_logs_for_an_outage() -> None:
    groups = [SampledGroup(0, number, b"") for number in range(64)]
    _, attempt = failing(set(range(64)))
    found = divide(groups, attempt)
    assert len(found.rejected) == REJECTED_SHOWN
    assert [one.cursor for one in found.untried] == list(range(REJECTED_SHOWN, 64))
    _, attempt = failing({5}, Cause.UNAVAILABLE)
    with pytest.raises(FatalError, match="R: 5"):
        divide(groups, attempt)
