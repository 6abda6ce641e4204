"""The batches of the query runner, without Spark."""

import threading
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.worker import OnFailure
from loghub.wire.errors import EndpointUnreachable
from loghub_consumer.batch_plan import GroupSize, Range, RangeRetry
from loghub_consumer.failure.dead_letter import Rejection
from loghub_consumer.failure.policy import Cause, WaitState
from loghub_consumer.membership.membership import LeaveRequest
from loghub_consumer.reading.shard_reader import ReadCount, ReadFailure
from loghub_worker.query.streaming_query import query_counters
from tests.loghub_worker.query.open_shard import BEGIN, TIMEOUT_S, OpenShard
from tests.support import HandClock, wait_until

SKIP = OnFailure(policy="Skip", max_attempts=2)


@pytest.fixture
def open_shard(tmp_path: Path) -> OpenShard:
    return OpenShard(tmp_path)


def test_a_range_that_was_read_is_published_and_counted(open_shard: OpenShard) -> None:
    assert open_shard.deliver(ReadCount(logs=20, bytes=500, missing=1)) == Range(0, BEGIN, BEGIN + 10)
    with open_shard.shared_state.use() as (membership, _):
        assert [(s.logs, s.group_size) for s in membership.shards] == [(20, GroupSize(bytes=50, logs=2))]
    assert open_shard.query_runner.totals.missing == 1


def test_a_range_whose_reading_ended_early_counts_up_to_there(open_shard: OpenShard) -> None:
    assert open_shard.deliver(ReadCount(logs=6, bytes=50, end=BEGIN + 3)) == Range(0, BEGIN, BEGIN + 3)


@pytest.mark.parametrize("rejected", [True, False])
def test_a_shard_of_which_nothing_could_be_read_fails_alone_and_the_others_are_delivered(
    tmp_path: Path, rejected: bool
) -> None:
    open_shards = OpenShard(tmp_path, shards=2)
    failure = ReadFailure(rejected=rejected, reason="WriteQuotaExceed", message="wait")
    open_shards.counts[0] = ReadCount(logs=20, bytes=500)
    open_shards.counts[1] = ReadCount(logs=0, bytes=0, failure=failure)
    open_shards.batch(BEGIN, BEGIN + 10)
    assert open_shards.sink.published == [(Range(0, BEGIN, BEGIN + 10),)]
    assert open_shards.exchange.positions().shards == {0: BEGIN + 10, 1: BEGIN}
    (retry,) = open_shards.exchange.retries().shards.items()
    assert retry[0] == 1
    totals = open_shards.query_runner.failures.report({}).totals
    assert {shard: one.failed_attempts for shard, one in totals.items()} == {1: 1}


def test_a_batch_of_which_nothing_could_be_read_reaches_no_sink(open_shard: OpenShard) -> None:
    failure = ReadFailure(rejected=False, reason="WriteQuotaExceed", message="wait")
    for _ in range(2):
        open_shard.counts[0] = ReadCount(logs=0, bytes=0, failure=failure)
        open_shard.batch(BEGIN, BEGIN + 1)
    totals = open_shard.query_runner.totals
    assert (open_shard.position, open_shard.sink.published) == (BEGIN, [])
    assert open_shard.sink.aborted == 2, "an aggregate has a row of no logs, whose files are staged"
    assert (totals.batches, totals.discarded) == (0, 0)
    (failing,) = open_shard.query_runner.failures.report({0: BEGIN}).failing
    assert (failing.failure.reason, failing.failure.cause) == ("WriteQuotaExceed", Cause.UNAVAILABLE)
    assert failing.attempts == 2


def test_the_cursors_of_an_earlier_logstore_of_the_same_name_are_skipped_as_one_range(
    open_shard: OpenShard,
) -> None:
    """So that a consumer that finds the range in the sink's record continues after it."""
    assert open_shard.deliver(ReadCount(logs=0, bytes=0, missing=10, oldest=10**18)) == Range(
        0, BEGIN, 10**18
    )


