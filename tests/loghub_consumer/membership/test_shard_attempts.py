"""Which openings and checkpoints are due, and the pace of each shard."""

from loghub.backoff import Backoff, without_jitter
from loghub_consumer.membership.membership import MemberShard, ShardPhase
from loghub_consumer.membership.shard_attempts import (
    NONE_YET,
    SavePace,
    ShardAttempts,
    openings_due,
    saves_due,
)

RETRIES = Backoff(first_s=1.0, max_s=10.0, random=without_jitter)
SERVING = SavePace(interval_s=60.0, ended=frozenset(), is_stopping=False)
NOW = 1000.0


def held(shard: int, phase: ShardPhase = ShardPhase.OPEN) -> MemberShard:
    return MemberShard(shard=shard, epoch=1, phase=phase, position=8, saved=7)


def numbers(shards: tuple[MemberShard, ...]) -> list[int]:
    return [one.shard for one in shards]


def test_a_shard_that_fails_keeps_no_other_waiting() -> None:
    opening = [held(shard, ShardPhase.OPENING) for shard in (0, 1, 2)]
    failed = {1: NONE_YET.failed(RETRIES, now=NOW)}
    assert numbers(openings_due(opening, failed, now=NOW)) == [0, 2]
    assert numbers(openings_due(opening, failed, now=NOW + 1.0)) == [0, 1, 2]


def test_pauses_grow_with_each_failure_of_the_shard_and_start_again_after_a_success() -> None:
    twice = NONE_YET.failed(RETRIES, now=NOW).failed(RETRIES, now=NOW)
    assert (twice.may_try(now=NOW + 1.9), twice.may_try(now=NOW + 2.0)) == (False, True)
    assert twice.succeeded().failed(RETRIES, now=NOW).not_before_s == NOW + 1.0


def test_a_checkpoint_is_due_once_an_interval() -> None:
    attempts = {0: ShardAttempts(saved_s=NOW - 59.0), 1: ShardAttempts(saved_s=NOW - 60.0)}
    assert numbers(saves_due([held(0), held(1), held(2)], attempts, SERVING, now=NOW)) == [1, 2]


def test_a_checkpoint_that_another_consumer_waits_for_is_due_at_once() -> None:
    attempts = dict.fromkeys((0, 1, 2), ShardAttempts(saved_s=NOW))
    shards = [held(0), held(1, ShardPhase.DRAINING), held(2)]
    ended = SavePace(interval_s=60.0, ended=frozenset({2}), is_stopping=False)
    stopping = SavePace(interval_s=60.0, ended=frozenset(), is_stopping=True)
    assert numbers(saves_due(shards, attempts, SERVING, now=NOW)) == [1]
    assert numbers(saves_due(shards, attempts, ended, now=NOW)) == [1, 2]
    assert numbers(saves_due(shards, attempts, stopping, now=NOW)) == [0, 1, 2]


def test_a_checkpoint_that_failed_waits_also_while_the_worker_stops() -> None:
    attempts = {0: NONE_YET.failed(RETRIES, now=NOW)}
    stopping = SavePace(interval_s=0.0, ended=frozenset(), is_stopping=True)
    assert numbers(saves_due([held(0), held(1)], attempts, stopping, now=NOW)) == [1]
