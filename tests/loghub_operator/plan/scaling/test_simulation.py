"""Hours of groups in mode Auto: the number of workers follows the load and does not oscillate.

Decisions, drain and status are those of `plan`, over a simulated group whose workers consume ten log groups
per second.
"""

import contextlib
import math
from collections.abc import Callable
from dataclasses import dataclass

import pytest
from hypothesis import given, settings
from hypothesis import strategies as st

from loghub_operator.api import Status
from loghub_operator.autoscaling.metric_catalog import BY_METRIC, current_value
from loghub_operator.metrics.store import UnknownValueError
from tests.loghub_operator.plan.scaling.simulation import Shard, World, evenly, world

pytestmark = pytest.mark.long

RATE = 10.0


def maximum(simulated: World) -> int:
    return max(number for _, number in simulated.numbers)


def test_constant_load_reaches_one_number_and_keeps_it() -> None:
    simulated = world({}, evenly(lambda _: 35.0)).run(1800)
    assert simulated.reversals() <= 1
    assert simulated.numbers[-1][1] == 4
    assert simulated.numbers[-1][0] < 900  # nothing moved since
    assert simulated.lag < 35.0 * 10


def test_without_load_one_worker_runs_and_the_status_is_not_rewritten() -> None:
    simulated = world({}, evenly(lambda _: 0.0)).run(300)
    written = simulated.writes
    simulated.run(900)
    assert simulated.numbers == [(1.0, 1)]
    assert simulated.writes == written


def test_a_step_up_and_down_changes_direction_once() -> None:
    simulated = world({}, evenly(lambda now: 5.0 if not 600 < now < 2000 else 38.0)).run(3000)
    assert simulated.reversals() == 1
    assert maximum(simulated) in (4, 8)
    assert simulated.numbers[-1][1] == 1
    # Within the catch-up time, and what the workers' start took, it was through.
    assert simulated.lags[600 + 60 + 300 + 60] < 38.0 * 10


def test_a_burst_is_consumed_within_the_catch_up_time() -> None:
    simulated = world({}, evenly(lambda now: 4.0 + (150.0 if 600 < now <= 660 else 0.0))).run(1800)
    assert max(simulated.lags) > 8000
    assert simulated.reversals() == 1
    assert simulated.lags[660 + 300] < 100
    assert simulated.numbers[-1][1] == 1


def test_a_sawtooth_changes_direction_at_most_twice_per_tooth() -> None:
    simulated = world({}, evenly(lambda now: now % 600 / 600 * 40.0)).run(2400)
    assert simulated.reversals() <= 2 * 4
    assert simulated.lag < 2000


def test_a_sawtooth_shorter_than_the_window_does_not_change_direction() -> None:
    simulated = world({}, evenly(lambda now: 10.0 + (now % 120) / 120 * 20.0)).run(2400)
    assert simulated.reversals(since=900) == 0


def test_a_day_curve_changes_direction_twice_a_day() -> None:
    simulated = world({}, evenly(lambda now: 25 - 20 * math.cos(now / 2400 * 2 * math.pi))).run(4800)
    assert simulated.reversals() <= 4
    assert max(simulated.lags) < 45 * 150
    assert {1, 8} <= {number for _, number in simulated.numbers}


