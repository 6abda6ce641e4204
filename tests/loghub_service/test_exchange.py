"""The exchange of a consumer with its subscription: what it gets, settles and repeats, and when a session
ends."""

import asyncio
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionState, SubscriptionType
from loghub.wire.subscriptions import Exchange, LeaseGrain, Nack
from loghub_service.api import exchange
from loghub_service.retention import Retention
from loghub_service.settings import Limits
from loghub_service.subscription.events import Join, LeaveSubscription
from loghub_service.subscription.state import SubscriptionLimits
from tests.loghub_service.exchanges import (
    SUBSCRIPTION,
    SUBSCRIPTIONS,
    SubscribedConsumer,
    by_shard,
    create,
    put,
    status_of,
    subscribed,
)
from tests.loghub_service.inprocess import InProcess, in_process
from tests.loghub_service.test_budgets import settle

GUARD_S = 120.0  # against a hang
SHARED, KEYED = SubscriptionType.SHARED, SubscriptionType.KEY_SHARED
FAILOVER, EXCLUSIVE = SubscriptionType.FAILOVER, SubscriptionType.EXCLUSIVE
ALL = pytest.mark.parametrize("kind", SubscriptionType)


def run(
    tmp_path: Path, scenario: Callable[[InProcess], Awaitable[None]], *, limits: Limits | None = None
) -> None:
    """Run the scenario; afterwards nothing waits, and no memory is in use."""

    async def main() -> None:
        async with in_process(tmp_path / "data", limits=limits) as service:
            async with asyncio.timeout(GUARD_S):
                await scenario(service)
            await settle()
            assert len(service.engine.polls) == 0
            assert set(service.memory_in_use) == {0}

    asyncio.run(main())


def pass_time(service: InProcess, seconds: float) -> None:
    """The leases are looked at once in a second."""
    for _ in range(int(seconds)):
        service.clock.now_s += 1.0
        service.engine.sessions.look()


async def waiting(service: InProcess, number: int = 1) -> None:
    """Until so many exchanges wait."""
    while len(service.engine.polls) != number:
        await asyncio.sleep(0)


@ALL
def test_a_consumer_gets_the_logs_and_what_it_acknowledged_is_durable(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind, "a", "b", "c")
        assert await one.receive() == ["a", "b", "c"]
        assert one.last is not None
        assert (one.last.active, one.last.backlog) == ((0,), {0: 3})
        begin = position_of(one.last.groups[0].ordinal)
        answer = await one.ack((0, begin), (0, begin + 1))
        assert (answer.rejected, answer.fenced) == (0, ())
        status = await status_of(service)
        assert (status.backlog_logs, status.unacked_logs, status.acknowledged_logs) == (1, 1, 2)
        (shard,) = status.shards
        assert (shard.mark_index, shard.acked_logs, shard.state) == (2, 2, SubscriptionState.FLOWING)
        (consumer,) = status.consumers
        assert (consumer.name, consumer.endpoint, consumer.unacked_logs) == ("one", "http", 1)
        await one.exchange(leave=True)
        other = SubscribedConsumer(service, "other", kind)
        assert await other.receive() == ["c"]

    run(tmp_path, scenario)


@ALL
def test_an_exchange_waits_for_a_log(tmp_path: Path, kind: SubscriptionType) -> None:
    async def scenario(service: InProcess) -> None:
        await create(service, kind, start="end")
        one = SubscribedConsumer(service, "one", kind)
        await one.exchange()
        for line in ("first", "second"):
            task = asyncio.create_task(one.receive())
            await waiting(service)
            await put(service, line)
            assert await task == [line]

    run(tmp_path, scenario)


@ALL
def test_a_lost_answer_is_repeated_as_far_as_it_is_still_out(tmp_path: Path, kind: SubscriptionType) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind, "a", "b", "c")
        assert await one.receive() == ["a", "b", "c"]
        assert await one.receive(repeat=True) == ["a", "b", "c"]
        assert set(one.got.values()) == {0}
        await one.ack(min(one.got))
        assert await one.receive(repeat=True) == ["b", "c"]
        await put(service, "d")
        assert await one.receive() == ["d"]
        assert await one.receive(repeat=True) == ["d"]
        one.number += 1
        assert await one.code(number=one.number + 1) == "ParameterInvalid"

    run(tmp_path, scenario)


