"""Exchanges that are repeated, late, or after an error: no log is sent without need or kept back, and no
acknowledgment counts for a log that its consumer has not seen."""

import asyncio
from pathlib import Path
from typing import Any

import pytest

from loghub.domain.subscription import SubscriptionType
from loghub.wire.subscriptions import Nack
from loghub_service.api import exchange
from loghub_service.dispatch import driver
from loghub_service.dispatch.ports import Unreadable
from loghub_service.settings import Limits
from loghub_service.storage.segment import LogDamaged
from loghub_service.subscribed_logs import SubscribedLogstore
from tests.loghub_service.exchanges import SubscribedConsumer, by_shard, create, put, status_of
from tests.loghub_service.inprocess import InProcess
from tests.loghub_service.rawclient import group_of
from tests.loghub_service.test_budgets import settle
from tests.loghub_service.test_exchange import ALL, GUARD_S, KEYED, SHARED, pass_time, run

NOT_ORDERED = pytest.mark.parametrize("kind", [SHARED, KEYED])
FEW_BYTES = 1  # only one log group fits, so that what else was dealt waits for the next answer


async def with_logs_that_did_not_fit(service: InProcess, kind: SubscriptionType) -> SubscribedConsumer:
    """It got one log, and was dealt two others."""
    await create(service, kind)
    for line in ("a", "b", "c"):
        await put(service, line)
    one = SubscribedConsumer(service, "one", kind)
    await one.exchange()
    while (await status_of(service)).unacked_logs != 3:
        one.number += 1
        await one.exchange(number=one.number, max_logs=10, max_bytes=FEW_BYTES, wait_s=60.0)
        assert one.last is not None
        if one.take(one.last):
            break
    await settle()
    assert one.lines == ["a"]
    return one


