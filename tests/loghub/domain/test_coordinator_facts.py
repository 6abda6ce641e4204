"""The coordinator apart from the edges: checkpoints, facts, restart, time, and its values."""

from loghub.domain.coordinator import create_group, next_deadline, restore, step
from loghub.domain.fsm import ShardState, ShardTrigger
from loghub.domain.group import (
    GroupSaved,
    GroupShardForgotten,
    GroupShardSaved,
    GroupState,
    Heartbeat,
    LogShard,
    RefusalCode,
    SaveCheckpoint,
    SavedCheckpoint,
    ShardsChanged,
    Tick,
)
from tests.loghub.domain.driver import Driver, in_transfer, two_consumers

# --- checkpoints -------------------------------------------------------------------------------


def test_without_force_only_the_holder_saves() -> None:
    driver = in_transfer()
    assert driver.checkpoint("a", 1, 1) is None
    assert driver.checkpoint("b", 1, 2) is RefusalCode.CONSUMER_NOT_MATCH
    assert driver.checkpoint("nobody", 1, 2) is RefusalCode.CONSUMER_NOT_MATCH
    assert driver.checkpoint("", 1, 2) is RefusalCode.PARAMETER_INVALID
    assert driver.checkpoint("a", 9, 2) is RefusalCode.SHARD_NOT_EXIST
    assert driver.checkpoint("nobody", 9, 2, force=True) is RefusalCode.SHARD_NOT_EXIST
    saved = driver.state.shards[1].checkpoint
    assert saved == SavedCheckpoint(cursor=1, consumer="a", updated_unix_us=0)


def test_with_force_any_consumer_saves_and_no_shard_moves() -> None:
    driver = two_consumers()
    assert driver.checkpoint("b", 0, 3, force=True) is None
    assert driver.line(0) == "already_alloc a"
    assert driver.last.transitions == ()
    saved = driver.state.shards[0].checkpoint
    assert saved is not None
    assert (saved.cursor, saved.consumer) == (3, "b")


def test_the_time_of_a_checkpoint_is_an_argument() -> None:
    driver = Driver(1)
    driver.do(SaveCheckpoint(consumer="x", shard=0, cursor=3, force=True, updated_unix_us=77))
    saved = driver.state.shards[0].checkpoint
    assert saved is not None
    assert saved.updated_unix_us == 77


# --- facts, shards that vanish, restart --------------------------------------------------------


def test_a_heartbeat_without_changes_persists_nothing() -> None:
    driver = two_consumers()
    driver.heartbeat("a", 0)
    assert driver.last.facts == ()
    assert driver.last.transitions == ()


def test_facts_contain_whole_entries_and_settings() -> None:
    created = create_group(group="g", timeout_s=30.0, order=True, shards=(LogShard(shard=4),), now=0.0)
    assert created.facts == (
        GroupSaved(timeout_s=30.0, order=True),
        GroupShardSaved(entry=created.state.shards[4]),
    )
    gone = step(created.state, ShardsChanged(shards=()), now=0.0)
    assert gone.facts == (GroupShardForgotten(shard=4),)


def test_a_deleted_shard_is_removed_in_every_state() -> None:
    driver = in_transfer()
    driver.delete_shard(0)
    driver.delete_shard(1)
    driver.report_shards()
    assert driver.state.shards == {}
    assert driver.heartbeat("a", 0, 1) == ()
    assert driver.state.consumers["a"].held == frozenset()


def test_wait_to_not_alloc_when_the_ancestor_is_deleted() -> None:
    driver = Driver(1, order=True)
    driver.split(0, end=5, into=(1, 2))
    driver.delete_shard(0)
    driver.report_shards()
    assert [driver.line(s) for s in (1, 2)] == ["not_alloc", "not_alloc"]


def test_a_restart_keeps_assignments_and_gives_new_sessions() -> None:
    driver = in_transfer()
    driver.advance(29)
    before = {s: driver.line(s) for s in (0, 1)}
    driver.restart()
    assert {s: driver.line(s) for s in (0, 1)} == before
    assert next_deadline(driver.state) == driver.now + 30
    driver.heartbeat("b")
    assert driver.line(1) == "transfer a -> b", "not before a has spoken"
    driver.heartbeat("a", 0)
    assert driver.line(1) == "already_alloc b"


def test_a_restart_keeps_the_last_holder_of_an_over_shard() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.close_shard(0, end=5)
    driver.report_shards()
    driver.checkpoint("a", 0, 5)
    driver.restart()
    driver.heartbeat("b")
    driver.checkpoint("", 0, 2, force=True)
    assert driver.state.shards[0].holder == "a"


def test_restore_of_nothing_is_a_group_without_consumers() -> None:
    state = restore(group="g", timeout_s=5.0, order=False, entries=(), now=3.0)
    assert state == GroupState(group="g", timeout_s=5.0, order=False)


# --- time, and the values themselves -----------------------------------------------------------


def test_the_deadline_is_the_earliest_and_moves_with_heartbeat_and_timeout() -> None:
    driver = Driver(1)
    driver.heartbeat("a")
    driver.advance(5)
    driver.heartbeat("b")
    assert next_deadline(driver.state) == 130.0
    driver.heartbeat("a")
    assert next_deadline(driver.state) == 135.0
    driver.configure(timeout_s=60.0)
    assert next_deadline(driver.state) == 165.0


def test_a_consumer_is_removed_by_the_tick_at_its_deadline() -> None:
    # Not a round number on purpose: deadline and tick must use the same sum.
    state = create_group(group="g", timeout_s=0.1, order=False, shards=(LogShard(shard=0),), now=0.0).state
    state = step(state, Heartbeat(consumer="a"), now=0.7).state
    deadline = next_deadline(state)
    assert deadline is not None
    assert step(state, Tick(), now=deadline).state.consumers == {}


def test_a_step_does_not_change_its_input_state() -> None:
    driver = in_transfer()
    state = driver.state
    consumers, shards = dict(state.consumers), dict(state.shards)
    for event in (Heartbeat(consumer="c"), Tick(), ShardsChanged(shards=())):
        step(state, event, now=1000.0)
    assert (dict(state.consumers), dict(state.shards)) == (consumers, shards)


def test_a_transition_has_all_values_of_its_log_line() -> None:
    driver = Driver(2)
    driver.heartbeat("a")
    driver.heartbeat("b")
    (moved,) = driver.last.transitions
    assert (moved.group, moved.shard, moved.old, moved.new) == (
        "g",
        1,
        ShardState.ALREADY_ALLOC,
        ShardState.TRANSFER,
    )
    assert (moved.trigger, moved.holder, moved.next_holder) == (ShardTrigger.MOVED_TO_BALANCE, "a", "b")


def test_only_the_order_of_events_decides() -> None:
    def run() -> Driver:
        driver = Driver(5)
        for name in ("c", "a", "b"):
            driver.heartbeat(name)
        return driver

    assert run().state == run().state
