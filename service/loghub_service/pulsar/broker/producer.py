"""One producer of a connection, and the producers of all connections by the partition that they address."""

import asyncio
from collections.abc import Iterator
from typing import Protocol

from msgspec import Struct

from loghub_service.append_series import AppendSeries
from loghub_service.pulsar.broker.call import PulsarBroker
from loghub_service.pulsar.broker.producer_access import PartitionProducers
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.broker.store import PulsarTopic
from loghub_service.pulsar.sequences import NamedProducer
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.producers import (
    CommandCloseProducer,
    CommandProducer,
    CommandProducerSuccess,
    ProducerAccessMode,
)
from loghub_service.pulsar.wire.session import NO_REQUEST, CommandError

_NONE_STORED = -1  # Pulsar's sequence ids begin at 0


class ProducerSession(Protocol):
    """The session of its connection."""

    broker: PulsarBroker
    producers: "dict[int, PulsarProducer]"
    topic_producers: "TopicProducers"

    def send(self, command: Struct) -> None: ...

    def refuse(self, command: Struct, error: RefusedCommand) -> None: ...


class PulsarProducer:
    """One producer of a connection, at one partition."""

    def __init__(
        self,
        session: ProducerSession,
        command: CommandProducer,
        topic: PulsarTopic,
        shard: int,
        key: NamedProducer,
    ) -> None:
        self.session = session
        self.producer_id = command.producer_id
        self.request_id = command.request_id
        self.topic = topic
        self.shard = shard
        self.key = key
        self.name = key.name
        self.is_named = bool(command.producer_name) and command.user_provided_producer_name
        self.epoch = command.epoch
        self.mode = command.producer_access_mode
        self.topic_epoch = command.topic_epoch
        self.schema_version = b""
        self.is_open = True
        self.is_ready = False
        self.has_failed = False  # a message of it was refused
        self.series: AppendSeries | None = None  # from its first message on
        self.turns = AnswerTurns()

    @property
    def place(self) -> tuple[int, int]:
        """The partition that the producer addresses, which is one place under every name of the topic."""
        return self.key.topic, self.shard

    @property
    def may_store(self) -> bool:
        """Whether it is the turn of the producer's messages, and none of them was refused."""
        return self.is_open and self.is_ready and not self.has_failed

    def begin(self, epoch_saved: "asyncio.Future[object] | None") -> None:
        """Let the producer send from now on; the client is answered once its topic epoch is durable."""
        self.is_ready = True
        if epoch_saved is None:
            self._say_ready()
        else:
            epoch_saved.add_done_callback(lambda _: self._say_ready())

    def _say_ready(self) -> None:
        if self.is_open:
            self.session.send(self.success())

    def success(self) -> CommandProducerSuccess:
        last = self.session.broker.sequences.last_stored(self.key) if self.is_named else None
        is_only = self.mode is not ProducerAccessMode.SHARED and self.is_ready
        return CommandProducerSuccess(
            request_id=self.request_id,
            producer_name=self.name,
            last_sequence_id=_NONE_STORED if last is None else last,
            schema_version=self.schema_version,
            topic_epoch=self.topic.producer_epoch(self.shard) if is_only else None,
            producer_ready=self.is_ready,
        )

    def end(self) -> None:
        """Let the producer send nothing any more."""
        self.is_open = False
        if self.session.producers.get(self.producer_id) is self:
            del self.session.producers[self.producer_id]

    def fence(self) -> None:
        """Another producer has taken over: the client connects this one again, and gets the reason then."""
        self.end()
        self.say_closed()

    def say_closed(self) -> None:
        """Tell the client that the producer is closed: it connects the producer again."""
        self.session.send(CommandCloseProducer(producer_id=self.producer_id, request_id=NO_REQUEST))

    def refuse(self) -> None:
        """Refuse a producer that has waited."""
        self.end()
        self.session.send(
            CommandError(
                request_id=self.request_id,
                error=ServerError.PRODUCER_FENCED,
                message="another producer has fenced out all others",
            )
        )

    def close(self) -> None:
        """The client is done with it, or gone."""
        if not self.is_open:
            return
        self.end()
        self.session.topic_producers.leave(self)


class AnswerTurns:
    """The order of the answers of one producer."""

    def __init__(self) -> None:
        self._last: asyncio.Future[None] | None = None

    def next(self) -> tuple["asyncio.Future[None] | None", "asyncio.Future[None]"]:
        """What an answer waits for, and what is done when it is given."""
        previous, mine = self._last, asyncio.get_running_loop().create_future()
        self._last = mine
        return previous, mine

    async def all_given(self) -> None:
        if self._last is not None:
            await asyncio.shield(self._last)


class TopicProducers:
    """All producers of a broker, by topic and the partition that they address. A name belongs to one of them
    under each name of the topic, and the access modes hold over all of these."""

    def __init__(self) -> None:
        self._places: dict[tuple[int, int], PartitionProducers[PulsarProducer]] = {}

    def __iter__(self) -> Iterator[PulsarProducer]:
        for producers in self._places.values():
            yield from producers

    def join(self, producer: PulsarProducer) -> "asyncio.Future[object] | None":
        """Add a producer to its partition. Done when its topic epoch is durable, if it got one. Raises
        RefusedCommand."""
        producers = self._places.get(producer.place)
        if producers is None:
            producers = PartitionProducers(producer.topic.producer_epoch(producer.shard))
        joined = producers.join(producer)
        self._places[producer.place] = producers
        producer.session.producers[producer.producer_id] = producer
        if joined.replaced is not None:
            joined.replaced.end()
        for fenced in joined.fenced:
            fenced.fence()
        for refused in joined.refused:
            refused.refuse()
        producer.is_ready = joined.is_ready
        return _save_epoch(producer, producers)

    def leave(self, producer: PulsarProducer) -> None:
        """Remove a producer. A producer that has waited for this may begin."""
        producers = self._places[producer.place]
        promoted = producers.leave(producer)
        if promoted is not None:
            promoted.begin(_save_epoch(promoted, producers))
        if not any(producers):
            del self._places[producer.place]


def _save_epoch(
    producer: PulsarProducer, producers: PartitionProducers[PulsarProducer]
) -> "asyncio.Future[object] | None":
    epoch, topic, partition = producers.topic_epoch, producer.topic, producer.shard
    if epoch is None or epoch == topic.producer_epoch(partition):
        return None
    return topic.save_producer_epoch(partition, epoch)
