"""Shard states that are inferred from outside (docs/shard-states.md 4), and None where they are not known."""

from collections.abc import Mapping

import pytest

from loghub.domain.fsm import ShardState
from loghub.domain.state_inference import Inferred, SeenShard, WorkerReport, infer_state
from tests.loghub.domain.driver import Driver

NO_REPORTS: Mapping[str, WorkerReport | None] = {}


def one(shard: SeenShard, reports: Mapping[str, WorkerReport | None], *, order: bool = False) -> Inferred:
    return infer_state([shard], order=order, reports=reports)[shard.shard]


def held(*shards: int, draining: tuple[int, ...] = ()) -> WorkerReport:
    return WorkerReport(held=frozenset(shards), draining=frozenset(draining))


OPEN = SeenShard(shard=0, read_only=False)


@pytest.mark.parametrize(
    "shard",
    [
        SeenShard(shard=0, read_only=True, begin_cursor=1, end_cursor=9, checkpoint=9),
        SeenShard(shard=0, read_only=True, begin_cursor=9, end_cursor=9),
        SeenShard(shard=0, read_only=True, end_cursor=9, checkpoint=9),
    ],
)
def test_over_when_consumed_to_its_end_even_while_still_reported(shard: SeenShard) -> None:
    assert one(shard, {"w-0": held(0)}).state is ShardState.OVER
    assert one(shard, {"w-0": None}).holder is None


def test_already_alloc_by_its_holders_report() -> None:
    found = one(OPEN, {"w-0": held(0), "w-1": held(1)})
    assert (found.state, found.holder) == (ShardState.ALREADY_ALLOC, "w-0")


def test_transfer_when_its_holder_drains_it() -> None:
    found = one(OPEN, {"w-0": held(0, draining=(0,)), "w-1": None})
    assert (found.state, found.holder) == (ShardState.TRANSFER, "w-0")


def test_unknown_while_two_report_it() -> None:
    for reports in ({"w-0": held(0), "w-1": held(0)}, {"w-0": held(0, draining=(0,)), "w-1": held(0)}):
        found = one(OPEN, reports)
        assert (found.state, found.holder) == (None, None)
        assert found.reason == "it is being handed over: reported by w-0, w-1"


def test_wait_when_ordered_and_any_ancestor_is_not_consumed() -> None:
    shards = [
        SeenShard(shard=0, read_only=True, begin_cursor=1, end_cursor=9, checkpoint=4),
        SeenShard(shard=1, read_only=True, begin_cursor=9, end_cursor=9, parents=(0,)),
        SeenShard(shard=2, read_only=False, parents=(1,)),
    ]
    found = infer_state(shards, order=True, reports={"w-0": held(0)})
    assert [found[n].state for n in range(3)] == ["already_alloc", "over", "wait"]
    assert found[2].reason == "ancestor 0 is not consumed yet"
    assert infer_state(shards, order=False, reports={"w-0": held(0)})[2].state is ShardState.NOT_ALLOC


def test_unknown_when_ordered_and_the_ancestors_end_is_not_known() -> None:
    shards = [
        SeenShard(shard=0, read_only=True, checkpoint=4),
        SeenShard(shard=1, read_only=False, parents=(0,)),
    ]
    found = infer_state(shards, order=True, reports=NO_REPORTS)
    assert [found[n].state for n in range(2)] == [None, None]
    assert found[1].reason == "not known whether ancestor 0 is consumed"


def test_not_wait_when_its_holder_reports_it() -> None:
    shards = [
        SeenShard(shard=0, read_only=True, checkpoint=4),
        SeenShard(shard=1, read_only=False, parents=(0,)),
    ]
    assert infer_state(shards, order=True, reports={"w-0": held(1)})[1].state is ShardState.ALREADY_ALLOC


def test_not_wait_when_its_parent_was_deleted() -> None:
    orphan = SeenShard(shard=1, read_only=False, parents=(0,))
    assert one(orphan, {"w-0": held()}, order=True).state is ShardState.NOT_ALLOC


def test_already_alloc_by_the_checkpoint_list_while_the_worker_is_silent() -> None:
    shard = SeenShard(shard=0, read_only=False, checkpoint=3, checkpoint_consumer="w-0")
    found = one(shard, {"w-0": None, "w-1": held()})
    assert (found.state, found.holder) == (ShardState.ALREADY_ALLOC, "w-0")


def test_not_alloc_when_the_consumer_of_the_checkpoint_reports_without_it() -> None:
    shard = SeenShard(shard=0, read_only=False, checkpoint=3, checkpoint_consumer="w-0")
    assert one(shard, {"w-0": held(), "w-1": held()}).state is ShardState.NOT_ALLOC


def test_unknown_when_another_consumer_checkpointed_last() -> None:
    shard = SeenShard(shard=0, read_only=False, checkpoint=3, checkpoint_consumer="laptop")
    found = one(shard, {"w-0": held()})
    assert found.state is None
    assert "laptop" in found.reason


def test_unknown_when_a_worker_that_may_hold_it_is_silent() -> None:
    found = one(OPEN, {"w-0": held(), "w-1": None})
    assert (found.state, found.reason) == (None, "no fresh report from w-1")


def test_not_alloc_when_all_have_reported_and_none_holds_it() -> None:
    assert one(OPEN, {"w-0": held()}).state is ShardState.NOT_ALLOC
    assert one(OPEN, NO_REPORTS).state is ShardState.NOT_ALLOC


@pytest.mark.parametrize(
    "shard",
    [
        SeenShard(shard=0, read_only=True, checkpoint=9),
        SeenShard(shard=0, read_only=True, begin_cursor=1, end_cursor=9, checkpoint_known=False),
        SeenShard(shard=0, read_only=True, end_cursor=9),
    ],
)
def test_unknown_when_the_end_or_the_checkpoint_is_not_known(shard: SeenShard) -> None:
    found = one(shard, {"w-0": held()})
    assert (found.state, found.reason) == (None, "not known whether it is consumed to its end")


def test_inferred_states_equal_those_of_the_coordinator_once_all_workers_report() -> None:
    """Compares the coordinator with the inference for the same group."""
    driver = Driver(3, order=True)
    driver.heartbeat("w-0")
    driver.heartbeat("w-1")
    driver.heartbeat("w-0", 0, 1)
    driver.heartbeat("w-1", 2)
    driver.split(0, end=5, into=(3, 4))
    driver.close_shard(1, begin=7, end=7)
    driver.report_shards()
    driver.heartbeat("w-0", 0)
    driver.heartbeat("w-1", 2)
    seen = [
        SeenShard(
            shard=e.shard,
            read_only=e.log_shard.read_only,
            parents=e.log_shard.parents,
            begin_cursor=e.log_shard.begin_cursor,
            end_cursor=e.log_shard.end_cursor or 100,
        )
        for e in driver.state.shards.values()
    ]
    reports = {name: WorkerReport(held=frozenset(driver.state.owned_by(name))) for name in ("w-0", "w-1")}
    found = infer_state(seen, order=True, reports=reports)
    inside = {s: (e.state, e.holder) for s, e in driver.state.shards.items()}
    assert {s: (i.state, i.holder) for s, i in found.items()} == inside
