"""The data source: it reads each log of a range once, whatever the service answers, and reports errors."""

from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest
from pyspark.errors import PySparkException
from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.client.port import Pulled
from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_consumer.batch_plan import BatchPlan, GroupSize, Range, RangeRetry
from loghub_consumer.exchange_files import ExchangeFiles, FileShare, Positions, ShardRetries
from loghub_consumer.reading.answers import ShortReadError
from loghub_consumer.reading.end_cursors import EndWatch
from loghub_consumer.reading.shard_reader import ReadCount
from loghub_worker.query.batch_errors import query_error
from loghub_worker.query.transform import PipelineError
from loghub_worker.source import GroupDataSource, GroupStreamReader, SourceOptions
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer
from tests.loghub_consumer.reading.reading import read
from tests.support import HandClock

LOGSTORE = "reads"


def group(number: int, logs: int = 2) -> bytes:
    return encode(LogGroup(logs=tuple(Log(time=1, contents=(("id", f"{number}.{n}"),)) for n in range(logs))))


@pytest.fixture
def client() -> MemoryLogHub:
    client = MemoryServer().client("proj")
    client.create_project()
    client.create_logstore(LOGSTORE, shards=1)
    for number in range(2500):
        client.put_logs(LOGSTORE, group(number))
    return client


def read_ids(client: Any, shard_range: Range) -> tuple[list[tuple[int, int, str]], ReadCount]:
    """Cursor, index and id of each log, and the counts."""
    rows, counts = read(client, LOGSTORE, shard_range)
    return [(row["__cursor__"], row["__index__"], dict(row["contents"])["id"]) for row in rows], counts


def begin_of(client: MemoryLogHub) -> int:
    return decode(client.get_cursor(LOGSTORE, 0, "begin"))


def test_range_that_needs_several_answers_returns_each_log_with_its_cursor(client: MemoryLogHub) -> None:
    begin = begin_of(client)
    rows, counts = read_ids(client, Range(0, begin + 100, begin + 2400))
    assert rows == [(begin + n, i, f"{n}.{i}") for n in range(100, 2400) for i in range(2)]
    assert (counts.logs, counts.missing, counts.replaced) == (4600, 0, 0)


class Scripted:
    """A client that answers PullLogs from a list, and fails the test at any further request."""

    def __init__(self, *answers: Pulled) -> None:
        self.answers = list(answers)

    def pull_logs(self, logstore: str, shard: int, **options: Any) -> Pulled:
        return self.answers.pop(0)


def answer(*numbers: int, next_cursor: int) -> Pulled:
    body = wrap(group(n, logs=1) for n in numbers)
    return Pulled(body=body, count=len(numbers), next_cursor=encode_cursor(next_cursor), end_of_shard=False)


def test_expired_log_groups_are_counted_and_the_others_keep_their_cursors() -> None:
    rows, counts = read_ids(Scripted(answer(7, 8, 9, next_cursor=10)), Range(0, 2, 10))
    assert rows == [(7, 0, "7.0"), (8, 0, "8.0"), (9, 0, "9.0")]
    assert counts.missing == 5


def test_range_that_expired_as_a_whole_returns_no_log_after_it() -> None:
    rows, counts = read_ids(Scripted(answer(20, 21, next_cursor=22)), Range(0, 2, 10))
    assert rows == []
    assert (counts.logs, counts.missing) == (0, 8)


def test_range_of_an_earlier_logstore_of_the_same_name_returns_the_first_cursor_of_this_one(
    client: MemoryLogHub,
) -> None:
    before = begin_of(client)
    client.delete_logstore(LOGSTORE)
    client.create_logstore(LOGSTORE, shards=1)
    client.put_logs(LOGSTORE, group(1))
    rows, counts = read_ids(client, Range(0, before, before + 10))
    assert (rows, counts.missing, counts.oldest) == ([], 10, begin_of(client))
    assert begin_of(client) > before + 1000
    rows, counts = read_ids(client, Range(0, begin_of(client), begin_of(client) + 1))
    assert rows
    assert counts.oldest == 0


