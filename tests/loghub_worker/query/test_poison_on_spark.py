"""A log that the pipeline cannot take, on a real Spark and a real service.

Spark 4 runs ANSI SQL, in which ``CAST('-' AS INT)`` is an error.
"""

import base64
import json
import uuid
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import StringType

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import DeadLetterFolder, DeadLetterLogstore, OnFailure, SqlPipeline, WorkerConfig
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import decode as decode_group
from loghub.wire.loggroup import split
from loghub_consumer.failure.dead_letter import TAG_PREFIX
from loghub_consumer.failure.policy import WaitState
from loghub_worker.query.transform import PythonTransform, Transform
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.query.poison import POISON, UPPER, ids, put, put_around_a_poison
from tests.loghub_worker.query.worker_threads import WorkerThreads
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    delivered,
    prepare,
    source_of,
    worker_config,
)
from tests.support import HandClock, ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

SQL = "SELECT contents['id'] AS id, CAST(contents['status'] AS INT) AS status FROM logs"


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


def threads_of(
    spark: SparkSession,
    service: ServiceProcess,
    config: WorkerConfig,
    folder: Path,
    *,
    name: str = "w-0",
    transform: Transform | None = None,
) -> WorkerThreads:
    sink: Any = make_sink(config, consumer=name, source=source_of(service), scratch=folder)
    return WorkerThreads(
        spark, config, sink, service.credentials_dir, folder / name, name=name, transform=transform
    )


def config_of(service: ServiceProcess, sink: Path, on_failure: OnFailure, **changes: Any) -> WorkerConfig:
    settings = {"pipeline": SqlPipeline(text=SQL), "timeout_s": 3} | changes
    return worker_config(service.endpoint, ParquetSink(path=str(sink)), on_failure=on_failure, **settings)


def waits_at(threads: WorkerThreads, cursor: int) -> bool:
    """Whether the worker reports that only shard 0 waits, at this cursor, and why."""
    report = threads.query_runner.failures.report({0: cursor, 1: -1})
    return [(f.shard, f.begin, f.failure.reason) for f in report.failing] == [(0, cursor, "PipelineFailed")]


