"""The state machine of a shard: every edge of the table in its module, with plain numbers as times."""

import dataclasses

import pytest
from msgspec.structs import replace

from loghub.backoff import Backoff, without_jitter
from loghub_consumer import shard_flow as sf
from loghub_consumer.shard_flow import (
    NOTHING,
    Buffered,
    FlowPhase,
    NextStep,
    PullResult,
    ReceiveLimits,
    ShardFlow,
    ThreadStep,
    has_backlog,
    next_step,
)

RETRIES = Backoff(first_s=1.0, max_s=8.0, random=without_jitter)
LIMITS = ReceiveLimits(max_logs=None, max_bytes=1000, max_wait_s=0.0)
SHARE = 10_000
BATCH = 1 << 30
SOME = Buffered(groups=2, bytes=20, since_s=5.0)


def opening() -> ShardFlow:
    return ShardFlow(shard=3, epoch=1, position=100, read_to=100)


def pulling() -> ShardFlow:
    return sf.initialized(sf.user_code_began(opening()), now=0)


def buffered() -> ShardFlow:
    """Ten log groups of 20 bytes each were pulled."""
    return receive(pulling(), groups=10, size=200, now=5)


def processing() -> ShardFlow:
    return sf.batch_began(buffered())


def rolling_back() -> ShardFlow:
    return sf.batch_failed(processing(), size=200, generation=0, retries=RETRIES, now=10)


def pull_in_flight(flow: ShardFlow | None = None) -> ShardFlow:
    flow = flow or pulling()
    return sf.pull_began(flow, sf.next_pull(flow, share_bytes=SHARE, batch_bytes=BATCH))


def pausing() -> ShardFlow:
    return sf.paused(pulling())


def draining() -> ShardFlow:
    return sf.revoked(pulling())


def lost() -> ShardFlow:
    return sf.lost(pulling())


def ended() -> ShardFlow:
    return sf.shut_down(draining())


ALL = (opening, pulling, processing, rolling_back, pausing, draining, lost, ended)


def receive(flow: ShardFlow, *, groups: int, size: int, now: float, is_end: bool = False) -> ShardFlow:
    pull = sf.next_pull(flow, share_bytes=SHARE, batch_bytes=BATCH)
    result = PullResult(groups=groups, bytes=size, after=flow.read_to + groups, is_end=is_end)
    return sf.pulled(sf.pull_began(flow, pull), pull, result, interval_s=0.2, now=now)


def step(flow: ShardFlow, now: float, summary: Buffered = NOTHING, *, is_full: bool = False) -> NextStep:
    return next_step(flow, summary, LIMITS, is_full=is_full, now=now)


def test_each_phase_has_its_state() -> None:
    assert [make().phase for make in ALL] == list(FlowPhase)


# -- what to do


def test_an_opening_shard_is_initialized_and_again_after_a_pause() -> None:
    assert step(opening(), 0) == NextStep(ThreadStep.INITIALIZE)
    failed = sf.initialize_failed(sf.user_code_began(opening()), retries=RETRIES, now=10)
    assert (failed.phase, failed.is_busy) == (FlowPhase.OPENING, False)
    assert step(failed, 10.5) == NextStep(ThreadStep.WAIT, 11)
    assert step(failed, 11) == NextStep(ThreadStep.INITIALIZE)
    again = sf.initialize_failed(failed, retries=RETRIES, now=11)
    assert step(again, 12) == NextStep(ThreadStep.WAIT, 13), "it waits longer each time"


def test_initialized_leads_to_pulling_or_to_the_pause_or_stays_at_the_end() -> None:
    assert sf.initialized(opening(), now=1).phase is FlowPhase.PULLING
    assert sf.initialized(sf.paused(opening()), now=1).phase is FlowPhase.PAUSING
    assert sf.initialized(sf.revoked(opening()), now=1).phase is FlowPhase.DRAINING


