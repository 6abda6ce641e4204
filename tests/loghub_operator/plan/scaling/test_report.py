"""The report of a decision: not rewritten for fluctuating numbers, written for a decision, the same in
metrics.
"""

import dataclasses

import pytest

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.adoption import stored_ownership
from loghub_operator.api.status import NUMBERS_EVERY_S, ScalingInputs, Status
from loghub_operator.model.group_metrics import GroupMetrics
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import ObservedState, ShardObserved
from loghub_operator.plan.patience import PATIENCE
from loghub_operator.plan.scaling.autoscaler import ScalingDecision, decide
from loghub_operator.plan.scaling.load import mark_of, scaled_group
from loghub_operator.plan.scaling.report import group_metrics
from loghub_operator.plan.status.builder import worth_writing
from tests.loghub_operator.plan.scaling.simulation import EPOCH, World, evenly, world
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.rounds import plan


def decide_running(resource: LogHubConsumerGroup, observed: ObservedState) -> ScalingDecision:
    return decide(scaled_group(resource, observed, stored_ownership(resource)), suspended=False)


@pytest.fixture(scope="module")
def running() -> World:
    """Five workers' load for a while, decided and settled."""
    return world({}, evenly(lambda _: 25.0)).run(600)


def jittered(status: Status, **inputs: float) -> Status:
    assert status.scaling is not None
    more = status.scaling.inputs.model_copy(update=inputs)
    scaling = status.scaling.model_copy(update={"inputs": more, "uncapped_replicas": 7, "formula": "another"})
    return status.model_copy(update={"scaling": scaling})


def test_fluctuating_numbers_are_written_at_a_bounded_rate(running: World) -> None:
    other = jittered(running.status, arrival_per_second=25.3)
    assert not worth_writing(running.status, other, since_last_s=NUMBERS_EVERY_S - 1)
    assert worth_writing(running.status, other, since_last_s=NUMBERS_EVERY_S)
    assert worth_writing(running.status, other, since_last_s=5, numbers_every_s=5)
    assert not worth_writing(running.status, other, since_last_s=NUMBERS_EVERY_S, numbers_every_s=600)


@pytest.mark.parametrize(
    "change",
    [
        {"recommended_replicas": 9},
        {"reason": "IneffectiveScaling"},
        {"blocked": True},
        {"limited_by": "Step"},
    ],
)
def test_a_decision_is_written_at_once(running: World, change: dict[str, object]) -> None:
    assert running.status.scaling is not None
    scaling = running.status.scaling.model_copy(update=change)
    assert worth_writing(
        running.status, running.status.model_copy(update={"scaling": scaling}), since_last_s=0
    )


@pytest.mark.long
def test_an_unchanged_decision_keeps_its_time_and_the_history_has_ten_steps(running: World) -> None:
    scaling = running.status.scaling
    assert scaling is not None
    decided = scaling.last_decision_time
    later = running.run(60).status.scaling
    assert later is not None
    assert (later.reason, later.last_decision_time) == (scaling.reason, decided)
    up_and_down = world(
        {
            "scaleUp": {"maxPodsPerStep": 1, "stabilizationWindowSeconds": 0},
            "scaleDown": {"stabilizationWindowSeconds": 0},
        },
        evenly(lambda now: 70.0 if now < 700 else 0.0),
    ).run(1300)
    assert up_and_down.status.scaling is not None
    steps = up_and_down.status.scaling.history
    assert len(steps) == 10
    assert [(one.from_, one.to) for one in steps[:3]] == [(2, 1), (3, 2), (4, 3)]
    assert steps[0].time > steps[-1].time


def observation(running: World, **service: object) -> ObservedState:
    observed = running.observed()
    shards = (dataclasses.replace(observed.service.shards[0], **service), *observed.service.shards[1:])
    return dataclasses.replace(observed, service=dataclasses.replace(observed.service, shards=shards))


def test_one_unknown_lag_keeps_the_number(running: World) -> None:
    decision = decide_running(running.resource, observation(running, lag_groups=None))
    assert (decision.recommendation.reason, decision.recommendation.blocked) == ("LagUnknown", True)
    assert decision.desired.workers == running.replicas


NEXT_HOLDERS = pytest.mark.parametrize("next_holder", ["access-1", ""], ids=["reported", "not reported"])