def test_a_join_that_is_repeated_gets_the_same_session(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED)
        first = await one.exchange(nonce="n")
        one.session = ""
        assert (await one.exchange(nonce="n")).session == first.session
        one.session = ""
        assert await one.code(nonce="another") == "SubscriptionBusy"
        assert await one.code() == "SubscriptionBusy"
        assert len((await status_of(service)).consumers) == 1

    run(tmp_path, scenario)


def test_logs_go_to_others_when_a_lease_is_over_and_late_acknowledgments_count(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED, "a", "b", "c", lease_s=5.0)
        assert await one.receive() == ["a", "b", "c"]
        pass_time(service, 4)
        await one.exchange()  # the lease begins again
        pass_time(service, 4)
        assert len((await status_of(service)).consumers) == 1
        other = SubscribedConsumer(service, "other", SHARED)
        await other.exchange()
        pass_time(service, 2)
        assert [c.name for c in (await status_of(service)).consumers] == ["other"]
        assert await one.code(acks={0: ((min(one.got)[1], min(one.got)[1] + 1),)}) == "SubscriptionFenced"
        assert await other.receive() == ["b", "c"]
        assert set(other.got.values()) == {0}  # no redelivery is counted
        one.session = ""
        await one.exchange()

    run(tmp_path, scenario)


@pytest.mark.parametrize("kind", [FAILOVER, EXCLUSIVE])
def test_a_late_acknowledgment_of_an_ordered_type_is_not_taken(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind, "a", "b", lease_s=2.0)
        assert await one.receive() == ["a", "b"]
        pass_time(service, 3)
        (place,) = ({shard: ((at, at + 1),) for shard, at in sorted(one.got)[:1]},)
        assert await one.code(acks=place) == "SubscriptionFenced"
        other = SubscribedConsumer(service, "other", kind)
        assert await other.receive() == ["a", "b"]

    run(tmp_path, scenario)


def test_a_receive_that_waits_is_a_sign_of_life(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED, lease_s=2.0)
        task = asyncio.create_task(one.receive())
        await waiting(service)
        pass_time(service, 10)
        await put(service, "a")
        assert await task == ["a"]

    run(tmp_path, scenario)


def test_a_pause_of_the_service_ends_no_lease(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED, "a", lease_s=2.0)
        await one.receive()
        pass_time(service, 1)
        service.clock.now_s += 600.0
        service.engine.sessions.look()
        await one.ack_all()
        assert (await status_of(service)).backlog_logs == 0

    run(tmp_path, scenario)


@pytest.mark.parametrize("kind", [SHARED, KEYED])
def test_a_negative_acknowledgment_comes_again_after_its_delay_and_is_counted(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind, "a", "b", "c")
        await one.receive()
        places = sorted(one.got)
        later = Nack(shard=0, runs=((places[0][1], places[0][1] + 1),), delay_s=300.0)
        now = Nack(shard=0, runs=((places[1][1], places[1][1] + 1),))
        await one.exchange(nacks=(later, now), release={0: ((places[2][1], places[2][1] + 1),)})
        again = await one.receive()
        again += await one.receive(wait_s=0.0)
        assert sorted(again) == ["b", "c"]
        assert (one.got[places[1]], one.got[places[2]]) == (1, 0)
        assert await one.receive(wait_s=0.0) == []
        service.clock.now_s += 301.0
        service.engine.dispatches.get(1, "s")._time_passed()  # type: ignore[union-attr]
        assert await one.receive() == ["a"]
        assert one.got[places[0]] == 1
        assert (await status_of(service)).redelivered_logs == 2

    run(tmp_path, scenario)


@pytest.mark.parametrize("kind", [FAILOVER, EXCLUSIVE])
def test_in_an_ordered_type_everything_comes_again_from_the_mark(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind, "a", "b")
        await put(service, "c")
        await one.receive(2)
        await one.receive(1)
        assert one.lines == ["a", "b", "c"]
        first, _, third = sorted(one.got)
        await one.ack(first)
        await one.exchange(release={0: ((third[1], third[1] + 1),)})
        assert await one.receive(repeat=True) == []
        assert await one.receive() == ["b", "c"]

    run(tmp_path, scenario)


