"""Subscriptions over HTTP through restarts of the service, and together with consumers of Pulsar."""

import asyncio
import random
from contextlib import suppress
from pathlib import Path

import msgspec
import pytest

from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import SubscriptionStatus
from loghub_service.engine import Engine
from loghub_service.ports import OsDisk, OsRandom, Platform
from loghub_service.pulsar.broker.call import PulsarBrokerLimits
from loghub_service.settings import ServiceSettings
from loghub_service.start import open_engine
from tests.loghub_service.exchanges import SUBSCRIPTION, SubscribedConsumer, by_shard, create, put, status_of
from tests.loghub_service.inprocess import InProcess, in_process
from tests.loghub_service.pulsar.broker.pulsar_place import PARTITION, PulsarPlace
from tests.loghub_service.pulsar.broker.pulsar_place import run as run_pulsar
from tests.loghub_service.test_exchange import KEYED, SHARED, pass_time

GUARD_S = 120.0  # against a hang
ALL = pytest.mark.parametrize("kind", SubscriptionType)
NOT_ORDERED = pytest.mark.parametrize("kind", [SHARED, KEYED])


async def opened_again(service: InProcess, data: Path) -> InProcess:
    """Another engine on a copy of what is on the disk at this moment, as after a kill."""
    engine = await open_engine(
        ServiceSettings(data=str(data), host="127.0.0.1", port=0, segment_bytes=4096),
        Platform(clock=service.clock, disk=OsDisk(), random=OsRandom()),
        on_failed=lambda error: None,
    )
    return InProcess(engine, service.clock)


def killed(data: Path, number: int) -> Path:
    """A copy of the folder, which a running service has open."""
    copy = data.parent / f"killed-{number}"
    copy.mkdir()
    for path in sorted(data.rglob("*")):
        target = copy / path.relative_to(data)
        if path.is_dir():
            target.mkdir(exist_ok=True)
        elif path.name != "lock":
            with suppress(FileNotFoundError):
                target.write_bytes(path.read_bytes())
    return copy


class Life:
    """Consumers that receive and acknowledge at random, with a kill of the service now and then.

    ``receipted`` must never come again, and what is not ``acked`` must not be lost.
    """

    def __init__(self, kind: SubscriptionType, seed: int) -> None:
        self.kind = kind
        self.rng = random.Random(seed)
        self.lines: set[str] = set()
        self.receipted: set[str] = set()
        self.acked: set[str] = set()
        self.delivered = 0

    def consumers(self, service: InProcess) -> list[SubscribedConsumer]:
        number = 1 if self.kind is SubscriptionType.EXCLUSIVE else 3
        return [SubscribedConsumer(service, f"c{n}", self.kind) for n in range(number)]

    async def between_kills(self, service: InProcess) -> None:
        consumers = self.consumers(service)
        for consumer in consumers:
            await consumer.exchange()
        for _ in range(20):
            lines = [f"{len(self.lines) + n}" for n in range(self.rng.randint(1, 6))]
            self.lines.update(lines)
            await put(service, *lines)
            consumer = self.rng.choice(consumers)
            got = await consumer.receive(self.rng.randint(1, 9), wait_s=0.0, shards=None)
            if not got:
                continue
            self.delivered += len(got)
            assert not set(got) & self.receipted
            places = dict(zip(got, list(consumer.got)[-len(got) :], strict=True))
            chosen = [line for line in got if self.rng.random() < 0.7]
            is_durable = self.rng.random() < 0.6
            if chosen:
                self.acked.update(chosen)
                answer = await consumer.ack(*(places[line] for line in chosen), is_durable=is_durable)
                if is_durable and not answer.fenced:
                    self.receipted.update(chosen)
                if answer.fenced:
                    self.acked.difference_update(chosen)

    async def rest(self, service: InProcess) -> None:
        """What is left comes to one consumer; afterwards nothing is."""
        last = SubscribedConsumer(service, "last", self.kind)
        found: set[str] = set()
        while (await status_of(service)).backlog_logs:
            got = await last.receive(100)
            assert not set(got) & self.receipted
            found.update(got)
            await last.ack_all()
        assert self.lines - self.acked <= found


@ALL
@pytest.mark.parametrize("kills", [5, pytest.param(50, marks=pytest.mark.deep)])
def test_what_was_receipted_never_comes_again_and_nothing_else_is_lost(
    tmp_path: Path, kind: SubscriptionType, kills: int
) -> None:
    life = Life(kind, seed=7)

    async def main() -> None:
        data = tmp_path / "data"
        async with asyncio.timeout(GUARD_S), in_process(data) as first:
            await create(first, kind)
            service, engines = first, list[Engine]()
            try:
                for number in range(kills):
                    await life.between_kills(service)
                    data = killed(data, number)
                    service = await opened_again(service, data)
                    engines.append(service.engine)
                await life.rest(service)
            finally:
                for engine in engines:
                    await engine.close()

    asyncio.run(main())
    assert min(len(life.receipted), len(life.lines - life.acked), life.delivered) >= 20


