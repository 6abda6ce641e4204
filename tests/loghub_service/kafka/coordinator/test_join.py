"""JoinGroup: member ids, generations, protocols, limits, and repeated or late requests."""

from dataclasses import replace

import pytest

from loghub_service.kafka.coordinator.group import GroupErrorCode, KafkaGroupLimits, MemberProtocol
from loghub_service.kafka.coordinator.requests import ConnectionLost, JoinedMember, TimePassed
from loghub_service.kafka.coordinator.states import KafkaGroupState
from tests.loghub_service.kafka.coordinator.driver import (
    NONE,
    RANGE,
    SESSION_MS,
    Driver,
    join_event,
    subscription,
)

BOTH = (MemberProtocol("cooperative", b"c"), MemberProtocol("range", b"r"))
ROUND = (MemberProtocol("roundrobin", b"rr"),)


def test_a_client_without_id_gets_one_and_joins_with_it() -> None:
    group = Driver()
    given = group.joined(group.start_join("a", requires_member_id=True))
    assert (given.error, given.member_id) == (GroupErrorCode.MEMBER_ID_REQUIRED, "a")
    assert group.state is KafkaGroupState.EMPTY
    joined = group.joined(group.start_join("", member_id="a", requires_member_id=True))
    assert (joined.error, joined.member_id, joined.generation, joined.leader) == (NONE, "a", 1, "a")


def test_before_version_4_a_client_joins_at_once() -> None:
    group = Driver()
    assert group.joined(group.start_join("a")).generation == 1


def test_a_member_id_that_does_not_join_expires() -> None:
    group = Driver()
    group.start_join("a", requires_member_id=True)
    group.wait(SESSION_MS / 1000)
    assert group.join_error("", member_id="a") is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_generation_waits_for_a_member_id_that_was_given_out() -> None:
    group = Driver()
    group.start_join("b", requires_member_id=True)
    first = group.start_join("a")
    assert first not in group.answers
    group.start_join("", member_id="b")
    assert group.joined(first).generation == 1
    assert len(group.joined(first).members) == 2


def test_or_until_it_expires() -> None:
    group = Driver()
    group.start_join("b", requires_member_id=True)
    first = group.start_join("a")
    group.wait(SESSION_MS / 1000)
    assert len(group.joined(first).members) == 1


def test_one_leader_gets_all_metadata_and_the_others_none() -> None:
    group = Driver()
    group.rejoin("a")
    others = (MemberProtocol("cooperative", b"not chosen"), MemberProtocol("range", b"of b"))
    follower = group.start_join("b", protocols=others)
    leader = group.start_join("", member_id="a")
    answer = group.joined(leader)
    assert answer.members == (
        JoinedMember(member_id="a", group_instance_id=None, metadata=RANGE[0].metadata),
        JoinedMember(member_id="b", group_instance_id=None, metadata=b"of b"),
    )
    assert (answer.leader, answer.protocol, answer.protocol_type) == ("a", "range", "consumer")
    assert group.joined(follower) == replace(answer, member_id="b", members=())


def test_each_round_is_one_generation() -> None:
    group = Driver()
    for generation, name in enumerate("abcd", 1):
        group.start_join(name)
        group.rejoin(*"abcd"[:generation])
        assert group.group.generation == generation


def test_members_of_a_group_that_was_empty_may_follow_within_the_initial_delay() -> None:
    group = Driver(KafkaGroupLimits(initial_rebalance_delay_ms=3000))
    first = group.start_join("a")
    group.wait(2.9)
    second = group.start_join("b")
    group.wait(2.9)  # the delay began again, since one joined
    assert first not in group.answers
    group.wait(0.2)
    assert group.joined(first).generation == group.joined(second).generation == 1
    third = group.start_join("c")  # of a group that has members there is no delay
    group.rejoin("a", "b")
    assert group.joined(third).generation == 2


