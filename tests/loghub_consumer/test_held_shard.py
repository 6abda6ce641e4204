"""The state machine of a shard: every edge of the table in its module, with plain numbers as times."""

import dataclasses

import pytest
from msgspec.structs import replace

from loghub.backoff import Backoff, without_jitter
from loghub_consumer import held_shard as hs
from loghub_consumer.held_shard import (
    NOTHING,
    Buffered,
    HeldShardPhase,
    HeldShardState,
    NextStep,
    PullResult,
    ReceiveLimits,
    ThreadStep,
    has_backlog,
    next_step,
)

RETRIES = Backoff(first_s=1.0, max_s=8.0, random=without_jitter)
LIMITS = ReceiveLimits(max_logs=None, max_bytes=1000, max_wait_s=0.0)
SHARE = 10_000
BATCH = 1 << 30
SOME = Buffered(groups=2, bytes=20, since_s=5.0)


def opening() -> HeldShardState:
    return HeldShardState(shard=3, epoch=1, position=100, read_to=100)


def pulling() -> HeldShardState:
    return hs.initialized(hs.user_code_began(opening()), now=0)


def buffered() -> HeldShardState:
    """Ten log groups of 20 bytes each were pulled."""
    return receive(pulling(), groups=10, size=200, now=5)


def processing() -> HeldShardState:
    return hs.batch_began(buffered())


def rolling_back() -> HeldShardState:
    return hs.batch_failed(processing(), size=200, generation=0, retries=RETRIES, now=10)


def pull_in_flight(state: HeldShardState | None = None) -> HeldShardState:
    state = state or pulling()
    return hs.pull_began(state, hs.next_pull(state, share_bytes=SHARE, batch_bytes=BATCH))


def pausing() -> HeldShardState:
    return hs.paused(pulling())


def draining() -> HeldShardState:
    return hs.revoked(pulling())


def lost() -> HeldShardState:
    return hs.lost(pulling())


def ended() -> HeldShardState:
    return hs.shut_down(draining())


ALL = (opening, pulling, processing, rolling_back, pausing, draining, lost, ended)


def receive(
    state: HeldShardState, *, groups: int, size: int, now: float, is_end: bool = False
) -> HeldShardState:
    pull = hs.next_pull(state, share_bytes=SHARE, batch_bytes=BATCH)
    result = PullResult(groups=groups, bytes=size, after=state.read_to + groups, is_end=is_end)
    return hs.pulled(hs.pull_began(state, pull), pull, result, interval_s=0.2, now=now)


def step(
    state: HeldShardState, now: float, summary: Buffered = NOTHING, *, is_full: bool = False
) -> NextStep:
    return next_step(state, summary, LIMITS, is_full=is_full, now=now)


def test_each_phase_has_its_state() -> None:
    assert [make().phase for make in ALL] == list(HeldShardPhase)


# -- what to do


def test_an_opening_shard_is_initialized_and_again_after_a_pause() -> None:
    assert step(opening(), 0) == NextStep(ThreadStep.INITIALIZE)
    failed = hs.initialize_failed(hs.user_code_began(opening()), retries=RETRIES, now=10)
    assert (failed.phase, failed.is_busy) == (HeldShardPhase.OPENING, False)
    assert step(failed, 10.5) == NextStep(ThreadStep.WAIT, 11)
    assert step(failed, 11) == NextStep(ThreadStep.INITIALIZE)
    again = hs.initialize_failed(failed, retries=RETRIES, now=11)
    assert step(again, 12) == NextStep(ThreadStep.WAIT, 13), "it waits longer each time"


def test_initialized_leads_to_pulling_or_to_the_pause_or_stays_at_the_end() -> None:
    assert hs.initialized(opening(), now=1).phase is HeldShardPhase.PULLING
    assert hs.initialized(hs.paused(opening()), now=1).phase is HeldShardPhase.PAUSING
    assert hs.initialized(hs.revoked(opening()), now=1).phase is HeldShardPhase.DRAINING


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
    state = make()  # type: ignore[operator]
    assert step(state, 99, SOME) == NextStep(ThreadStep.WAIT)
    assert step(hs.announced(state), 99, SOME) == NextStep(ThreadStep.SHUT_DOWN)
    assert step(hs.shut_down(hs.announced(state)), 99, SOME) == NextStep(ThreadStep.END)


# -- processing


