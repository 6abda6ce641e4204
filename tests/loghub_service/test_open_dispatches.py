"""A request that works with a subscription for a while, next to everything that ends the work of others: all
consumers may leave meanwhile, other requests may be done with it, and other consumers may join."""

import asyncio
import threading
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import SkippedLogs, SubscriptionSkip
from loghub_service.api import subscriptions
from loghub_service.engine import Engine
from loghub_service.kafka.shard_bounds import logs_between
from tests.loghub_service.exchanges import SUBSCRIPTION, SubscribedConsumer, put, status_of, subscribed
from tests.loghub_service.inprocess import Exchange, InProcess, in_process
from tests.loghub_service.test_budgets import settle

GUARD_S = 120.0  # against a hang
KEYED, FAILOVER = SubscriptionType.KEY_SHARED, SubscriptionType.FAILOVER
EXCLUSIVE = SubscriptionType.EXCLUSIVE


class Reads:
    """All turns to read logs, so that a request waits where it reads."""

    def __init__(self, engine: Engine) -> None:
        self._turns, self._taken = engine.pulling, 0

    async def stop(self) -> None:
        while not self._turns.locked():
            await self._turns.acquire()
            self._taken += 1

    def go_on(self) -> None:
        for _ in range(self._taken):
            self._turns.release()


def skip(service: InProcess, logs: int | None) -> Exchange:
    body = msgspec.json.encode(SubscriptionSkip(shard=0, logs=logs))
    return service.begin("POST", f"{SUBSCRIPTION}/skip", body=body)


async def another_request(service: InProcess, _kind: SubscriptionType) -> None:
    await status_of(service)


async def another_consumer(service: InProcess, kind: SubscriptionType) -> None:
    other = SubscribedConsumer(service, "other", kind)
    await other.exchange()
    await other.exchange(leave=True)


@pytest.mark.parametrize("meanwhile", [another_request, another_consumer])
@pytest.mark.parametrize("kind", [EXCLUSIVE, FAILOVER, KEYED])
def test_what_a_skip_sets_free_reaches_a_consumer_that_joined_while_it_read(
    tmp_path: Path,
    kind: SubscriptionType,
    meanwhile: Callable[[InProcess, SubscriptionType], Awaitable[None]],
) -> None:
    """The children of a split wait for what is skipped."""

    async def main() -> None:
        async with in_process(tmp_path / "data") as service, asyncio.timeout(GUARD_S):
            await subscribed(service, kind, "a", "b")
            await service.ok("POST", "/logstores/access/shards/0", {"action": "split", "key": "8" + "0" * 31})
            await put(service, "c")
            reads = Reads(service.engine)
            await reads.stop()
            skipping = skip(service, 2)
            await settle()
            await meanwhile(service, kind)
            one = SubscribedConsumer(service, "one", kind)
            await one.exchange()
            receiving = asyncio.create_task(one.receive())
            await settle()
            reads.go_on()
            reply = await skipping.reply()
            assert reply is not None
            assert msgspec.json.decode(reply.body, type=SkippedLogs).skipped == 2
            received = await receiving
            while received != ["c"]:  # it got what was read for it before the skip had read that
                assert set(received) <= {"a", "b"}
                received = await one.receive()

    asyncio.run(main())


@pytest.mark.parametrize("kind", [FAILOVER, SubscriptionType.SHARED])
def test_what_arrives_or_is_acknowledged_while_all_is_skipped_is_not_counted(
    tmp_path: Path, kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    begun, go_on = threading.Event(), threading.Event()

    def counts_slowly(*given: Any, **named: Any) -> int | None:
        begun.set()
        assert go_on.wait(GUARD_S)
        return logs_between(*given, **named)

    monkeypatch.setattr(subscriptions, "logs_between", counts_slowly)

    async def main() -> None:
        async with in_process(tmp_path / "data") as service, asyncio.timeout(GUARD_S):
            one = await subscribed(service, kind, "a", "b", "c")
            await put(service, "d", "e")
            while len(one.lines) < 5:
                await one.receive(max_logs=4)
            skipping = skip(service, None)
            await asyncio.to_thread(begun.wait, GUARD_S)
            await one.ack(min(one.got))
            await put(service, "f", "g")
            go_on.set()
            reply = await skipping.reply()
            assert reply is not None
            assert msgspec.json.decode(reply.body, type=SkippedLogs).skipped == 4
            status = await status_of(service)
            assert (status.backlog_logs, status.acknowledged_logs) == (2, 1)
            assert await one.receive() == ["f", "g"]

    asyncio.run(main())
