"""Static members: restarts within the session, fencing, and their place in a rebalance."""

from loghub_service.kafka.coordinator.group import (
    GroupErrorCode,
    KafkaGroupLimits,
    MemberProtocol,
    next_deadline,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState
from tests.loghub_service.kafka.coordinator.driver import NONE, REBALANCE_MS, SESSION_MS, Driver

SESSION_S, REBALANCE_S = SESSION_MS / 1000, REBALANCE_MS / 1000
STATIC = {"a": {"group_instance_id": "i-a"}, "b": {"group_instance_id": "i-b"}}


def stable_static() -> Driver:
    """Two static members, a and b, of which a leads."""
    group = Driver()
    group.start_join("a", **STATIC["a"])
    group.start_join("b", **STATIC["b"])
    group.start_join("", member_id="a", **STATIC["a"])
    group.assign(a=b"A", b=b"B")
    assert group.synced(group.start_sync("b", **STATIC["b"])).assignment == b"B"
    return group


def test_a_static_member_is_removed_by_its_instance_id() -> None:
    group = stable_static()
    assert group.leave(("", "i-x"), ("b", "i-a"), ("", "i-a"), ("a", "i-b")) == (
        GroupErrorCode.UNKNOWN_MEMBER_ID,
        GroupErrorCode.FENCED_INSTANCE_ID,
        NONE,
        GroupErrorCode.FENCED_INSTANCE_ID,
    )
    assert set(group.group.members) == {"b"}


def test_a_static_member_that_restarts_within_its_session_keeps_its_place_and_the_generation() -> None:
    group = stable_static()
    generation = group.group.generation
    group.wait(SESSION_S - 1)
    group.heartbeat("a")
    answer = group.joined(group.start_join("b2", **STATIC["b"]))
    assert (answer.error, answer.member_id, answer.generation, answer.leader) == (NONE, "b2", generation, "a")
    assert group.synced(group.start_sync("b2", **STATIC["b"])).assignment == b"B"
    assert (group.group.generation, group.state) == (generation, KafkaGroupState.STABLE)
    assert group.heartbeat("a") is NONE


def test_a_second_process_with_the_instance_id_fences_the_earlier_one() -> None:
    group = stable_static()
    group.start_join("b2", **STATIC["b"])
    fenced = GroupErrorCode.FENCED_INSTANCE_ID
    assert group.heartbeat("b", **STATIC["b"]) is fenced
    assert group.synced(group.start_sync("b", **STATIC["b"])).error is fenced
    assert group.commit(5, "b", **STATIC["b"]) is fenced
    assert group.join_error("", member_id="b", **STATIC["b"]) is fenced
    assert group.leave(("b", "i-b")) == (fenced,)
    assert group.committed is None
    assert group.heartbeat("b2", **STATIC["b"]) is NONE
    # Without its instance id it is just unknown.
    assert group.heartbeat("b") is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_leader_that_restarts_is_not_asked_to_assign() -> None:
    group = stable_static()
    answer = group.joined(group.start_join("a2", **STATIC["a"]))
    assert (answer.leader, answer.members) == ("a", ())
    assert group.group.leader == "a2"
    group.start_join("", member_id="a2", **STATIC["a"])
    assert group.state is KafkaGroupState.PREPARING_REBALANCE  # as the leader, it can start a rebalance


def test_a_static_member_comes_back_into_a_full_group() -> None:
    group = Driver(KafkaGroupLimits(max_members=1, initial_rebalance_delay_ms=0))
    group.start_join("a", **STATIC["a"])
    group.assign(a=b"A")
    assert group.join_error("b", **STATIC["b"]) is GroupErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join_error("a2", **STATIC["a"]) is NONE


def test_requests_of_the_earlier_process_that_wait_are_fenced() -> None:
    group = stable_static()
    group.start_join("c")
    rejoining = group.start_join("", member_id="b", **STATIC["b"])
    group.start_join("b2", **STATIC["b"])
    assert group.joined(rejoining).error is GroupErrorCode.FENCED_INSTANCE_ID
    group.rejoin("a", **STATIC["a"])
    waiting = group.start_sync("b2", **STATIC["b"])
    group.start_join("b3", **STATIC["b"])
    assert group.synced(waiting).error is GroupErrorCode.FENCED_INSTANCE_ID
    # The leader assigns by the former member id, so there is another round.
    assert group.state is KafkaGroupState.PREPARING_REBALANCE


def test_a_restart_with_protocols_that_select_another_one_rebalances() -> None:
    group = Driver()
    both = (MemberProtocol("range", b""), MemberProtocol("sticky", b""))
    group.start_join("a", protocols=both, **STATIC["a"])
    group.assign()
    group.start_join("a2", protocols=both[1:], **STATIC["a"])
    assert (group.state, group.group.protocol) == (KafkaGroupState.COMPLETING_REBALANCE, "sticky")


def test_a_static_member_that_does_not_rejoin_keeps_its_place_until_its_session_ends() -> None:
    group = Driver()
    long = {"session_timeout_ms": 100_000}
    group.start_join("a", **STATIC["a"])
    group.start_join("b", **STATIC["b"], **long)
    group.start_join("", member_id="a", **STATIC["a"])
    group.assign(a=b"A", b=b"B")
    group.start_sync("b")
    group.start_join("c")
    waiting = group.start_join("", member_id="a", **STATIC["a"])
    group.wait(REBALANCE_S)
    assert [m.member_id for m in group.joined(waiting).members] == ["a", "b", "c"]
    group.assign(a=b"A", b=b"B", c=b"C")
    group.start_sync("c")
    answer = group.joined(group.start_join("b2", **STATIC["b"], **long))
    assert (answer.error, answer.generation) == (NONE, group.group.generation)
    assert group.synced(group.start_sync("b2", **STATIC["b"])).assignment == b"B"


def test_if_none_but_static_members_are_left_the_group_waits_for_their_sessions() -> None:
    group = stable_static()
    group.heartbeat("a")
    group.start_join("c", rebalance_timeout_ms=1000)
    group.leave(("c", None))
    assert group.state is KafkaGroupState.PREPARING_REBALANCE
    for _ in range(20):
        group.wait(5)
        assert group.heartbeat("a", **STATIC["a"]) is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert set(group.group.members) == {"a"}
    assert next_deadline(group.group) is not None
    group.wait(SESSION_S + 0.1)
    assert group.state is KafkaGroupState.EMPTY


def test_an_instance_id_that_is_not_a_members_is_unknown() -> None:
    group = stable_static()
    assert group.heartbeat("a", group_instance_id="i-x") is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.heartbeat("a", group_instance_id="i-b") is GroupErrorCode.FENCED_INSTANCE_ID


def test_a_member_id_that_was_given_out_is_not_a_static_members() -> None:
    group = Driver()
    group.start_join("a", requires_member_id=True)
    assert group.join_error("", member_id="a", **STATIC["a"]) is GroupErrorCode.UNKNOWN_MEMBER_ID
