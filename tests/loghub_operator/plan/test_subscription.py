"""What is planned for an object that consumes a subscription."""

from dataclasses import replace

import pytest

from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub_operator.model.actions import (
    Action,
    CreateGroup,
    DeleteGroup,
    DrainWorker,
    RecordGroupOrigin,
    RemoveFinalizer,
    UpdateGroup,
)
from loghub_operator.model.observed import Peer, ServiceErrorReason, Unavailable
from loghub_operator.model.subscription import SubscriptionKind
from tests.loghub_operator.plan.subscription_world import World
from tests.loghub_operator.support.examples import Document, subscribed

SHARED = SubscriptionKind(type=SubscriptionType.SHARED, in_order=False)
BY_USER = SubscriptionKind(type=SubscriptionType.KEY_SHARED, in_order=True, key=("user",))
IN_ORDER = SubscriptionKind(type=SubscriptionType.FAILOVER, in_order=True)
AWAY = Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="no service answers")
UNSUPPORTED = Unavailable(reason=ServiceErrorReason.SUBSCRIPTION_UNSUPPORTED, message="it has none")
EARLIER = "2020-01-01T00:00:00Z"


def world(kind: str = "Shared", spec: Document | None = None, *, replicas: int = 6) -> World:
    return World(subscribed(kind, {"replicas": replicas, **(spec or {})}))


def running(kind: str = "Shared", spec: Document | None = None, *, replicas: int = 6) -> World:
    result = world(kind, spec, replicas=replicas).rounds(3)
    assert result.condition("Ready")[:2] == ("True", "Running"), result.condition("Ready")
    return result


def partner(subscription: SubscriptionKind | None, *, name: str = "theirs") -> Peer:
    return Peer(
        created=EARLIER, namespace="other", name=name, access_since=EARLIER, subscription=subscription
    )


def kinds(actions: tuple[Action, ...]) -> list[str]:
    return [type(action).__name__ for action in actions]


def test_a_subscription_is_created_before_more_workers_than_shards_start() -> None:
    one = world()
    actions = one.round()
    made = [action for action in actions if isinstance(action, CreateGroup)]
    assert made == [CreateGroup(settings=SHARED, last_initial_shard=1)]
    names = kinds(actions)
    assert names.index("RecordGroupOrigin") < names.index("CreateGroup") < names.index("ApplyWorkers")
    assert len(one.rounds(2).members) == 6
    assert one.condition("Ready") == (
        "True",
        "Running",
        "the subscription is up to date and every worker is ready",
    )
    assert one.condition("GroupSynced") == ("True", "UpToDate", "subscription access is up to date")
    assert one.condition("Degraded")[0] == "False"


def test_an_endpoint_without_subscriptions_gets_no_worker_and_a_remedy() -> None:
    one = world()
    one.unavailable = UNSUPPORTED
    one.rounds(5)
    assert {"CreateGroup", "ApplyWorkers"} & set(kinds(tuple(one.done))) == set()
    assert one.condition("Ready") == ("False", "SubscriptionUnsupported", "it has none")


def test_workers_of_a_subscription_run_on_where_the_endpoint_loses_it() -> None:
    one = running()
    one.unavailable = UNSUPPORTED
    one.rounds(5)
    assert len(one.members) == 6
    assert one.condition("Ready")[1] == "SubscriptionUnsupported"


@pytest.mark.parametrize(
    ("spec", "changed"),
    [
        ({"subscription": {"type": "KeyShared", "key": ["user"]}}, BY_USER),
        (
            {"subscription": {"type": "Failover"}},
            SubscriptionKind(type=SubscriptionType.FAILOVER, in_order=True),
        ),
    ],
)
def test_all_workers_leave_before_the_type_changes_and_as_many_start_again(
    spec: Document, changed: SubscriptionKind
) -> None:
    one = running()
    one.edit(spec)
    asked = one.round()
    assert [action.consumer for action in asked if isinstance(action, DrainWorker)] == [
        f"access-{ordinal}" for ordinal in range(6)
    ]
    assert one.condition("Suspended")[1] == "SubscriptionChanges"
    assert "from Shared to" in one.condition("GroupSynced")[2]
    one.done.clear()
    one.rounds(6)  # the world refuses the update while a consumer is connected
    assert UpdateGroup(settings=changed) in one.done
    assert one.stored == changed
    assert len(one.members) == 6
    assert one.condition("Ready")[:2] == ("True", "Running")
    assert all(pod.spec.config.pipeline.subscription.type == changed.type for pod in one.pods.values())  # type: ignore[union-attr]