def test_a_batch_that_is_done_moves_the_position_and_frees_its_bytes() -> None:
    state = hs.batch_done(processing(), end=110, size=200, generation=0)
    assert (state.phase, state.position, state.held_bytes, state.is_busy) == (
        HeldShardPhase.PULLING,
        110,
        0,
        False,
    )


def test_a_batch_that_ends_while_paused_draining_or_lost_keeps_that_phase() -> None:
    for event, phase in (
        (hs.paused, HeldShardPhase.PAUSING),
        (hs.revoked, HeldShardPhase.DRAINING),
        (hs.lost, HeldShardPhase.LOST),
    ):
        state = event(processing())
        assert state.is_busy
        done = hs.batch_done(state, end=110, size=200, generation=0)
        assert (done.phase, done.position, done.is_busy) == (phase, 110, False)


def test_a_failed_batch_comes_again_after_a_pause_that_grows_and_starts_over_after_a_success() -> None:
    state = rolling_back()
    assert (state.phase, state.keeps_batch, state.position) == (HeldShardPhase.ROLLING_BACK, True, 100)
    assert step(state, 10.9) == NextStep(ThreadStep.WAIT, 11)
    assert step(state, 11) == NextStep(ThreadStep.PROCESS)
    state = hs.batch_failed(hs.batch_began(state), size=200, generation=0, retries=RETRIES, now=11)
    assert state.due_s == 13
    assert state.held_bytes == 200, "it is still held"
    state = hs.batch_done(hs.batch_began(state), end=110, size=200, generation=0)
    assert (state.failures, state.keeps_batch, state.held_bytes) == (0, False, 0)


def test_a_failed_batch_of_a_shard_that_is_given_up_or_sought_does_not_come_again() -> None:
    for state in (hs.revoked(processing()), hs.sought(processing(), to=7, now=8)):
        failed = hs.batch_failed(state, size=200, generation=0, retries=RETRIES, now=10)
        assert (failed.phase, failed.keeps_batch) == (
            HeldShardPhase.DRAINING if state.phase is HeldShardPhase.DRAINING else HeldShardPhase.PULLING,
            False,
        )


def test_a_returned_cursor_is_the_next_position_at_once_and_the_second_time_after_a_pause() -> None:
    state = hs.rolled_back(processing(), to=95, size=200, generation=0, retries=RETRIES, now=10)
    assert (state.phase, state.position, state.read_to) == (HeldShardPhase.ROLLING_BACK, 95, 95)
    assert (state.generation, state.held_bytes) == (1, 0), "what was pulled counts no longer"
    state = hs.roll_back_ended(state, now=10)
    assert state.phase is HeldShardPhase.PULLING
    again = hs.rolled_back(hs.batch_began(state), to=95, size=1, generation=1, retries=RETRIES, now=20)
    assert hs.roll_back_ended(again, now=21).phase is HeldShardPhase.ROLLING_BACK
    assert step(again, 21) == NextStep(ThreadStep.WAIT, 22)
    assert hs.roll_back_ended(again, now=22).phase is HeldShardPhase.PULLING


def test_a_returned_cursor_does_not_undo_a_seek_or_an_end() -> None:
    for state in (hs.sought(processing(), to=7, now=8), hs.revoked(processing())):
        after = hs.rolled_back(state, to=95, size=200, generation=0, retries=RETRIES, now=10)
        assert (after.position, after.is_busy) == (state.position, False)


# -- pulls


def test_nothing_is_pulled_before_initialize_nor_while_paused_or_ending() -> None:
    for make in (opening, pausing, draining, lost, ended):
        assert hs.pull_due_s(make(), share_bytes=SHARE) is None
    for make in (pulling, processing, rolling_back):
        assert hs.pull_due_s(make(), share_bytes=SHARE) is not None
    assert hs.pull_due_s(pull_in_flight(), share_bytes=SHARE) is None, "one is in flight"


def test_the_next_pull_follows_at_once_with_a_backlog_and_after_the_interval_at_the_end() -> None:
    assert receive(pulling(), groups=3, size=9, now=5).pull_due_s == 5
    assert receive(pulling(), groups=3, size=9, now=5, is_end=True).pull_due_s == 5.2
    assert receive(pulling(), groups=0, size=0, now=5, is_end=True).pull_due_s == 5.2


