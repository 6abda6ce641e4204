"""Subscriptions as the operator reads and changes them at a real service."""

import itertools
from collections.abc import Iterator
from dataclasses import replace

import pytest

from loghub.client.port import GroupInfo, LogHub
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub.wire.subscriptions import Exchange, Exchanged, SubscriptionSpec
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.logservice.group_changes import GroupExists, SubscriptionInUse, change_subscription
from loghub_operator.model.actions import CreateGroup, DeleteGroup, UpdateGroup
from loghub_operator.model.observed import Available, ServiceErrorReason, Unavailable
from loghub_operator.model.subscription import SubscriptionKind
from loghub_operator.plan.consumption import changing, stored_of
from loghub_operator.settings import Client
from tests.loghub_operator.logservice.test_both_clients import connect
from tests.loghub_operator.support.examples import Document, resource, subscribed
from tests.loghub_operator.support.observing import service_observed
from tests.support import HandClock, ServiceProcess, running_service

LOGSTORE = "access"
LOGS = 8  # of one log group
GROUP = loggroup.encode(
    LogGroup(logs=tuple(Log(time=1, contents=(("user", f"u{number}"),)) for number in range(LOGS)))
)
SHARED = SubscriptionKind(type=SubscriptionType.SHARED, in_order=False)
BY_USER = SubscriptionKind(type=SubscriptionType.KEY_SHARED, in_order=True, key=("user",))
LOW = "0" * 32
_names = itertools.count()