@ALL
def test_a_receive_that_is_repeated_while_its_answer_is_being_read_gets_the_same_logs(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        one = await with_logs_that_did_not_fit(service, kind)
        pulling = service.engine.pulling
        service.engine.pulling = asyncio.Semaphore(0)  # nothing can be read
        wanted = {"number": one.number + 1, "max_logs": 10, "max_bytes": 1 << 20, "wait_s": 60.0}
        lost = one.begin(**wanted)
        await settle()
        lost.arriving.put_nowait(None)  # its connection is cut
        repeated = one.begin(**wanted)
        await settle()
        reading, service.engine.pulling = service.engine.pulling, pulling
        for _ in range(2):
            reading.release()
        await put(service, "d")
        got = one.take(await one.answer(repeated))
        assert got == ["b", "c"]
        one.number += 1
        assert await one.receive() == ["d"]
        assert len((await status_of(service)).consumers) == 1

    run(tmp_path, scenario)


@NOT_ORDERED
def test_what_was_acknowledged_elsewhere_meanwhile_is_not_in_the_next_answer(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        await create(service, kind)
        for line in ("a", "b", "c"):
            await put(service, line)
        early = SubscribedConsumer(service, "early", kind, lease_s=5.0)
        while len(early.lines) < 3:
            await early.receive()
        pass_time(service, 6)  # its logs go to the next one
        one = SubscribedConsumer(service, "one", kind)
        first = await one.receive(max_bytes=FEW_BYTES)
        rest = set(early.got) - set(one.got)
        assert (first, len(rest)) == (["a"], 2)
        done, left = sorted(rest)
        assert await early.code(acks=by_shard([done])) == "SubscriptionFenced"
        await one.receive()
        assert set(one.got) == set(early.got) - {done}
        assert left in one.got

    run(tmp_path, scenario)


@NOT_ORDERED
def test_a_negative_acknowledgment_that_is_repeated_is_counted_once(
    tmp_path: Path, kind: SubscriptionType
) -> None:
    async def scenario(service: InProcess) -> None:
        one = await with_logs_that_did_not_fit(service, kind)
        await one.receive()
        ((shard, position), *_) = sorted(one.got)
        one.number += 1
        wanted = {"number": one.number, "max_logs": 10, "max_bytes": 1 << 20, "wait_s": 60.0}
        wanted["settlement"] = 1
        nack = Nack(shard=shard, runs=((position, position + 1),))
        lost = await one.exchange(nacks=(nack,), **wanted)
        again = one.take(await one.exchange(nacks=(nack,), **wanted))
        assert (len(lost.groups), again) == (1, ["a"])
        assert one.got[shard, position] == 1
        await one.ack_all()
        assert (await status_of(service)).redelivered_logs == 1

    run(tmp_path, scenario)


@NOT_ORDERED
@pytest.mark.parametrize("how", ["alone", "with an acknowledgment", "in a receive that is being answered"])
def test_a_call_that_is_repeated_refuses_its_logs_once_however_it_is_made(
    tmp_path: Path, kind: SubscriptionType, how: str
) -> None:
    async def scenario(service: InProcess) -> None:
        await create(service, kind)
        await put(service, "a", "b")
        one = SubscribedConsumer(service, "one", kind)
        await one.receive()
        (first, second) = sorted(one.got)
        refused = Nack(shard=first[0], runs=((first[1], first[1] + 1),))
        call: dict[str, Any] = {"nacks": (refused,), "settlement": 7}
        if how == "with an acknowledgment":
            call["acks"] = by_shard([second])
        if how == "in a receive that is being answered":
            call |= {"number": one.number + 1, "max_logs": 10, "max_bytes": 1 << 20, "wait_s": 60.0}
        lost = one.begin(**call)
        if how == "in a receive that is being answered":
            one.number += 1
        else:
            await one.answer(lost)
            await one.receive()  # the log comes again, and then the call as well
        one.take(await one.exchange(**call))
        await one.receive(wait_s=0.0)
        assert one.got[first] == 1
        await one.exchange(nacks=(refused,), settlement=8)
        await one.receive()
        assert one.got[first] == 2  # another call counts

    run(tmp_path, scenario)


@ALL
def test_after_an_error_of_the_service_consumers_that_join_again_get_what_arrives(
    tmp_path: Path, kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def scenario(service: InProcess) -> None:
        await create(service, kind)
        one = SubscribedConsumer(service, "one", kind)
        await one.exchange()
        waits = one.begin(number=1, max_logs=5, wait_s=60.0)
        await settle()
        with monkeypatch.context() as broken:
            broken.setattr(SubscribedLogstore, "shard", fail)
            await put(service, "a")
            await settle()
        reply = await waits.reply()
        assert reply is not None
        assert reply.code == "SubscriptionFenced"
        assert service.engine.dispatches.counts.failed == 1
        one.session, one.number = "", 0
        assert await one.receive(max_bytes=1 << 20) == ["a"]
        service.engine.dispatches.look()  # the next look finds no change of the shards
        next_one = one.begin(number=2, max_logs=5, max_bytes=1 << 20, wait_s=60.0)
        await settle()
        await put(service, "b")
        assert one.take(await one.answer(next_one)) == ["b"]

    run(tmp_path, scenario)


@ALL
def test_a_consumer_that_waits_learns_what_cannot_be_read_and_gets_the_logs_of_other_shards(
    tmp_path: Path, kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    reads, is_damaged = SubscribedLogstore.read, True

    async def read(logs: SubscribedLogstore, shard: int, *args: Any, **named: Any) -> Any:
        if shard == 0 and is_damaged:
            raise Unreadable("the bytes have another checksum")
        return await reads(logs, shard, *args, **named)

    monkeypatch.setattr(SubscribedLogstore, "read", read)
    monkeypatch.setattr(driver, "DAMAGE_WAIT_S", 0.01)

    async def scenario(service: InProcess) -> None:
        nonlocal is_damaged
        await service.ok("DELETE", "/logstores/access")
        await service.ok("POST", "/logstores", body=b'{"logstoreName":"access","shardCount":2}')
        await create(service, kind)
        one = SubscribedConsumer(service, "one", kind)
        assert (await one.exchange()).unreadable == {}
        wanted = {"max_logs": 10, "max_bytes": 1 << 20, "wait_s": 2 * GUARD_S}
        waits = one.begin(number=1, **wanted)
        await settle()
        await append(service, 0, "a")
        answer = await one.answer(waits)
        assert (answer.groups, answer.unreadable) == ((), {0: "the bytes have another checksum"})
        waits = one.begin(number=2, **wanted)
        await settle()
        assert len(service.engine.polls) == 1  # the damage is reported once
        await append(service, 1, "b")
        assert one.take(await one.answer(waits)) == ["b"]
        assert one.last is not None
        assert one.last.unreadable == answer.unreadable
        is_damaged = False
        one.number = 2
        assert await one.receive() == ["a"]
        assert one.last.unreadable == {}
        await one.ack_all(leave=True)

    run(tmp_path, scenario, limits=Limits(poll_s=2 * int(GUARD_S)))


@ALL
def test_what_turns_out_to_be_damaged_when_it_is_sent_waits_and_the_logs_of_other_shards_come(
    tmp_path: Path, kind: SubscriptionType, monkeypatch: pytest.MonkeyPatch
) -> None:
    groups, is_damaged = exchange._group, False

    def group(log: Any, shard: int, *args: Any, **named: Any) -> Any:
        if shard == 0 and is_damaged:
            raise LogDamaged("the bytes have another checksum")
        return groups(log, shard, *args, **named)

    monkeypatch.setattr(exchange, "_group", group)

    async def scenario(service: InProcess) -> None:
        nonlocal is_damaged
        await service.ok("DELETE", "/logstores/access")
        await service.ok("POST", "/logstores", body=b'{"logstoreName":"access","shardCount":2}')
        await create(service, kind)
        one = SubscribedConsumer(service, "one", kind)
        await one.exchange()
        await append(service, 0, "a")
        is_damaged = True
        assert await one.receive() == []
        assert one.last is not None
        assert one.last.unreadable == {0: "the bytes have another checksum"}
        one.number += 1
        waits = one.begin(number=one.number, max_logs=10, max_bytes=1 << 20, wait_s=GUARD_S)
        await settle()
        assert len(service.engine.polls) == 1  # it is not tried again at once
        await append(service, 1, "b")
        assert one.take(await one.answer(waits)) == ["b"]
        assert one.last.unreadable == {0: "the bytes have another checksum"}
        is_damaged = False
        pass_time(service, driver.DAMAGE_WAIT_S)
        await append(service, 0, "c")
        while len(one.lines) < 3:
            await one.receive()
        assert one.lines == ["b", "a", "c"]
        assert one.last.unreadable == {}
        await one.ack_all(leave=True)

    run(tmp_path, scenario, limits=Limits(poll_s=2 * int(GUARD_S)))


async def append(service: InProcess, shard: int, line: str) -> None:
    (store,) = service.engine.catalog.logstores_by_id
    await service.engine.append(service.engine.logs[store, shard], group_of(line), logs=1)


def fail(*_: object) -> None:
    raise RuntimeError("an error of the service")