def test_what_is_buffered_is_processed_at_once_without_a_wait() -> None:
    assert step(pulling(), 5) == NextStep(ThreadStep.WAIT)
    assert step(pulling(), 5, SOME) == NextStep(ThreadStep.PROCESS)


@pytest.mark.parametrize(
    ("limits", "is_full", "expected"),
    [
        (ReceiveLimits(max_logs=None, max_bytes=1000, max_wait_s=3), False, NextStep(ThreadStep.WAIT, 8)),
        (ReceiveLimits(max_logs=None, max_bytes=20, max_wait_s=3), False, NextStep(ThreadStep.PROCESS)),
        (ReceiveLimits(max_logs=4, max_bytes=1000, max_wait_s=3), False, NextStep(ThreadStep.PROCESS)),
        (ReceiveLimits(max_logs=5, max_bytes=1000, max_wait_s=3), False, NextStep(ThreadStep.WAIT, 8)),
        (ReceiveLimits(max_logs=None, max_bytes=1000, max_wait_s=3), True, NextStep(ThreadStep.PROCESS)),
    ],
)
def test_a_batch_is_complete_by_logs_bytes_time_or_if_no_more_fits(
    limits: ReceiveLimits, is_full: bool, expected: NextStep
) -> None:
    summary = dataclasses.replace(SOME, logs=4)
    assert next_step(pulling(), summary, limits, is_full=is_full, now=7) == expected
    assert next_step(pulling(), summary, limits, is_full=is_full, now=8) == NextStep(ThreadStep.PROCESS)


@pytest.mark.parametrize("make", [pausing, processing])
def test_a_shard_that_is_paused_or_processed_waits(make: object) -> None:
    assert step(make(), 99, SOME) == NextStep(ThreadStep.WAIT)  # type: ignore[operator]


@pytest.mark.parametrize("make", [draining, lost])
def test_a_shard_that_is_given_up_is_shut_down_once_the_listener_knows(make: object) -> None:
    flow = make()  # type: ignore[operator]
    assert step(flow, 99, SOME) == NextStep(ThreadStep.WAIT)
    assert step(sf.announced(flow), 99, SOME) == NextStep(ThreadStep.SHUT_DOWN)
    assert step(sf.shut_down(sf.announced(flow)), 99, SOME) == NextStep(ThreadStep.END)


# -- processing


def test_a_batch_that_is_done_moves_the_position_and_frees_its_bytes() -> None:
    flow = sf.batch_done(processing(), end=110, size=200, generation=0)
    assert (flow.phase, flow.position, flow.held_bytes, flow.is_busy) == (FlowPhase.PULLING, 110, 0, False)


def test_a_batch_that_ends_while_paused_draining_or_lost_keeps_that_phase() -> None:
    for event, phase in (
        (sf.paused, FlowPhase.PAUSING),
        (sf.revoked, FlowPhase.DRAINING),
        (sf.lost, FlowPhase.LOST),
    ):
        flow = event(processing())
        assert flow.is_busy
        done = sf.batch_done(flow, end=110, size=200, generation=0)
        assert (done.phase, done.position, done.is_busy) == (phase, 110, False)


def test_a_failed_batch_comes_again_after_a_pause_that_grows_and_starts_over_after_a_success() -> None:
    flow = rolling_back()
    assert (flow.phase, flow.keeps_batch, flow.position) == (FlowPhase.ROLLING_BACK, True, 100)
    assert step(flow, 10.9) == NextStep(ThreadStep.WAIT, 11)
    assert step(flow, 11) == NextStep(ThreadStep.PROCESS)
    flow = sf.batch_failed(sf.batch_began(flow), size=200, generation=0, retries=RETRIES, now=11)
    assert flow.due_s == 13
    assert flow.held_bytes == 200, "it is still held"
    flow = sf.batch_done(sf.batch_began(flow), end=110, size=200, generation=0)
    assert (flow.failures, flow.keeps_batch, flow.held_bytes) == (0, False, 0)