@pytest.fixture(scope="module")
def service(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    with running_service(tmp_path_factory.mktemp("service")) as running:
        writer = connect(Client.HTTP, running.endpoint, running.credentials)
        writer.create_project()
        writer.create_logstore(LOGSTORE, shards=2)
        writer.put_logs(LOGSTORE, GROUP, hash_key=LOW)
        writer.close()
        yield running


@pytest.fixture
def client(service: ServiceProcess) -> Iterator[LogHub]:
    opened = connect(Client.HTTP, service.endpoint, service.credentials)
    yield opened
    opened.close()


def named(kind: str = "Shared", spec: Document | None = None) -> LogHubConsumerGroup:
    """An object with a subscription that no other test uses."""
    return resource(subscribed(kind, {"consumerGroup": f"s{next(_names)}", **(spec or {})}))


def observed(client: LogHub, of: LogHubConsumerGroup) -> Available:
    result = service_observed(client, of, clock=HandClock(2_000_000_000.0))
    assert isinstance(result, Available), result
    return result


def join(client: LogHub, of: LogHubConsumerGroup, kind: SubscriptionType) -> Exchanged:
    """A consumer that got all logs."""
    asked = Exchange(consumer="access-0", type=kind, number=1, max_logs=100, max_bytes=1 << 20, wait_s=5.0)
    return client.exchange(LOGSTORE, of.group, asked)


def settle(client: LogHub, of: LogHubConsumerGroup, session: str, **done: object) -> None:
    exchange = Exchange(consumer="access-0", type=SubscriptionType.SHARED, session=session)
    client.exchange(LOGSTORE, of.group, replace(exchange, **done))  # type: ignore[arg-type]


@pytest.mark.long
def test_a_subscription_is_observed_from_its_creation_to_its_end(client: LogHub) -> None:
    """A consumer group of the same name exists, too, and is another thing."""
    one = named()
    client.create_group(LOGSTORE, GroupInfo(name=one.group, timeout_s=30, order=False))
    before = observed(client, one)
    assert (before.stored, [shard.state for shard in before.shards]) == (None, ["not_alloc"] * 2)
    change_subscription(client, one, CreateGroup(settings=SHARED))
    made = observed(client, one)
    assert (made.stored, made.consumers) == (SHARED, ())
    assert made.subscription is not None
    assert (made.subscription.state, made.subscription.backlog_logs) == (SubscriptionState.NO_CONSUMER, LOGS)
    change_subscription(client, one, DeleteGroup())
    change_subscription(client, one, DeleteGroup())
    assert observed(client, one).stored is None
    assert one.group in {group.name for group in client.list_groups(LOGSTORE)}


@pytest.mark.long
@pytest.mark.parametrize("in_order", [True, False])
def test_a_shared_subscription_that_others_made_is_as_an_object_wants_it(
    client: LogHub, in_order: bool
) -> None:
    """The command line and Pulsar clients make one in order, which counts only once it has another type. An
    object that took it for a difference would wait for all consumers to leave."""
    one = named()
    made = SubscriptionSpec(type=SubscriptionType.SHARED, in_order=in_order)
    client.create_subscription(LOGSTORE, one.group, made)
    join(client, one, SubscriptionType.SHARED)
    seen = observed(client, one)
    assert (seen.stored, seen.consumers) == (stored_of(one), ("access-0",))
    assert changing(one.consumed, stored_of(one), seen.stored, seen.consumers or ()) == ""


@pytest.mark.long
def test_what_is_at_a_consumer_and_what_it_acknowledged_are_counted(client: LogHub) -> None:
    one = named()
    change_subscription(client, one, CreateGroup(settings=SHARED))
    joined = join(client, one, SubscriptionType.SHARED)
    (group,) = joined.groups
    first = group.ordinal << 17
    settle(client, one, joined.session, acks={group.shard: ((first + 2, first + 4), (first + 6, first + 7))})
    seen = observed(client, one)
    assert seen.consumers == ("access-0",)
    subscription = seen.subscription
    assert subscription is not None
    assert (subscription.backlog_logs, subscription.unacked_logs) == (LOGS - 3, LOGS - 3)
    assert subscription.acknowledged_logs == 3
    assert subscription.state is SubscriptionState.FLOWING
    held = next(shard for shard in seen.shards if shard.shard == group.shard)
    assert held.delivery is not None
    assert (held.delivery.acked_ranges, held.delivery.unacked_logs) == (2, LOGS - 3)
    assert (held.state, held.lag_logs) == ("already_alloc", LOGS - 3)
    settle(client, one, joined.session, leave=True)
    assert observed(client, one).consumers == ()


@pytest.mark.long
def test_a_subscription_changes_only_while_no_consumer_is_connected(client: LogHub) -> None:
    one = named()
    change_subscription(client, one, CreateGroup(settings=SHARED))
    joined = join(client, one, SubscriptionType.SHARED)
    with pytest.raises(SubscriptionInUse, match="cannot become KeyShared by user, in order while consumers"):
        change_subscription(client, one, UpdateGroup(settings=BY_USER))
    assert observed(client, one).stored == SHARED
    settle(client, one, joined.session, leave=True)
    change_subscription(client, one, UpdateGroup(settings=BY_USER))
    changed = observed(client, one)
    assert changed.stored == BY_USER
    assert changed.subscription is not None
    assert changed.subscription.backlog_logs == LOGS  # the position stays


@pytest.mark.long
def test_one_that_another_client_created_meanwhile_is_not_taken_over(client: LogHub) -> None:
    one = named()
    change_subscription(client, one, CreateGroup(settings=BY_USER))
    with pytest.raises(GroupExists, match=f"subscription {one.group} was created by another client"):
        change_subscription(client, one, CreateGroup(settings=SHARED))
    assert observed(client, one).stored == BY_USER


@pytest.mark.long
@pytest.mark.parametrize(("start", "left"), [("Begin", LOGS), ("End", 0)])
def test_a_new_subscription_begins_at_the_start_position(client: LogHub, start: str, left: int) -> None:
    one = named("Failover", {"startPosition": {"from": start}})
    kind = SubscriptionKind(type=SubscriptionType.FAILOVER, in_order=True)
    change_subscription(client, one, CreateGroup(settings=kind))
    seen = observed(client, one).subscription
    assert seen is not None
    assert (seen.settings, seen.backlog_logs) == (kind, left)


@pytest.mark.long
def test_a_client_without_subscriptions_says_what_to_use_instead(service: ServiceProcess) -> None:
    vendor = connect(Client.SDK, service.endpoint, service.credentials)
    for kind, words in (("Shared", "fan_out"), ("Failover", "a consumer group gives each shard")):
        seen = service_observed(vendor, named(kind), clock=HandClock(2_000_000_000.0))
        assert isinstance(seen, Unavailable)
        assert seen.reason is ServiceErrorReason.SUBSCRIPTION_UNSUPPORTED
        assert words in seen.message
        assert f"type {kind} needs them" in seen.message
    vendor.close()


@pytest.mark.long
def test_a_subscription_counts_as_a_reader_for_which_shards_are_not_merged(client: LogHub) -> None:
    merging = resource({"scaling": {"shards": {"autoMerge": True}}})
    client.create_group(LOGSTORE, GroupInfo(name="access", timeout_s=30, order=False))
    before = observed(client, merging).other_groups
    change_subscription(client, named(), CreateGroup(settings=SHARED))
    assert observed(client, merging).other_groups == before + 1
