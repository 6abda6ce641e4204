"""Commits and their fencing, resets, deletion and expiry of offsets and groups."""

import struct

import pytest

from loghub_service.kafka.coordinator.consumer_metadata import subscribed_topics
from loghub_service.kafka.coordinator.group import (
    GroupErrorCode,
    KafkaGroupLimits,
    MemberProtocol,
    TopicPartition,
)
from loghub_service.kafka.coordinator.requests import Cleanup, LogstoreGone, OffsetCommit, PartitionsAnswer
from loghub_service.kafka.coordinator.states import KafkaGroupState
from loghub_service.kafka.coordinator.step import fetch_offsets, listed
from tests.loghub_service.kafka.coordinator.driver import NONE, P0, P1, SESSION_MS, Driver, subscription

DAY_MS = 24 * 3_600_000
RETENTION_MS = 7 * DAY_MS


def test_a_member_commits_with_metadata_and_gets_it_back() -> None:
    group = Driver()
    group.stable("a", "b")
    assert group.commit(5, "a") is NONE
    assert group.commit(7, "b", offsets=((P1, 7, "why"),), unix_ms=99) is NONE
    fetched = dict(fetch_offsets(group.group, (P0, P1, TopicPartition(2, 0))).offsets)
    assert fetched[P0] is not None
    assert fetched[P0].offset == 5
    assert fetched[P1] is not None
    assert (fetched[P1].offset, fetched[P1].metadata, fetched[P1].commit_unix_ms) == (7, "why", 99)
    assert fetched[TopicPartition(2, 0)] is None
    assert {p for p, _ in fetch_offsets(group.group, None).offsets} == {P0, P1}


def test_a_commit_of_another_generation_or_an_unknown_member_changes_nothing() -> None:
    group = Driver()
    group.stable("a", "b")
    group.commit(5, "a")
    assert group.commit(6, "a", generation=1) is GroupErrorCode.ILLEGAL_GENERATION
    assert group.commit(6, "a", generation=3) is GroupErrorCode.ILLEGAL_GENERATION
    assert group.commit(6, "a", generation=-1) is GroupErrorCode.ILLEGAL_GENERATION
    assert group.commit(6, "x") is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit(6) is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.committed == 5


def test_commits_by_state() -> None:
    group = Driver()
    group.stable("a", "b")
    group.start_join("c")
    assert group.commit(6, "a") is NONE  # what it gives up
    group.rejoin("a", "b")
    assert group.commit(7, "a") is GroupErrorCode.REBALANCE_IN_PROGRESS
    assert group.commit(7, "a", generation=2) is GroupErrorCode.ILLEGAL_GENERATION
    group.assign()
    assert group.commit(8, "a") is NONE
    assert group.committed == 8


def test_a_late_commit_of_a_member_that_was_removed_is_refused() -> None:
    group = Driver()
    group.stable("a", "b")
    group.wait(SESSION_MS / 1000 - 1)
    group.heartbeat("b")
    group.wait(1)
    assert group.commit(5, "a") is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.committed is None


def test_a_commit_keeps_the_session_alive() -> None:
    group = Driver()
    group.stable("a")
    for _ in range(5):
        group.wait(SESSION_MS / 1000 - 1)
        assert group.commit(5, "a") is NONE
    assert group.state is KafkaGroupState.STABLE


def test_without_membership_commits_are_accepted_only_while_the_group_is_empty() -> None:
    group = Driver()
    assert group.commit(5) is NONE
    assert group.state is KafkaGroupState.EMPTY
    group.rejoin("a")
    assert group.commit(6) is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.assign()
    assert group.commit(6) is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.start_join("b")
    assert group.commit(6) is GroupErrorCode.UNKNOWN_MEMBER_ID
    group.leave(("a", None), ("b", None))
    assert group.commit(4) is NONE  # a reset
    assert group.committed == 4
    assert group.commit(9, "a", generation=2) is GroupErrorCode.UNKNOWN_MEMBER_ID
    assert group.commit(9, generation=0) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_commit_with_a_generation_to_a_group_that_does_not_exist_is_refused() -> None:
    group = Driver()
    assert group.commit(5, "a", generation=3) is GroupErrorCode.ILLEGAL_GENERATION
    assert group.state is KafkaGroupState.DEAD


def test_metadata_beyond_the_limit_is_refused_for_its_partition_only() -> None:
    group = Driver(KafkaGroupLimits(max_offset_metadata_bytes=10))
    offsets = ((P0, 1, "ü" * 5), (P1, 2, "ü" * 5 + "x"))
    answer = group.answers[group.ask(OffsetCommit(offsets=offsets, unix_ms=1))]
    assert isinstance(answer, PartitionsAnswer)
    assert answer.partitions == ((P0, NONE), (P1, GroupErrorCode.OFFSET_METADATA_TOO_LARGE))
    assert list(group.group.offsets) == [P0]


def test_a_group_has_a_limited_number_of_offsets_of_which_each_can_be_committed_again() -> None:
    group = Driver(KafkaGroupLimits(max_offsets=2))
    for shard in range(2):
        assert group.commit(0, offsets=((TopicPartition(1, shard), 5, ""),)) is NONE
    too_many = ((TopicPartition(1, 2), 5, ""),)
    assert group.commit(0, offsets=too_many) is GroupErrorCode.INVALID_COMMIT_OFFSET_SIZE
    assert group.commit(6) is NONE


# Deletion