def test_the_type_does_not_change_under_consumers_of_others_and_they_are_named() -> None:
    one = running()
    one.others = ("pulsar-7",)
    one.edit({"subscription": {"type": "Failover"}})
    one.rounds(8)
    assert (one.stored, one.members) == (SHARED, ())
    assert one.condition("Ready")[:2] == ("False", "Updating")
    assert "pulsar-7" in one.condition("Ready")[2]
    one.others = ()
    assert one.rounds(4).condition("Ready")[:2] == ("True", "Running")


def test_the_type_does_not_change_while_a_worker_may_connect_at_any_moment() -> None:
    one = running()
    one.apart = True
    one.edit({"subscription": {"type": "Failover"}})
    assert "UpdateGroup" not in kinds(one.round())
    one.apart = False
    assert one.rounds(6).condition("Ready")[:2] == ("True", "Running")


def test_another_key_stops_all_workers_and_no_event_says_that_none_is_restarted() -> None:
    one = running("KeyShared", {"subscription": {"type": "KeyShared", "key": ["user"]}})
    before = len(one.events)
    one.edit({"subscription": {"key": ["address"]}})
    one.rounds(6)
    assert one.stored == replace(BY_USER, key=("address",))
    assert one.condition("Ready")[:2] == ("True", "Running")
    reasons = [event.reason for event in one.events[before:]]
    assert reasons == ["SubscriptionChanges", "ScaledDown", "UpToDate", "ScaledUp"]


@pytest.mark.parametrize("rounds", range(5))
def test_an_outage_at_any_moment_of_a_change_leaves_workers_and_subscription_as_they_are(rounds: int) -> None:
    one = running()
    one.edit({"subscription": {"type": "Failover"}})
    one.rounds(rounds)
    before = (one.replicas, one.stored, one.members)
    suspended = one.condition("Suspended")[:2]
    assert (suspended[0] == "True") is (0 < rounds < 4)
    events = len(one.events)
    one.unavailable, count = AWAY, len(one.done)
    one.rounds(4)
    assert (one.replicas, one.stored, one.members) == before
    assert one.condition("Suspended")[:2] == suspended
    assert "SubscriptionChanges" not in [event.reason for event in one.events[events:]]
    assert set(kinds(tuple(one.done[count:]))) <= {"EmitEvent"}
    one.unavailable = None
    one.rounds(6)
    assert (one.stored, len(one.members)) == (IN_ORDER, 6)
    assert one.condition("Ready")[:2] == ("True", "Running")


def test_another_priority_restarts_the_workers_without_stopping_all() -> None:
    one = running()
    one.edit({"subscription": {"priority": 2}})
    assert kinds(one.round()) == ["ApplyWorkers", "EmitEvent"]
    assert one.events[-1].reason == "RollingRestart"
    assert "the others get its logs meanwhile" in one.events[-1].message
    assert len(one.members) == 6


def test_two_objects_of_one_kind_share_a_subscription() -> None:
    one = world()
    one.stored, one.peers = SHARED, (partner(SHARED),)
    one.others = ("theirs-0", "theirs-1")
    one.rounds(4)
    assert len(one.members) == 6
    assert one.condition("GroupSynced")[1] == "UpToDate"
    assert RecordGroupOrigin(replace(one.record, origin="Adopted")) in one.done  # type: ignore[type-var]


@pytest.mark.parametrize(
    ("theirs", "words"),
    [
        (BY_USER, "as KeyShared by user, in order, and this object as Shared"),
        (SubscriptionKind(type=SubscriptionType.FAILOVER, in_order=False), "as Failover, and this object"),
    ],
)
def test_an_object_that_wants_another_type_than_the_first_runs_no_worker(
    theirs: SubscriptionKind, words: str
) -> None:
    one = world()
    one.stored, one.peers = theirs, (partner(theirs),)
    one.rounds(4)
    assert (one.members, one.stored) == ((), theirs)
    status, reason, message = one.condition("Ready")
    assert (status, reason) == ("False", "SubscriptionConflict")
    assert words in message
    assert "give both the same type, key and inOrder" in message
    assert one.condition("Degraded")[1] == "SubscriptionConflict"


def test_an_object_of_the_same_name_elsewhere_is_no_partner() -> None:
    one = world()
    one.stored, one.peers = SHARED, (partner(SHARED, name="access"),)
    one.rounds(4)
    assert one.members == ()
    assert "give one of the objects another name" in one.condition("Ready")[2]


def test_a_third_object_that_lost_to_the_first_does_not_stop_the_second() -> None:
    one = world()
    late = "2021-01-01T00:00:00Z"
    one.stored = SHARED
    one.peers = (partner(SHARED), replace(partner(BY_USER, name="third"), access_since=late))
    assert len(one.rounds(4).members) == 6


