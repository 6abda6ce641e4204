"""What of a group survives a restart of the service.

`tests.properties.kafka.test_fail_over` restarts it at each point of a rebalance.
"""

from loghub_service.kafka.coordinator.facts import OffsetSaved, durable, restore
from loghub_service.kafka.coordinator.group import Group, GroupErrorCode
from loghub_service.kafka.coordinator.states import KafkaGroupState
from tests.loghub_service.kafka.coordinator.driver import NONE, P1, SESSION_MS, Driver

SESSION_S = SESSION_MS / 1000


def test_a_stable_group_goes_on_after_a_restart() -> None:
    group = Driver()
    group.stable("a", "b")
    group.wait(SESSION_S - 1)
    group.restart()
    group.wait(SESSION_S - 1)  # a full session, since silence while the service was down is not known
    assert (group.heartbeat("a"), group.heartbeat("b")) == (NONE, NONE)
    assert group.synced(group.start_sync("b")).assignment == b"B"
    assert group.group.generation == 2
    assert group.commit(6, "a") is NONE


def test_a_generation_that_was_given_out_is_not_used_again() -> None:
    group = Driver()
    group.rejoin("a", "b")
    generation = group.group.generation
    group.restart()
    assert group.heartbeat("a", generation=generation) is GroupErrorCode.REBALANCE_IN_PROGRESS
    late = group.synced(group.start_sync("a", generation=generation, assignments=(("a", b"all"),)))
    assert late.error is GroupErrorCode.REBALANCE_IN_PROGRESS
    group.start_join("", member_id="b")
    assert group.joined(group.start_join("", member_id="a")).generation == generation + 1


def test_a_member_that_left_during_a_rebalance_is_not_restored() -> None:
    group = Driver()
    group.stable("a", "b")
    group.leave(("a", None))
    group.restart()
    assert set(group.group.members) == {"b"}
    assert group.state is KafkaGroupState.PREPARING_REBALANCE


def test_a_static_member_keeps_its_place_over_a_restart_of_both() -> None:
    group = Driver()
    group.stable("a", group_instance_id="i-a")
    group.restart()
    answer = group.joined(group.start_join("a2", group_instance_id="i-a"))
    assert (answer.error, answer.generation) == (NONE, 1)
    assert group.synced(group.start_sync("a2")).assignment == b"A"
    group.restart()
    assert group.heartbeat("a2") is NONE
    assert group.heartbeat("a", group_instance_id="i-a") is GroupErrorCode.FENCED_INSTANCE_ID


def test_first_joins_and_member_ids_that_were_given_out_are_not_restored() -> None:
    group = Driver()
    group.start_join("b", requires_member_id=True)
    group.start_join("a")
    assert group.facts == []
    group.restart()
    assert group.group == Group(group_id="g")
    assert group.join_error("", member_id="b") is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_rebalance_begins_again_with_the_longest_timeout_of_the_members() -> None:
    group = Driver()
    group.start_join("a", rebalance_timeout_ms=5_000)
    group.start_join("b", rebalance_timeout_ms=9_000)
    group.start_join("", member_id="a", rebalance_timeout_ms=5_000)
    group.restart()
    assert group.group.rebalance_end_s == group.now + 9


def test_an_empty_group_and_its_expiry_are_restored() -> None:
    group = Driver()
    group.commit(5)
    group.restart()
    assert (group.state, group.committed, durable(group.group) is not None) == (
        KafkaGroupState.EMPTY,
        5,
        True,
    )
    group.delete()
    group.restart()
    assert group.state is KafkaGroupState.DEAD


def test_a_heartbeat_needs_no_fact() -> None:
    group = Driver()
    group.stable("a", "b")
    before = len(group.facts)
    group.heartbeat("a")
    group.wait(1)
    assert len(group.facts) == before


def test_a_member_that_rejoins_unchanged_needs_no_fact() -> None:
    group = Driver()
    group.stable("a", "b")
    group.start_join("c")
    before = len(group.facts)
    group.start_join("", member_id="b")
    assert len(group.facts) == before


def test_a_commit_is_one_fact() -> None:
    group = Driver()
    group.stable("a")
    group.commit(5, "a")
    group.commit(6, "a", offsets=((P1, 6, ""),))
    facts = group.last.facts
    assert [fact.partition for fact in facts if isinstance(fact, OffsetSaved)] == [P1]
    assert len(facts) == 1


def test_the_newest_fact_of_each_subject_restores_the_group() -> None:
    group = Driver()
    group.stable("a", "b")
    group.commit(5, "a")
    every = restore("g", group.facts, now=group.now)
    saved = durable(every)
    assert saved is not None
    assert every.members == group.group.members
    assert every.offsets == group.group.offsets
    assert every.state is KafkaGroupState.STABLE