def test_a_batch_that_fails_does_not_end_the_query_and_the_source_reads_a_smaller_range(
    open_shard: OpenShard,
) -> None:
    open_shard.sink.write_error = ValueError("no such thing")
    for _ in range(20):
        open_shard.batch(BEGIN, BEGIN + 8)
    assert open_shard.sink.aborted == 20
    assert open_shard.exchange.retries().shards == {
        0: RangeRetry(begin=BEGIN, log_groups=4, not_before_s=open_shard.clock.now)
    }
    assert open_shard.position == BEGIN
    report = open_shard.query_runner.failures.report({0: BEGIN})
    assert (report.failing, report.error.reason) == ((), ""), "it is still being divided"
    open_shard.sink.write_error = None
    open_shard.batch(BEGIN, BEGIN + 8)
    assert (open_shard.position, open_shard.exchange.retries().shards) == (BEGIN + 8, {})


def test_a_log_group_that_failed_alone_is_skipped_without_reading_it_again(tmp_path: Path) -> None:
    open_shard = OpenShard(tmp_path, on_failure=SKIP)
    open_shard.sink.write_error = ValueError("no such thing")
    for _ in range(2):
        open_shard.batch(BEGIN, BEGIN + 1)
    assert open_shard.position == BEGIN
    open_shard.sink.write_error = AssertionError("it is read again")
    open_shard.batch(BEGIN, BEGIN + 1)
    assert open_shard.position == BEGIN + 1
    assert open_shard.sink.published == [(Range(0, BEGIN, BEGIN + 1),)], "the sink knows of the skip"
    assert open_shard.query_runner.failures.report({}).totals[0].skipped == 1