def test_the_initial_delay_ends_at_the_rebalance_timeout_though_one_has_just_joined() -> None:
    group = Driver(KafkaGroupLimits(initial_rebalance_delay_ms=1000))
    first = group.start_join("a", rebalance_timeout_ms=2500)
    for name in "bc":
        group.wait(0.75)
        group.start_join(name, rebalance_timeout_ms=2500)
    group.wait(0.9)
    group.start_join("d", rebalance_timeout_ms=2500)
    group.now += 0.1
    group.apply(TimePassed())
    assert len(group.joined(first).members) == 4


def test_the_initial_delay_is_not_extended_beyond_the_rebalance_timeout() -> None:
    group = Driver(KafkaGroupLimits(initial_rebalance_delay_ms=3000))
    requests = []
    for number in range(10):
        requests.append(group.start_join(f"m{number}", rebalance_timeout_ms=5000))
        group.wait(0.499)
    group.wait(0.1)
    assert {group.joined(request).generation for request in requests} == {1}


def test_a_group_whose_members_are_gone_before_the_delay_is_over_is_empty_at_once() -> None:
    group = Driver(KafkaGroupLimits(initial_rebalance_delay_ms=3000))
    group.start_join("b", requires_member_id=True)
    group.start_join("a")
    group.leave(("a", None))
    assert group.state is KafkaGroupState.EMPTY
    assert group.joined(group.start_join("", member_id="x")).error is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.start_join("", member_id="b")
    assert group.state is KafkaGroupState.PREPARING_REBALANCE


def test_protocols_without_one_in_common_are_refused_and_disturb_nobody() -> None:
    group = Driver()
    group.stable("a", "b")
    before = group.group
    assert group.join_error("c", protocols=ROUND) is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join_error("c", protocol_type="connect") is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join_error("c", protocols=()) is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join_error("c", protocol_type="") is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join_error("", member_id="b", protocols=ROUND) is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.group == before


def test_a_client_without_protocols_is_refused_by_a_group_that_does_not_exist() -> None:
    group = Driver()
    assert group.join_error("a", protocols=()) is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.join_error("a", protocol_type="") is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL
    assert group.state is KafkaGroupState.DEAD


def test_a_group_without_members_takes_any_protocol_type() -> None:
    group = Driver()
    group.stable("a")
    group.leave(("a", None))
    assert group.state is KafkaGroupState.EMPTY
    assert group.join_error("w", protocol_type="connect", protocols=ROUND) is NONE


def test_the_only_member_may_replace_its_protocols() -> None:
    group = Driver()
    group.stable("a")
    assert group.join_error("", member_id="a", protocols=ROUND) is NONE
    assert group.group.protocol == "roundrobin"


def test_the_protocol_is_the_one_that_most_members_prefer_of_those_that_all_support() -> None:
    group = Driver()
    prefer_range = tuple(MemberProtocol(name, b"") for name in ("range", "roundrobin", "sticky"))
    prefer_sticky = (MemberProtocol("new", b""), MemberProtocol("sticky", b""), MemberProtocol("range", b""))
    group.start_join("a", protocols=prefer_range)
    group.start_join("b", protocols=prefer_sticky)
    group.start_join("c", protocols=prefer_sticky)
    group.start_join("", member_id="a", protocols=prefer_range)
    answer = group.joined(group.start_join("", member_id="b", protocols=prefer_sticky))
    assert answer.protocol == "sticky"  # "new" is not supported by a, and a alone prefers "range"


def test_a_protocol_that_one_member_lacks_is_not_selected_and_nothing_to_join_with() -> None:
    group = Driver()
    group.start_join("a", protocols=BOTH)
    group.start_join("b", protocols=BOTH[1:])
    answer = group.joined(group.start_join("", member_id="a", protocols=BOTH))
    assert answer.protocol == "range"
    assert group.join_error("c", protocols=BOTH[:1]) is GroupErrorCode.INCONSISTENT_GROUP_PROTOCOL


