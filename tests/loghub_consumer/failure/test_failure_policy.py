"""The failure policy with the planner, on shards of which some log groups cannot be delivered."""

from collections.abc import Callable
from dataclasses import dataclass, field
from itertools import pairwise

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub_consumer.batch_plan import EMPTY_PLAN, BatchLimits, GroupSize, Range, due_retries, next_plan
from loghub_consumer.failure.policy import (
    HOUR_S,
    Cause,
    FailingShards,
    Failure,
    FailureSettings,
    Policy,
    WaitState,
)

TIMEOUT_S = 600.0
ONE_TO_FOUR = st.integers(1, 4)


def settings(policy: Policy = Policy.SKIP, **changes: int) -> FailureSettings:
    values = {"max_attempts": 3, "max_consecutive": 10, "max_per_hour": 100} | changes
    return FailureSettings(policy=policy, batch_timeout_s=TIMEOUT_S, **values)


def rejected(reason: str = "PipelineFailed") -> Failure:
    return Failure(cause=Cause.REJECTED, reason=reason, message="because")


@dataclass
class World:
    """Shards of `size` log groups, of which those in `bad` always fail; a clock that jumps to the next
    attempt where nothing else can be read."""

    policy: FailingShards
    shards: int = 1
    size: int = 1000
    per_batch: int = 1000
    bad: frozenset[tuple[int, int]] = frozenset()
    cause: Cause = Cause.REJECTED
    now: float = 100.0
    positions: dict[int, int] = field(default_factory=dict)
    batches: list[tuple[Range, ...]] = field(default_factory=list)
    delivered: list[tuple[int, int]] = field(default_factory=list)
    settled: list[tuple[int, int]] = field(default_factory=list)
    failures: int = 0

    def __post_init__(self) -> None:
        self.positions = dict.fromkeys(range(self.shards), 0)
        self._plan = EMPTY_PLAN

    def step(self) -> bool:
        """Plan and carry out one batch. Returns whether there was anything to read."""
        plan = next_plan(
            self._plan,
            positions=self.positions,
            ends=dict.fromkeys(self.positions, self.size),
            sizes=dict.fromkeys(self.positions, GroupSize(bytes=1, logs=1)),
            limits=BatchLimits(log_groups=self.per_batch, bytes=1 << 30, logs=1_000_000),
            retries=due_retries(self.policy.retries, self.positions, now=self.now),
        )
        if plan is self._plan:
            return False
        self._plan = plan
        self.now += 0.1
        self.batches.append(plan.ranges)
        self._carry_out(plan.ranges)
        return True

    def _carry_out(self, ranges: tuple[Range, ...]) -> None:
        if self.policy.to_settle(ranges) is not None:
            (part,) = ranges
            self.settled.append((part.shard, part.begin))
            self.positions[part.shard] = part.begin + 1
            self.policy.settled(part.shard, now=self.now)
            return
        groups = [(part.shard, cursor) for part in ranges for cursor in range(part.begin, part.end)]
        if self.bad.intersection(groups):
            self.failures += 1
            failure = Failure(cause=self.cause, reason="PipelineFailed")
            self.policy.failed(ranges, failure, now=self.now)
            return
        self.delivered += groups
        for part in ranges:
            self.positions[part.shard] = part.end
        self.policy.succeeded(ranges, now=self.now)

    def run(self, until: Callable[[], bool] | None = None, *, maximum: int = 20_000) -> None:
        """Work until everything is read, nothing is tried any more, or `until` holds."""
        for _ in range(maximum):
            if until is not None and until():
                return
            if not self.step():
                times_s = [r.not_before_s for r in self.policy.retries.values() if r.not_before_s is not None]
                if not times_s:
                    return
                self.now = max(self.now, min(times_s))
        raise AssertionError("it does not end")

    def everything(self) -> set[tuple[int, int]]:
        return {(shard, cursor) for shard in self.positions for cursor in range(self.size)}


