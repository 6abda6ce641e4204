"""One consumer of a connection, between its session and the dispatch of its subscription."""

from collections.abc import Sequence
from typing import Protocol

from msgspec import Struct

from loghub_service.dispatch.driver import Dispatch
from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.delivery import Outgoing
from loghub_service.pulsar.broker.dispatch_entries import DispatchEntries
from loghub_service.pulsar.records.entries import EntryToSend
from loghub_service.pulsar.wire.consumers import (
    CommandActiveConsumerChange,
    CommandCloseConsumer,
    CommandSubscribe,
)
from loghub_service.subscription.events import DeliveredRun, Delivery


class ConsumerSession(Protocol):
    """The session of its connection."""

    broker: PulsarBroker
    consumers: "dict[int, PulsarConsumer]"

    def send(self, command: Struct) -> None: ...

    def deliver(self, outgoing: Outgoing) -> None: ...

    async def is_alive(self) -> bool: ...


class PulsarConsumer:
    """One consumer of a connection (`loghub_service.dispatch.ports.Receiver`)."""

    endpoint = "pulsar"

    def __init__(
        self,
        session: ConsumerSession,
        command: CommandSubscribe,
        *,
        dispatch: Dispatch,
        entries: DispatchEntries,
        shard: int,
    ) -> None:
        self.session = session
        self.number = next(session.broker.numbers)
        self.consumer_id = command.consumer_id
        self.name = command.consumer_name or f"loghub-{self.number}"
        self.dispatch = dispatch
        self.entries = entries
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
        return await self.entries.entries_of(self.partition, ordinal)

    def leave_out(self, runs: Sequence[DeliveredRun], entries: Sequence[EntryToSend]) -> int:
        left_out = self.entries.leave_out(self.number, self.partition, runs, entries)
        self.give_back(left_out)
        return left_out

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

    async def is_alive(self) -> bool:
        return await self.session.is_alive()

    def cannot_read(self, shard: int) -> None:
        """Does nothing, because Pulsar has no command that reports damaged data."""

    def active_changed(self, shard: int, *, is_active: bool) -> None:  # noqa: ARG002 - it has one shard
        if not is_active:  # what was dealt to the consumer and is not sent goes to the active one
            self.turns += 1
        self.tell(CommandActiveConsumerChange(consumer_id=self.consumer_id, is_active=is_active))

    def tell(self, command: Struct) -> None:
        """Send a command, once the client knows that it has subscribed."""
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
        self.session.send(CommandCloseConsumer(consumer_id=self.consumer_id, request_id=0))

    def close(self) -> None:
        """The client is done with it, or gone."""
        self.is_open = False
        self.session.consumers.pop(self.consumer_id, None)
        self.dispatch.leave(self)
        if not any(other.endpoint == self.endpoint for other in self.dispatch.consumers.values()):
            self.dispatch.preparation = None
