"""What idempotent producers have written: a batch that is sent again gets the answer that was lost.

A producer numbers its records for each partition that it addresses. The last five batches are remembered, as
many as a producer may have in flight. The addressed partition counts, not the shard that its batches are
routed to: two addressed partitions may share a shard. Nothing here survives a restart; a producer that is not
known may therefore begin at any sequence, since none of the errors that Kafka has for it leaves every client
able to go on (docs/kafka.md 4).
"""

import asyncio
from collections import OrderedDict, deque
from dataclasses import dataclass, field

from loghub.kafka.wire.error_codes import ErrorCode

_REMEMBERED_BATCHES = 5
_SEQUENCES = 1 << 31  # then they begin at 0 again


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """A producer at the partition that it addresses."""

    producer_id: int
    topic: int
    partition: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Sequence:
    """How a batch is numbered."""

    epoch: int
    first: int
    count: int

    @property
    def next(self) -> int:
        return (self.first + self.count) % _SEQUENCES


@dataclass(frozen=True, slots=True)
class _Batch:
    sequence: Sequence
    stored: "asyncio.Future[int]"


@dataclass(slots=True)
class _Producer:
    epoch: int
    batches: deque[_Batch] = field(default_factory=lambda: deque(maxlen=_REMEMBERED_BATCHES))


class OutOfSequence(Exception):  # noqa: N818 - says what is wrong
    """The batch cannot follow what the producer has sent; ``code`` is the answer."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Producers:
    """At most ``most`` producers and partitions; the one unused for longest is forgotten first."""

    def __init__(self, most: int) -> None:
        self._most = most
        self._known: OrderedDict[ProducerKey, _Producer] = OrderedDict()

    def __len__(self) -> int:
        return len(self._known)

    def repeated(self, key: ProducerKey, sequence: Sequence) -> "asyncio.Future[int] | None":
        """The base offset of the batch, if it was sent before; None if it is the next one.

        Raises OutOfSequence.
        """
        producer = self._known.get(key)
        if producer is None or sequence.epoch > producer.epoch:
            return None
        if sequence.epoch < producer.epoch:
            raise OutOfSequence(
                ErrorCode.INVALID_PRODUCER_EPOCH,
                f"epoch {sequence.epoch} of producer {key.producer_id} is over: it has {producer.epoch}",
            )
        for batch in producer.batches:
            if batch.sequence == sequence:
                return batch.stored
        expected = producer.batches[-1].sequence.next
        if sequence.first == expected:
            return None
        if _is_before(sequence.first, expected):
            raise OutOfSequence(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER, f"sequence {sequence.first} was stored long ago"
            )
        raise OutOfSequence(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {sequence.first} of producer {key.producer_id} came instead of {expected}",
        )

    def sent(self, key: ProducerKey, sequence: Sequence, stored: "asyncio.Future[int]") -> None:
        """The next batch is on its way; if it is not stored, the producer is forgotten."""
        producer = self._known.get(key)
        if producer is None or producer.epoch != sequence.epoch:
            producer = self._known[key] = _Producer(sequence.epoch)
        producer.batches.append(_Batch(sequence, stored))
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._known.popitem(last=False)
        stored.add_done_callback(lambda done: self._settled(key, done))

    def _settled(self, key: ProducerKey, stored: "asyncio.Future[int]") -> None:
        if stored.cancelled() or stored.exception() is not None:
            self._known.pop(key, None)


def _is_before(sequence: int, expected: int) -> bool:
    """Whether a sequence was used before, where numbers begin again at 0."""
    return (expected - sequence) % _SEQUENCES < _SEQUENCES // 2
