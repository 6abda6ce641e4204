"""When a batch is worth its files."""

import math
from collections.abc import Mapping

from loghub_consumer.batch_plan import (
    EMPTY_PLAN,
    Backlog,
    BatchLimits,
    GroupSize,
    Roll,
    is_worth_its_files,
    next_plan,
    observed,
)

ROLL = Roll(target_bytes=1000, max_delay_s=60)
SIZES = {shard: GroupSize(bytes=10, logs=1) for shard in range(2)}
LIMITS = BatchLimits(log_groups=1000, bytes=1 << 30, logs=1_000_000)


def look(
    before: Mapping[int, Backlog], positions: Mapping[int, int], ends: Mapping[int, int], now: float
) -> dict[int, Backlog]:
    return observed(before, positions=positions, ends=ends, now=now)


def is_worth(
    backlogs: Mapping[int, Backlog], *, now: float, file_share: float = 1.0, limits: BatchLimits = LIMITS
) -> bool:
    positions = {shard: backlog.position for shard, backlog in backlogs.items()}
    ends = {shard: backlog.end for shard, backlog in backlogs.items()}
    plan = next_plan(EMPTY_PLAN, positions=positions, ends=ends, sizes=SIZES, limits=limits)
    return is_worth_its_files(plan, backlogs, roll=ROLL, sizes=SIZES, file_share=file_share, now=now)


def empty(now: float = 0) -> dict[int, Backlog]:
    """Two shards that were read to their ends."""
    return look({}, {0: 5, 1: 5}, {0: 5, 1: 5}, now)


def test_a_batch_begins_at_the_size_of_all_shards_together() -> None:
    assert not is_worth(look(empty(), {0: 5, 1: 5}, {0: 54, 1: 55}, 1), now=1)
    assert is_worth(look(empty(), {0: 5, 1: 5}, {0: 55, 1: 55}, 1), now=1)


def test_the_size_is_that_of_the_files() -> None:
    waiting = look(empty(), {0: 5, 1: 5}, {0: 55, 1: 55}, 1)
    assert not is_worth(waiting, now=1, file_share=0.5)
    assert is_worth(look(empty(), {0: 5, 1: 5}, {0: 105, 1: 105}, 1), now=1, file_share=0.5)


def test_a_batch_begins_once_its_oldest_log_group_has_waited() -> None:
    first = look(empty(), {0: 5, 1: 5}, {0: 5, 1: 6}, 10)
    second = look(first, {0: 5, 1: 5}, {0: 9, 1: 9}, 40)
    assert not is_worth(second, now=69.9)
    assert is_worth(second, now=70)


def test_a_batch_that_can_become_no_larger_begins_at_once() -> None:
    waiting = look(empty(), {0: 5, 1: 5}, {0: 10, 1: 5}, 1)
    assert not is_worth(waiting, now=1)
    assert is_worth(waiting, now=1, limits=BatchLimits(log_groups=4, bytes=1 << 30, logs=1000))


def test_what_waits_when_the_end_of_a_shard_becomes_known_is_delivered_at_once() -> None:
    """A poll says the first end a moment after the shard was assigned."""
    assert is_worth(look(look({}, {0: 5}, {}, 0), {0: 5}, {0: 8}, 1), now=1)
    assert not is_worth(look(look({}, {0: 5}, {0: 5}, 0), {0: 5}, {0: 8}, 1), now=1)


def test_what_waits_in_a_shard_that_was_just_assigned_is_delivered_at_once() -> None:
    """Shards that move often would otherwise never be delivered."""
    assert is_worth(look(empty(), {0: 5, 1: 5, 2: 7}, {0: 5, 1: 5, 2: 8}, 1), now=1)
    assert look({}, {2: 7}, {2: 8}, 1)[2].since_s == -math.inf


def test_after_a_batch_the_time_counts_from_the_next_log_group_on() -> None:
    first = look(empty(), {0: 5, 1: 5}, {0: 9, 1: 5}, 10)
    delivered = look(first, {0: 9, 1: 5}, {0: 9, 1: 5}, 70)
    later = look(delivered, {0: 9, 1: 5}, {0: 10, 1: 5}, 100)
    assert not is_worth(later, now=159)
    assert is_worth(later, now=160)


def test_a_batch_that_was_not_delivered_does_not_wait_again() -> None:
    first = look(empty(), {0: 5, 1: 5}, {0: 9, 1: 5}, 10)
    again = look(first, {0: 5, 1: 5}, {0: 12, 1: 5}, 80)
    assert is_worth(again, now=80)


def test_the_rest_of_a_batch_that_was_cut_has_waited_as_long_as_it() -> None:
    first = look(empty(), {0: 5, 1: 5}, {0: 9, 1: 5}, 10)
    rest = look(first, {0: 7, 1: 5}, {0: 9, 1: 5}, 20)
    assert not is_worth(rest, now=69)
    assert is_worth(rest, now=70)
