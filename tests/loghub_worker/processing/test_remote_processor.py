"""Processors in real processes, without a log service: calls, checkpoints, failures, deaths."""

import os
import signal
import threading
from dataclasses import replace
from pathlib import Path

import pytest

from loghub.worker_contract import DeadLetterFolder
from loghub_worker.consumer.processor import ShardLostError
from loghub_worker.consumer.user_code import RemoteError
from loghub_worker.failure.skip_limits import Policy, WaitState
from loghub_worker.log_service import encode_cursor
from loghub_worker.processing.remote_processor import RemoteProcessor
from tests.loghub_worker.processing.support import MemoryTracker, Rig, batch, rig, until_done
from tests.support import wait_until

pytestmark = pytest.mark.long


def opened(on: Rig, shard: int = 0) -> RemoteProcessor:
    processor = on.processor()
    processor.initialize(shard)
    return processor


@pytest.mark.parametrize("factory", ["Recorder", "Asynchronous"])
def test_a_batch_is_processed_in_another_process_and_saved_here(tmp_path: Path, factory: str) -> None:
    with rig(tmp_path, factory) as on:
        processor, tracker = opened(on), MemoryTracker(0)
        assert processor.process(batch("a", "b", first=5), tracker) is None
        assert tracker.saves == [(encode_cursor(7), False)], "the end of the batch"
        processor.shutdown(tracker)
        process, imports, *_ = on.lines()[0]
        assert (int(process) != os.getpid(), imports) == (True, "-"), "another process, without Spark"
        events = [line[2:] for line in on.lines()]
        assert events == [["initialize", "0"], ["log", "0", "a"], ["log", "0", "b"],
                          ["shutdown", "0", encode_cursor(7)]]  # fmt: skip


def test_shards_are_spread_over_the_processes_and_stay_there(tmp_path: Path) -> None:
    with rig(tmp_path, processes=2) as on:
        processors = {shard: opened(on, shard) for shard in range(4)}
        for round_ in range(3):
            for shard, processor in processors.items():
                processor.process(batch(f"{shard}-{round_}", shard=shard), MemoryTracker(shard))
        places = {(line[3], line[0]) for line in on.lines() if line[2] == "log"}
        assert len(places) == 4, "each shard in one process"
        assert len({process for _, process in places}) == 2
        assert on.ids(1) == ["1-0", "1-1", "1-2"]
        assert [one.shards for one in on.pool.progress()] == [[0, 2], [1, 3]]


def test_what_a_save_raises_here_is_raised_there(tmp_path: Path) -> None:
    class Lost(MemoryTracker):
        def save(self, *, persist: bool = True, cursor: str | None = None) -> None:
            raise ShardLostError("shard 0 is no longer assigned to this consumer")

    with rig(tmp_path) as on:
        processor = opened(on)
        with pytest.raises(RemoteError, match="ShardLostError: shard 0 is no longer assigned"):
            processor.process(batch("a"), Lost(0))