@pytest.mark.deep
def test_a_log_that_the_query_cannot_take_stops_neither_another_shard_nor_the_next_worker(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    client = prepare(service, shards=2, timeout_s=3)
    cursor = put_around_a_poison(client)
    sink = tmp_path / "sink"
    config = config_of(service, sink, OnFailure())
    expected = ids("before", "other")
    for name in ("w-0", "w-1"):
        threads = threads_of(spark, service, config, tmp_path, name=name)
        threads.start()
        try:
            wait_until(lambda: delivered(sink) == expected, "all but what follows it", guard_s=GUARD_S)
            other_shard_goes_on(client, threads, sink, expected=expected, cursor=cursor)
        finally:
            threads.stop()
    assert delivered(sink) == expected


def other_shard_goes_on(
    client: HttpLogHub, threads: WorkerThreads, sink: Path, *, expected: Counter[str], cursor: int
) -> None:
    """Shard 0 waits at this cursor and is retried, while shard 1 delivers one more log."""
    failures = threads.query_runner.failures
    wait_until(lambda: waits_at(threads, cursor), "the shard to wait", guard_s=GUARD_S)
    attempts = failures.report({}).totals[0].failed_attempts
    name = f"later-{len(expected)}"
    put(client, name, hash_key=UPPER)
    expected[name] = 1
    wait_until(lambda: delivered(sink) == expected, "the other shard to go on", guard_s=GUARD_S)
    wait_until(
        lambda: failures.report({}).totals[0].failed_attempts > attempts + 1,
        "more attempts",
        guard_s=GUARD_S,
    )
    message = failures.report({0: cursor}).error.message
    assert message.startswith(f"shard 0 at cursor {encode_cursor(cursor)}, retrying after ")
    assert "CAST_INVALID_INPUT" in message


@pytest.mark.deep
def test_a_skipped_log_group_is_counted_and_everything_else_is_delivered_once(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """Another worker, which finds an old checkpoint, neither delivers anything again nor needs another
    attempt: the sink's record contains the skipped range as well."""
    client = prepare(service, shards=2, timeout_s=3)
    cursor = put_around_a_poison(client)
    begin = client.get_cursor(LOGSTORE, 0, "begin")
    sink = tmp_path / "sink"
    config = config_of(service, sink, OnFailure(policy="Skip", max_attempts=2), checkpoint_interval_s=600)
    expected = ids("before", "after", "other")
    threads = threads_of(spark, service, config, tmp_path)
    threads.start()
    try:
        wait_until(lambda: delivered(sink) == expected, "all but the poison", guard_s=GUARD_S)
        report = threads.query_runner.failures.report({0: cursor})
        assert report.failing == ()
        assert [(s.shard, s.log_groups, s.last_cursor) for s in report.skips] == [(0, 1, cursor)]
        assert report.totals[0].skipped == 1
    finally:
        threads.stop()
    (checkpoint,) = client.get_checkpoints(LOGSTORE, GROUP, 0)
    assert (checkpoint.cursor, checkpoint.consumer) == (begin, "w-0"), "not saved yet"
    put(client, "later")
    threads = threads_of(spark, service, config, tmp_path, name="w-1")
    threads.start()
    try:
        expected["later"] = 1
        wait_until(lambda: delivered(sink) == expected, "the next log", guard_s=GUARD_S)
        assert threads.query_runner.failures.report({}).totals == {}
    finally:
        threads.stop()
    assert delivered(sink) == expected


@pytest.mark.parametrize(
    ("kind", "engine"),
    [
        ("logstore", "Auto"),
        pytest.param("logstore", "Spark", marks=pytest.mark.deep),
        pytest.param("folder", "Auto", marks=pytest.mark.deep),
    ],
)
def test_a_dead_lettered_log_group_keeps_its_bytes_and_names_its_origin(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path, kind: str, engine: str
) -> None:
    client = prepare(service, shards=2, timeout_s=3)
    client.create_logstore("rejected", shards=1)
    cursor = put_around_a_poison(client)
    sink, folder = tmp_path / "sink", tmp_path / "rejected"
    target = (
        DeadLetterLogstore(project=PROJECT, logstore="rejected")
        if kind == "logstore"
        else DeadLetterFolder(path=str(folder))
    )
    on_failure = OnFailure(policy="DeadLetter", max_attempts=2, dead_letter=target)
    threads = threads_of(spark, service, config_of(service, sink, on_failure, engine=engine), tmp_path)
    assert threads.way.engine == {"Auto": "Arrow", "Spark": "Spark"}[engine], threads.way.why
    threads.start()
    try:
        wait_until(lambda: delivered(sink) == ids("before", "after", "other"), "the rest", guard_s=GUARD_S)
        assert threads.query_runner.failures.report({}).totals[0].dead_lettered == 1
    finally:
        threads.stop()
    if kind == "folder":
        (file,) = folder.rglob("*.json")
        found = json.loads(file.read_text())
        group = decode_group(base64.b64decode(found["logGroup"]))
        assert found["logs"] == [{"time": 1_700_000_000, "contents": [["id", "poison"], ["status", "-"]]}]
    else:
        begin = client.get_cursor("rejected", 0, "begin")
        (body,) = split(client.pull_logs("rejected", 0, cursor=begin, count=10).body)
        group = decode_group(body)
        found = {name.removeprefix(TAG_PREFIX): value for name, value in group.tags}
    assert (group.topic, group.source) == ("t", "s")
    assert [dict(log.contents) for log in group.logs] == [{"id": b"poison", "status": b"-"}]
    assert (found["project"], found["logstore"], found["consumer_group"]) == (PROJECT, LOGSTORE, GROUP)
    assert (int(found["shard"]), int(found["attempts"])) == (0, 2)
    assert (found["cursor"], found["reason"]) == (encode_cursor(cursor), "PipelineFailed")
    assert "CAST_INVALID_INPUT" in found["message"]


@pytest.mark.deep
def test_a_stopped_shard_is_held_still_and_reported(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    client = prepare(service, shards=2, timeout_s=3)
    cursor = put_around_a_poison(client)
    sink = tmp_path / "sink"
    threads = threads_of(
        spark,
        service,
        config_of(service, sink, OnFailure(policy="Stop", max_attempts=2)),
        tmp_path,
    )
    threads.start()
    try:
        wait_until(lambda: delivered(sink) == ids("before", "other"), "the rest", guard_s=GUARD_S)

        def states() -> list[str]:
            return [f.state for f in threads.query_runner.failures.report({0: cursor}).failing]

        wait_until(lambda: states() == [WaitState.STOPPED], "the shard to be stopped", guard_s=GUARD_S)
        attempts = threads.query_runner.failures.report({}).totals[0].failed_attempts
        batches = threads.query_runner.totals.batches
        for n in range(3):
            put(client, f"more-{n}", hash_key=UPPER)
            wait_until(lambda n=n: f"more-{n}" in delivered(sink), "the other shard", guard_s=GUARD_S)  # type: ignore[misc]
        totals = threads.query_runner.totals  # counts a batch after the sink has it
        wait_until(lambda: totals.batches >= batches + 3, "all batches to be counted", guard_s=GUARD_S)
        assert threads.query_runner.failures.report({}).totals[0].failed_attempts == attempts
    finally:
        threads.stop()


def spin(begun: str) -> str:
    """An endless loop in Spark's Python process, with a file in this folder for each time."""
    Path(begun, uuid.uuid4().hex).touch()
    while True:
        pass


def test_an_endless_loop_in_a_function_of_the_user_is_cancelled_and_its_log_group_found(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """The time of a batch passes once it is in the loop, so that no other batch ever takes too long."""
    client = prepare(service, shards=2, timeout_s=3)
    put(client, "before")
    cursor = decode_cursor(client.get_cursor(LOGSTORE, 0, "end"))
    put(client, "poison", POISON)
    put(client, "after")
    put(client, "other", hash_key=UPPER)
    sink, begun = tmp_path / "sink", tmp_path / "begun"
    begun.mkdir()
    folder = str(begun)
    spins = F.udf(lambda text: spin(folder) if text == POISON else text, StringType())

    def run(logs: DataFrame) -> DataFrame:
        return logs.select(F.col("contents.id").alias("id"), spins("contents.status").alias("status"))

    config = config_of(service, sink, OnFailure(policy="Skip", max_attempts=1), batch_timeout_s=600.0)
    transform = PythonTransform("test:run", run, None)
    threads = threads_of(spark, service, config, tmp_path, transform=transform)
    clock = HandClock(-1e9)  # so long ago that no attempt has to wait
    threads.query_runner._clock = threads.query_runner.failures._clock = clock
    threads.start()
    seen = 0
    try:

        def is_delivered() -> bool:
            nonlocal seen
            if len(list(begun.iterdir())) > seen:
                seen += 1
                clock.now += config.batch_timeout_s
            assert threads.query_runner.enforce_timeout() is None, "every batch can be cancelled"
            return delivered(sink) == Counter(["before", "after", "other"])

        wait_until(is_delivered, "all but the poison", guard_s=GUARD_S)
        assert threads.query_runner.totals.timed_out == seen
        assert 2 <= seen <= 4
        report = threads.query_runner.failures.report({})
        assert [(s.shard, s.last_cursor) for s in report.skips] == [(0, cursor)]
    finally:
        threads.stop()
