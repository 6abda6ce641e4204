"""Reading ranges: each log once, whatever the service answers with."""

from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.client.port import Pulled
from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_worker.batch_plan import Plan, Range
from loghub_worker.exchange_files import Handover, Positions
from loghub_worker.query.streaming_query import trouble_in
from loghub_worker.query.transform import PipelineError
from loghub_worker.source.datasource import (
    LogHubDataSource,
    LogHubStreamReader,
    Options,
    ShortReadError,
    Tally,
    read_range,
)
from loghub_worker.source.end_cursors import EndWatch
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer

LOGSTORE = "reads"


def group(number: int, logs: int = 2) -> bytes:
    return encode(LogGroup(logs=tuple(Log(time=1, contents=(("id", f"{number}.{n}"),)) for n in range(logs))))


@pytest.fixture
def hub() -> MemoryLogHub:
    client = MemoryServer().client("proj")
    client.create_project()
    client.create_logstore(LOGSTORE, shards=1)
    for number in range(2500):
        client.put_logs(LOGSTORE, group(number))
    return client


def ids(hub: Any, piece: Range, tally: Tally | None = None) -> list[tuple[int, int, str]]:
    batches = read_range(hub, LOGSTORE, piece, tally or Tally())
    rows = [row for batch in batches for row in batch.to_pylist()]
    return [(row["__cursor__"], row["__index__"], dict(row["contents"])["id"]) for row in rows]


def begin_of(hub: MemoryLogHub) -> int:
    return decode(hub.get_cursor(LOGSTORE, 0, "begin"))


def test_range_of_several_answers_gives_each_log_at_its_cursor(hub: MemoryLogHub) -> None:
    begin, tally = begin_of(hub), Tally()
    rows = ids(hub, Range(0, begin + 100, begin + 2400), tally)
    assert rows == [(begin + n, i, f"{n}.{i}") for n in range(100, 2400) for i in range(2)]
    assert (tally.logs, tally.missing, tally.replaced) == (4600, 0, 0)


class Scripted:
    """Answers pulls from a list; fails the test when asked once more."""

    def __init__(self, *answers: Pulled) -> None:
        self.answers = list(answers)

    def pull_logs(self, logstore: str, shard: int, **wanted: Any) -> Pulled:
        return self.answers.pop(0)


def answer(*numbers: int, next_cursor: int) -> Pulled:
    body = wrap(group(n, logs=1) for n in numbers)
    return Pulled(body=body, count=len(numbers), next_cursor=encode_cursor(next_cursor), end_of_shard=False)


def test_expired_groups_are_counted_and_the_rest_has_its_true_cursors() -> None:
    tally = Tally()
    rows = ids(Scripted(answer(7, 8, 9, next_cursor=10)), Range(0, 2, 10), tally)
    assert rows == [(7, 0, "7.0"), (8, 0, "8.0"), (9, 0, "9.0")]
    assert tally.missing == 5


def test_range_that_expired_as_a_whole_gives_nothing_of_what_follows() -> None:
    tally = Tally()
    assert ids(Scripted(answer(20, 21, next_cursor=22)), Range(0, 2, 10), tally) == []
    assert (tally.logs, tally.missing) == (0, 8)


def test_range_of_an_earlier_logstore_of_the_name_tells_where_this_one_begins(hub: MemoryLogHub) -> None:
    before = begin_of(hub)
    hub.delete_logstore(LOGSTORE)
    hub.create_logstore(LOGSTORE, shards=1)
    hub.put_logs(LOGSTORE, group(1))
    tally = Tally()
    assert ids(hub, Range(0, before, before + 10), tally) == []
    assert (tally.missing, tally.count().oldest) == (10, begin_of(hub))
    assert begin_of(hub) > before + 1000
    assert ids(hub, Range(0, begin_of(hub), begin_of(hub) + 1), tally) != []
    assert tally.count().oldest == 0


def test_more_than_was_asked_for_is_cut_at_the_end_of_the_range() -> None:
    rows = ids(Scripted(answer(8, 9, 10, 11, next_cursor=12)), Range(0, 8, 10))
    assert [cursor for cursor, _, _ in rows] == [8, 9]


def test_fewer_than_promised_is_an_error_and_no_loss() -> None:
    with pytest.raises(ShortReadError):
        ids(Scripted(answer(2, next_cursor=3), answer(next_cursor=3)), Range(0, 2, 10))


def options(**changes: Any) -> Options:
    settings: dict[str, Any] = {
        "endpoint": "http://127.0.0.1:1",
        "project": "proj",
        "logstore": LOGSTORE,
        "credentials_dir": "/etc/key",
        "handover": "/var/h",
        "fetch_interval_s": 0.5,
        "max_log_groups": 10,
        "max_bytes": 1 << 20,
        "cores": 2,
    }
    return Options(**(settings | changes))