def test_workers_of_two_objects_that_agreed_leave_when_one_is_edited() -> None:
    one = running()
    one.peers = (partner(SHARED),)
    one.edit({"subscription": {"type": "Failover"}})
    one.rounds(6)
    assert (one.stored, one.members) == (SHARED, ())
    assert one.condition("Ready")[1] == "SubscriptionConflict"


@pytest.mark.parametrize("adoption", ["IfIdle", "Always", "Never"])
@pytest.mark.parametrize("others", [(), ("pulsar-7",)])
def test_a_subscription_that_exists_is_adopted_as_the_spec_says(
    adoption: str, others: tuple[str, ...]
) -> None:
    one = world(spec={"adoption": adoption})
    one.stored, one.others = SHARED, others
    one.rounds(4)
    adopts = adoption == "Always" or (adoption == "IfIdle" and not others)
    assert bool(one.members) is adopts
    if not adopts:
        assert "subscription access existed before this object" in one.condition("Ready")[2]


def test_an_idle_subscription_of_another_type_is_adopted_and_changed() -> None:
    one = world()
    one.stored = BY_USER
    one.rounds(4)
    assert (one.stored, len(one.members)) == (SHARED, 6)


@pytest.mark.parametrize("policy", ["Delete", "Retain"])
def test_a_deletion_lets_the_workers_leave_and_does_as_the_policy_says(policy: str) -> None:
    one = running(spec={"deletionPolicy": policy})
    one.delete()
    one.rounds(6)
    assert one.released
    assert (DeleteGroup() in one.done, one.stored) == (
        policy == "Delete",
        None if policy == "Delete" else SHARED,
    )


def test_a_subscription_that_a_partner_uses_is_kept() -> None:
    one = running(spec={"deletionPolicy": "Delete"})
    one.peers, one.others = (partner(SHARED),), ("theirs-0",)
    one.delete()
    one.rounds(6)
    assert (one.released, one.stored) == (True, SHARED)


def test_an_object_whose_endpoint_lost_its_subscriptions_is_released_once_no_worker_is_left() -> None:
    """Of one that had subscriptions: nothing is left to delete, so nothing is waited for but the workers."""
    one = running(spec={"deletionPolicy": "Delete"})
    one.unavailable = UNSUPPORTED
    one.delete()
    one.rounds(6)
    assert RemoveFinalizer() in one.done


def test_a_subscription_that_is_gone_is_made_again_and_its_loss_is_an_event() -> None:
    one = running()
    one.stored, before = None, len(one.events)
    actions = one.round()
    assert CreateGroup(settings=SHARED, last_initial_shard=1) in actions
    news = {event.reason: event for event in one.events[before:]}
    assert news["SubscriptionGone"].type == "Warning"
    assert "spec.startPosition" in news["SubscriptionGone"].message
    assert one.rounds(2).condition("Ready")[1] == "Running"


def test_a_suspension_keeps_the_subscription() -> None:
    one = running()
    one.edit({"suspend": True})
    one.rounds(4)
    assert (one.members, one.stored) == ((), SHARED)
    assert any("the subscription and its acknowledgments stay" in event.message for event in one.events)
    one.edit({"suspend": False})
    assert len(one.rounds(3).members) == 6


@pytest.mark.parametrize(
    ("state", "reason", "remedy"),
    [
        (SubscriptionState.WAITS_FOR_ROOM, "WaitsForRoom", "loghub subscription skip"),
        (SubscriptionState.UNOWNED, "KeysUnowned", "leave the ranges to the log service"),
    ],
)
def test_logs_that_are_withheld_are_a_degradation_with_a_remedy(
    state: SubscriptionState, reason: str, remedy: str
) -> None:
    one = running()
    one.state = state
    one.round()
    assert one.condition("Degraded")[:2] == ("True", reason)
    assert remedy in one.condition("Degraded")[2]
    assert "shards 0, 1" in one.condition("Degraded")[2]
    one.state = None
    assert one.rounds(1).condition("Degraded")[0] == "False"


def test_the_status_shows_the_subscription_and_its_shards() -> None:
    one = running()
    one.backlog = 2000.0
    one.rate_per_s = 0.0
    one.round()
    status = one.document["status"]
    assert status["subscription"] == {
        "type": "Shared",
        "consumers": 6,
        "backlogLogs": 2000,
        "unackedLogs": 10,
        "redeliveredLogs": 4,
        "oldestUnackedSeconds": 2000,
        "state": "Flowing",
    }
    assert status["lag"] == {"seconds": 2000, "logs": 2000}
    shown = status["shards"][0]
    assert shown["subscription"] == {"state": "Flowing", "ackedRanges": 3, "unackedLogs": 0}
    assert (shown["state"], shown["lagLogs"]) == ("already_alloc", 1000)
