"""Spark's JVM exits under a state, mostly because the state has outgrown its heap. Without Spark."""

from pathlib import Path
from typing import Any

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from loghub_consumer.batch_plan import BatchPlan, Range
from loghub_consumer.errors import FatalError
from loghub_worker.query.stateful_query import StatefulQueryRunner
from loghub_worker.state.ledger import StateFigures, StateIdentity, StateLedger
from tests.loghub_worker.query.open_shard import BEGIN, OpenShard

GONE = [
    Py4JNetworkError("Answer from Java side is empty"),
    ConnectionRefusedError(111, "Connection refused"),
    EOFError(),
]


def stateful(folder: Path) -> tuple[Any, StateLedger]:
    ledger = StateLedger(folder / "stateful", StateIdentity(pipeline="sql", reset=""))
    runner = OpenShard(folder, ledger=ledger).query_runner
    assert isinstance(runner, StatefulQueryRunner)
    return runner, ledger


class Query:
    """Spark's query, which ends with an error."""

    def __init__(self, error: Exception) -> None:
        self._error = error

    def awaitTermination(self) -> None:
        raise self._error


@pytest.mark.parametrize("error", GONE, ids=lambda error: type(error).__name__)
@pytest.mark.parametrize("is_started", [False, True])
def test_the_end_of_the_jvm_names_the_size_of_the_state(
    tmp_path: Path, error: Exception, is_started: bool
) -> None:
    runner, ledger = stateful(tmp_path)
    ledger.measured(0, StateFigures(rows=19_000, bytes=600 << 20))
    ledger.delivered(0, (Range(0, BEGIN, BEGIN + 1),))

    def start() -> Query:
        if is_started:
            return Query(error)
        raise error

    runner._start_query = start
    runner._run()
    assert isinstance(runner.failure, FatalError)
    assert runner.failure.reason == "SparkDriverExited"
    assert "the state has 19000 rows, which took 600 MiB of it; raise spark.memory" in runner.failure.message
    assert not ledger.is_discarded


def test_without_a_state_yet_it_is_the_memory_alone(tmp_path: Path) -> None:
    runner, _ = stateful(tmp_path)
    runner._start_query = lambda: Query(GONE[0])
    runner._run()
    assert runner.failure.message == (
        "Spark's JVM exited, often because it ran out of memory; raise spark.memory"
    )


class Rows:
    """Rows of a batch, which cannot be computed, and which cannot be released then either."""

    def persist(self) -> "Rows":
        return self

    def count(self) -> int:
        raise PySparkException("[CANNOT_LOAD_STATE_STORE.HDFS_STORE_PROVIDER_OUT_OF_MEMORY] Could not load")

    def unpersist(self) -> None:
        raise GONE[1]


def test_the_error_of_a_batch_is_not_replaced_by_one_of_the_tidying_up(tmp_path: Path) -> None:
    runner, _ = stateful(tmp_path)
    with pytest.raises(PySparkException, match="HDFS_STORE_PROVIDER_OUT_OF_MEMORY"):
        runner._deliver_once(Rows(), BatchPlan(1, (Range(0, BEGIN, BEGIN + 1),)), 1)