def test_one_bad_log_group_among_thousand_is_found_in_a_few_batches_and_skipped() -> None:
    world = World(FailingShards(settings()), bad=frozenset({(0, 637)}))
    world.run()
    assert world.settled == [(0, 637)]
    assert sorted(world.delivered) == sorted(world.everything() - {(0, 637)})
    assert len(world.batches) <= 3 * 10 + 3
    assert world.policy.failing == ()
    assert world.policy.totals[0].skipped == 1


def test_each_shard_of_a_failed_batch_is_read_alone_and_only_the_bad_one_is_divided() -> None:
    world = World(FailingShards(settings(Policy.RETRY)), shards=3, size=8, bad=frozenset({(1, 0)}))
    world.run(lambda: world.positions[0] == world.positions[2] == 8)
    assert world.batches[0] == (Range(0, 0, 8), Range(1, 0, 8), Range(2, 0, 8))
    assert [part for part in world.batches[1:] if len(part) > 1] == []
    assert (Range(0, 0, 8),) in world.batches
    assert (Range(2, 0, 8),) in world.batches
    assert len(world.batches) <= 5


def test_only_the_bad_shard_waits() -> None:
    """The pauses grow. Between two attempts every batch belongs to the other shards."""
    world = World(
        FailingShards(settings(Policy.RETRY)), shards=2, size=100_000, per_batch=1, bad=frozenset({(0, 3)})
    )
    attempts_s: list[float] = []
    for _ in range(6_000):
        before = world.failures
        assert world.step()
        if world.failures > before and world.policy.failing[0].isolated:
            attempts_s.append(world.now)
        world.now += 0.9
    pauses_s = [round(b - a, 3) for a, b in pairwise(attempts_s)]
    assert pauses_s == sorted(pauses_s)
    assert pauses_s[0] < 5
    assert 300 <= pauses_s[-1] <= 500
    assert world.positions[0] == 3
    assert world.positions[1] >= 6_000 - 100
    assert world.settled == []


def test_a_retry_takes_no_more_than_every_second_batch() -> None:
    world = World(FailingShards(settings()), shards=2, size=1000, per_batch=100, bad=frozenset({(0, 5)}))
    world.run(lambda: world.positions[1] == 1000)
    first = world.batches.index((Range(1, 0, 100),))
    readers = [tuple(part.shard for part in batch) for batch in world.batches[first:]]
    assert (0,) in readers
    assert all((1,) in (before, after) for before, after in pairwise(readers))


def test_after_the_policy_stop_nothing_more_of_the_shard_is_read() -> None:
    world = World(FailingShards(settings(Policy.STOP)), shards=2, size=50, bad=frozenset({(0, 7)}))
    world.run()
    assert (world.positions, world.settled) == ({0: 7, 1: 50}, [])
    (failing,) = world.policy.failing
    assert (failing.begin, failing.state, failing.attempts) == (7, WaitState.STOPPED, 3)
    assert due_retries(world.policy.retries, world.positions, now=1e12) == {0: 0}


def test_a_pipeline_that_fails_on_every_log_skips_only_a_few_and_then_waits() -> None:
    bad = frozenset((shard, cursor) for shard in range(3) for cursor in range(200))
    world = World(FailingShards(settings(max_consecutive=4)), shards=3, size=200, bad=bad)
    world.run(lambda: world.now > 10 * HOUR_S)
    assert len(world.settled) == 3 * 4
    assert {failing.state for failing in world.policy.failing} == {WaitState.LIMITED}
    world.bad = frozenset()
    world.run()
    assert len(world.delivered) == 3 * (200 - 4), "a success ends the wait"


def test_more_than_so_many_an_hour_wait_for_the_next_hour() -> None:
    world = World(
        FailingShards(settings(max_per_hour=5)), size=40, bad=frozenset((0, n) for n in range(0, 40, 2))
    )
    world.run(lambda: world.now > 100 + HOUR_S / 2)
    assert len(world.settled) == 5
    assert world.policy.failing[0].state is WaitState.LIMITED
    world.run()
    assert len(world.settled) == 20
    assert world.now > 100 + 3 * HOUR_S


