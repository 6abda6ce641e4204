"""How many workers a subscription has: by its backlog, up to maxReplicas, and no more than have work."""

import pytest

from loghub.contract.worker import FailingShard
from loghub.domain.subscription import SubscriptionState
from loghub_operator.model.observed import OtherLogstore, ShardFailures
from tests.loghub_operator.plan.subscription_world import World
from tests.loghub_operator.support.examples import Document, subscribed

AUTO: Document = {
    "replicas": 2,
    "scaling": {
        "mode": "Auto",
        "minReplicas": 2,
        "maxReplicas": 6,
        "catchUpSeconds": 60,
        "scaleUp": {"stabilizationWindowSeconds": 0},
        "scaleDown": {"stabilizationWindowSeconds": 30},
    },
}
BACKLOG = 600_000.0  # which 6 workers of 100 logs/s do not work off while a test lasts
KNOWN = {"scaling": {**AUTO["scaling"], "workerCapacity": 100}}  # the rate need not be measured first

SETTLING = FailingShard(shard=1, cursor="MQ==", attempts=3, state="settling", reason="PipelineFailed")


def behind(kind: str = "Shared", spec: Document | None = None) -> World:
    """Two workers on two shards, and far more logs than they can take."""
    one = World(subscribed(kind, {**AUTO, **(spec or {})}))
    one.rounds(3)
    one.backlog, one.arrival_per_s = BACKLOG, 50.0
    return one


def _inputs(one: World) -> Document:
    result: Document = one.document["status"]["scaling"]["inputs"]
    return result


def test_a_backlog_brings_more_workers_than_shards_and_its_end_takes_them_away() -> None:
    one = behind()
    assert len(one.members) == 2
    one.run_for(180)
    assert len(one.members) == 6
    status, _, message = one.condition("ScalingActive")
    assert (status, one.document["status"]["scaling"]["limitedBy"]) == ("True", "Maximum"), message
    one.acknowledged, one.backlog = one.acknowledged + one.backlog, 0.0
    one.run_for(400)
    assert len(one.members) == 2


def test_the_rate_of_one_worker_is_its_part_of_what_all_acknowledge() -> None:
    one = behind().run_for(120)
    assert _inputs(one)["workerPerSecond"] == pytest.approx(100.0, rel=0.1)
    assert _inputs(one)["arrivalPerSecond"] == pytest.approx(50.0, rel=0.1)
    assert _inputs(one)["backlogLogs"] > 0
    assert "lagLogGroups" not in _inputs(one)


def test_consumers_of_others_have_their_part_in_what_is_acknowledged() -> None:
    one = behind()
    one.others = ("pulsar-1", "pulsar-2")
    one.run_for(90)
    assert _inputs(one)["workerPerSecond"] == pytest.approx(100.0, rel=0.1)


@pytest.mark.parametrize("state", [SubscriptionState.WAITS_FOR_ROOM, SubscriptionState.UNOWNED])
def test_no_worker_is_added_while_logs_are_withheld(state: SubscriptionState) -> None:
    one = behind(spec=KNOWN)
    one.state = state
    one.run_for(120)
    assert len(one.members) == 2
    assert one.condition("ScalingActive")[1] == "MoreCannotHelp"
    one.state = None
    one.run_for(120)
    assert len(one.members) == 6


@pytest.mark.parametrize(
    ("retries", "failures", "words"),
    [
        (OtherLogstore(error="logstore retries does not exist"), ShardFailures(), "retries does not exist"),
        (
            OtherLogstore(log_groups=0),
            ShardFailures(
                failing=(
                    FailingShard(
                        shard=1, cursor="MQ==", attempts=3, state="settling", reason="PipelineFailed"
                    ),
                )
            ),
            "shards wait for the dead letter: 1",
        ),
    ],
)
def test_no_worker_is_added_while_failed_logs_cannot_be_put_aside(
    retries: OtherLogstore, failures: ShardFailures, words: str
) -> None:
    one = behind(spec=KNOWN)
    one.retries, one.failures = retries, failures
    one.run_for(180)
    assert len(one.members) == 2
    assert words in one.condition("ScalingActive")[2]


@pytest.mark.parametrize(("held", "most"), [(1, 2), (2, 2), (4, 4), (100, 6), (0, 6)])
def test_keys_limit_the_workers_of_a_keyshared_subscription(held: int, most: int) -> None:
    """None at a worker says nothing."""
    one = behind("KeyShared")
    one.held_slots = held
    one.run_for(240)
    assert len(one.members) == most


def test_a_step_that_few_keys_limit_says_so_and_so_does_the_next_one() -> None:
    one = behind("KeyShared", KNOWN)
    one.held_slots = 4
    next(round for round in range(60) if len(one.rounds(1).members) == 4)
    assert one.condition("ScalingLimited")[:2] == ("True", "TooFewKeys")
    assert "4 parts of the keys have logs at workers" in one.condition("ScalingLimited")[2]
    one.run_for(60)
    assert one.condition("ScalingActive")[:2] == ("True", "MoreCannotHelp")
    assert "more workers than 4 would have none" in one.condition("ScalingActive")[2]


def test_keys_do_not_limit_a_shared_subscription() -> None:
    one = behind("Shared")
    one.held_slots = 1
    assert len(one.run_for(240).members) == 6


def test_the_load_gives_a_failover_subscription_no_more_workers_than_shards() -> None:
    assert len(behind("Failover").run_for(240).members) == 2


def test_stand_bys_of_a_failover_subscription_run_if_they_are_asked_for() -> None:
    one = World(subscribed("Failover", {"replicas": 5})).rounds(3)
    assert len(one.members) == 5


def test_an_idle_subscription_has_no_workers_if_it_may_scale_to_zero() -> None:
    scaling = {**AUTO["scaling"], "minReplicas": 0, "scaleToZero": {"idleSeconds": 30}}
    one = World(subscribed("Shared", {**AUTO, "scaling": scaling})).rounds(3)
    one.run_for(240)
    assert one.members == ()
    one.backlog = 10.0
    one.rounds(3)
    assert one.members != ()


def test_workers_that_bring_nothing_more_are_not_added_again() -> None:
    """As where a database that all of them write to is the limit."""
    one = behind(spec={"scaling": {**KNOWN["scaling"], "scaleUp": {"maxPodsPerStep": 1}}})
    for _ in range(60):
        one.rate_per_s = 200.0 / max(1, len(one.consumers))
        one.round()
    assert one.condition("ScalingActive")[1] == "IneffectiveScaling"
    assert " logs/s): no further step" in one.condition("ScalingActive")[2]


def test_a_hot_shard_is_no_subject_of_a_subscription() -> None:
    one = behind().run_for(60)
    assert one.condition("HotShard")[:2] == ("False", "NoHotShard")
