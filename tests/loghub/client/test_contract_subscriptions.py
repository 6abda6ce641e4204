"""The port's contract for subscriptions, run against every adapter: those without it refuse in words.

See `test_contract`. Each test has its own project. What the service does is in
`tests/loghub_service/test_exchange.py`.
"""

from collections.abc import Callable
from dataclasses import replace

import pytest

from loghub.client.aliyun import NoSubscriptions
from loghub.client.port import LogHub
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub.wire import cursor
from loghub.wire.errors import ExtensionMissing, LogHubError
from loghub.wire.loggroup import decode, split
from loghub.wire.subscriptions import Exchange, Exchanged, SubscriptionSpec, SubscriptionSummary
from tests.loghub.client.adapters import Opener
from tests.loghub.client.contract import HIGH, LOW, STORE, assert_refused, group_of

SHARED = SubscriptionSpec(type=SubscriptionType.SHARED)
NAME = "s.1_-"
RECEIVE = Exchange(
    consumer="c", type=SubscriptionType.SHARED, number=1, max_logs=10, max_bytes=1 << 20, wait_s=20.0
)


@pytest.fixture(scope="module", params=("http",))
def open_project(request: pytest.FixtureRequest, opened: Callable[[str], Opener]) -> Opener:
    return opened(request.param)


def lines_of(exchanged: Exchanged) -> list[str]:
    lines = []
    for group in exchanged.groups:
        assert group.body is not None
        (body,) = split(group.body.unpacked(max_size=1 << 24))
        logs = decode(body).logs
        for index in range(len(logs)) if group.indexes is None else group.indexes:
            ((_, value),) = logs[index].contents
            lines.append(value if isinstance(value, str) else value.decode())
    return lines


def test_a_subscription_is_created_listed_and_deleted(client: LogHub) -> None:
    assert client.has_subscriptions()
    client.create_subscription(STORE, NAME, SHARED)
    client.create_subscription(STORE, NAME, SHARED)  # again, without effect
    keyed = SubscriptionSpec(type=SubscriptionType.KEY_SHARED, in_order=False, key=("user", "day"))
    client.create_subscription(STORE, "keyed", keyed)
    assert client.list_subscriptions(STORE) == (
        SubscriptionSummary(name="keyed", type=keyed.type, in_order=False, key=("user", "day")),
        SubscriptionSummary(name=NAME, type=SHARED.type, in_order=True, key=()),
    )
    with pytest.raises(LogHubError) as error:
        client.create_subscription(STORE, "keyed", replace(SHARED, must_be_new=True))
    assert_refused("SubscriptionAlreadyExist", error)
    assert {one.name: one.type for one in client.list_subscriptions(STORE)}["keyed"] is keyed.type
    client.create_subscription(STORE, "keyed", SHARED)  # nobody is connected, so the settings change
    assert {one.type for one in client.list_subscriptions(STORE)} == {SubscriptionType.SHARED}
    client.delete_subscription(STORE, "keyed")
    client.create_subscription(STORE, "keyed", replace(SHARED, must_be_new=True))
    client.delete_subscription(STORE, "keyed")
    with pytest.raises(LogHubError) as error:
        client.subscription_status(STORE, "keyed")
    assert_refused("SubscriptionNotExist", error)


@pytest.mark.parametrize("name", ["", "a b", "a/b", "x" * 129, "ä"])
def test_a_bad_name_is_refused_before_a_request(client: LogHub, name: str) -> None:
    with pytest.raises(LogHubError) as error:
        client.create_subscription(STORE, name, SHARED)
    assert_refused("ParameterInvalid", error)


def test_where_a_subscription_begins(client: LogHub) -> None:
    for line in "abcd":
        client.put_logs(STORE, group_of(line), hash_key=LOW)
    client.put_logs(STORE, group_of("other"), hash_key=HIGH)
    third = cursor.encode(cursor.decode(client.get_cursor(STORE, 0, "begin")) + 2)
    starts = {
        "begin": (SHARED, 5),
        "end": (SubscriptionSpec(type=SHARED.type, start="end"), 0),
        "time": (SubscriptionSpec(type=SHARED.type, start=0), 5),
        "marks": (SubscriptionSpec(type=SHARED.type, start="end", marks={0: third}), 2),
    }
    for name, (spec, backlog) in starts.items():
        client.create_subscription(STORE, name, spec)
        status = client.subscription_status(STORE, name)
        assert (name, status.backlog_logs, status.unacked_logs) == (name, backlog, 0)
        assert status.state is SubscriptionState.NO_CONSUMER
    assert client.subscription_status(STORE, "marks").shards[0].mark == third