def test_a_failed_batch_of_a_shard_that_is_given_up_or_sought_does_not_come_again() -> None:
    for flow in (sf.revoked(processing()), sf.sought(processing(), to=7, now=8)):
        failed = sf.batch_failed(flow, size=200, generation=0, retries=RETRIES, now=10)
        assert (failed.phase, failed.keeps_batch) == (
            FlowPhase.DRAINING if flow.phase is FlowPhase.DRAINING else FlowPhase.PULLING,
            False,
        )


def test_a_returned_cursor_is_the_next_position_at_once_and_the_second_time_after_a_pause() -> None:
    flow = sf.rolled_back(processing(), to=95, size=200, generation=0, retries=RETRIES, now=10)
    assert (flow.phase, flow.position, flow.read_to) == (FlowPhase.ROLLING_BACK, 95, 95)
    assert (flow.generation, flow.held_bytes) == (1, 0), "what was pulled counts no longer"
    flow = sf.roll_back_ended(flow, now=10)
    assert flow.phase is FlowPhase.PULLING
    again = sf.rolled_back(sf.batch_began(flow), to=95, size=1, generation=1, retries=RETRIES, now=20)
    assert sf.roll_back_ended(again, now=21).phase is FlowPhase.ROLLING_BACK
    assert step(again, 21) == NextStep(ThreadStep.WAIT, 22)
    assert sf.roll_back_ended(again, now=22).phase is FlowPhase.PULLING


def test_a_returned_cursor_does_not_undo_a_seek_or_an_end() -> None:
    for flow in (sf.sought(processing(), to=7, now=8), sf.revoked(processing())):
        after = sf.rolled_back(flow, to=95, size=200, generation=0, retries=RETRIES, now=10)
        assert (after.position, after.is_busy) == (flow.position, False)


# -- pulls


def test_nothing_is_pulled_before_initialize_nor_while_paused_or_ending() -> None:
    for make in (opening, pausing, draining, lost, ended):
        assert sf.pull_due_s(make(), share_bytes=SHARE) is None
    for make in (pulling, processing, rolling_back):
        assert sf.pull_due_s(make(), share_bytes=SHARE) is not None
    assert sf.pull_due_s(pull_in_flight(), share_bytes=SHARE) is None, "one is in flight"


def test_the_next_pull_follows_at_once_with_a_backlog_and_after_the_interval_at_the_end() -> None:
    assert receive(pulling(), groups=3, size=9, now=5).pull_due_s == 5
    assert receive(pulling(), groups=3, size=9, now=5, is_end=True).pull_due_s == 5.2
    assert receive(pulling(), groups=0, size=0, now=5, is_end=True).pull_due_s == 5.2


def test_pulls_stop_at_the_share_and_take_no_more_than_it_has_room_for() -> None:
    flow = buffered()
    assert sf.pull_due_s(flow, share_bytes=200) is None
    assert sf.pull_due_s(flow, share_bytes=266) is None, "a small pull would cost as much as a large one"
    assert sf.pull_due_s(flow, share_bytes=267) is not None
    assert sf.next_pull(flow, share_bytes=400, batch_bytes=BATCH).count == 10, "of 20 bytes each"
    assert sf.next_pull(flow, share_bytes=1, batch_bytes=BATCH).count == 1
    assert sf.next_pull(flow, share_bytes=1 << 30, batch_bytes=BATCH).count == 1000
    assert sf.next_pull(flow, share_bytes=1 << 30, batch_bytes=200).count == 9, "it is not divided"
    assert sf.pull_due_s(pulling(), share_bytes=0) is not None, "one log group is always read"