def test_log_groups_after_the_end_of_the_range_are_ignored() -> None:
    rows, _ = read_ids(Scripted(answer(8, 9, 10, 11, next_cursor=12)), Range(0, 8, 10))
    assert [cursor for cursor, _, _ in rows] == [8, 9]


def test_fewer_log_groups_than_promised_is_an_error() -> None:
    with pytest.raises(ShortReadError):
        read_ids(Scripted(answer(2, next_cursor=3), answer(next_cursor=3)), Range(0, 2, 10))


@pytest.mark.parametrize("claimed", [1, 3])
def test_an_answer_with_another_number_of_log_groups_than_it_says_is_an_error(claimed: int) -> None:
    """Its log groups cannot be numbered, and some may be missing."""
    lie = replace(answer(2, 3, next_cursor=2 + claimed), count=claimed)
    with pytest.raises(ShortReadError, match=f"2 log groups .* {claimed}"):
        read_ids(Scripted(lie), Range(0, 2, 2 + claimed))


def options(**changes: Any) -> SourceOptions:
    settings: dict[str, Any] = {
        "endpoint": "http://127.0.0.1:1",
        "project": "proj",
        "logstore": LOGSTORE,
        "credentials_dir": "/etc/key",
        "exchange_dir": "/var/h",
        "fetch_interval_s": 0.5,
        "batch_interval_s": 0.0,
        "max_log_groups": 10,
        "max_bytes": 1 << 20,
        "max_logs": 1_000_000,
        "cores": 2,
    }
    return SourceOptions(**(settings | changes))