def _followed_by_an_hpa(simulated: World, seconds: int) -> World:
    """An HPA with its usual behavior: every 15 s, up at once, down to the most of the last five minutes."""
    window: list[int] = []
    for _ in range(seconds // 15):
        simulated.run(15)
        assert simulated.metrics is not None
        with contextlib.suppress(UnknownValueError):  # then it changes nothing
            wanted = math.ceil(current_value(BY_METRIC["loghub_desired_workers"], simulated.metrics))
            window = [*window, max(1, wanted)][-20:]
            current = simulated.spec["replicas"]
            simulated.spec["replicas"] = window[-1] if window[-1] > current else min(current, max(window))
    return simulated


@pytest.mark.parametrize(
    "load",
    [
        pytest.param(lambda _: 45.0, id="between two numbers of whole shards"),
        pytest.param(
            lambda now: 25 - 20 * math.cos(now / 2400 * 2 * math.pi), id="a day", marks=pytest.mark.deep
        ),
    ],
)
def test_an_hpa_that_follows_the_metric_changes_no_more_than_auto(load: Callable[[float], float]) -> None:
    """With 8 shards 5, 6 and 7 workers are no faster than 4, and each step drains and rebalances."""
    auto = world({}, evenly(load)).run(2400)
    external = world({"mode": "External"}, evenly(load), spec={"replicas": 1})
    followed = _followed_by_an_hpa(external, 2400)
    assert len(followed.numbers) <= len(auto.numbers) + 1
    assert followed.reversals() <= auto.reversals()
    assert max(followed.lags) <= 1.5 * max(auto.lags)


def test_never_more_workers_than_assignable_shards() -> None:
    simulated = world({}, evenly(lambda _: 60.0, 3), shards=3).run(600)
    assert maximum(simulated) == 3
    assert simulated.status.scaling is not None
    assert simulated.status.scaling.limited_by == "Shards"
    limited = next(one for one in simulated.status.conditions if one.type == "ScalingLimited")
    assert (limited.status, limited.reason) == ("True", "TooFewShards")
    hot = next(one for one in simulated.status.conditions if one.type == "HotShard")
    assert (hot.status, hot.reason) == ("True", "ShardOverloaded")
    assert "20 log groups/s" in hot.message


def test_with_a_shared_bottleneck_few_scale_ups_are_tried() -> None:
    """More workers consume no more: one step shows it, further ones are tried one by one, later each time."""
    simulated = world({}, evenly(lambda _: 30.0), maximum=RATE).run(2700)
    assert "IneffectiveScaling" in simulated.reasons
    assert simulated.reversals() == 0
    assert len(simulated.numbers) <= 5
    assert maximum(simulated) <= 6


def test_too_many_workers_at_the_start_are_reduced_although_no_rate_is_known() -> None:
    simulated = world({}, evenly(lambda _: 6.0), spec={"replicas": 6}).run(2000)
    assert [number for _, number in simulated.numbers] == [6, 5, 4, 3, 2, 1]
    assert "Probing" in simulated.reasons
    assert max(simulated.lags[60:]) < 200


def test_probing_goes_below_the_needed_number_only_once() -> None:
    """No worker was ever busy enough to be measured: probing shows what one can consume."""
    simulated = world({}, evenly(lambda _: 34.0), spec={"replicas": 8}).run(4000)
    assert simulated.reversals() <= 2
    assert simulated.numbers[-1][1] == 4
    assert simulated.numbers[-1][0] < 3000


def test_scale_to_zero_and_back_on_demand() -> None:
    simulated = world(
        {"scaleToZero": {"idleSeconds": 60}}, evenly(lambda now: 5.0 if 600 < now < 900 else 0.0)
    )
    simulated.run(550)
    assert simulated.numbers[-1][1] == 0
    simulated.run(100)
    assert simulated.numbers[-1] == (pytest.approx(600, abs=12), 1)
    simulated.run(600)
    assert simulated.numbers[-1][1] == 0
    assert simulated.lag == 0
    assert simulated.numbers[-1][0] > 900 + 60
    assert len(simulated.numbers) == 4


def test_an_outage_of_the_log_service_changes_nothing() -> None:
    simulated = world({}, evenly(lambda _: 25.0)).run(900)
    before = simulated.numbers[-1]
    simulated.unreachable = True
    simulated.run(300)
    assert simulated.numbers[-1] == before
    assert simulated.reasons[-1] == "LagUnknown"
    simulated.unreachable = False
    simulated.run(300)
    assert simulated.reversals() <= 1


def test_operator_restarts_change_nothing_on_a_steady_load() -> None:
    simulated = world({}, evenly(lambda _: 25.0)).run(900)
    before = simulated.numbers[-1][1]
    for _ in range(6):
        simulated.restart_operator()
        simulated.run(70)
    assert simulated.numbers[-1][1] == before
    assert simulated.status.scaling is not None
    assert simulated.status.scaling.inputs.worker_per_second == pytest.approx(RATE, rel=0.1)


def test_an_operator_restarted_repeatedly_still_scales_down() -> None:
    """The earlier rate is in the status: no worker is busy enough to be measured any more."""
    simulated = world({}, evenly(lambda now: 38.0 if now < 900 else 5.0)).run(1000)
    simulated.restart_operator()
    simulated.run(900)
    assert simulated.numbers[-1][1] == 1


def test_a_recreated_logstore_does_not_look_like_load() -> None:
    simulated = world({}, evenly(lambda _: 5.0)).run(600)
    for shard in simulated.shards:  # its cursors begin far above those of the old one
        shard.written = shard.consumed = 1e15
    simulated.run(300)
    for shard in simulated.shards:  # and this one's far below
        shard.written = shard.consumed = 0.0
    simulated.run(300)
    assert simulated.numbers == [(1.0, 1)]


def test_a_recreated_object_starts_without_the_state_of_the_previous_one() -> None:
    simulated = world({}, evenly(lambda _: 25.0)).run(900)
    assert simulated.state.rate is not None
    simulated.uid, simulated.status, simulated.next_reconcile_s = "second", Status(), simulated.now
    simulated.run(1)
    assert (len(simulated.state.samples), simulated.state.rate, simulated.state.trial) == (1, None, None)


def test_another_endpoint_is_another_stream() -> None:
    """Its cursors go on from the old ones by chance: no rate is worked out over the two."""
    simulated = world({}, evenly(lambda _: 25.0)).run(900)
    before = simulated.numbers[-1]
    simulated.endpoint, simulated.next_reconcile_s = "http://127.0.0.1:2", simulated.now
    for shard in simulated.shards:
        shard.written += 5000.0
    simulated.shards = [*simulated.shards, Shard(8, simulated.shards[0].keys)]
    simulated.run(1)
    assert (len(simulated.state.samples), simulated.state.rate) == (1, None)
    assert simulated.numbers[-1] == before
    assert simulated.status.scaling is not None
    assert simulated.status.scaling.inputs.arrival_per_second is None
    assert [one.target for one in simulated.status.scaling.history if one.target == "Shards"] == []
    simulated.restart_operator()  # nothing of the old one is left in the status either
    simulated.run(10)
    assert simulated.state.rate is None


def test_recommend_reports_a_number_and_does_not_apply_it() -> None:
    simulated = world({"mode": "Recommend"}, evenly(lambda _: 35.0), spec={"replicas": 1}).run(300)
    assert simulated.numbers == [(1.0, 1)]
    assert simulated.status.scaling is not None
    assert simulated.status.scaling.recommended_replicas == 8  # the lag must be worked off too
    active = next(one for one in simulated.status.conditions if one.type == "ScalingActive")
    assert (active.status, active.reason) == ("False", "RecommendOnly")
    assert active.message.startswith("recommended: 8 workers")


def test_recommend_starts_no_workers_at_zero_replicas() -> None:
    """What Auto would not go below is no bound of this mode."""
    simulated = world({"mode": "Recommend"}, evenly(lambda _: 0.0), spec={"replicas": 0}).run(60)
    assert simulated.numbers == [(1.0, 0)]
    assert simulated.condition("ScalingLimited").reason == "DesiredWithinRange"


def test_bounds_that_allow_no_workers_start_none() -> None:
    simulated = world({"maxReplicas": 0}, evenly(lambda _: 1.0)).run(60)
    assert simulated.numbers == [(1.0, 0)]
    assert set(simulated.reasons) == {"OutsideBounds"}


def test_a_configured_capacity_that_was_removed_is_no_measurement() -> None:
    """No worker was ever busy enough to be measured; the earlier rate would keep all eight forever."""
    simulated = world({"workerCapacity": 1}, evenly(lambda _: 4.0), spec={"replicas": 8}).run(900)
    assert simulated.numbers == [(1.0, 8)]
    assert simulated.state.rate is None
    simulated.spec = {"replicas": 8, "scaling": {"mode": "Auto"}}
    simulated.run(2400)
    assert simulated.numbers[-1][1] == 1
    assert "Probing" in simulated.reasons


def test_children_that_wait_for_their_parents_do_not_block_scaling() -> None:
    """No worker may begin them, so their lag is not known while the backlog lasts."""

    def arrival(number: int, now: float) -> float:
        if number == 0:
            return 4.0
        return 2.0 if number > 7 else 0.5 if now < 400 else 5.0

    scaling = {"workerCapacity": int(RATE), "catchUpSeconds": 7200}
    simulated = world(scaling, arrival, spec={"inOrder": True})
    simulated.shards[0].written = 9000.0
    simulated.run(300)
    simulated.split(0)
    simulated.run(300)
    assert not any(one.begun for one in simulated.shards[8:])
    assert simulated.condition("LagAvailable").status == "False"
    assert maximum(simulated) == 8
    simulated.run(900)
    assert simulated.condition("LagAvailable").status == "True"
    assert simulated.lag < 60 * 45


def test_configured_capacity_and_step_are_respected() -> None:
    simulated = world({"workerCapacity": 5, "scaleUp": {"maxPodsPerStep": 1}}, evenly(lambda _: 18.0)).run(
        600
    )
    steps = [number for _, number in simulated.numbers]
    assert steps == list(range(1, len(steps) + 1))
    assert steps[-1] >= 4


@dataclass(frozen=True)
class Load:
    """A group, and what comes into it: log groups per second, each for so many seconds."""

    loads: list[tuple[int, float]]
    shards: int
    warm_s: float
    batch_s: float
    every_s: float


ANY_LOAD = st.builds(
    Load,
    loads=st.lists(st.tuples(st.integers(60, 600), st.floats(0.0, 70.0)), min_size=1, max_size=4),
    shards=st.integers(1, 9),
    warm_s=st.floats(1.0, 90.0),
    batch_s=st.sampled_from([1.0, 2.0, 10.0]),
    every_s=st.sampled_from([2.0, 10.0, 17.0]),
)


def test_a_load_that_rises_and_falls_settles_within_bounds() -> None:
    check_settles(Load([(300, 75.0), (200, 3.0)], shards=9, warm_s=40.0, batch_s=2.0, every_s=17.0))


@pytest.mark.deep(minutes=15)
@settings(max_examples=60, deadline=None)
@given(load=ANY_LOAD)
def test_any_load_settles_within_bounds(load: Load) -> None:
    check_settles(load)


def check_settles(load: Load) -> None:
    """Whatever came before, on a constant load that can be done: one number, and no lag that grows."""
    ends = [sum(length for length, _ in load.loads[: n + 1]) for n in range(len(load.loads))]
    stabilized = min(0.7 * RATE * load.shards, 30.0)

    def total(now: float) -> float:
        return next((rate for end, (_, rate) in zip(ends, load.loads, strict=True) if now <= end), stabilized)

    spec = {"pipeline": {"trigger": {"intervalSeconds": round(load.batch_s)}}}
    simulated = world(
        {"maxReplicas": 6},
        evenly(total, load.shards),
        shards=load.shards,
        spec=spec,
        warm_s=load.warm_s,
        batch_s=load.batch_s,
        every_s=load.every_s,
    )
    simulated.run(ends[-1])
    simulated.run(900 + 3 * max(simulated.lags) / (RATE * min(load.shards, 6) - stabilized))
    settled = simulated.now
    simulated.run(900)
    assert all(1 <= number <= min(6, load.shards) for _, number in simulated.numbers)
    assert simulated.reversals(since=settled) == 0
    assert simulated.lag <= stabilized * 60 + 10