def test_an_hour_after_the_last_one_no_skip_is_reported_as_recent() -> None:
    world = World(FailingShards(settings()), size=4, bad=frozenset({(0, 1), (0, 3)}))
    world.run()
    (recent,) = world.policy.skips.recent_skips(world.now)
    assert (recent.shard, recent.log_groups, recent.last_cursor) == (0, 2, 3)
    assert world.policy.skips.recent_skips(world.now + HOUR_S + 1) == ()
    assert world.policy.totals[0].skipped == 2


def test_a_transient_failure_loses_nothing_and_is_forgotten() -> None:
    world = World(FailingShards(settings()), size=1000, bad=frozenset({(0, 900)}))
    assert world.step()
    world.bad = frozenset()
    world.run()
    assert (world.settled, world.policy.failing) == ([], ())
    assert sorted(world.delivered) == sorted(world.everything())
    assert len(world.batches) < 20


def test_a_batch_that_hangs_costs_few_timeouts_and_long_pauses() -> None:
    world = World(FailingShards(settings()), size=1000, bad=frozenset({(0, 637)}), cause=Cause.TIMED_OUT)
    began_s, times_s = world.now, [world.now]
    world.run(lambda: bool(times_s.append(world.now)) or bool(world.settled))
    assert world.failures <= 3 + 3
    pauses_s = [b - a for a, b in pairwise(times_s) if b - a > 1]
    assert min(pauses_s) >= TIMEOUT_S
    assert world.now - began_s >= 4 * TIMEOUT_S


def test_after_a_hang_of_several_shards_each_is_read_in_small_parts_at_once() -> None:
    """A hang costs the whole timeout, or even the process, so none is spent on finding the shard."""
    bad = frozenset({(1, 637)})
    world = World(FailingShards(settings(Policy.RETRY)), shards=3, bad=bad, cause=Cause.TIMED_OUT)
    world.run(lambda: world.positions[0] == world.positions[2] == 1000)
    assert world.now < 2 * TIMEOUT_S
    assert max(part.groups for batch in world.batches[1:] for part in batch) <= 1000 // 16
    world.run(lambda: world.positions[1] == 637 and world.policy.failing[0].isolated)
    assert world.failures <= 4


def test_nothing_is_skipped_because_of_an_unavailable_service_and_its_attempts_do_not_count() -> None:
    world = World(
        FailingShards(settings()), shards=2, size=50, bad=frozenset({(0, 7)}), cause=Cause.UNAVAILABLE
    )
    world.run(lambda: world.now > HOUR_S)
    assert (world.settled, world.positions) == ([], {0: 7, 1: 50})
    assert world.policy.failing[0].attempts > 10
    world.cause = Cause.REJECTED
    failures = world.failures
    world.run()
    assert (world.settled, world.positions) == ([(0, 7)], {0: 50, 1: 50})
    assert world.failures == failures + 3


def test_a_process_that_ended_during_a_batch_is_no_proof_against_one_log_group() -> None:
    policy = FailingShards(settings(max_attempts=1))
    for attempt in range(1, 4):
        policy.failed((Range(0, 7, 8),), Failure(cause=Cause.ENDED, reason="WorkerEnded"), now=100)
        is_due = policy.to_settle((Range(0, 7, 8),)) is not None
        assert is_due == (attempt == 3)


def test_another_process_continues_to_divide_the_same_range() -> None:
    first = World(FailingShards(settings()), size=1000, bad=frozenset({(0, 637)}), cause=Cause.TIMED_OUT)
    assert first.step()
    second = World(FailingShards(settings()), size=1000, bad=first.bad, cause=Cause.TIMED_OUT)
    second.policy.restore(first.policy.failing, now=second.now)
    second.run(lambda: second.failures == 1)
    assert max(part.groups for batch in second.batches for part in batch) <= 1000 // 16
    assert {part.shard for batch in second.batches for part in batch} == {0}


