"""Which shards begin at spec.startPosition, and which at their own first log."""

import dataclasses

import pytest

from loghub_operator.api.adoption import GroupRecord
from loghub_operator.logservice.shard_cursors import last_initial_shard
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    ServiceErrorReason,
    ShardObserved,
    Unavailable,
)

GROUP = GroupSettings(timeout_s=30, order=False)
UNAVAILABLE = Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="no answer")


def service(*shards: ShardObserved, group: GroupSettings | None = GROUP) -> Available:
    return Available(group=group, shards=shards)


def shard(number: int, *parents: int, read: bool = False) -> ShardObserved:
    return ShardObserved(
        shard=number, state="unknown", parents=parents, checkpoint="MTA=" if read else "", read_only=False
    )


SPLIT = (shard(0), shard(1), shard(2, 0), shard(3, 0))


@pytest.mark.parametrize("recorded", [None, GroupRecord("Created", 1), GroupRecord("Adopted", None)])
def test_before_the_group_exists_all_shards_are_initial(recorded: GroupRecord | None) -> None:
    """A group that was deleted and created again has read nothing, whatever was recorded before."""
    assert last_initial_shard(recorded, service(*SPLIT, group=None)) == 3


def test_the_record_decides_as_long_as_the_group_exists() -> None:
    recorded = GroupRecord("Created", 1)
    assert last_initial_shard(recorded, service(*SPLIT)) == 1
    assert last_initial_shard(recorded, UNAVAILABLE) == 1


def test_nothing_is_guessed_while_the_service_is_unavailable() -> None:
    assert last_initial_shard(None, UNAVAILABLE) is None
    assert last_initial_shard(GroupRecord("Created", None), UNAVAILABLE) is None


@pytest.mark.parametrize(
    ("shards", "expected"),
    [
        (SPLIT, 3),
        ((shard(0, read=True), shard(1)), 1),
        ((shard(0, read=True), shard(1), shard(2, 0), shard(3, 0)), 1),
        ((shard(0, read=True), shard(1), shard(2, 0, read=True), shard(3, 0)), 2),
        ((shard(0, read=True), shard(1, 0, read=True), shard(2, 0, read=True), shard(3, 1, 2)), 2),
    ],
    ids=["nothing read", "no split", "children not read", "one child read", "merged child not read"],
)
def test_in_an_adopted_group_unread_children_of_read_shards_are_not_initial(
    shards: tuple[ShardObserved, ...], expected: int
) -> None:
    assert last_initial_shard(None, service(*shards)) == expected


def test_a_grandchild_of_a_read_shard_is_not_initial_although_its_parent_was_never_read() -> None:
    shards = (shard(0, read=True), shard(1, 0, read=True), shard(2, 0, read=True), shard(3, 2), shard(4, 3))
    assert last_initial_shard(None, service(*shards)) == 2
    unread = tuple(dataclasses.replace(one, checkpoint="") for one in shards)
    assert last_initial_shard(None, service(*unread)) == 4