@pytest.mark.parametrize(("sizes", "groups"), [({}, 1), ({0: 10.0}, 1000), ({0: 1 << 20}, 10), ({0: 1e9}, 1)])
def test_plans_are_bounded_by_the_sizes_that_the_driver_measured(
    hub: MemoryLogHub, tmp_path: Path, sizes: dict[int, float], groups: int
) -> None:
    begin = begin_of(hub)
    Handover(tmp_path).write_positions(Positions(version=1, shards={0: begin}, group_bytes=sizes))
    reader = LogHubStreamReader(options(handover=str(tmp_path), max_log_groups=1000, max_bytes=10 << 20))
    reader._ends = EndWatch(hub, logstore=LOGSTORE, interval_s=1)
    plan = Plan.from_json(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    assert plan.ranges == (Range(0, begin, begin + groups),)


def test_options_survive_their_way_through_spark_and_hold_no_key() -> None:
    given = options()
    source = LogHubDataSource({"settings": given.to_option()})
    assert source.streamReader(schema=source.schema()).options == given


QUOTED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: Job aborted.
Traceback (most recent call last):
  File "source.py", line 1, in read
    yield from read_range(hub)
%s

	at org.apache.spark.api.python.BasePythonRunner (PythonRunner.scala:1)
"""


@pytest.mark.parametrize(
    ("line", "reason"),
    [
        ("loghub.wire.errors.EndpointUnreachable: http://x did not answer: refused", "EndpointUnreachable"),
        ("loghub.wire.errors.LogHubError: LogStoreNotExist (HTTP 404): gone", "LogstoreNotFound"),
        ("loghub.wire.errors.LogHubError: InvalidCursor (HTTP 400): no", "InvalidCursor"),
        ("loghub_worker.source.datasource.ShortReadError: shard 1: nothing at cursor 5", "PipelineFailed"),
    ],
)
def test_reason_of_a_dead_query_is_found_in_what_spark_quotes(line: str, reason: str) -> None:
    trouble = trouble_in(PySparkException(QUOTED % line))
    assert trouble.reason == reason
    assert "Traceback" not in trouble.message


def test_reason_of_a_full_disk_is_the_sink() -> None:
    trouble = trouble_in(OSError(28, "No space left on device"))
    assert trouble.reason == "SinkUnavailable"
    assert "No space left" in trouble.message


def test_reason_of_an_error_of_our_own_process_is_the_error() -> None:
    trouble = trouble_in(ValueError("no such thing"))
    assert (trouble.reason, trouble.message) == ("PipelineFailed", "ValueError: no such thing")


JAVA = """An error occurred while calling o57.save.
: org.apache.spark.SparkException: [TASK_WRITE_FAILED] Task failed while writing rows to file:/sink/a
\tat org.apache.spark.sql.errors.QueryExecutionErrors$.taskFailed(QueryExecutionErrors.scala:782)
\tat org.apache.spark.rdd.RDD.$anonfun$run$1(RDD.scala:9)
Caused by: java.io.UncheckedIOException: flush
\tat java.base/java.io.FileOutputStream.<init>(FileOutputStream.java:9)
\t... 17 more
Caused by: java.io.IOException: No space left on device
\tat java.base/java.io.FileOutputStream.writeBytes(Native Method)
\t... 19 more
"""


def test_of_a_java_stack_the_first_cause_is_told() -> None:
    trouble = trouble_in(PySparkException(JAVA))
    assert trouble.reason == "PipelineFailed"
    assert "TASK_WRITE_FAILED" in trouble.message
    assert trouble.message.endswith("\nCaused by: java.io.IOException: No space left on device")
    assert "\tat " not in trouble.message
    deep = trouble_in(PySparkException("\n".join(f"line {n}" for n in range(9)) + "\nCaused by: a full disk"))
    assert deep.message == "line 0\nline 1\nline 2\nCaused by: a full disk"


def test_reason_of_the_users_own_error_is_in_the_users_words() -> None:
    trouble = trouble_in(PipelineError("enrich:run: KeyError: 'a' (enrich.py:2, in run)"))
    assert (trouble.reason, trouble.message) == (
        "PipelineFailed",
        "enrich:run: KeyError: 'a' (enrich.py:2, in run)",
    )


def test_starved_spark_has_its_own_reason() -> None:
    text = "terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    assert trouble_in(PySparkException(text)).reason == "PythonWorkerTimeout"