def test_one_rejected_log_group_is_skipped_and_all_others_are_processed(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        on.policy = replace(on.policy, policy=Policy.SKIP)
        processor, tracker = opened(on), MemoryTracker(0)
        groups = [f"g{n}" for n in range(20)]
        until_done(lambda: processor.process(batch(*groups[:7], "raise-1", *groups[7:]), tracker), [])
        assert on.ids() == groups
        assert tracker.get() == encode_cursor(21)
        report = on.failures[0].handler.report({})
        assert [(one.log_groups, one.last_cursor) for one in report.skips] == [(1, 7)]


def test_the_limit_of_skips_in_a_row_counts_from_the_last_success(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        on.policy = replace(on.policy, policy=Policy.SKIP, max_consecutive=1)
        processor, tracker = opened(on), MemoryTracker(0)
        until_done(lambda: processor.process(batch("raise-1", "a", "raise-2", "b"), tracker), [])
        assert on.ids() == ["a", "b"]
        with pytest.raises(RemoteError, match="limited after 1 attempts"):
            processor.process(batch("raise-3", "raise-4", first=4), tracker)


def test_a_skipped_log_group_at_the_end_moves_the_checkpoint_only_if_all_before_it_is_saved(
    tmp_path: Path,
) -> None:
    with rig(tmp_path) as on:
        on.policy = replace(on.policy, policy=Policy.SKIP)
        processor = opened(on)
        saved, behind = MemoryTracker(0), MemoryTracker(0)
        until_done(lambda: processor.process(batch("a", "raise-1"), saved), [])
        assert saved.get() == encode_cursor(2)
        until_done(lambda: processor.process(batch("raise-2", first=9), behind), [])
        assert behind.get() == encode_cursor(0), "the processor has not saved what came before"


def test_a_dead_letter_gets_the_rejected_log_group(tmp_path: Path) -> None:
    from loghub_worker.failure.dead_letter import DeadLetters, FolderTarget, Origin

    class Source(DeadLetters):
        def _read(self, shard: int, cursor: int) -> bytes | None:
            return b"bytes"

    with rig(tmp_path) as on:
        origin = Origin(project="p", logstore="l", consumer_group="g")
        folder = DeadLetterFolder(path=str(tmp_path / "rejected")).path
        on.dead_letters = Source(None, origin, FolderTarget(Path(folder), origin))  # type: ignore[arg-type]
        on.policy = replace(on.policy, policy=Policy.DEAD_LETTER)
        processor, tracker = opened(on), MemoryTracker(0)
        until_done(lambda: processor.process(batch("a", "raise-1", "b"), tracker), [])
        assert on.ids() == ["a", "b"]
        assert [file.name for file in Path(folder, "p", "l", "g").iterdir()] == ["0-1.json"]


def test_a_stopped_shard_is_reported_and_its_code_is_called_no_more(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        on.policy = replace(on.policy, policy=Policy.STOP)
        processor, tracker, kept = opened(on), MemoryTracker(0), batch("a", "raise-1", "b")
        for _ in range(3):
            with pytest.raises(RemoteError, match=r"ValueError: cannot take raise-1 \(processors\.py:"):
                processor.process(kept, tracker)
        assert on.ids() == ["a"]
        (failing,) = on.failures[0].report(0).failing
        assert (failing.state, failing.begin, failing.attempts) == (WaitState.STOPPED, 1, 1)


def test_single_logs_are_not_acknowledged_in_a_worker(tmp_path: Path) -> None:
    with rig(tmp_path, "Refusing") as on:
        processor = opened(on)
        with pytest.raises(RemoteError, match=r"raise an error instead, and pipeline\.onFailure says"):
            processor.process(batch("a"), MemoryTracker(0))


def test_an_outage_is_never_skipped(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        on.policy = replace(on.policy, policy=Policy.SKIP)
        processor, tracker, kept = opened(on), MemoryTracker(0), batch("outage-1")
        with pytest.raises(RemoteError, match="ConnectionError: the database does not answer"):
            processor.process(kept, tracker)
        (failing,) = on.failures[0].report(0).failing
        assert failing.state is WaitState.RETRYING


def test_a_killed_process_is_replaced_and_its_logs_come_again(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        processor, tracker = opened(on), MemoryTracker(0)
        processor.process(batch("a"), tracker)
        (before,) = on.pool.progress()
        assert before.pid is not None
        os.kill(before.pid, signal.SIGKILL)
        wait_until(lambda: on.pool.progress()[0].starts == 2, "another process")
        until_done(lambda: processor.process(batch("b", first=1), tracker), [])
        assert on.ids() == ["a", "b"]
        assert [line[2] for line in on.lines()] == ["initialize", "log", "initialize", "log"]
        assert on.pool.progress()[0].message == "killed by signal 9, perhaps because memory ran out"


def test_a_log_group_that_ends_the_process_is_isolated_after_three_attempts(tmp_path: Path) -> None:
    with rig(tmp_path) as on:
        on.policy = replace(on.policy, policy=Policy.SKIP)
        processor, tracker, errors = opened(on), MemoryTracker(0), list[str]()
        kept = batch("a", "exit-1", "b")
        until_done(lambda: processor.process(kept, tracker), errors)
        assert on.ids() == ["a", "b"]
        assert any("process 0 ended: exit status 3" in error for error in errors)


@pytest.mark.parametrize(
    "command",
    [
        "exit-1",
        # Two calls are running when the time of one of them is over, and neither can end.
        pytest.param("hang-1", marks=pytest.mark.long),
    ],
)
def test_a_log_group_that_ends_the_process_is_not_blamed_on_another_shard(
    tmp_path: Path, command: str
) -> None:
    """Both are in one process. Each log group of the second shard is alone in its batch, so what ends the
    process three times during it would be skipped."""
    with rig(tmp_path, timeout_s=1.0 if command == "hang-1" else 60.0) as on:
        on.policy = replace(on.policy, policy=Policy.SKIP, max_attempts=1)
        deadly, innocent = opened(on, 0), opened(on, 1)
        ended = threading.Event()
        failed: list[BaseException] = []

        def run_innocent() -> None:
            position = 0
            try:
                while not ended.is_set():
                    one = batch(f"good-{position}", shard=1, first=position)
                    until_done(lambda: innocent.process(one, MemoryTracker(1)), [])  # noqa: B023
                    position += 1
            except BaseException as error:  # noqa: BLE001 - the test looks at it
                failed.append(error)

        thread = threading.Thread(target=run_innocent)
        thread.start()
        try:
            kept = batch("a", command, "b")
            until_done(lambda: deadly.process(kept, MemoryTracker(0)), [])
        finally:
            ended.set()
            thread.join(60)
        assert failed == []
        assert on.ids(0) == ["a", "b"]
        assert on.failures[0].handler.report({}).totals[0].skipped == 1
        assert on.failures[1].handler.report({}).skips == ()
        seen = [int(name.partition("-")[2]) for name in on.ids(1)]
        assert sorted(set(seen)) == list(range(len(set(seen)))), "nothing of the other shard is missing"


def test_a_call_that_hangs_ends_with_its_process_and_harms_no_other_process(tmp_path: Path) -> None:
    """It holds the interpreter's lock, so nothing in its process runs any more."""
    with rig(tmp_path, processes=2, timeout_s=3.0) as on:
        on.policy = replace(on.policy, policy=Policy.STOP)
        hanging, other = opened(on, 0), opened(on, 1)
        first = on.pool.progress()[0].pid
        raised: list[BaseException] = []

        def run() -> None:
            try:
                hanging.process(batch("hang-1"), MemoryTracker(0))
            except RemoteError as error:
                raised.append(error)

        thread = threading.Thread(target=run)
        thread.start()
        other.process(batch("a", shard=1), MemoryTracker(1))
        assert on.ids(1) == ["a"]
        thread.join(60)
        assert "process took longer than 3 s, and its process was killed" in str(raised[0])
        assert on.counts.timed_out == 1
        wait_until(lambda: on.pool.progress()[0].pid not in (first, None), "another process")


def test_a_factory_that_returns_something_else_is_an_error_of_initialize(tmp_path: Path) -> None:
    with (
        rig(tmp_path, "not_a_processor") as on,
        pytest.raises(RemoteError, match=r"the factory returned object, not a loghub_worker\.api"),
    ):
        opened(on)


def test_what_cannot_be_loaded_is_fatal(tmp_path: Path) -> None:
    with rig(tmp_path, "Missing") as on:
        on.pool.start_first()
        wait_until(lambda: on.pool.failure is not None, "the failure")
        assert on.pool.failure is not None
        assert on.pool.failure.reason == "InvalidPipeline"
        assert "has no attribute 'Missing'" in on.pool.failure.message