def test_a_share_is_an_equal_part_and_no_more_than_is_free() -> None:
    flow = buffered()
    assert sf.share_bytes(flow, max_bytes=1000, shards=2, used_bytes=300) == 500
    assert sf.share_bytes(flow, max_bytes=1000, shards=2, used_bytes=900) == 300, "of which it holds 200"
    assert sf.share_bytes(flow, max_bytes=1000, shards=2, used_bytes=1200) == 200
    asked = sf.pull_began(flow, sf.next_pull(flow, share_bytes=400, batch_bytes=BATCH))
    assert asked.asked_bytes == 200
    assert sf.pull_failed(asked, retries=RETRIES, now=1).asked_bytes == 0
    assert receive(flow, groups=1, size=20, now=5).asked_bytes == 0
    assert sf.next_pull(pulling(), share_bytes=400, batch_bytes=BATCH).bytes == 400, "of an unknown size"


def test_an_answer_to_an_earlier_generation_counts_no_longer() -> None:
    flow = pull_in_flight()
    pull = sf.next_pull(flow, share_bytes=SHARE, batch_bytes=BATCH)
    flow = sf.sought(flow, to=7, now=3)
    result = PullResult(groups=1, bytes=9, after=101, is_end=False)
    after = sf.pulled(flow, pull, result, interval_s=0.2, now=5)
    assert (after.read_to, after.held_bytes, after.is_pulling) == (7, 0, False)
    assert sf.expired(flow, pull, oldest=50, now=5).read_to == 7


def test_an_empty_answer_that_advances_moves_the_position_only_if_all_before_it_was_processed() -> None:
    result = PullResult(groups=0, bytes=0, after=150, is_end=False)
    for flow, position in ((pulling(), 150), (buffered(), 100)):
        pull = sf.next_pull(flow, share_bytes=SHARE, batch_bytes=BATCH)
        after = sf.pulled(sf.pull_began(flow, pull), pull, result, interval_s=0.2, now=5)
        assert (after.read_to, after.position) == (150, position)


def test_a_failed_pull_is_sent_again_after_a_pause_that_grows() -> None:
    flow = sf.pull_failed(pull_in_flight(), retries=RETRIES, now=10)
    assert (flow.is_pulling, flow.pull_due_s) == (False, 11)
    flow = sf.pull_failed(pull_in_flight(flow), retries=RETRIES, now=11)
    assert flow.pull_due_s == 13
    assert receive(flow, groups=1, size=1, now=14).pull_failures == 0


def test_expired_log_groups_are_skipped() -> None:
    flow = pull_in_flight()
    pull = sf.next_pull(flow, share_bytes=SHARE, batch_bytes=BATCH)
    after = sf.expired(flow, pull, oldest=140, now=5)
    assert (after.read_to, after.position, after.pull_due_s) == (140, 140, 5)
    assert sf.expired(flow, pull, oldest=90, now=5).read_to == 100


# -- the user and the group


def test_pausing_keeps_what_was_pulled_and_resuming_continues() -> None:
    flow = sf.paused(buffered())
    assert (flow.phase, flow.held_bytes) == (FlowPhase.PAUSING, 200)
    flow = sf.resumed(flow, now=50)
    assert (flow.phase, flow.pull_due_s) == (FlowPhase.PULLING, 50)
    assert sf.resumed(flow, now=60) == flow, "a second time changes nothing"


def test_a_batch_that_failed_comes_again_after_a_pause_by_the_user() -> None:
    for flow in (
        sf.paused(rolling_back()),
        sf.batch_failed(sf.paused(processing()), size=200, generation=0, retries=RETRIES, now=10),
    ):
        assert (flow.phase, flow.keeps_batch) == (FlowPhase.PAUSING, True)
        assert step(flow, 99) == NextStep(ThreadStep.WAIT)
        flow = sf.resumed(flow, now=20)
        assert flow.phase is FlowPhase.ROLLING_BACK
        assert step(flow, 20) == NextStep(ThreadStep.PROCESS)


