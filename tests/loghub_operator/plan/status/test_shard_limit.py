"""The limits of shards, and of parents of each, in a status."""

from dataclasses import replace

import pytest

from loghub_operator.api.status import MAX_SHARDS
from loghub_operator.model.observed import ShardObserved
from loghub_operator.plan.status.builder import truncate_shards
from tests.loghub_operator.support.golden import FOLDER, steps
from tests.loghub_operator.support.rounds import plan


def test_all_shards_are_shown_up_to_the_limit() -> None:
    shards = tuple(ShardObserved(shard=number, state="over") for number in range(MAX_SHARDS))
    assert truncate_shards(shards) == shards


def test_beyond_the_limit_completed_shards_are_left_out_first() -> None:
    old = tuple(ShardObserved(shard=number, state="over") for number in range(MAX_SHARDS))
    new = tuple(ShardObserved(shard=MAX_SHARDS + number, state="already_alloc") for number in range(9))
    parents = truncate_shards((*old, *new))
    assert len(parents) == MAX_SHARDS
    assert parents[-9:] == new
    assert list(parents) == sorted(parents, key=lambda one: one.shard)


@pytest.mark.parametrize(
    ("parents", "expected"), [((), ()), ((3,), (3,)), ((3, 4), (3, 4)), ((0, 1, 2, 3), ())]
)
def test_ancestors_in_place_of_a_deleted_parent_are_not_shown_as_parents(
    parents: tuple[int, ...], expected: tuple[int, ...]
) -> None:
    """4 and 5 were merged into 6 and deleted since, so what they came from covers it."""
    step = next(steps(FOLDER / "unreachable-while-running.yaml"))
    shards = (ShardObserved(shard=6, state="not_alloc", parents=parents),)
    observed = replace(step.observed, service=replace(step.observed.service, shards=shards))
    (shard,) = plan(step.resource, observed, step.now).status.shards
    assert shard.parents == expected