def test_bad_settings_are_refused_in_words(client: LogHub) -> None:
    beyond = cursor.encode(1 << 62)
    bad = {
        "key needs the type KeyShared": SubscriptionSpec(type=SubscriptionType.SHARED, key=("a",)),
        "names of 1 to": SubscriptionSpec(type=SubscriptionType.KEY_SHARED, key=("",)),
        "at most 8 names": SubscriptionSpec(type=SubscriptionType.KEY_SHARED, key=("a",) * 9),
        "beyond the end": SubscriptionSpec(type=SubscriptionType.SHARED, marks={0: beyond}),
        "shard 7 does not exist": SubscriptionSpec(type=SubscriptionType.SHARED, marks={7: beyond}),
        "begin, end or unix seconds": SubscriptionSpec(type=SubscriptionType.SHARED, start=-1),
    }
    for words, spec in bad.items():
        with pytest.raises(LogHubError, match=words):
            client.create_subscription(STORE, "bad", spec)
    assert client.list_subscriptions(STORE) == ()


def test_an_exchange_gets_logs_and_settles_them(client: LogHub) -> None:
    client.create_subscription(STORE, NAME, SHARED)
    client.put_logs(STORE, group_of("a", "b", "c"), hash_key=LOW)
    first = client.exchange(STORE, NAME, RECEIVE)
    assert lines_of(first) == ["a", "b", "c"]
    begin = first.groups[0].ordinal << 17
    acked = client.exchange(
        STORE,
        NAME,
        Exchange(consumer="c", type=SHARED.type, session=first.session, acks={0: ((begin, begin + 2),)}),
    )
    assert (acked.rejected, acked.groups, acked.session) == (0, (), first.session)
    status = client.subscription_status(STORE, NAME)
    assert (status.backlog_logs, status.shards[0].mark_index) == (1, 2)
    with pytest.raises(LogHubError) as error:
        client.create_subscription(STORE, NAME, SubscriptionSpec(type=SubscriptionType.FAILOVER))
    assert_refused("SubscriptionBusy", error)
    with pytest.raises(LogHubError) as error:
        client.exchange(STORE, NAME, Exchange(consumer="c", type=SHARED.type, session="unknown"))
    assert_refused("SubscriptionFenced", error)


def test_logs_are_skipped_and_sought_back(client: LogHub) -> None:
    client.create_subscription(STORE, NAME, SHARED)
    for line in "abc":
        client.put_logs(STORE, group_of(line, line), hash_key=LOW)
    assert client.skip_subscription(STORE, NAME, shard=0, logs=3) == 3
    assert client.subscription_status(STORE, NAME).backlog_logs == 3
    assert lines_of(client.exchange(STORE, NAME, RECEIVE)) == ["b", "c", "c"]
    assert client.skip_subscription(STORE, NAME, shard=0, logs=None) == 3
    assert client.subscription_status(STORE, NAME).backlog_logs == 0
    begin = client.get_cursor(STORE, 0, "begin")
    client.seek_subscription(STORE, NAME, {0: cursor.encode(cursor.decode(begin) + 1)})
    assert client.subscription_status(STORE, NAME).backlog_logs == 4
    client.seek_subscription(STORE, NAME, "end")
    assert client.subscription_status(STORE, NAME).backlog_logs == 0
    client.seek_subscription(STORE, NAME, 0)
    assert client.subscription_status(STORE, NAME).backlog_logs == 6
    with pytest.raises(LogHubError) as error:
        client.skip_subscription(STORE, NAME, shard=9, logs=1)
    assert_refused("ShardNotExist", error)


def test_an_adapter_without_subscriptions_refuses_each_call_in_words() -> None:
    without = NoSubscriptions()
    calls: tuple[Callable[[], object], ...] = (
        lambda: without.list_subscriptions(STORE),
        lambda: without.create_subscription(STORE, NAME, SHARED),
        lambda: without.delete_subscription(STORE, NAME),
        lambda: without.subscription_status(STORE, NAME),
        lambda: without.seek_subscription(STORE, NAME, "end"),
        lambda: without.skip_subscription(STORE, NAME, shard=0, logs=None),
        lambda: without.exchange(STORE, NAME, RECEIVE),
    )
    assert not without.has_subscriptions()
    for call in calls:
        with pytest.raises(ExtensionMissing, match="use a consumer group here"):
            call()