@ALL
def test_an_acknowledgment_right_after_a_restart_is_taken(tmp_path: Path, kind: SubscriptionType) -> None:
    """The shards are known as far as the cursors say, until the next look."""

    async def main() -> None:
        data = tmp_path / "data"
        async with in_process(data) as service:
            await create(service, kind)
            await put(service, "a", "b")
            one = SubscribedConsumer(service, "one", kind)
            await one.receive()
        again = await opened_again(service, data)
        try:
            code = await SubscribedConsumerOf(one, again).code(acks=by_shard(one.got))
            assert code == "SubscriptionFenced"
            expected = 2 if kind.is_ordered else 0
            assert (await status_of(again)).backlog_logs == expected
        finally:
            await again.engine.close()

    asyncio.run(main())


class SubscribedConsumerOf(SubscribedConsumer):
    """The same consumer with the same session at a service that was started again."""

    def __init__(self, before: SubscribedConsumer, service: InProcess) -> None:
        super().__init__(service, before.name, before.kind)
        self.session = before.session


async def set_back(service: InProcess, kind: SubscriptionType, how: str) -> None:
    """All logs are wanted, those that were delivered before included."""
    if how == "seek":
        await service.ok("POST", f"{SUBSCRIPTION}/seek", body=b'{"position":"begin"}')
    elif how == "new subscription":
        await service.ok("DELETE", SUBSCRIPTION)
        await create(service, kind)
    else:
        await service.ok("DELETE", "/logstores/access")
        await service.ok("POST", "/logstores", body=b'{"logstoreName":"access","shardCount":1}')
        await create(service, kind)
        await put(service, "a", "b")


@NOT_ORDERED
@pytest.mark.parametrize("is_restarted", [False, True])
@pytest.mark.parametrize("how", ["seek", "new subscription", "new logstore"])
def test_an_acknowledgment_from_before_all_logs_were_wanted_again_takes_no_log_away(
    tmp_path: Path, kind: SubscriptionType, how: str, is_restarted: bool
) -> None:
    async def late(before: SubscribedConsumer, service: InProcess) -> None:
        again = SubscribedConsumerOf(before, service)
        assert await again.code(acks=by_shard(before.got)) == "SubscriptionFenced"
        assert (await status_of(service)).backlog_logs == 2
        again.session = ""
        assert sorted(await again.receive()) == ["a", "b"]

    async def main() -> None:
        data = tmp_path / "data"
        async with in_process(data) as service:
            await create(service, kind)
            await put(service, "a", "b")
            one = SubscribedConsumer(service, "one", kind)
            assert len(await one.receive()) == 2
            await set_back(service, kind, how)
            if not is_restarted:
                await late(one, service)
                return
        next_one = await opened_again(service, data)
        try:
            await late(one, next_one)
        finally:
            await next_one.engine.close()

    asyncio.run(main())


@pytest.mark.parametrize("how", ["skip", "another type and back", "seek before its session"])
def test_a_late_acknowledgment_counts_after_a_restart_if_no_log_was_wanted_again(
    tmp_path: Path, how: str
) -> None:
    kind = SubscriptionType.SHARED

    async def main() -> None:
        data = tmp_path / "data"
        async with in_process(data) as service:
            await create(service, kind)
            await put(service, "a", "b", "c")
            if how == "seek before its session":
                await set_back(service, kind, "seek")
            one = SubscribedConsumer(service, "one", kind, lease_s=5.0)
            assert len(await one.receive()) == 3
            if how == "skip":
                await service.ok("POST", f"{SUBSCRIPTION}/skip", body=b'{"shard":0,"logs":1}')
            elif how == "another type and back":
                pass_time(service, 6)
                await create(service, SubscriptionType.EXCLUSIVE)
                await create(service, kind)
        again = await opened_again(service, data)
        try:
            late = SubscribedConsumerOf(one, again)
            *_, last = sorted(one.got)
            assert await late.code(acks=by_shard([last])) == "SubscriptionFenced"
            late.session = ""
            assert await late.receive() == (["b"] if how == "skip" else ["a", "b"])
        finally:
            await again.engine.close()

    asyncio.run(main())


