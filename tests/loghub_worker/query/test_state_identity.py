"""What a state belongs to: a group and a query, whatever name their log service has.

A state that Spark refuses when the query starts is removed only if it is of another query.
"""

from pathlib import Path

import msgspec
import pytest
from pyspark.errors import PySparkException

from loghub.contract.sinks import ConsoleSink
from loghub_consumer.batch_plan import Range
from loghub_consumer.errors import FatalError
from loghub_worker.state.ledger import StateFigures, StateIdentity
from loghub_worker.worker import state_identity
from tests.loghub_worker.query.open_shard import BEGIN
from tests.loghub_worker.query.test_state_and_heap import Query, stateful
from tests.loghub_worker.state.test_ledger import continued, deliver, lacking, opened
from tests.loghub_worker.support import worker_config

NAMES = [
    "https://cn-hangzhou.log.aliyuncs.com",
    "https://cn-hangzhou-intranet.log.aliyuncs.com",
    "http://logs.svc",
    "https://logs.svc",
    "http://127.0.0.1:8080",
]


def identity(endpoint: str, **changes: str) -> StateIdentity:
    return state_identity(worker_config(endpoint, ConsoleSink(rows=1), **changes))


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_state_outlives_another_name_of_its_log_service(tmp_path: Path, name: str) -> None:
    """`spec.endpoint` may change so, TLS for the embedded service changes it, and so does another port."""
    before = opened(tmp_path, identity(NAMES[0]))
    continued(before, 0, is_first=True)
    deliver(before, 0, 10)
    again = opened(tmp_path, identity(name))
    assert (again.checkpoint.exists(), continued(again, 4), lacking(again)) == (True, 10, {})
    assert not opened(tmp_path, identity(name, consumer_group="another")).checkpoint.exists()


def test_a_state_that_an_earlier_release_named_by_the_endpoint_gets_its_new_name(tmp_path: Path) -> None:
    now = identity(NAMES[0])
    before = opened(tmp_path, StateIdentity(pipeline=now.former, reset=now.reset))
    continued(before, 0, is_first=True)
    deliver(before, 0, 10)
    for name in NAMES[:2]:
        assert opened(tmp_path, identity(name)).checkpoint.exists(), name
    stored = msgspec.json.decode((tmp_path / "state" / "ledger.json").read_bytes())
    assert stored["identity"] == {"pipeline": now.pipeline, "reset": ""}


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