def test_a_group_with_members_is_not_deleted() -> None:
    group = Driver()
    assert group.delete() is GroupErrorCode.GROUP_ID_NOT_FOUND
    group.rejoin("a")
    assert group.delete() is GroupErrorCode.NON_EMPTY_GROUP
    group.assign()
    assert group.delete() is GroupErrorCode.NON_EMPTY_GROUP
    group.start_join("b")
    assert group.delete() is GroupErrorCode.NON_EMPTY_GROUP
    group.leave(("a", None), ("b", None))
    group.commit(5)
    assert group.delete() is NONE
    assert (group.state, group.committed, group.group.generation) == (KafkaGroupState.DEAD, None, 0)
    assert group.delete() is GroupErrorCode.GROUP_ID_NOT_FOUND


def test_offsets_of_topics_that_a_member_subscribes_to_are_not_deleted() -> None:
    group = Driver()
    assert group.delete_offset("ls") is GroupErrorCode.GROUP_ID_NOT_FOUND
    group.stable("a", "b", protocols=(MemberProtocol("range", subscription("ls", "two.json")),))
    group.commit(5, "a")
    for name in ("ls", "ls.json", "two", "two.json", "two.raw"):  # those of one logstore share the offsets
        assert group.delete_offset(name) is GroupErrorCode.GROUP_SUBSCRIBED_TO_TOPIC
    assert group.committed == 5
    assert group.delete_offset("other", P1) is NONE
    group.leave(("a", None), ("b", None))
    assert group.delete_offset("ls") is NONE
    assert group.committed is None


def test_offsets_of_a_group_that_never_had_members_are_deleted() -> None:
    group = Driver()
    group.commit(5)
    assert group.delete_offset("ls") is NONE
    assert group.committed is None


def test_offsets_are_not_deleted_under_members_whose_topics_are_not_known() -> None:
    group = Driver()
    group.stable("w", protocol_type="connect")
    assert group.delete_offset("ls") is GroupErrorCode.NON_EMPTY_GROUP
    group = Driver()
    group.stable("a", protocols=(MemberProtocol("range", b"?"),))
    assert group.delete_offset("ls") is GroupErrorCode.GROUP_SUBSCRIBED_TO_TOPIC


@pytest.mark.parametrize(
    ("metadata", "topics"),
    [
        (subscription("a", "bc"), frozenset({"a", "bc"})),
        (subscription(), frozenset()),
        (subscription(""), frozenset({""})),
        (subscription("a")[:-4], frozenset({"a"})),  # version 0 may end here
        (b"", None),
        (subscription("a")[:8], None),
        (struct.pack(">hi", 1, 1 << 30), None),
        (struct.pack(">hih", 1, 1, -1), None),
        (struct.pack(">hih", 1, 1, 1) + b"\xff", None),
        (struct.pack(">hih", 1, 1, 2) + b"a", None),
    ],
)
def test_topics_of_a_subscription(metadata: bytes, topics: frozenset[str] | None) -> None:
    assert subscribed_topics(metadata) == topics


def test_offsets_of_a_deleted_logstore_are_forgotten() -> None:
    group = Driver()
    group.stable("a")
    group.commit(5, "a")
    group.commit(6, "a", offsets=((TopicPartition(2, 0), 6, ""),))
    group.apply(LogstoreGone(logstore=1))
    assert list(group.group.offsets) == [TopicPartition(2, 0)]


# Expiry


def test_offsets_of_an_empty_group_expire_and_with_the_last_one_the_group() -> None:
    group = Driver()
    group.commit(5, unix_ms=0)
    group.commit(6, offsets=((P1, 6, ""),), unix_ms=DAY_MS)
    group.apply(Cleanup(unix_ms=10))
    group.apply(Cleanup(unix_ms=RETENTION_MS))
    assert set(group.group.offsets) == {P0, P1}  # it was found empty at 10
    group.apply(Cleanup(unix_ms=RETENTION_MS + 10))
    assert set(group.group.offsets) == {P1}
    group.apply(Cleanup(unix_ms=RETENTION_MS + DAY_MS))
    assert (group.state, group.group.offsets) == (KafkaGroupState.DEAD, {})


def test_offsets_do_not_expire_while_the_group_is_in_use_nor_soon_after() -> None:
    group = Driver()
    group.commit(5, unix_ms=0)
    group.apply(Cleanup(unix_ms=0))
    group.stable("a")
    group.apply(Cleanup(unix_ms=RETENTION_MS * 2))
    assert group.committed == 5
    group.leave(("a", None))
    group.apply(Cleanup(unix_ms=RETENTION_MS * 2))
    group.apply(Cleanup(unix_ms=RETENTION_MS * 3 - 1))
    assert group.committed == 5
    group.apply(Cleanup(unix_ms=RETENTION_MS * 3))
    assert group.state is KafkaGroupState.DEAD


def test_a_group_that_has_nothing_is_forgotten() -> None:
    group = Driver()
    group.start_join("a", requires_member_id=True)
    group.apply(Cleanup(unix_ms=1))
    assert group.state is KafkaGroupState.EMPTY  # a member id was given out
    group.wait(SESSION_MS / 1000)
    group.apply(Cleanup(unix_ms=2))
    assert group.state is KafkaGroupState.DEAD


def test_the_name_of_a_deleted_group_can_be_used_again_and_fences_earlier_members() -> None:
    group = Driver()
    group.stable("a")
    group.leave(("a", None))
    group.delete()
    group.stable("b")
    assert group.group.generation == 1
    assert group.commit(5, "a", generation=1) is GroupErrorCode.UNKNOWN_MEMBER_ID


def test_a_group_is_listed_with_its_protocol_type() -> None:
    group = Driver()
    group.stable("a")
    group.leave(("a", None))
    assert (listed(group.group).group_id, listed(group.group).protocol_type) == ("g", "consumer")
