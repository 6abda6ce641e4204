"""Consumers of a subscription over HTTP, as requests to the application in this process."""

from collections.abc import Mapping
from typing import Any

import msgspec

from loghub.domain.log_position import position_of
from loghub.domain.subscription import SubscriptionType
from loghub.wire.loggroup import decode, split
from loghub.wire.subscriptions import Exchange, Exchanged, SubscriptionSpec, SubscriptionStatus
from tests.loghub_service import inprocess
from tests.loghub_service.inprocess import InProcess
from tests.loghub_service.rawclient import group_of
from tests.loghub_service.test_budgets import LB, PROTOBUF

SUBSCRIPTIONS = "/_loghub/v1/logstores/access/subscriptions"
SUBSCRIPTION = f"{SUBSCRIPTIONS}/s"
Place = tuple[int, int]  # a shard and a position


async def put(service: InProcess, *lines: str) -> None:
    await service.ok("POST", LB, body=group_of(*lines), headers=PROTOBUF)


async def create(service: InProcess, kind: str, name: str = "s", **spec: Any) -> None:
    body = msgspec.json.encode(SubscriptionSpec(type=kind, **spec))  # type: ignore[arg-type]
    await service.ok("PUT", f"{SUBSCRIPTIONS}/{name}", body=body)


async def status_of(service: InProcess, name: str = "s") -> SubscriptionStatus:
    answer = await service.ok("GET", f"{SUBSCRIPTIONS}/{name}")
    return msgspec.json.decode(answer.body, type=SubscriptionStatus)


class SubscribedConsumer:
    """``got`` has all logs that it was sent, by place, with the number of redeliveries; ``lines`` in
    order."""

    def __init__(self, service: InProcess, name: str, kind: str, **join: Any) -> None:
        self.service, self.name, self.kind, self.join = service, name, kind, join
        self.session = ""
        self.number = 0
        self.got: dict[Place, int] = {}
        self.lines: list[str] = []
        self.last: Exchanged | None = None

    def begin(self, **fields: Any) -> inprocess.Exchange:
        """Send an exchange; the first one joins."""
        more = {} if self.session else self.join
        wanted = Exchange(
            consumer=self.name,
            type=self.kind,  # type: ignore[arg-type]
            session=self.session,
            **(more | fields),
        )
        body = msgspec.msgpack.encode(wanted)
        return self.service.begin("POST", f"{SUBSCRIPTION}/exchange", body=body)

    async def answer(self, sent: inprocess.Exchange) -> Exchanged:
        reply = await sent.reply()
        assert reply is not None
        assert reply.status == 200, reply
        self.last = msgspec.msgpack.decode(reply.body, type=Exchanged)
        self.session = self.last.session
        return self.last

    async def exchange(self, **fields: Any) -> Exchanged:
        return await self.answer(self.begin(**fields))

    async def code(self, **fields: Any) -> str:
        """That the exchange is refused with."""
        reply = await self.begin(**fields).reply()
        assert reply is not None
        assert reply.status != 200, reply
        return str(reply.code)

    async def receive(self, max_logs: int = 100, *, repeat: bool = False, **fields: Any) -> list[str]:
        """The lines of the next answer, which is awaited for a while."""
        self.number += not repeat
        wanted = {"max_logs": max_logs, "max_bytes": 1 << 20, "wait_s": 60.0, "number": self.number}
        return self.take(await self.exchange(**(wanted | fields)))

    def take(self, answer: Exchanged) -> list[str]:
        lines = []
        for group in answer.groups:
            assert group.body is not None
            (decoded,) = map(decode, split(group.body.unpacked(max_size=1 << 24)))
            indexes = range(len(decoded.logs)) if group.indexes is None else group.indexes
            counts = group.redeliveries or (0,) * len(indexes)
            for index, count in zip(indexes, counts, strict=True):
                self.got[group.shard, position_of(group.ordinal, index)] = count
                ((_, line),) = decoded.logs[index].contents
                lines.append(line if isinstance(line, str) else line.decode())
        self.lines += lines
        return lines

    async def ack(self, *places: Place, **fields: Any) -> Exchanged:
        return await self.exchange(acks=by_shard(places), **fields)

    async def ack_all(self, **fields: Any) -> Exchanged:
        return await self.ack(*self.got, **fields)


async def subscribed(
    service: InProcess, kind: SubscriptionType, *lines: str, name: str = "one", **join: Any
) -> SubscribedConsumer:
    """A consumer of a new subscription, whose logstore has these lines in one log group."""
    await create(service, kind)
    if lines:
        await put(service, *lines)
    return SubscribedConsumer(service, name, kind, **join)


def by_shard(places: Any) -> Mapping[int, tuple[tuple[int, int], ...]]:
    runs: dict[int, tuple[tuple[int, int], ...]] = {}
    for shard, position in places:
        runs[shard] = (*runs.get(shard, ()), (position, position + 1))
    return runs
