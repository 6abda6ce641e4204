"""The facts of a step that changes offsets, whatever of them it changes, and what finding them costs."""

import random

import pytest

from loghub_service.kafka.coordinator.facts import OffsetForgotten, OffsetSaved, changes
from loghub_service.kafka.coordinator.group import CommittedOffset, Group, TopicPartition


def committed(offset: int) -> CommittedOffset:
    return CommittedOffset(offset=offset, metadata="", commit_unix_ms=0)


@pytest.mark.parametrize("seed", range(200))
def test_each_offset_that_differs_is_a_fact(seed: int) -> None:
    dice = random.Random(seed)
    old = {TopicPartition(1, shard): committed(shard) for shard in dice.sample(range(20), dice.randrange(12))}
    new = dict(old)
    for shard in dice.sample(range(20), dice.randrange(8)):
        place = TopicPartition(1, shard)
        if dice.random() < 0.3:
            new.pop(place, None)
        elif dice.random() < 0.3:
            new = {place: committed(99), **new}  # in another order
        else:
            new[place] = committed(dice.choice((shard, 77)))
    facts = changes(Group(group_id="g", offsets=old), Group(group_id="g", offsets=new), ())
    found = [fact for fact in facts if isinstance(fact, OffsetSaved | OffsetForgotten)]
    saved = {fact.partition: fact.committed for fact in found if isinstance(fact, OffsetSaved)}
    forgotten = {fact.partition for fact in found if isinstance(fact, OffsetForgotten)}
    assert len(found) == len(saved) + len(forgotten)
    assert saved == {place: one for place, one in new.items() if old.get(place) is not one}
    assert forgotten == old.keys() - new.keys()


def test_a_commit_of_one_offset_does_not_look_up_all_others() -> None:
    """Of 10,000 it took 9 ms, most of it for their hashes."""
    hashed = 0

    class Counted(TopicPartition):
        def __hash__(self) -> int:
            nonlocal hashed
            hashed += 1
            return hash((self.logstore, self.shard))

    old = {Counted(1, shard): committed(shard) for shard in range(1000)}
    new = dict(old)
    new[Counted(1, 500)] = committed(1)
    new[Counted(2, 0)] = committed(2)
    hashed = 0
    facts = changes(Group(group_id="g", offsets=old), Group(group_id="g", offsets=new), ())
    assert {fact.partition.shard for fact in facts if isinstance(fact, OffsetSaved)} == {500, 0}
    assert hashed < 10
