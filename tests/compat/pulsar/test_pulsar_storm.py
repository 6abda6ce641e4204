"""Hundreds of connections that come and go all the time, next to one that reads nothing, while the service is
paused for longer than it waits for a silent client, and is killed."""

import asyncio
import os
import random
import signal
import time
from collections import defaultdict
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from tests.compat.pulsar.places import ServicePlace, a_service_place
from tests.loghub_service.pulsar.broker.pulsar_place import Client, Closed, entry_of
from tests.loghub_service.pulsar.broker.test_consumers import acked, at

# How many come and go. Of the ordered types few: the others only wait for the one that is active. Each
# subscription is named as its type.
CONSUMERS = {"Shared": 250, "Key_Shared": 230, "Failover": 12, "Exclusive": 8}
SHARDS = 4
WRITERS, MESSAGES = 12, 400  # of each writer
KEYS = 200
PERMITS = 1_000_000
SILENCE_S = 60.0  # after which a client is closed


@dataclass
class Settled:
    """What consumers of a subscription have acknowledged, and when they had a receipt for it."""

    sent: set[str] = field(default_factory=set)
    receipted: dict[str, float] = field(default_factory=dict)


class Storm:
    """Clients of one place."""

    def __init__(self, place: ServicePlace) -> None:
        self.place = place
        self.logstore = place.topic(SHARDS).removesuffix(place.suffix)
        self.dice = random.Random(1)
        self.stored = 0
        self.settled = defaultdict[str, Settled](Settled)
        self.over = asyncio.Event()

    async def connected(self) -> Client:
        """Raises Closed."""
        host, _, port = self.place.url.removeprefix("pulsar://").rpartition(":")
        try:
            client = Client(*await asyncio.open_connection(host, int(port)))
        except OSError as error:
            raise Closed from error
        kind, _ = await client.log_in(self.place.token)
        if kind != "connected":
            client.close()
            raise Closed
        return client

    def partition(self, number: int) -> str:
        name = self.place.partition(number, topic=f"{self.logstore}{self.place.suffix}")
        return f"persistent://public/default/{name}"

    async def subscribed(self, kind: str, shard: int, *, permits: int) -> Client:
        """Raises Closed, also where a consumer is refused."""
        client = await self.connected()
        try:
            await client.subscribe(topic=self.partition(shard), name=kind, kind=kind, permits=permits)
        except (AssertionError, Closed) as error:
            client.close()
            raise Closed from error
        return client

    async def consume(self, kind: str) -> None:
        """Again and again: take some, acknowledge most, and leave in one way or the other."""
        while not self.over.is_set():
            try:
                await self._live(kind)
            except (Closed, TimeoutError):
                await asyncio.sleep(self.dice.random() / 10)

    async def _live(self, kind: str) -> None:
        began_s = time.monotonic()
        settled = self.settled[kind]
        client = await self.subscribed(kind, self.dice.randrange(SHARDS), permits=self.dice.randint(1, 40))
        try:
            for _ in range(self.dice.randint(1, 5)):
                async with asyncio.timeout(2 * self.dice.random()):  # by lot, and not a measure of pace
                    messages = await client.receive(1)
                await client.drained()
                messages, client.messages = messages + client.messages, []
                names = [message.payloads[0].decode() for message in messages]
                late = [name for name in names if settled.receipted.get(name, began_s) < began_s]
                assert not late, f"{late} had a receipt before their consumer of {kind} came"
                taken = [place for place in range(len(names)) if self.dice.random() < 0.8]
                settled.sent.update(names[place] for place in taken)
                if taken and self.dice.random() < 0.1:
                    ids = [at(messages[place]) for place in taken]
                    client.send("ack", consumer_id=0, ack_type=0, message_id=ids)
                    return
                if taken and await acked(client, *(at(messages[place]) for place in taken)) == "":
                    settled.receipted |= dict.fromkeys((names[place] for place in taken), time.monotonic())
                client.send("flow", consumer_id=0, messagePermits=self.dice.randint(1, 40))
            if self.dice.random() < 0.5:
                await client.call("close_consumer", "success", consumer_id=0)
        finally:
            client.close()

    async def write(self, number: int) -> None:
        """One after the other, and what has no receipt once more."""
        sequence = epoch = 0
        while sequence < MESSAGES:
            client = None
            try:
                client = await self.connected()
                topic = self.partition(number % SHARDS)
                await client.produce(topic=topic, producer_name=f"writer {number}", epoch=epoch)
                while sequence < MESSAGES:
                    name, key = f"{number} {sequence}".encode(), f"k{self.dice.randrange(KEYS)}"
                    await client.published(sequence, entry_of(name, sequence=sequence, partition_key=key))
                    sequence += 1
                    self.stored += 1
            except (Closed, TimeoutError):
                epoch += 1
                await asyncio.sleep(self.dice.random() / 10)
            finally:
                if client is not None:
                    client.close()

    async def disturb(self) -> None:
        await self._until(WRITERS * MESSAGES // 3)
        os.kill(self.place.pid, signal.SIGSTOP)
        await asyncio.sleep(SILENCE_S + 10)
        os.kill(self.place.pid, signal.SIGCONT)
        await self._until(WRITERS * MESSAGES * 2 // 3)
        await asyncio.to_thread(self.place.service.kill9)
        await asyncio.to_thread(self.place.service.start)

    async def _until(self, stored: int) -> None:
        while self.stored < stored:
            await asyncio.sleep(0.1)

    async def rest(self, kind: str) -> list[str]:
        """What comes to a consumer that is alone."""
        names: list[str] = []
        status = await asyncio.to_thread(self.place.http.subscription_status, self.logstore, kind)
        for shard in status.shards:
            client = await self.subscribed(kind, shard.shard, permits=PERMITS)
            messages = await client.receive(shard.backlog_logs or 0)
            names += [message.payloads[0].decode() for message in messages]
            await client.drained()
            assert client.messages == []
            client.close()
        return names


@pytest.mark.deep(minutes=6)
def test_nothing_is_lost_or_comes_again_in_a_storm_of_connections(tmp_path: Path) -> None:
    async def scenario(storm: Storm) -> None:
        idle = await storm.subscribed("Shared", 0, permits=PERMITS)  # nobody reads what it gets
        kinds = [kind for kind, number in CONSUMERS.items() for _ in range(number)]
        consumers = [asyncio.create_task(storm.consume(kind)) for kind in kinds]
        writers = [asyncio.create_task(storm.write(number)) for number in range(WRITERS)]
        await asyncio.gather(storm.disturb(), *writers)
        storm.over.set()
        await asyncio.gather(*consumers)
        idle.close()
        written = {f"{number} {place}" for number in range(WRITERS) for place in range(MESSAGES)}
        for kind, settled in storm.settled.items():
            rest = await storm.rest(kind)
            assert settled.receipted.keys().isdisjoint(rest), kind
            assert written - settled.sent <= set(rest), kind
            print(f"{kind}: {len(settled.receipted)} receipts, {len(rest)} of {len(written)} left")
            assert settled.receipted

    with a_service_place(tmp_path / "place") as place:
        asyncio.run(scenario(Storm(place)))
