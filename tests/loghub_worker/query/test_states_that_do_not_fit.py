"""What becomes of a state that Spark refuses when the query starts: it is removed only if it is of another
query."""

from pathlib import Path

import pytest
from pyspark.errors import PySparkException

from loghub_consumer.batch_plan import Range
from loghub_consumer.errors import FatalError
from loghub_worker.state.ledger import StateFigures
from tests.loghub_worker.query.open_shard import BEGIN
from tests.loghub_worker.query.test_state_and_heap import Query, stateful

OF_ANOTHER_QUERY = (
    "STATE_STORE_KEY_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_VALUE_SCHEMA_NOT_COMPATIBLE",
    "STATE_STORE_INVALID_VALUE_SCHEMA_EVOLUTION",
    "STATE_STORE_INVALID_VARIABLE_TYPE_CHANGE",
    "STATE_STORE_COLUMN_FAMILY_SCHEMA_INCOMPATIBLE",
    "STREAMING_STATEFUL_OPERATOR_NOT_MATCH_IN_STATE_METADATA",
    "STREAMING_STATEFUL_OPERATOR_MISSING_STATE_DIRECTORY",
)
CHANGED = (
    "[STATE_STORE_INVALID_CONFIG_AFTER_RESTART] Cannot change"
    " spark.sql.streaming.stateStore.rocksdb.formatVersion from 5 to 6 between restarts. Please set"
    " spark.sql.streaming.stateStore.rocksdb.formatVersion to 5, or restart with a new checkpoint directory."
)


def test_a_changed_setting_of_spark_ends_the_worker_in_sparks_words_and_keeps_the_state(
    tmp_path: Path,
) -> None:
    runner, ledger = stateful(tmp_path)
    ledger.measured(0, StateFigures(rows=5, bytes=6))
    ledger.delivered(0, (Range(0, BEGIN, BEGIN + 1),))
    runner._start_query = lambda: Query(PySparkException(CHANGED))
    runner._run()
    assert isinstance(runner.failure, FatalError)
    assert (runner.failure.reason, runner.failure.message) == ("InvalidPipeline", CHANGED)
    assert not ledger.is_discarded


@pytest.mark.parametrize("name", OF_ANOTHER_QUERY)
def test_a_state_of_another_query_is_removed_and_begins_empty(tmp_path: Path, name: str) -> None:
    runner, ledger = stateful(tmp_path)
    runner._after_failure(PySparkException(f"[{name}] Provided schema doesn't match"))
    assert ledger.is_discarded
