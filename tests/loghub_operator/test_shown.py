"""A status takes so many shards; there may be more."""

from loghub_operator.api.status import MAX_SHARDS
from loghub_operator.model import ShardObserved
from loghub_operator.telling import shown


def test_all_are_shown_while_they_fit() -> None:
    shards = tuple(ShardObserved(shard=number, state="over") for number in range(MAX_SHARDS))
    assert shown(shards) == shards


def test_beyond_that_those_that_are_over_go_first() -> None:
    old = tuple(ShardObserved(shard=number, state="over") for number in range(MAX_SHARDS))
    new = tuple(ShardObserved(shard=MAX_SHARDS + number, state="already_alloc") for number in range(9))
    found = shown((*old, *new))
    assert len(found) == MAX_SHARDS
    assert found[-9:] == new
    assert list(found) == sorted(found, key=lambda one: one.shard)