def test_the_assignor_of_a_group_can_be_changed_member_by_member() -> None:
    group = Driver()
    group.stable("a", "b")
    for name, protocols in (("a", BOTH), ("b", BOTH), ("a", BOTH[:1]), ("b", BOTH[:1])):
        group.start_join("", member_id=name, protocols=protocols)
        for other in {"a", "b"} - {name}:
            if group.state is KafkaGroupState.PREPARING_REBALANCE:
                kept = group.group.members[other].info.protocols
                group.start_join("", member_id=other, protocols=kept)
        assert group.state is KafkaGroupState.COMPLETING_REBALANCE
        group.assign()
    assert group.group.protocol == "cooperative"


@pytest.mark.parametrize("session_ms", [5_999, 1_800_001, 0, -1])
def test_a_session_timeout_beyond_the_bounds_is_refused(session_ms: int) -> None:
    group = Driver()
    assert group.join_error("a", session_timeout_ms=session_ms) is GroupErrorCode.INVALID_SESSION_TIMEOUT
    assert group.state is KafkaGroupState.DEAD


@pytest.mark.parametrize(("asked_ms", "taken_ms"), [(0, 1_000), ((1 << 31) - 1, 1_800_000), (5_000, 5_000)])
def test_a_rebalance_timeout_beyond_the_bounds_is_taken_as_the_bound(asked_ms: int, taken_ms: int) -> None:
    group = Driver()
    group.start_join("a", rebalance_timeout_ms=asked_ms)
    assert group.group.members["a"].info.rebalance_timeout_ms == taken_ms


def test_a_full_group_takes_no_member_and_gives_out_no_member_id() -> None:
    group = Driver(KafkaGroupLimits(max_members=2, initial_rebalance_delay_ms=0))
    group.rejoin("a")
    group.start_join("b", requires_member_id=True)
    assert group.join_error("c", requires_member_id=True) is GroupErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.join_error("c") is GroupErrorCode.GROUP_MAX_SIZE_REACHED
    group.start_join("", member_id="b")  # it has its place
    assert group.join_error("c") is GroupErrorCode.GROUP_MAX_SIZE_REACHED
    assert group.joined(group.start_join("", member_id="a")).generation == 2


@pytest.mark.parametrize(
    "fields",
    [
        {"protocols": (MemberProtocol("range", bytes(101)),)},
        {"protocols": (MemberProtocol("range", bytes(50)), MemberProtocol("sticky", bytes(51)))},
        {"protocols": tuple(MemberProtocol(f"p{n}", b"") for n in range(4))},
        {"protocols": (MemberProtocol("r" * 21, b""),)},
        {"client_id": "ü" * 11},
        {"client_host": "h" * 21},
        {"group_instance_id": "i" * 21},
        {"protocol_type": "t" * 21},
    ],
)
def test_what_exceeds_a_limit_is_refused(fields: dict[str, object]) -> None:
    limits = KafkaGroupLimits(
        max_metadata_bytes=100, max_protocols=3, max_name_bytes=20, initial_rebalance_delay_ms=0
    )
    group = Driver(limits)
    assert group.join_error("a", **fields) is GroupErrorCode.INVALID_REQUEST
    maximum = (
        MemberProtocol("range", bytes(100)),
        MemberProtocol("sticky", b""),
        MemberProtocol("r" * 20, b""),
    )
    assert group.join_error("a", client_id="ü" * 10, protocols=maximum) is NONE


def test_an_unknown_member_id_is_refused_in_every_state() -> None:
    group = Driver()
    assert group.join_error("", member_id="x") is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.state is KafkaGroupState.DEAD
    group.rejoin("a")
    assert group.join_error("", member_id="x") is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.assign()
    assert group.join_error("", member_id="x") is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.start_join("b")
    assert group.join_error("", member_id="x") is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_member_that_missed_its_answer_gets_the_present_generation() -> None:
    group = Driver()
    group.rejoin("a", "b")
    again = group.joined(group.start_join("", member_id="b"))
    assert (again.generation, again.leader, again.members) == (2, "a", ())
    assert len(group.joined(group.start_join("", member_id="a")).members) == 2  # the leader gets them again
    assert group.state is KafkaGroupState.COMPLETING_REBALANCE
    group.assign(a=b"A", b=b"B")
    again = group.joined(group.start_join("", member_id="b"))
    assert (again.generation, again.members, group.state) == (2, (), KafkaGroupState.STABLE)