def test_a_retry_of_another_position_is_void() -> None:
    policy = FailingShards(settings())
    policy.failed((Range(0, 7, 8),), rejected(), now=100)
    assert due_retries(policy.retries, {0: 7}, now=100) == {0: 0}
    assert due_retries(policy.retries, {0: 9}, now=100) == {}


def test_a_dead_letter_that_fails_is_tried_again_and_the_shard_waits() -> None:
    policy = FailingShards(settings(Policy.DEAD_LETTER, max_attempts=1))
    group = (Range(0, 7, 8),)
    policy.failed(group, rejected(), now=100)
    policy.settling_failed(0, rejected("DeadLetterFailed"), now=100)
    (failing,) = policy.failing
    assert failing.failure.reason == "DeadLetterFailed"
    assert due_retries(policy.retries, {0: 7}, now=100) == {0: 0}
    assert failing.not_before_s is not None
    assert due_retries(policy.retries, {0: 7}, now=failing.not_before_s) == {0: 1}
    assert policy.to_settle(group) == failing
    policy.settled(0, now=failing.not_before_s)
    assert (policy.totals[0].dead_lettered, policy.totals[0].skipped) == (1, 0)


def test_a_dead_letter_that_hangs_is_tried_again_after_a_long_pause_by_another_process_too() -> None:
    policy = FailingShards(settings(Policy.DEAD_LETTER, max_attempts=1))
    group = (Range(0, 7, 8),)
    policy.failed(group, rejected(), now=100)
    assert policy.to_settle(group)
    policy.failed(group, Failure(cause=Cause.TIMED_OUT, reason="BatchTimedOut"), now=800)
    after = FailingShards(policy.settings)
    after.restore(policy.failing, now=800)
    for one in (policy, after):
        assert due_retries(one.retries, {0: 7}, now=800 + TIMEOUT_S - 1) == {0: 0}
        assert one.to_settle(group)
    retry = FailingShards(settings(Policy.RETRY))
    retry.restore(policy.failing, now=800)
    assert retry.to_settle(group) is None, "the settings changed"


def test_attempts_while_the_pipeline_fails_without_logs_do_not_count() -> None:
    policy = FailingShards(settings(max_attempts=3))
    group = (Range(0, 7, 8),)
    for _ in range(3):
        policy.failed(group, rejected(), now=100)
    assert policy.to_settle(group)
    policy.pipeline_failed(0, rejected("SinkUnavailable"), now=100)
    policy.failed(group, rejected(), now=200)
    assert policy.to_settle(group) is None
    policy.failed(group, rejected(), now=300)
    assert policy.to_settle(group)


@pytest.mark.parametrize("policy", [Policy.SKIP, Policy.DEAD_LETTER])
@given(
    bad=st.frozensets(st.tuples(st.integers(0, 3), st.integers(0, 59)), max_size=12),
    shards=ONE_TO_FOUR,
    per_batch=st.integers(1, 60),
    attempts=ONE_TO_FOUR,
    cause=st.sampled_from([Cause.REJECTED, Cause.TIMED_OUT, Cause.ENDED]),
)
def test_exactly_the_bad_log_groups_are_settled_and_the_others_are_delivered_in_order(
    policy: Policy,
    bad: frozenset[tuple[int, int]],
    shards: int,
    per_batch: int,
    attempts: int,
    cause: Cause,
) -> None:
    world = World(
        FailingShards(settings(policy, max_attempts=attempts, max_consecutive=12)),
        shards=shards,
        size=60,
        per_batch=per_batch,
        bad=bad,
        cause=cause,
    )
    world.run()
    expected = world.everything()
    assert sorted(world.settled) == sorted(bad & expected)
    assert sorted(world.delivered) == sorted(expected - bad)
    for shard in range(shards):
        own = [cursor for at, cursor in world.delivered if at == shard]
        assert own == sorted(own)
