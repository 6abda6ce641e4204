"""The writers against a real service, without a JVM: what is counted, and what is reported."""

import logging
import pickle
from collections.abc import Mapping
from typing import Any

import pyarrow as pa
import pytest
from pyspark.sql.pandas.types import from_arrow_schema

from loghub.client.http import HttpLogHub
from loghub_spark.datasource import LogHubDataSource
from loghub_spark.options import LogstoreError, OptionError
from loghub_spark.writer import LogHubStreamWriter, LogHubWriter, WrittenMessage
from tests.loghub_spark.support import options_of
from tests.support import ServiceProcess

ROWS = pa.RecordBatch.from_pydict(
    {"id": pa.array(["a", "b", "c"]), "__hash_key__": ["0" * 32, "f" * 32, None]}
)


def writer(options: Mapping[str, str], *, stream: bool = False, overwrite: bool = False) -> Any:
    source = LogHubDataSource(dict(options))
    schema = from_arrow_schema(ROWS.schema)
    return (source.streamWriter if stream else source.writer)(schema, overwrite)


@pytest.mark.long
def test_the_counts_of_all_tasks_are_reported(
    service: ServiceProcess, client: HttpLogHub, caplog: pytest.LogCaptureFixture
) -> None:
    caplog.set_level(logging.INFO, "loghub_spark")
    one = writer(options_of(service))
    assert isinstance(one, LogHubWriter)
    task = pickle.loads(pickle.dumps(one))
    messages = [task.write(iter([ROWS, ROWS])), task.write(iter([]))]
    assert isinstance(messages[0], WrittenMessage)
    assert (messages[0].rows, messages[0].log_groups, messages[1].rows) == (6, 3, 0)
    one.commit(messages)
    assert (
        f"6 logs in 3 log groups of {messages[0].bytes} bytes, by 2 tasks, are in demo/access" in caplog.text
    )


def test_a_failed_batch_says_that_its_logs_may_be_written_again(
    service: ServiceProcess, client: HttpLogHub, caplog: pytest.LogCaptureFixture
) -> None:
    one = writer(options_of(service), stream=True)
    assert isinstance(one, LogHubStreamWriter)
    one.abort([one.write(iter([ROWS])), None], 7)
    assert "batch 7 failed: 3 logs of the tasks that succeeded are in demo/access" in caplog.text
    assert "writes them again" in caplog.text


def test_a_logstore_that_does_not_exist_is_named(service: ServiceProcess, client: HttpLogHub) -> None:
    with pytest.raises(LogstoreError, match=r"demo/nope at .*Check the option logstore"):
        writer(options_of(service, logstore="nope")).write(iter([ROWS]))


def test_a_wrong_hash_key_is_shown(service: ServiceProcess, client: HttpLogHub) -> None:
    rows = pa.RecordBatch.from_pydict({"id": ["a"], "__hash_key__": ["abc"]})
    with pytest.raises(ValueError, match=r"32 hex digits, such as md5.*not 'abc'"):
        writer(options_of(service)).write(iter([rows]))


@pytest.mark.parametrize("stream", [False, True])
def test_a_logstore_cannot_be_overwritten(service: ServiceProcess, stream: bool) -> None:
    with pytest.raises(OptionError, match="can only be appended to"):
        writer(options_of(service), stream=stream, overwrite=True)