@pytest.mark.parametrize("kind", [FAILOVER, EXCLUSIVE])
def test_what_waits_for_the_next_answer_comes_once_after_a_release(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind)
        for line in "abc":
            await put(service, line)
        assert await one.receive(3, max_bytes=1) == ["a"]
        await one.exchange(release=by_shard(one.got))
        got = await one.receive(3)
        while len(got) < 3:
            got += await one.receive(3)
        assert got + await one.receive(3, wait_s=0.0) == ["a", "b", "c"]

    run(tmp_path, scenario)


def test_a_standby_waits_is_informed_and_is_fenced_where_it_is_not_active(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        first = await subscribed(service, FAILOVER, "a", "b", name="b")
        assert await first.receive() == ["a", "b"]
        waits = asyncio.create_task(first.receive())
        await waiting(service)
        second = SubscribedConsumer(service, "a", FAILOVER)
        answer = await second.exchange()  # of the same priority, the name decides
        assert answer.active == (0,)
        assert await waits == []
        assert first.last is not None
        assert first.last.active == ()
        late = await first.ack_all()
        assert (late.fenced, (await status_of(service)).backlog_logs) == ((0,), 2)
        assert await second.receive() == ["a", "b"]
        waits = asyncio.create_task(first.receive())
        await waiting(service)
        await second.exchange(leave=True)
        assert await waits + await first.receive() == ["a", "b"]
        assert first.last.active == (0,)

    run(tmp_path, scenario)


def test_a_second_exclusive_consumer_and_another_type_are_refused(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        await create(service, EXCLUSIVE)
        await SubscribedConsumer(service, "one", EXCLUSIVE).exchange()
        assert await SubscribedConsumer(service, "two", EXCLUSIVE).code() == "SubscriptionBusy"
        assert await SubscribedConsumer(service, "two", SHARED).code() == "SubscriptionMismatch"
        other = SubscribedConsumer(service, "two", SHARED)
        await service.ok("DELETE", SUBSCRIPTION)
        assert await other.code() == "SubscriptionNotExist"

    run(tmp_path, scenario)


def test_the_refusal_of_one_consumer_too_many_says_what_to_do(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: InProcess) -> None:
        await subscribed(service, SHARED)
        service.engine.subscriptions.limits = SubscriptionLimits(max_consumers=2)
        for name in ("one", "two"):
            await SubscribedConsumer(service, name, SHARED).exchange()
        for words in ("stop some", "wait until the leases"):
            reply = await SubscribedConsumer(service, "three", SHARED).begin().reply()
            assert reply is not None
            assert reply.code == "SubscriptionQuotaExceed"
            assert words in reply.body.decode()
            monkeypatch.setattr(exchange, "_MAX_SESSIONS", 2)

    run(tmp_path, scenario)


def test_no_log_waits_at_a_consumer_that_does_not_ask(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED, "a")
        other = SubscribedConsumer(service, "other", SHARED)
        assert await one.receive() == ["a"]
        await put(service, "b", "c", "d")
        assert (await status_of(service)).unacked_logs == 1
        assert await other.receive() == ["b", "c", "d"]

    run(tmp_path, scenario)


def test_two_consumers_share_the_logs_and_the_slots_of_keys(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        await create(service, KEYED, key=("line",))
        one, two = (SubscribedConsumer(service, name, KEYED) for name in ("one", "two"))
        await one.exchange()
        await two.exchange()
        lines = [f"key {number % 10}" for number in range(40)]
        await put(service, *lines)
        got = await one.receive(), await two.receive()
        assert sorted(got[0] + got[1]) == sorted(lines)
        assert not set(got[0]) & set(got[1])
        assert set(got[0])
        assert set(got[1])
        assert (await status_of(service)).held_slots == 10

    run(tmp_path, scenario)


def test_an_answer_has_no_more_than_its_bytes_and_the_rest_is_in_the_next(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED)
        lines = [f"{number:04}" * 100 for number in range(8)]
        for line in lines:
            await put(service, line)
        got = [await one.receive(max_bytes=1000)]
        while sum(map(len, got)) < len(lines):
            got.append(await one.receive(max_bytes=1000))
        assert [line for part in got for line in part] == lines
        assert {len(part) for part in got} == {2}
        assert await one.receive(repeat=True, max_bytes=1) == got[-1][:1]

    run(tmp_path, scenario)


def test_a_consumer_chooses_the_shards_of_an_answer_and_gets_positions_only(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED, "a", bodies=False)
        answer = await one.exchange(number=1, max_logs=5, shards=(7,))
        assert answer.groups == ()
        answer = await one.exchange(number=2, max_logs=5, wait_s=60.0)
        (group,) = answer.groups
        assert (group.body, group.shard, group.indexes) == (None, 0, None)

    run(tmp_path, scenario)


@ALL
def test_a_seek_ends_sessions_and_the_logs_come_again(tmp_path: Path, kind: SubscriptionType) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind, "a", "b")
        await one.receive()
        await one.ack_all()
        waits = one.begin(number=2, max_logs=5, wait_s=60.0)
        await waiting(service)
        await service.ok("POST", f"{SUBSCRIPTION}/seek", body=b'{"position":"begin"}')
        reply = await waits.reply()
        assert reply is not None
        assert reply.code == "SubscriptionFenced"
        assert await one.code() == "SubscriptionFenced"
        one.session, one.number = "", 0
        assert await one.receive() == ["a", "b"]

    run(tmp_path, scenario)


@ALL
def test_a_deletion_ends_a_waiting_exchange_in_words(tmp_path: Path, kind: SubscriptionType) -> None:
    async def scenario(service: InProcess) -> None:
        for path, code in (
            (SUBSCRIPTION, "SubscriptionNotExist"),
            ("/logstores/access", "LogStoreNotExist"),
        ):
            one = await subscribed(service, kind)
            await one.exchange()
            waits = one.begin(number=1, max_logs=5, wait_s=60.0)
            await waiting(service)
            await service.ok("DELETE", path)
            service.engine.dispatches.look()
            reply = await waits.reply()
            assert reply is not None
            assert reply.code == code
        assert list(service.engine.dispatches) == []
        pass_time(service, 1)
        assert list(service.engine.sessions) == []

    run(tmp_path, scenario)


def test_the_end_of_the_service_ends_waiting_exchanges(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED)
        task = asyncio.create_task(one.receive())
        await waiting(service)
        service.engine.polls.close()
        assert await task == []

    run(tmp_path, scenario)


@pytest.mark.parametrize("kind", [SHARED, FAILOVER])
def test_a_child_of_a_split_comes_after_its_parent_in_order(tmp_path: Path, kind: SubscriptionType) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, kind, "parent")
        assert await one.receive() == ["parent"]
        parent = dict(one.got)
        await service.ok("POST", "/logstores/access/shards/0", {"action": "split", "key": "8" + "0" * 31})
        service.engine.dispatches.look()
        await put(service, "child")
        if kind is FAILOVER:
            assert await one.receive() == []  # but it learns that it is active for the children
        waits = asyncio.create_task(one.receive())
        if kind is FAILOVER:
            await waiting(service)
            other = SubscribedConsumer(service, "one", kind)
            other.session = one.session
            await other.ack(*parent)
        assert await waits == ["child"]
        assert one.last is not None
        assert len(one.last.active) == 3

    run(tmp_path, scenario)


@pytest.mark.parametrize(
    "bad",
    [
        {"lease_s": 0.5},
        {"priority": -1},
        {"max_logs": 10_001},
        {"max_bytes": 1 << 30},
        {"wait_s": 61.0},
        {"number": 0},
        {"acks": {0: ((5, 5),)}},
        {"acks": {0: ((-1, 5),)}},
        {"acks": {0: ((0, 1),) * 10_001}},
        {"acks": {0: ((0, 1 << 50),)}},
        {"nacks": (Nack(shard=0, runs=((0, 1),), delay_s=-1.0),)},
        {"nonce": "n" * 65},
        {"consumer": ""},
    ],
)
def test_bad_fields_are_refused_and_settle_nothing(tmp_path: Path, bad: dict[str, Any]) -> None:
    async def scenario(service: InProcess) -> None:
        await create(service, SHARED)
        await put(service, "a")
        fields = {"consumer": "one", "type": SHARED, "acks": {0: ((0, 1),)}} | bad
        body = msgspec.msgpack.encode(Exchange(**fields))
        reply = await service.begin("POST", f"{SUBSCRIPTION}/exchange", body=body).reply()
        assert reply is not None
        assert reply.code == "ParameterInvalid"
        assert (await status_of(service)).consumers == ()

    run(tmp_path, scenario)


def test_whole_log_groups_are_not_dealt_and_what_is_no_exchange_is_refused(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED)
        assert await one.code(grain=LeaseGrain.RANGE) == "NotImplemented"
        for body in (b"", b"\x00", b"\x81\xa8consumer\x01", b"\xff" * 300):
            reply = await service.begin("POST", f"{SUBSCRIPTION}/exchange", body=body).reply()
            assert reply is not None
            assert reply.code == "ParameterInvalid"

    run(tmp_path, scenario)


@ALL
def test_expired_logs_leave_a_waiting_subscription_and_the_next_ones_come(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        engine = service.engine
        retention = Retention(engine)
        one = await subscribed(service, kind)
        for number in range(20):
            await put(service, f"{number} " + "x" * 600)  # several segments
        first = await one.receive(1)
        assert len(first) == 1
        service.clock.now_s += 40 * 86_400.0
        await retention.look()
        engine.dispatches.look()
        status = await status_of(service)
        assert status.backlog_logs is not None
        assert status.backlog_logs < 10
        assert status.unacked_logs <= status.backlog_logs
        await put(service, "new")
        service.engine.sessions.look()
        got: list[str] = []
        while "new" not in got:
            got += await one.receive(50)
        assert len(got) <= status.backlog_logs + 1
        await one.ack_all()
        assert (await status_of(service)).backlog_logs == 0

    run(tmp_path, scenario)


def test_an_answer_that_finds_no_memory_is_refused_and_comes_with_the_same_number(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED, "x" * 5000)
        await one.exchange()
        responses = service.app.budgets[2]
        responses.used += responses.limit
        wanted = {"max_logs": 10, "max_bytes": 1 << 20, "wait_s": 60.0, "number": 1}
        assert await one.code(**wanted) == "ServerBusy"
        responses.used -= responses.limit
        assert one.take(await one.exchange(**wanted)) == ["x" * 5000]

    run(tmp_path, scenario)


def test_a_key_with_the_most_polls_settles_and_gets_no_logs(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        one = await subscribed(service, SHARED, "a", "b")
        other = SubscribedConsumer(service, "other", SHARED)
        assert await one.receive() == ["a", "b"]
        await other.exchange()
        waits = asyncio.create_task(other.receive())
        await waiting(service)
        acks = by_shard(sorted(one.got)[:1])
        refused = {"number": 2, "max_logs": 5, "wait_s": 60.0, "acks": acks}
        assert await one.code(**refused) == "ServerBusy"
        assert (await status_of(service)).backlog_logs == 1
        assert [consumer.permits for consumer in (await status_of(service)).consumers] == [0, 100]
        await put(service, "c")
        assert await waits == ["c"]

    run(tmp_path, scenario, limits=Limits(polls_per_key=1))


def test_a_key_counts_only_in_the_type_that_has_one(tmp_path: Path) -> None:
    """A client of Pulsar changes the type with its first consumer, and the key is kept for the way back."""

    async def scenario(service: InProcess) -> None:
        await create(service, KEYED, key=("user",))
        (logstore,) = service.engine.catalog.logstores_by_id
        saved = service.engine.subscriptions.of(logstore)["s"]
        for kind, key in ((SHARED, ()), (FAILOVER, ()), (KEYED, ("user",))):
            saved.apply(Join(consumer=99, name="pulsar", type=kind, shards=None), now=0.0)
            saved.apply(LeaveSubscription(consumer=99), now=0.0)
            status = await status_of(service)
            assert (status.type, status.key) == (kind, key)
            listed = await service.ok("GET", SUBSCRIPTIONS)
            assert [tuple(one["key"]) for one in msgspec.json.decode(listed.body)] == [key]

    run(tmp_path, scenario)