def test_only_the_log_group_that_failed_is_skipped_even_if_the_source_did_not_learn_of_it(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The disk was full for a moment, and meanwhile further log groups arrived."""
    open_shard = OpenShard(tmp_path, on_failure=OnFailure(policy="Skip", max_attempts=1))
    open_shard.sink.write_error = ValueError("no such thing")
    with monkeypatch.context() as patched:
        patched.setattr(open_shard.exchange, "write_retries", no_space)
        with pytest.raises(OSError, match="No space left"):
            open_shard.batch(BEGIN, BEGIN + 1)
    open_shard.batch(BEGIN, BEGIN + 50)
    assert (open_shard.position, open_shard.sink.published) == (BEGIN, [])


@pytest.mark.parametrize(("copy_to", "delivered"), [("", (0, 1)), ("proj/copies", (1,))])
def test_only_a_copy_reads_again_what_the_source_has_not_counted(
    tmp_path: Path, copy_to: str, delivered: tuple[int, ...]
) -> None:
    """Nobody knows what was copied of it; another query need not read all of a range."""
    open_shards = OpenShard(tmp_path, shards=2)
    runner = open_shards.query_runner
    runner._options = replace(runner._options, copy_to=copy_to)
    open_shards.counts[1] = ReadCount(logs=3, bytes=9)
    open_shards.batch(BEGIN, BEGIN + 1)
    assert open_shards.sink.published == [tuple(Range(shard, BEGIN, BEGIN + 1) for shard in delivered)]
    expected = {shard: BEGIN + (shard in delivered) for shard in (0, 1)}
    assert open_shards.exchange.positions().shards == expected


def test_rows_that_executors_elsewhere_wrote_and_the_sink_does_not_find_are_not_delivered(
    tmp_path: Path,
) -> None:
    """They have written to their own disks. In its pod, a worker need not count them."""
    open_shard = OpenShard(tmp_path, spark_master="spark://master:7077")
    open_shard.computed_rows.computed = 5
    with pytest.raises(OSError, match=r"5 rows, and the worker finds 0 .* spec\.spark\.master"):
        open_shard.batch(BEGIN, BEGIN + 1)
    assert (open_shard.position, open_shard.sink.published, open_shard.sink.aborted) == (BEGIN, [], 1)
    open_shard.computed_rows.computed = 0
    open_shard.batch(BEGIN, BEGIN + 1)
    assert open_shard.position == BEGIN + 1


def no_space(*_: object) -> None:
    raise OSError(28, "No space left on device")


def test_nothing_is_skipped_while_the_sink_does_not_even_take_an_empty_result(tmp_path: Path) -> None:
    open_shard = OpenShard(tmp_path, on_failure=SKIP)
    open_shard.sink.write_error = ValueError("no such thing")
    open_shard.sink.check_error = OSError(28, "No space left on device")
    for _ in range(3):
        open_shard.batch(BEGIN, BEGIN + 1)
    (failing,) = open_shard.query_runner.failures.report({0: BEGIN}).failing
    assert (failing.state, failing.failure.reason) == (WaitState.RETRYING, "SinkUnavailable")
    elsewhere = open_shard.query_runner.failures.report({0: BEGIN + 1})
    assert elsewhere.failing == (), "another worker has moved the shard since"
    assert (open_shard.position, open_shard.sink.published) == (BEGIN, [])
    open_shard.sink.write_error = open_shard.sink.check_error = None
    open_shard.batch(BEGIN, BEGIN + 1)
    assert open_shard.query_runner.failures.report({}).totals[0].skipped == 0


def test_an_unavailable_sink_folder_ends_the_query_and_concerns_no_log_group(tmp_path: Path) -> None:
    open_shard = OpenShard(tmp_path, on_failure=SKIP)
    open_shard.sink.write_error = OSError(28, "No space left on device")
    for _ in range(5):
        with pytest.raises(OSError, match="No space left"):
            open_shard.batch(BEGIN, BEGIN + 1)
    assert open_shard.query_runner.failures.report({}).totals == {}
    assert open_shard.exchange.retries().shards == {}


class RecordingDeadLetter:
    """A dead letter that fails as long as `error` is set."""

    def __init__(self) -> None:
        self.error: Exception | None = None
        self.expired = False
        self.written: list[Rejection] = []

    def write(self, rejection: Rejection) -> bool:
        if self.error is not None:
            raise self.error
        if not self.expired:
            self.written.append(rejection)
        return not self.expired


DEAD_LETTER = OnFailure(policy="DeadLetter", max_attempts=1)


def shard_that_fails(folder: Path, dead_letter: Any) -> OpenShard:
    """A shard whose next batch of one log group settles it."""
    open_shard = OpenShard(folder, on_failure=DEAD_LETTER, dead_letters=dead_letter)
    open_shard.sink.write_error = ValueError("no such thing")
    open_shard.batch(BEGIN, BEGIN + 1)
    return open_shard


def test_a_shard_waits_for_its_dead_letter_and_a_crash_in_between_writes_it_again(tmp_path: Path) -> None:
    dead_letter = RecordingDeadLetter()
    open_shard = shard_that_fails(tmp_path, dead_letter)
    dead_letter.error = EndpointUnreachable("http://x", "refused", definite=True)
    open_shard.batch(BEGIN, BEGIN + 1)
    assert open_shard.position == BEGIN
    (failing,) = open_shard.query_runner.failures.report({0: BEGIN}).failing
    assert failing.failure.reason == "DeadLetterUnavailable"
    assert failing.not_before_s is not None
    assert failing.not_before_s > open_shard.clock.now

    dead_letter.error = None
    open_shard.sink.published = Crash()
    with pytest.raises(KeyboardInterrupt):
        open_shard.batch(BEGIN, BEGIN + 1)
    assert (open_shard.position, len(dead_letter.written)) == (BEGIN, 1)
    open_shard = shard_that_fails(tmp_path / "another-worker", dead_letter)
    open_shard.batch(BEGIN, BEGIN + 1)
    assert (open_shard.position, len(dead_letter.written)) == (BEGIN + 1, 2)
    assert open_shard.query_runner.failures.report({}).totals[0].dead_lettered == 1


def test_a_dead_letter_is_not_written_again_while_the_sink_does_not_publish_the_range(tmp_path: Path) -> None:
    dead_letter = RecordingDeadLetter()
    open_shard = shard_that_fails(tmp_path, dead_letter)
    open_shard.sink.publish_error = OSError(28, "No space left on device")
    for _ in range(5):
        with pytest.raises(OSError, match="No space left"):
            open_shard.batch(BEGIN, BEGIN + 1)
    open_shard.sink.publish_error = None
    open_shard.batch(BEGIN, BEGIN + 1)
    assert (open_shard.position, len(dead_letter.written)) == (BEGIN + 1, 1)
    assert open_shard.query_runner.failures.report({}).totals[0].dead_lettered == 1


def test_a_log_group_that_expired_before_its_dead_letter_is_counted_as_expired(tmp_path: Path) -> None:
    dead_letter = RecordingDeadLetter()
    open_shard = shard_that_fails(tmp_path, dead_letter)
    dead_letter.expired = True
    open_shard.batch(BEGIN, BEGIN + 1)
    report = open_shard.query_runner.failures.report({})
    assert open_shard.position == BEGIN + 1
    assert (report.totals[0].dead_lettered, report.totals[0].skipped, report.skips) == (0, 0, ())
    assert open_shard.query_runner.totals.missing == 1


class Crash(list[tuple[Range, ...]]):
    """Ends the process, as far as a test can, when the sink publishes."""

    def append(self, _: object) -> None:
        raise KeyboardInterrupt


class Hang:
    """A thread in which a batch is stuck in the sink until `go_on` is set."""

    def __init__(self, open_shard: OpenShard, begin: int, end: int) -> None:
        self.go_on, self._reached = threading.Event(), threading.Event()
        open_shard.sink.writing = self._wait
        self.thread = threading.Thread(target=open_shard.batch, args=(begin, end), daemon=True)
        self.thread.start()
        assert self._reached.wait(60)

    def _wait(self) -> None:
        self._reached.set()
        assert self.go_on.wait(60)


def test_a_batch_is_cancelled_after_its_timeout_and_counts_as_failed(open_shard: OpenShard) -> None:
    runner = open_shard.query_runner
    hang = Hang(open_shard, BEGIN, BEGIN + 160)
    open_shard.clock.now += TIMEOUT_S - 1
    assert (runner.enforce_timeout(), open_shard.spark.cancelled) == (None, [])
    assert runner.batch_age_s == TIMEOUT_S - 1
    open_shard.clock.now += 1
    assert runner.enforce_timeout() is None
    wait_until(lambda: open_shard.spark.cancelled == ["run-1"], "the cancellation")
    open_shard.sink.write_error = RuntimeError("Job 2 cancelled part of cancelled job group run-1")
    hang.go_on.set()
    hang.thread.join(60)
    assert runner.batch_age_s is None
    retry = open_shard.exchange.retries().shards[0]
    assert (retry.begin, retry.log_groups) == (BEGIN, 10)
    assert retry.not_before_s is not None
    assert retry.not_before_s >= open_shard.clock.now + TIMEOUT_S, "the other shards come first"
    assert runner.totals.timed_out == 1
    assert runner.enforce_timeout() is None


def test_the_jobs_of_the_next_batch_are_not_cancelled(open_shard: OpenShard) -> None:
    """The cancellation is sent by another thread, and all batches of a query have one job group."""
    runner = open_shard.query_runner
    hang = Hang(open_shard, BEGIN, BEGIN + 1)
    late = runner._running
    assert late is not None
    hang.go_on.set()
    hang.thread.join(60)
    hang = Hang(open_shard, BEGIN + 1, BEGIN + 2)
    runner._cancel(late)
    assert open_shard.spark.cancelled == []
    hang.go_on.set()
    hang.thread.join(60)


def test_nothing_of_a_batch_that_cannot_be_cancelled_is_committed_after_the_shards_are_given_up(
    tmp_path: Path,
) -> None:
    open_shard = OpenShard(tmp_path)
    runner = open_shard.query_runner
    hang = Hang(open_shard, BEGIN, BEGIN + 160)
    open_shard.clock.now += TIMEOUT_S + 29
    assert runner.enforce_timeout() is None
    open_shard.clock.now += 1
    failure = runner.enforce_timeout()
    assert failure is not None
    assert failure.reason == "BatchTimedOut"
    assert "shard 0 from cursor" in failure.message
    with open_shard.shared_state.use() as (membership, now):
        membership.abandon()
        assert membership.shards == ()
        assert isinstance(membership.poll(now), LeaveRequest)

    hang.go_on.set()
    hang.thread.join(60)
    assert not hang.thread.is_alive()
    assert open_shard.sink.published == []
    assert (runner.totals.batches, runner.totals.discarded) == (0, 1)

    # The next process of this worker does not read all of it again.
    open_shard = OpenShard(tmp_path, clock=HandClock(open_shard.clock.now))
    retry = open_shard.exchange.retries().shards[0]
    assert (retry.begin, retry.log_groups) == (BEGIN, 10)


def test_a_log_group_that_ends_each_process_is_skipped_without_ending_another_one(tmp_path: Path) -> None:
    now = 100.0
    for log_groups in (160, 1, 1):
        open_shard = OpenShard(tmp_path, on_failure=SKIP, clock=HandClock(now))
        now = end_of_process(open_shard, log_groups)
    open_shard = OpenShard(tmp_path, on_failure=SKIP, clock=HandClock(now))
    open_shard.sink.write_error = AssertionError("it is read again")
    open_shard.batch(BEGIN, BEGIN + 1)
    assert open_shard.position == BEGIN + 1
    assert open_shard.query_runner.failures.report({}).totals[0].skipped == 1


def end_of_process(open_shard: OpenShard, log_groups: int) -> float:
    """Let a batch of so many log groups hang until the process must end; return the time."""
    hang = Hang(open_shard, BEGIN, BEGIN + log_groups)
    open_shard.clock.now += TIMEOUT_S + 30
    assert open_shard.query_runner.enforce_timeout() is not None
    with open_shard.shared_state.use() as (membership, _):
        membership.abandon()
    hang.go_on.set()
    hang.thread.join(60)
    return open_shard.clock.now


def test_a_killed_process_is_an_attempt_and_a_stopped_one_is_none(tmp_path: Path) -> None:
    killed = OpenShard(tmp_path)
    hang = Hang(killed, BEGIN, BEGIN + 160)
    after = OpenShard(tmp_path, clock=HandClock(killed.clock.now))
    assert after.exchange.retries().shards[0].log_groups == 10
    after.query_runner.failures.close()
    assert OpenShard(tmp_path).exchange.retries().shards == {}
    hang.go_on.set()
    hang.thread.join(60)


def test_failed_skipped_and_cancelled_are_counted_by_shard(tmp_path: Path) -> None:
    open_shard = OpenShard(tmp_path, on_failure=SKIP)
    open_shard.sink.write_error = ValueError("no such thing")
    for _ in range(3):
        open_shard.batch(BEGIN, BEGIN + 1)
    query_runner = open_shard.query_runner
    failures = query_runner.failures.report({}).totals
    counters = {counter.name: counter.value for counter in query_counters(query_runner.totals, failures)}
    assert counters["loghub_worker_failed_attempts"] == {0: 2}
    assert counters["loghub_worker_log_groups_skipped"] == {0: 1}
    assert counters["loghub_worker_log_groups_dead_lettered"] == {0: 0}
    assert counters["loghub_worker_batches_timed_out"] == 0
    assert counters["loghub_worker_batches"] == 1