def test_pulls_stop_at_the_share_and_take_no_more_than_it_has_room_for() -> None:
    state = buffered()
    assert hs.pull_due_s(state, share_bytes=200) is None
    assert hs.pull_due_s(state, share_bytes=266) is None, "a small pull would cost as much as a large one"
    assert hs.pull_due_s(state, share_bytes=267) is not None
    assert hs.next_pull(state, share_bytes=400, batch_bytes=BATCH).count == 10, "of 20 bytes each"
    assert hs.next_pull(state, share_bytes=1, batch_bytes=BATCH).count == 1
    assert hs.next_pull(state, share_bytes=1 << 30, batch_bytes=BATCH).count == 1000
    assert hs.next_pull(state, share_bytes=1 << 30, batch_bytes=200).count == 9, "it is not divided"
    assert hs.pull_due_s(pulling(), share_bytes=0) is not None, "one log group is always read"


def test_a_share_is_an_equal_part_and_no_more_than_is_free() -> None:
    state = buffered()
    assert hs.share_bytes(state, max_bytes=1000, shards=2, used_bytes=300) == 500
    assert hs.share_bytes(state, max_bytes=1000, shards=2, used_bytes=900) == 300, "of which it holds 200"
    assert hs.share_bytes(state, max_bytes=1000, shards=2, used_bytes=1200) == 200
    asked = hs.pull_began(state, hs.next_pull(state, share_bytes=400, batch_bytes=BATCH))
    assert asked.asked_bytes == 200
    assert hs.pull_failed(asked, retries=RETRIES, now=1).asked_bytes == 0
    assert receive(state, groups=1, size=20, now=5).asked_bytes == 0
    assert hs.next_pull(pulling(), share_bytes=400, batch_bytes=BATCH).bytes == 400, "of an unknown size"


def test_an_answer_to_an_earlier_generation_counts_no_longer() -> None:
    state = pull_in_flight()
    pull = hs.next_pull(state, share_bytes=SHARE, batch_bytes=BATCH)
    state = hs.sought(state, to=7, now=3)
    result = PullResult(groups=1, bytes=9, after=101, is_end=False)
    after = hs.pulled(state, pull, result, interval_s=0.2, now=5)
    assert (after.read_to, after.held_bytes, after.is_pulling) == (7, 0, False)
    assert hs.expired(state, pull, oldest=50, now=5).read_to == 7


def test_an_empty_answer_that_advances_moves_the_position_only_if_all_before_it_was_processed() -> None:
    result = PullResult(groups=0, bytes=0, after=150, is_end=False)
    for state, position in ((pulling(), 150), (buffered(), 100)):
        pull = hs.next_pull(state, share_bytes=SHARE, batch_bytes=BATCH)
        after = hs.pulled(hs.pull_began(state, pull), pull, result, interval_s=0.2, now=5)
        assert (after.read_to, after.position) == (150, position)


def test_a_failed_pull_is_sent_again_after_a_pause_that_grows() -> None:
    state = hs.pull_failed(pull_in_flight(), retries=RETRIES, now=10)
    assert (state.is_pulling, state.pull_due_s) == (False, 11)
    state = hs.pull_failed(pull_in_flight(state), retries=RETRIES, now=11)
    assert state.pull_due_s == 13
    assert receive(state, groups=1, size=1, now=14).pull_failures == 0


def test_expired_log_groups_are_skipped() -> None:
    state = pull_in_flight()
    pull = hs.next_pull(state, share_bytes=SHARE, batch_bytes=BATCH)
    after = hs.expired(state, pull, oldest=140, now=5)
    assert (after.read_to, after.position, after.pull_due_s) == (140, 140, 5)
    assert hs.expired(state, pull, oldest=90, now=5).read_to == 100


# -- the user and the group


def test_pausing_keeps_what_was_pulled_and_resuming_continues() -> None:
    state = hs.paused(buffered())
    assert (state.phase, state.held_bytes) == (HeldShardPhase.PAUSING, 200)
    state = hs.resumed(state, now=50)
    assert (state.phase, state.pull_due_s) == (HeldShardPhase.PULLING, 50)
    assert hs.resumed(state, now=60) == state, "a second time changes nothing"


def test_a_batch_that_failed_comes_again_after_a_pause_by_the_user() -> None:
    for state in (
        hs.paused(rolling_back()),
        hs.batch_failed(hs.paused(processing()), size=200, generation=0, retries=RETRIES, now=10),
    ):
        assert (state.phase, state.keeps_batch) == (HeldShardPhase.PAUSING, True)
        assert step(state, 99) == NextStep(ThreadStep.WAIT)
        state = hs.resumed(state, now=20)
        assert state.phase is HeldShardPhase.ROLLING_BACK
        assert step(state, 20) == NextStep(ThreadStep.PROCESS)