def test_consumers_of_both_endpoints_share_the_logs_of_one_subscription(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(topic=PARTITION, name="s", kind="Shared", permits=4)
        http = of_place(place)
        one = SubscribedConsumer(http, "one", SubscriptionType.SHARED)
        await one.exchange()
        values = [b"%d" % number for number in range(12)]
        for value in values:
            await place.put(value)
        got = [value for message in await client.receive(4) for value in message.payloads]
        while len(got) < len(values):
            got += [line.encode() for line in await one.receive(50)]
            await one.ack_all()
        assert sorted(got, key=int) == values
        answer = await http.ok("GET", SUBSCRIPTION)
        status = msgspec.json.decode(answer.body, type=SubscriptionStatus)
        assert {(c.endpoint, c.unacked_logs) for c in status.consumers} == {("pulsar", 4), ("http", 0)}
        client.close()
        again: list[str] = []
        while len(again) < 4:
            again += await one.receive(50)
        assert sorted(again, key=int) == sorted((v.decode() for v in got[:4]), key=int)
        await one.ack_all(leave=True)

    run_pulsar(scenario, tmp_path / "d")


def test_a_consumer_over_http_takes_over_from_a_client_of_pulsar(tmp_path: Path) -> None:
    async def scenario(place: PulsarPlace) -> None:
        client = await place.client()
        await client.subscribe(topic=PARTITION, name="s", kind="Failover", permits=10, consumer_name="b")
        for value in (b"1", b"2", b"3"):
            await place.put(value)
        first, *_ = await client.receive(3)
        at = {"ledgerId": first.id[0], "entryId": first.id[1]}
        await client.call("ack", "ackResponse", consumer_id=0, ack_type=0, message_id=[at])
        http = of_place(place)
        one = SubscribedConsumer(http, "a", SubscriptionType.FAILOVER)
        while not (await one.exchange()).active:
            await asyncio.sleep(0)
        assert await one.receive(50) == ["2", "3"]
        await one.ack_all()
        await one.exchange(leave=True)
        await place.put(b"4")
        (message,) = await client.receive(1)
        assert message.payloads == (b"4",)

    run_pulsar(scenario, tmp_path / "d")


@pytest.mark.parametrize("kind", [SHARED, SubscriptionType.FAILOVER])
def test_a_log_that_no_message_can_carry_comes_to_a_consumer_over_http_that_is_dealt_it(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    """A client of Pulsar is connected, and has no part in it: without permits, or standing by."""

    async def scenario(place: PulsarPlace) -> None:
        large = random.Random(1).randbytes(2000).hex()
        client = await place.client()
        await client.subscribe(topic=PARTITION, name="s", kind=kind.value, permits=1, consumer_name="b")
        one = SubscribedConsumer(of_place(place), "a", kind)
        if kind is SHARED:
            await place.put(b"takes the only permit")
            await client.receive(1)
        while not (await one.exchange()).active:
            await asyncio.sleep(0)
        await place.put(large.encode(), b"small")
        while one.lines[-1:] != ["small"]:
            await one.receive()
        assert one.lines == [large, "small"]
        assert place.endpoint.broker.counts.too_large_logs == 0
        assert (await one.ack_all(leave=True)).rejected == 0

    run_pulsar(scenario, tmp_path / "d", limits=PulsarBrokerLimits(message_bytes=1000))


def test_a_log_that_no_message_can_carry_waits_for_a_consumer_over_http_while_there_is_one(
    tmp_path: Path,
) -> None:
    """Also while that asks for nothing. Once it is gone, the log is left out."""

    async def scenario(place: PulsarPlace) -> None:
        large = random.Random(1).randbytes(2000).hex()
        client = await place.client()
        await client.subscribe(topic=PARTITION, name="s", kind="Shared", permits=9)
        one = SubscribedConsumer(of_place(place), "a", SHARED)
        await one.exchange()
        await place.put(large.encode(), b"small", large.encode())
        (message,) = await client.receive(1)
        assert message.payloads == (b"small",)
        stats = await client.call("consumerStats", "consumerStatsResponse", consumer_id=0)
        while stats.unackedMessages > 1:
            stats = await client.call("consumerStats", "consumerStatsResponse", consumer_id=0)
        assert stats.availablePermits == 8  # what is passed on takes no permit
        assert place.endpoint.broker.counts.too_large_logs == 0
        assert await one.receive(1) == [large]
        assert (await one.ack_all()).rejected == 0
        await one.exchange(leave=True)
        await place.put(b"behind")
        (message,) = await client.receive(1)
        assert message.payloads == (b"behind",)
        assert place.endpoint.broker.counts.too_large_logs == 1

    run_pulsar(scenario, tmp_path / "d", limits=PulsarBrokerLimits(message_bytes=1000))


def of_place(place: PulsarPlace) -> InProcess:
    """The application over the engine of a Pulsar endpoint."""
    return InProcess(place.engine, place.clock)
