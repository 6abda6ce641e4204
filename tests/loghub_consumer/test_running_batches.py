"""What ended a process counts against logs only if nothing else ran in the worker."""

import threading
from pathlib import Path

import msgspec
import pytest

from loghub_consumer.batch_plan import Range
from loghub_consumer.failure.handler import ENDED, Journal
from loghub_consumer.failure.policy import Cause, FailingShards, FailureSettings, Policy, WaitState
from loghub_consumer.running_batches import BatchTurn, RunningBatches
from loghub_consumer.settlement import ShardJournals
from tests.support import STOP_GUARD_S

RULES = FailureSettings(
    policy=Policy.SKIP, max_attempts=3, max_consecutive=10, max_per_hour=100, batch_timeout_s=60.0
)


def left_behind(folder: Path, running: tuple[Range, ...]) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    for part in running:
        journal = Journal(running=(part,))
        (folder / f"attempts-{part.shard}.json").write_bytes(msgspec.json.encode(journal))


@pytest.mark.parametrize(
    ("running", "of_retries", "attempts"),
    [
        ((Range(0, 7, 8),), (), {0: 1}),
        ((Range(0, 7, 8), Range(3, 1, 2)), (), {0: 0, 3: 0}),
        ((Range(0, 7, 8),), (Range(0, 50, 51),), {0: 0}),
    ],
    ids=["alone", "two shards", "one of the retry logstore"],
)
def test_the_end_of_a_worker_is_an_attempt_of_what_ran_alone(
    tmp_path: Path, running: tuple[Range, ...], of_retries: tuple[Range, ...], attempts: dict[int, int]
) -> None:
    """And what ran is tried alone next, once more for each attempt."""
    left_behind(tmp_path, running)
    left_behind(tmp_path / "retries", of_retries)
    policy = FailingShards(RULES)
    before = RunningBatches(tmp_path)
    ShardJournals(tmp_path).restore(policy, ended_alone=before.ended_alone, now=0.0)
    assert {one.shard: one.attempts for one in policy.failing} == attempts
    assert all(policy.is_suspect(part.shard, part.begin) for part in running)


def test_only_ends_alone_are_counted_before_a_log_group_is_skipped() -> None:
    policy, part = FailingShards(RULES), Range(0, 7, 8)
    for _ in range(9):  # pods that were evicted, for example
        policy.suspected(part, ENDED, now=0.0)
    assert [one.attempts for one in policy.failing] == [0]
    for _ in range(2):
        policy.failed((part,), ENDED, now=0.0)
        policy.suspected(part, ENDED, now=0.0)
    assert [(one.attempts, one.state) for one in policy.failing] == [(2, WaitState.RETRYING)]
    policy.failed((part,), ENDED, now=0.0)
    assert [one.state for one in policy.failing] == [WaitState.SETTLING]
    policy.suspected(part, ENDED, now=0.0)
    assert policy.to_settle((part,)) is not None, "the dead letter is still due"


def test_a_range_that_ran_with_others_comes_again_in_smaller_parts() -> None:
    policy = FailingShards(RULES)
    policy.suspected(Range(0, 0, 160), ENDED, now=5.0)
    (failing,) = policy.failing
    assert (failing.log_groups, failing.until, failing.not_before_s) == (10, 160, 5.0)
    policy.succeeded((Range(0, 0, 10),), now=6.0)
    assert policy.is_suspect(0, 10), "the rest has not run alone yet"
    policy.succeeded((Range(0, 10, 160),), now=7.0)
    assert policy.failing == ()
    assert failing.failure.cause is Cause.ENDED


def begin(running: RunningBatches, *, alone: bool) -> BatchTurn:
    batch = running.begin(lambda: True, alone=alone)
    assert batch is not None
    return batch


def test_who_waits_gives_up_with_its_shard_and_keeps_nobody_waiting(tmp_path: Path) -> None:
    running = RunningBatches(tmp_path)
    first = begin(running, alone=False)
    assert running.begin(lambda: False, alone=True) is None
    second = begin(running, alone=False)
    assert (first.was_alone, second.was_alone) == (False, False)


def test_suspects_run_one_after_the_other_and_the_others_side_by_side(tmp_path: Path) -> None:
    running = RunningBatches(tmp_path)
    first, second = begin(running, alone=False), begin(running, alone=False)
    assert (first.was_alone, second.was_alone) == (False, False)
    events: list[str] = []
    may_end = threading.Event()

    def suspect() -> None:
        batch = begin(running, alone=True)
        events.append("suspect" if batch.was_alone else "with others")
        may_end.wait(STOP_GUARD_S)
        running.end(batch)

    def other() -> None:
        batch = begin(running, alone=False)
        events.append("other")
        running.end(batch)

    threads = [threading.Thread(target=suspect), threading.Thread(target=suspect)]
    for thread in threads:
        thread.start()
    running.end(first)
    threads.append(threading.Thread(target=other))
    threads[-1].start()
    assert events == [], "the second one still runs"
    running.end(second)
    may_end.set()
    for thread in threads:
        thread.join(STOP_GUARD_S)
    assert sorted(events) == ["other", "suspect", "suspect"]
    last = begin(running, alone=False)
    assert last.was_alone