@pytest.mark.parametrize(
    ("size", "groups"),
    [
        (None, 1),
        (GroupSize(bytes=10, logs=1), 1000),
        (GroupSize(bytes=1 << 20, logs=1), 10),
        (GroupSize(bytes=1e9, logs=1), 1),
        (GroupSize(bytes=10, logs=50_000), 20),
    ],
)
def test_plans_are_bounded_by_the_sizes_that_the_driver_measured(
    client: MemoryLogHub, tmp_path: Path, size: GroupSize | None, groups: int
) -> None:
    begin = begin_of(client)
    sizes = {} if size is None else {0: size}
    ExchangeFiles(tmp_path).write_positions(Positions(version=1, shards={0: begin}, group_sizes=sizes))
    reader = GroupStreamReader(options(exchange_dir=str(tmp_path), max_log_groups=1000, max_bytes=10 << 20))
    reader._ends = EndWatch(client, logstore=LOGSTORE, interval_s=1)
    plan = BatchPlan.from_json(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    assert plan.ranges == (Range(0, begin, begin + groups),)


def test_a_position_beyond_the_end_is_reported_while_other_shards_are_read(tmp_path: Path) -> None:
    client = MemoryServer().client("proj")
    client.create_project()
    client.create_logstore(LOGSTORE, shards=2)
    for key in ("0" * 32, "f" * 32):
        client.put_logs(LOGSTORE, group(1), hash_key=key)
    begins = {shard: decode(client.get_cursor(LOGSTORE, shard, "begin")) for shard in (0, 1)}
    positions = {0: begins[0] + 3, 1: begins[1]}
    exchange = ExchangeFiles(tmp_path)
    exchange.write_positions(Positions(version=1, shards=positions))
    reader = GroupStreamReader(options(exchange_dir=str(tmp_path)))
    reader._ends = EndWatch(client, logstore=LOGSTORE, interval_s=1)
    plan = BatchPlan.from_json(reader.latestOffset(reader.initialOffset(), ReadAllAvailable()))
    assert plan.ranges == (Range(1, begins[1], begins[1] + 1),)
    report = exchange.report()
    assert (report.reason, report.beyond_end) == ("PositionBeyondEnd", {0: 2})
    assert "shard 0" in report.message


class Paced:
    """A reader of one shard on a clock that only its own waiting moves."""

    def __init__(self, client: MemoryLogHub, folder: Path, **changes: Any) -> None:
        self.begin = begin_of(client)
        self.clock = HandClock(100.0)
        self.exchange = ExchangeFiles(folder)
        self.looks = 0
        self.reader = GroupStreamReader(options(exchange_dir=str(folder), **changes))
        self.reader._ends = EndWatch(
            client, logstore=LOGSTORE, interval_s=0.2, waits=self.reader.options.roll is not None
        )
        self.reader._clock, self.reader._sleep = self.clock, self._sleep  # type: ignore[assignment]
        self.offset = self.reader.initialOffset()
        self.at = self.begin
        self._write(1)

    def _write(self, version: int) -> None:
        size = {0: GroupSize(bytes=10, logs=2)}
        self.exchange.write_positions(Positions(version=version, shards={0: self.at}, group_sizes=size))

    def _sleep(self, seconds: float) -> None:
        self.looks += 1
        self.clock.now += seconds

    def next(self) -> tuple[float, int]:
        """Ask for the next plan, as Spark does: how long that took, and the number of its log groups. The
        sink then has them."""
        since = self.clock.now
        after = self.reader.latestOffset(self.offset, ReadAllAvailable())
        groups = 0 if after == self.offset else BatchPlan.from_json(after).ranges[0].groups
        self.offset, self.at = after, self.at + groups
        self._write(BatchPlan.from_json(after).number + 1)
        return round(self.clock.now - since, 3), groups


def test_a_full_batch_is_followed_at_once_and_the_last_one_after_the_interval(
    client: MemoryLogHub, tmp_path: Path
) -> None:
    paced = Paced(client, tmp_path, max_log_groups=1000, batch_interval_s=0.8)
    assert [paced.next() for _ in range(3)] == [(0, 1000), (0, 1000), (0, 500)]
    client.put_logs(LOGSTORE, group(1))
    waited, groups = paced.next()
    assert groups == 1
    assert waited == pytest.approx(0.8, abs=0.05)


def test_without_an_interval_a_log_waits_for_no_more_than_the_next_question_to_the_service(
    client: MemoryLogHub, tmp_path: Path
) -> None:
    paced = Paced(client, tmp_path, max_log_groups=5000)
    assert paced.next() == (0, 2500)
    client.put_logs(LOGSTORE, group(1))
    waited, groups = paced.next()
    assert groups == 1
    assert waited <= 0.25


def test_log_groups_wait_until_they_are_worth_a_file(client: MemoryLogHub, tmp_path: Path) -> None:
    """A log group has ten bytes, and files half of them."""
    paced = Paced(client, tmp_path, max_log_groups=5000, roll_bytes=100, roll_delay_s=30.0)
    paced.exchange.write_file_share(FileShare(bytes=0.5))
    assert paced.next() == (0, 2500), "what was there before the worker does not wait"
    for _ in range(19):
        client.put_logs(LOGSTORE, group(1))
    assert paced.next() == (pytest.approx(1.0, abs=0.1), 0)
    assert paced.exchange.report().ends == {0: paced.at + 19}, "so that the lag is known meanwhile"
    client.put_logs(LOGSTORE, group(1))
    assert paced.next() == (pytest.approx(0, abs=0.25), 20)


def test_a_log_group_waits_for_a_file_no_longer_than_it_may(client: MemoryLogHub, tmp_path: Path) -> None:
    paced = Paced(client, tmp_path, max_log_groups=5000, roll_bytes=1000, roll_delay_s=5.0)
    paced.next()
    client.put_logs(LOGSTORE, group(1))
    since, groups = paced.clock.now, 0
    while not groups:
        _, groups = paced.next()
        client.put_logs(LOGSTORE, group(1))
    assert 5.0 <= paced.clock.now - since <= 5.5
    assert groups > 4, "those that arrived meanwhile are in the same batch"


def test_a_range_that_failed_does_not_wait_for_a_file(client: MemoryLogHub, tmp_path: Path) -> None:
    paced = Paced(client, tmp_path, max_log_groups=5000, roll_bytes=1000, roll_delay_s=30.0)
    paced.next()
    for _ in range(4):
        client.put_logs(LOGSTORE, group(1))
    retry = RangeRetry(begin=paced.at, log_groups=4, not_before_s=paced.clock.now + 0.5)
    paced.exchange.write_retries(ShardRetries(shards={0: retry}))
    assert paced.next() == (pytest.approx(0.5, abs=0.1), 4)


def test_at_rest_spark_is_kept_waiting_and_the_shards_are_looked_at(
    client: MemoryLogHub, tmp_path: Path
) -> None:
    """Otherwise Spark asks about a hundred times a second."""
    paced = Paced(client, tmp_path, max_log_groups=5000)
    paced.next()
    assert paced.next() == (pytest.approx(1.0, abs=0.1), 0)
    assert paced.looks <= 25


def test_a_revoked_shard_is_reported_while_nothing_is_to_be_read(
    client: MemoryLogHub, tmp_path: Path
) -> None:
    """Its release waits for this report."""
    paced = Paced(client, tmp_path, max_log_groups=5000)
    paced.next()

    def revoke(seconds: float) -> None:
        paced.clock.now += seconds
        if paced.exchange.report().version < 9:
            paced.exchange.write_positions(Positions(version=9, shards={}))
        else:
            paced.clock.now += 10

    paced.reader._sleep = revoke
    before = paced.clock.now
    paced.next()
    assert paced.exchange.report().version == 9
    assert paced.clock.now - before >= 10, "seen within the same question of Spark"


def test_options_pass_through_spark_unchanged() -> None:
    expected = options()
    source = GroupDataSource({"settings": expected.to_option()})
    assert source.streamReader(schema=source.schema()).options == expected


QUOTED = """[STREAM_FAILED] Query [id = 1, runId = 2] terminated with exception: QueryRunner aborted.
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
        (
            "loghub_consumer.reading.shard_reader.ShortReadError: shard 1: nothing at cursor 5",
            "PipelineFailed",
        ),
    ],
)
def test_the_reason_of_a_failed_query_is_read_from_the_traceback_that_spark_quotes(
    line: str, reason: str
) -> None:
    error = query_error(PySparkException(QUOTED % line))
    assert error.reason == reason
    assert "Traceback" not in error.message


def test_a_full_disk_is_reported_as_an_unavailable_sink() -> None:
    error = query_error(OSError(28, "No space left on device"))
    assert error.reason == "SinkUnavailable"
    assert "No space left" in error.message


def test_any_other_error_is_reported_with_its_type() -> None:
    error = query_error(ValueError("no such thing"))
    assert (error.reason, error.message) == ("PipelineFailed", "ValueError: no such thing")


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


def test_the_root_cause_of_a_java_stack_trace_is_reported() -> None:
    error = query_error(PySparkException(JAVA))
    assert error.reason == "PipelineFailed"
    assert "TASK_WRITE_FAILED" in error.message
    assert error.message.endswith("\nCaused by: java.io.IOException: No space left on device")
    assert "\tat " not in error.message
    deep = query_error(
        PySparkException("\n".join(f"line {n}" for n in range(9)) + "\nCaused by: a full disk")
    )
    assert deep.message == "line 0\nline 1\nline 2\nCaused by: a full disk"


def test_an_error_of_the_users_function_keeps_its_message() -> None:
    error = query_error(PipelineError("enrich:run: KeyError: 'a' (enrich.py:2, in run)"))
    assert (error.reason, error.message) == (
        "PipelineFailed",
        "enrich:run: KeyError: 'a' (enrich.py:2, in run)",
    )


def test_python_processes_that_start_too_slowly_have_their_own_reason() -> None:
    text = "terminated with exception: Python worker failed to connect back. SQLSTATE: XXKST"
    assert query_error(PySparkException(text)).reason == "PythonWorkerTimeout"