def test_seeking_discards_what_was_pulled_and_ends_a_roll_back() -> None:
    for make in (pulling, pausing, processing, rolling_back):
        before = make()
        state = hs.sought(before, to=7, now=9)
        assert (state.position, state.read_to, state.generation) == (7, 7, before.generation + 1)
        assert (state.held_bytes, state.keeps_batch, state.pull_due_s) == (0, False, 9)
        expected = HeldShardPhase.PULLING if before.phase is HeldShardPhase.ROLLING_BACK else before.phase
        assert state.phase is expected
    for make in (draining, lost, ended):
        assert hs.sought(make(), to=7, now=9) == make()


def test_the_end_of_a_batch_does_not_undo_a_seek() -> None:
    state = hs.batch_done(hs.sought(processing(), to=7, now=9), end=110, size=200, generation=0)
    assert (state.position, state.phase) == (7, HeldShardPhase.PULLING)


@pytest.mark.parametrize("make", ALL)
def test_revoked_and_lost_from_every_phase(make: object) -> None:
    state: HeldShardState = make()  # type: ignore[operator]
    ending = (HeldShardPhase.DRAINING, HeldShardPhase.LOST, HeldShardPhase.ENDED)
    assert hs.revoked(state).phase is (state.phase if state.phase in ending else HeldShardPhase.DRAINING)
    over = (HeldShardPhase.LOST, HeldShardPhase.ENDED)
    assert hs.lost(state).phase is (state.phase if state.phase in over else HeldShardPhase.LOST)


def test_a_shard_that_waits_has_no_backlog_for_those_with_a_lower_priority() -> None:
    reading = HeldShardState(shard=0, epoch=1, position=5, read_to=5, phase=HeldShardPhase.PULLING)
    assert has_backlog(reading, ThreadStep.WAIT, is_held=False), "what follows is not known yet"
    assert not has_backlog(reading, ThreadStep.WAIT, is_held=True), "whatever follows"
    assert has_backlog(reading, ThreadStep.REDELIVER, is_held=True)
    at_end = replace(reading, is_at_end=True)
    assert not has_backlog(at_end, ThreadStep.WAIT, is_held=False), "also while a batch is not complete"
    assert has_backlog(at_end, ThreadStep.PROCESS, is_held=False)
    assert has_backlog(replace(at_end, phase=HeldShardPhase.PROCESSING), ThreadStep.WAIT, is_held=True)
    assert not has_backlog(replace(reading, pull_failures=1), ThreadStep.WAIT, is_held=False)
    for phase in (
        HeldShardPhase.OPENING,
        HeldShardPhase.ROLLING_BACK,
        HeldShardPhase.PAUSING,
        HeldShardPhase.LOST,
    ):
        assert not has_backlog(replace(reading, phase=phase), ThreadStep.WAIT, is_held=False)


def at_end() -> HeldShardState:
    state = pull_in_flight()
    pull = hs.next_pull(state, share_bytes=SHARE, batch_bytes=BATCH)
    return hs.pulled(
        state, pull, PullResult(groups=0, bytes=0, after=100, is_end=True), interval_s=1.0, now=5
    )


def test_a_parked_shard_is_pulled_again_once_something_has_arrived_or_its_position_has_changed() -> None:
    state = hs.parked(at_end())
    assert hs.pull_due_s(state, share_bytes=SHARE) is None
    assert hs.pull_due_s(hs.arrived(state, now=7), share_bytes=SHARE) == 7
    assert not hs.arrived(state, now=7).is_at_end, "it would be parked again"
    assert hs.pull_due_s(hs.sought(state, to=3, now=8), share_bytes=SHARE) == 8
    paused = hs.paused(state)
    assert hs.pull_due_s(hs.arrived(paused, now=9), share_bytes=SHARE) is None
    assert hs.pull_due_s(hs.resumed(hs.arrived(paused, now=9), now=10), share_bytes=SHARE) == 10


def test_an_arrival_changes_nothing_for_a_shard_that_is_not_parked() -> None:
    for make in ALL:
        state = make()  # type: ignore[operator]
        assert hs.arrived(state, now=9) == state