def test_other_metadata_makes_the_group_rebalance() -> None:
    group = Driver()
    other = (MemberProtocol("range", subscription("ls", "more")),)
    group.rejoin("a", "b")
    group.start_join("", member_id="b", protocols=other)
    assert group.state is KafkaGroupState.PREPARING_REBALANCE
    group.rejoin("a", "b", protocols=other)
    group.assign()
    group.start_join("", member_id="b", protocols=RANGE)
    assert group.state is KafkaGroupState.PREPARING_REBALANCE


def test_the_leader_makes_a_stable_group_rebalance_by_rejoining() -> None:
    """It does so when it sees new partitions."""
    group = Driver()
    group.stable("a", "b")
    group.start_join("", member_id="a")
    assert group.state is KafkaGroupState.PREPARING_REBALANCE
    assert group.heartbeat("b") is GroupErrorCode.REBALANCE_IN_PROGRESS


def test_a_repeated_request_takes_the_place_of_the_one_that_waits() -> None:
    group = Driver()
    group.stable("a", "b")
    group.start_join("c")
    earlier = group.start_join("", member_id="b")
    later = group.start_join("", member_id="b")
    assert group.joined(earlier).error is GroupErrorCode.REBALANCE_IN_PROGRESS
    group.rejoin("a")
    assert group.joined(later).error is NONE


def test_a_member_that_does_not_rejoin_is_dropped_and_the_others_proceed() -> None:
    group = Driver()
    group.stable("a", "b")
    group.start_join("c")
    waiting = group.start_join("", member_id="b")
    for _ in range(12):  # a sends heartbeats, but does not rejoin
        group.wait(4.99)
        assert group.heartbeat("a", generation=2) is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert waiting not in group.answers
    group.wait(0.2)
    answer = group.joined(waiting)
    assert (answer.generation, answer.leader, len(answer.members)) == (3, "b", 2)
    assert group.heartbeat("a", generation=2) is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.start_join("a")  # it comes back: a new round
    assert group.state is KafkaGroupState.PREPARING_REBALANCE


def test_a_group_waits_for_the_longest_rebalance_timeout_of_its_members() -> None:
    group = Driver()
    group.start_join("a", rebalance_timeout_ms=5_000)
    group.start_join("b", rebalance_timeout_ms=9_000)
    waiting = group.start_join("", member_id="a", rebalance_timeout_ms=5_000)
    assert waiting in group.answers
    group.assign()
    group.start_sync("b")
    waiting = group.start_join("", member_id="a", rebalance_timeout_ms=5_000)
    group.wait(8.9)
    assert waiting not in group.answers
    group.wait(0.2)
    assert len(group.joined(waiting).members) == 1


def test_a_first_join_of_a_static_member_whose_connection_breaks_keeps_its_place() -> None:
    group = Driver()
    group.stable("a")
    broken = group.start_join("b", group_instance_id="i-b")
    group.apply(ConnectionLost(request=broken))
    assert set(group.group.members) == {"a", "b"}


def test_a_first_join_whose_connection_breaks_is_forgotten() -> None:
    group = Driver()
    group.stable("a")
    broken = group.start_join("b")
    group.apply(ConnectionLost(request=broken))
    assert group.joined(broken).error is GroupErrorCode.UNKNOWN_MEMBER_ID  # nobody reads it
    waiting = group.start_join("", member_id="a")
    assert len(group.joined(waiting).members) == 1


def test_a_member_whose_connection_breaks_while_it_rejoins_stays() -> None:
    group = Driver()
    group.stable("a", "b")
    group.start_join("c")
    rejoining = group.start_join("", member_id="b")
    group.apply(ConnectionLost(request=rejoining))
    group.rejoin("a")
    assert set(group.group.members) == {"a", "b", "c"}


def test_a_step_changes_no_earlier_group() -> None:
    group = Driver()
    group.stable("a", "b")
    before, members = group.group, dict(group.group.members)
    group.ask(join_event("c"))
    group.wait(100)
    assert dict(before.members) == members
