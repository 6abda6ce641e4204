"""One consumer of a connection, between its session and the dispatch of its subscription."""

from typing import Protocol

from msgspec import Struct

from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.delivery import Outgoing
from loghub_service.pulsar.broker.dispatch import Dispatch, Receiver, closing
from loghub_service.pulsar.records.entries import EntryToSend
from loghub_service.pulsar.wire.consumers import CommandSubscribe
from loghub_service.subscription.events import Delivery


class ConsumerSession(Protocol):
    """The session of its connection."""

    broker: PulsarBroker
    consumers: "dict[int, PulsarConsumer]"

    def send(self, command: Struct) -> None: ...

    def deliver(self, outgoing: Outgoing) -> None: ...

    async def is_alive(self) -> bool: ...


class PulsarConsumer(Receiver):
    """One consumer of a connection."""

    def __init__(self, session: ConsumerSession, command: CommandSubscribe, dispatch: Dispatch, shard: int):
        self.session = session
        self.number = next(session.broker.numbers)
        self.consumer_id = command.consumer_id
        self.name = command.consumer_name or f"loghub-{self.number}"
        self.dispatch = dispatch
        self.partition = shard
        self.epoch = command.consumer_epoch
        self.is_open = True
        self.turns = 0
        self._held: list[Struct] | None = []  # commands, until the client knows that it has subscribed

    @property
    def joined(self) -> bool:
        """Not at a shard that does not exist: nothing is ever delivered there."""
        state = self.dispatch.saved.state
        return self.number in state.consumers and self.partition in state.shards

    @property
    def is_ordered(self) -> bool:
        return self.dispatch.is_ordered

    async def entries_of(self, ordinal: int) -> tuple[EntryToSend, ...] | None:
        return await self.dispatch.entries_of(self.partition, ordinal)

    def give_back(self, logs: int) -> None:
        self.dispatch.give_back(self, logs)

    def deliver(self, delivery: Delivery) -> None:
        self.session.deliver(
            Outgoing(
                consumer=self,
                shard=delivery.shard,
                runs=delivery.runs,
                epoch=self.epoch,
                permits=delivery.permits,
                turn=self.turns,
            )
        )

    def stand_by(self) -> None:
        """What was dealt to the consumer and is not sent goes to the active one."""
        self.turns += 1

    async def is_alive(self) -> bool:
        return await self.session.is_alive()

    def tell(self, command: Struct) -> None:
        if self._held is None:
            self.session.send(command)
        else:
            self._held.append(command)

    def subscribed(self) -> None:
        held, self._held = self._held or [], None
        for command in held:
            self.session.send(command)

    def closed(self) -> None:
        self.is_open = False
        self.session.consumers.pop(self.consumer_id, None)
        self.session.send(closing(self))

    def close(self) -> None:
        """The client is done with it, or gone."""
        self.is_open = False
        self.session.consumers.pop(self.consumer_id, None)
        self.dispatch.leave(self)
