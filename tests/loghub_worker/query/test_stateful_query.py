"""The runner of a stateful pipeline on a real Spark and a real service, with files as its sink.

Each log is sent more than once, and the pipeline passes on the first one (`stateful_pipelines`): whatever
happens, the folder must have each id once, as long as the state has all logs."""

from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
from pyspark.sql import DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention

from loghub.contract.sinks import SparkSink
from loghub.contract.worker import OnFailure
from loghub_consumer.membership.membership import ShutdownMode
from loghub_worker.state.checkpoint_folder import last_commit, pending_batch
from loghub_worker.state.ledger import Why
from tests.loghub_worker.query.stateful_stage import LOWER, UPPER, Stage, put
from tests.loghub_worker.stateful_pipelines import first_of_each_id
from tests.loghub_worker.support import GUARD_S, delivered, prepare
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


@pytest.fixture
def service(tmp_path: Path) -> Iterator[ServiceProcess]:
    with running_service(tmp_path / "service") as process:
        yield process


def test_a_worker_that_ends_at_any_moment_continues_with_the_state_of_what_the_sink_has(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """`test_state_cut_short` ends one between these two moments."""
    client = prepare(service, shards=2)
    stage = Stage(spark, service, tmp_path, checkpoint_interval_s=3600.0)
    sent: Counter[str] = Counter()
    for number, moment in enumerate(("computed", "recorded")):
        threads = stage.start()
        new = [f"{number}-{n}" for n in range(5)]
        put(client, new)
        sent.update(new)
        stage.wait_for(sent)
        stage.wait_until_ended()
        stage.moments.wanted = moment
        late = [f"{number}-late"]
        put(client, [*sent, *late], UPPER if number == 1 else LOWER)  # all earlier ones once more
        sent.update(late)
        stage.kill(threads)
        forget_the_state_of_the_pending_batch(stage.ledger.checkpoint)
    threads = stage.start()
    try:
        put(client, [*sent, "last"])
        sent.update(["last"])
        stage.wait_for(sent)
        assert stage.ledger.incomplete({0, 1}) == {}
    finally:
        threads.stop()


def forget_the_state_of_the_pending_batch(checkpoint: Path) -> None:
    """As if its tasks had not ended."""
    version = last_commit(checkpoint) + 2
    files = [file for file in (checkpoint / "state").rglob("*") if f"{version}.delta" in file.name]
    assert files
    for file in files:
        file.unlink()


@pytest.mark.deep
def test_what_a_sink_without_records_has_is_not_written_again(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """The ledger knows it, although no checkpoint was saved."""
    client = prepare(service, shards=1)
    stage = Stage(spark, service, tmp_path, checkpoint_interval_s=3600.0)
    folder = tmp_path / "sink"
    sink = SparkSink(format="parquet", options={"path": str(folder)})
    stage.config = msgspec.structs.replace(stage.config, sink=sink)
    threads = stage.start()
    put(client, ["a", "b"])
    stage.wait_for(Counter(["a", "b"]))
    stage.wait_until_ended()
    stage.moments.wanted = "recorded"
    put(client, ["a", "c"])
    stage.kill(threads)
    threads = stage.start()
    try:
        put(client, ["a", "b", "c", "d"])
        stage.wait_for(Counter(["a", "b", "c", "d"]))
        assert stage.ledger.incomplete({0}) == {}
    finally:
        threads.stop()


def test_a_shard_that_moves_leaves_its_state_behind_and_the_others_go_on(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    client = prepare(service, shards=2)
    stage = Stage(spark, service, tmp_path)
    first = stage.start("w-0")
    kept = stage.ledger
    try:
        put(client, ["a"], LOWER)
        put(client, ["b"], UPPER)
        stage.wait_for(Counter(["a", "b"]))
        second = stage.start("w-1")
        try:
            wait_until(lambda: bool(second.shared_state._membership.positions), "a shard", guard_s=GUARD_S)
            (moved,) = second.shared_state._membership.positions
            began = second.shared_state._membership.positions[moved]
            put(client, ["a", "c"], LOWER)
            put(client, ["b", "d"], UPPER)
            again = "a" if moved == 0 else "b"  # its first copy is in the state of the other worker
            stage.wait_for(Counter(["a", "b", "c", "d", again]))
            states = stage.ledger.incomplete({0, 1})
            assert {shard: (one.since, one.why) for shard, one in states.items()} == {
                moved: (began, Why.ELSEWHERE)
            }
            assert kept.incomplete({1 - moved}) == {}
        finally:
            second.stop()
    finally:
        first.stop()


@pytest.mark.deep
def test_a_batch_whose_shards_have_moved_meanwhile_is_replaced_by_another(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """Its logs are delivered by the worker that has them now, and no part of the state is made of them."""
    client = prepare(service, shards=2, timeout_s=3)
    stage = Stage(spark, service, tmp_path, timeout_s=3)
    threads = stage.start("w-0")
    put(client, ["a"], LOWER)
    put(client, ["b"], UPPER)
    stage.wait_for(Counter(["a", "b"]))
    stage.wait_until_ended()
    stage.moments.wanted = "computed"
    put(client, ["c"], LOWER)
    stage.kill(threads)
    checkpoint = stage.ledger.checkpoint
    assert pending_batch(checkpoint) is not None
    other = stage.start("w-1")
    try:
        stage.wait_for(Counter(["a", "b", "c"]))
        threads = stage.start("w-0")
        try:
            put(client, ["a", "b", "d"], LOWER)
            put(client, ["a", "b", "e"], UPPER)
            wait_until(lambda: delivered(tmp_path / "sink")["e"] > 0, "the upper shard", guard_s=GUARD_S)
            wait_until(lambda: delivered(tmp_path / "sink")["d"] > 0, "the lower shard", guard_s=GUARD_S)
            wait_until(lambda: pending_batch(checkpoint) is None, "the batches to end", guard_s=GUARD_S)
            rows = delivered(tmp_path / "sink")
            assert (rows["c"], rows["d"], rows["e"]) == (1, 1, 1)
            assert threads.query_runner.error.reason == ""
        finally:
            threads.stop()
    finally:
        other.stop()


def test_a_batch_that_fails_is_tried_again_as_it_is_and_named(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    client = prepare(service, shards=1)
    stage = Stage(spark, service, tmp_path, on_failure=OnFailure(policy="Stop", max_attempts=2))

    def fail_on_bad(logs: DataFrame) -> DataFrame:
        rows = first_of_each_id(logs)
        return rows.withColumn("n", F.when(rows.id == "bad", F.raise_error(F.lit("no"))).otherwise(F.lit(1)))

    stage.function = fail_on_bad
    threads = stage.start()
    try:
        put(client, ["a"])
        stage.wait_for(Counter(["a"]))
        put(client, ["a", "b"])
        put(client, ["bad"])
        runner = threads.query_runner

        def state() -> list[tuple[str, int]]:
            positions = threads.shared_state._membership.positions
            return [(one.state.value, one.attempts) for one in runner.failure_report(positions).failing]

        wait_until(lambda: state() == [("stopped", 2)], "the batch to be given up", guard_s=GUARD_S)
        assert runner.error.reason == "PipelineFailed"
        with threads.shared_state.use() as (membership, _):
            membership.set_shutdown_mode(ShutdownMode.STOP)
        wait_until(lambda: threads.shared_state._membership.drained, "the shard to drain", guard_s=GUARD_S)
    finally:
        threads.stop()
    # Corrected, the same state continues.
    stage.function = first_of_each_id
    threads = stage.start()
    try:
        stage.wait_for(Counter(["a", "b", "bad"]))
        assert stage.ledger.incomplete({0}) == {}
    finally:
        threads.stop()


@pytest.mark.deep
def test_a_function_that_does_not_fit_the_state_is_discarded_and_says_so(
    spark: SparkSession, service: ServiceProcess, tmp_path: Path
) -> None:
    """The code of a function may change where nobody sees it, such as in an image."""
    client = prepare(service, shards=1)
    stage = Stage(spark, service, tmp_path)
    threads = stage.start()
    try:
        put(client, ["a"])
        stage.wait_for(Counter(["a"]))
        stage.wait_until_ended()
    finally:
        threads.stop()

    def by_id_and_topic(logs: DataFrame) -> DataFrame:
        rows = logs.select("__time__", logs["contents"]["id"].alias("id"), "__topic__", "__shard__")
        return rows.withWatermark("__time__", "1 day").dropDuplicatesWithinWatermark(["id", "__topic__"])

    stage.function = by_id_and_topic
    threads = stage.start()
    try:
        put(client, ["a", "b"])
        stage.wait_for(Counter(["a", "a", "b"]))
        assert [one.why for one in stage.ledger.incomplete({0}).values()] == [Why.UNUSABLE]
    finally:
        threads.stop()