@pytest.mark.long
@NEXT_HOLDERS
def test_a_transfer_blocks_a_change_and_not_an_unchanged_number(running: World, next_holder: str) -> None:
    decision = decide_running(
        running.resource, observation(running, state="transfer", next_holder=next_holder)
    )
    assert (decision.recommendation.reason, decision.recommendation.blocked) == ("WithinCapacity", False)
    busier = world({}, evenly(lambda now: 25.0 if now < 600 else 60.0)).run(650)
    decision = decide_running(busier.resource, observation(busier, state="transfer", next_holder=next_holder))
    assert (decision.recommendation.reason, decision.recommendation.blocked) == ("RebalanceInProgress", True)
    assert decision.desired.workers == busier.replicas


@NEXT_HOLDERS
def test_a_shard_in_transfer_counts_for_the_rate_of_no_worker(next_holder: str) -> None:
    held = ShardObserved(shard=0, state="already_alloc", holder="access-0")
    moving = dataclasses.replace(held, state="transfer", next_holder=next_holder)
    assert (mark_of(held).holder, mark_of(moving).holder) == ("access-0", "")


@NEXT_HOLDERS
def test_a_shard_in_transfer_has_no_worker_to_itself(next_holder: str) -> None:
    """Its lag says nothing about a worker that does nothing else: it is just moved to another one."""

    def busy(observed: ObservedState) -> list[str]:
        return [one.name for one in decide_running(apart.resource, observed).state.hot]

    apart = world(
        {"mode": "Fixed", "workerCapacity": 10}, evenly(lambda _: 4.0), shards=2, spec={"replicas": 2}
    ).run(300)
    lag = 1_000_000
    assert busy(observation(apart, lag_groups=lag)) == ["0"]
    assert busy(observation(apart, lag_groups=lag, state="transfer", next_holder=next_holder)) == []


def test_metrics_and_status_have_the_same_numbers(running: World) -> None:
    planned = plan(running.resource, running.observed(), EPOCH + running.now)
    metrics = planned.metrics
    assert isinstance(metrics, GroupMetrics)
    scaling = planned.status.scaling
    assert scaling is not None
    assert (metrics.wanted, metrics.recommended, metrics.applied) == (
        scaling.uncapped_replicas,
        scaling.recommended_replicas,
        scaling.desired_replicas,
    )
    assert metrics.lag_groups == running.lag == sum(shard.lag_groups or 0 for shard in metrics.shards)
    assert metrics.arrival_per_s == pytest.approx(25.0, rel=0.05)
    assert metrics.consumed_per_s == pytest.approx(25.0, rel=0.1)
    assert (metrics.ready, metrics.assignable, len(metrics.shards)) == (scaling.desired_replicas, 8, 8)


def test_the_unknown_lag_of_a_waiting_child_is_ignored_only_by_the_decision(running: World) -> None:
    metrics = observation(running, state="wait", checkpoint="", lag_groups=None, lag_s=None, lag_logs=None)
    decision = decide_running(running.resource, metrics)
    assert decision.inputs.lag_groups == sum(one.lag_groups or 0 for one in available(metrics.service).shards)
    assert group_metrics(running.resource.metadata, decision, run=3).lag_groups is None
    nothing = tuple(dataclasses.replace(one, lag_groups=0) for one in available(metrics.service).shards[1:])
    service = dataclasses.replace(
        available(metrics.service), shards=(available(metrics.service).shards[0], *nothing)
    )
    decision = decide_running(running.resource, dataclasses.replace(metrics, service=service))
    assert decision.inputs.lag_groups is None  # its parents are not consumed: it is not nothing


def test_unknown_is_absent_from_the_metrics_and_the_report(running: World) -> None:
    running.unreachable = True
    try:
        memory = Memory(scaling=running.state, failed_looks=PATIENCE)
        unseen = dataclasses.replace(running.observed(), memory=memory)
        planned = plan(running.resource, unseen, EPOCH + running.now)
    finally:
        running.unreachable = False
    metrics = planned.metrics
    assert metrics is not None
    assert (metrics.lag_groups, metrics.lag_seconds, metrics.arrival_per_s, metrics.assignable) == (None,) * 4
    assert planned.status.scaling is not None
    inputs = planned.status.scaling.inputs
    assert (inputs.arrival_per_second, inputs.lag_log_groups) == (None, None)
    assert inputs.worker_per_second == pytest.approx(10.0, rel=0.1)  # it is what it was
    assert ScalingInputs().arrival_per_second is None