def test_seeking_discards_what_was_pulled_and_ends_a_roll_back() -> None:
    for make in (pulling, pausing, processing, rolling_back):
        before = make()
        flow = sf.sought(before, to=7, now=9)
        assert (flow.position, flow.read_to, flow.generation) == (7, 7, before.generation + 1)
        assert (flow.held_bytes, flow.keeps_batch, flow.pull_due_s) == (0, False, 9)
        expected = FlowPhase.PULLING if before.phase is FlowPhase.ROLLING_BACK else before.phase
        assert flow.phase is expected
    for make in (draining, lost, ended):
        assert sf.sought(make(), to=7, now=9) == make()


def test_the_end_of_a_batch_does_not_undo_a_seek() -> None:
    flow = sf.batch_done(sf.sought(processing(), to=7, now=9), end=110, size=200, generation=0)
    assert (flow.position, flow.phase) == (7, FlowPhase.PULLING)


@pytest.mark.parametrize("make", ALL)
def test_revoked_and_lost_from_every_phase(make: object) -> None:
    flow: ShardFlow = make()  # type: ignore[operator]
    ending = (FlowPhase.DRAINING, FlowPhase.LOST, FlowPhase.ENDED)
    assert sf.revoked(flow).phase is (flow.phase if flow.phase in ending else FlowPhase.DRAINING)
    over = (FlowPhase.LOST, FlowPhase.ENDED)
    assert sf.lost(flow).phase is (flow.phase if flow.phase in over else FlowPhase.LOST)


def test_a_shard_that_waits_has_no_backlog_for_those_with_a_lower_priority() -> None:
    reading = ShardFlow(shard=0, epoch=1, position=5, read_to=5, phase=FlowPhase.PULLING)
    assert has_backlog(reading, ThreadStep.WAIT, is_held=False), "what follows is not known yet"
    assert not has_backlog(reading, ThreadStep.WAIT, is_held=True), "whatever follows"
    assert has_backlog(reading, ThreadStep.REDELIVER, is_held=True)
    at_end = replace(reading, is_at_end=True)
    assert not has_backlog(at_end, ThreadStep.WAIT, is_held=False), "also while a batch is not complete"
    assert has_backlog(at_end, ThreadStep.PROCESS, is_held=False)
    assert has_backlog(replace(at_end, phase=FlowPhase.PROCESSING), ThreadStep.WAIT, is_held=True)
    assert not has_backlog(replace(reading, pull_failures=1), ThreadStep.WAIT, is_held=False)
    for phase in (FlowPhase.OPENING, FlowPhase.ROLLING_BACK, FlowPhase.PAUSING, FlowPhase.LOST):
        assert not has_backlog(replace(reading, phase=phase), ThreadStep.WAIT, is_held=False)


def at_end() -> ShardFlow:
    flow = pull_in_flight()
    pull = sf.next_pull(flow, share_bytes=SHARE, batch_bytes=BATCH)
    return sf.pulled(flow, pull, PullResult(groups=0, bytes=0, after=100, is_end=True), interval_s=1.0, now=5)


def test_a_parked_shard_is_pulled_again_once_something_has_arrived_or_its_position_has_changed() -> None:
    flow = sf.parked(at_end())
    assert sf.pull_due_s(flow, share_bytes=SHARE) is None
    assert sf.pull_due_s(sf.arrived(flow, now=7), share_bytes=SHARE) == 7
    assert not sf.arrived(flow, now=7).is_at_end, "it would be parked again"
    assert sf.pull_due_s(sf.sought(flow, to=3, now=8), share_bytes=SHARE) == 8
    paused = sf.paused(flow)
    assert sf.pull_due_s(sf.arrived(paused, now=9), share_bytes=SHARE) is None
    assert sf.pull_due_s(sf.resumed(sf.arrived(paused, now=9), now=10), share_bytes=SHARE) == 10


def test_an_arrival_changes_nothing_for_a_shard_that_is_not_parked() -> None:
    for make in ALL:
        flow = make()  # type: ignore[operator]
        assert sf.arrived(flow, now=9) == flow
