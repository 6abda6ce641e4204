"""What idempotent producers have written: a batch that is sent again gets the answer that was lost.

A producer numbers its records for each partition that it addresses. The last five batches are remembered, as
many as a producer may have in flight. The addressed partition counts, not the shard that its batches are
routed to: two addressed partitions may share a shard. A producer that is not known, since it was unused for
longest, may begin at any sequence: none of the errors that Kafka has for it leaves every client able to go on
(docs/kafka.md 4). A batch that was not stored leaves a gap: it may come again, and those behind it are out of
order until it has, so that none is taken for stored.

`changed` returns what the caller persists, and `restore` takes it back, together with the batches that were
stored afterwards (`LaterBatches`). All of this is bounded by the number of producers that are remembered,
however many have sent something.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from functools import reduce
from typing import NamedTuple

from loghub_service.kafka.wire.errors import ErrorCode

REMEMBERED_BATCHES = 5  # the maximum of `max.in.flight.requests.per.connection` of an idempotent producer
DEFAULT_MAX_PRODUCERS = 10_000  # each at one partition
_SEQUENCES = 1 << 31  # then they begin at 0 again


@dataclass(frozen=True, slots=True)
class ProducerKey:
    """A producer at the partition that it addresses; ``partition`` tells the names of one topic apart, too
    (`loghub_service.kafka.broker.call`)."""

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


class BatchOrigin(NamedTuple):
    """What is stored together with a batch: its producer, and the sequence of its first record."""

    producer_id: int
    epoch: int
    partition: int  # that the producer addressed, as in `ProducerKey`
    first: int


@dataclass(frozen=True, slots=True)
class StoredBatch:
    """A batch that is durable, and the offset of its first record."""

    sequence: Sequence
    offset: int


@dataclass(frozen=True, slots=True)
class SavedProducer:
    """The newest batches of one producer at one partition, in order."""

    key: ProducerKey
    batches: tuple[StoredBatch, ...]


@dataclass(frozen=True, slots=True)
class _Batch:
    sequence: Sequence
    stored: "asyncio.Future[int]"


@dataclass(slots=True)
class _Producer:
    """``begin`` is the sequence at which the first of the batches began, or would have."""

    epoch: int
    begin: int
    batches: list[_Batch] = field(default_factory=list)

    @property
    def expected(self) -> int:
        return self.batches[-1].sequence.next if self.batches else self.begin

    def place(self, first: int) -> int | None:
        """Where in the batches one belongs that begins with this sequence; None if it is not missing."""
        ends = (self.begin, *(batch.sequence.next for batch in self.batches))
        begins = {batch.sequence.first for batch in self.batches}
        return ends.index(first) if first in ends and first not in begins else None

    def add(self, batch: _Batch) -> None:
        """One that is not missing comes last: `Producers.restore` may not have found all before it."""
        place = self.place(batch.sequence.first)
        self.batches.insert(len(self.batches) if place is None else place, batch)
        while len(self.batches) > REMEMBERED_BATCHES:
            self.begin = self.batches.pop(0).sequence.next


class OutOfSequence(Exception):  # noqa: N818 - says what is wrong
    """The batch cannot follow what the producer has sent; ``code`` is the answer."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code


class Producers:
    """At most ``most`` producers and partitions; the one unused for longest is forgotten first. Used on the
    event loop only."""

    def __init__(self, maximum: int = DEFAULT_MAX_PRODUCERS) -> None:
        self._most = maximum
        self._known: OrderedDict[ProducerKey, _Producer] = OrderedDict()
        self._changed: dict[ProducerKey, None] = {}  # in order
        self._saved: set[ProducerKey] = set()  # what the caller has persisted
        self._waiting: set[asyncio.Future[int]] = set()

    def __len__(self) -> int:
        return len(self._known)

    def repeated(self, key: ProducerKey, sequence: Sequence) -> "asyncio.Future[int] | None":
        """The base offset of the batch, if it was sent before; None if it is the next one, or missing.

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
        if producer.place(sequence.first) is not None:
            return None
        expected = producer.expected
        if _is_before(sequence.first, expected):
            raise OutOfSequence(
                ErrorCode.DUPLICATE_SEQUENCE_NUMBER, f"sequence {sequence.first} was stored long ago"
            )
        raise OutOfSequence(
            ErrorCode.OUT_OF_ORDER_SEQUENCE_NUMBER,
            f"sequence {sequence.first} of producer {key.producer_id} came instead of {expected}",
        )

    def sent(self, key: ProducerKey, sequence: Sequence, stored: "asyncio.Future[int]") -> None:
        """A batch is on its way that `repeated` did not know; if it is not stored, it may come again."""
        self._add(key, sequence, stored)
        self._waiting.add(stored)
        stored.add_done_callback(lambda done: self._settled(key, done))

    def _add(self, key: ProducerKey, sequence: Sequence, stored: "asyncio.Future[int]") -> None:
        producer = self._known.get(key)
        if producer is None or producer.epoch != sequence.epoch:
            producer = self._known[key] = _Producer(sequence.epoch, sequence.first)
        producer.add(_Batch(sequence, stored))
        self._known.move_to_end(key)
        while len(self._known) > self._most:
            self._note_change(self._known.popitem(last=False)[0])

    def _note_change(self, key: ProducerKey) -> None:
        """There is nothing to persist of one that is forgotten before it was saved."""
        self._changed.pop(key, None)
        if key in self._known or key in self._saved:
            self._changed[key] = None

    def _settled(self, key: ProducerKey, stored: "asyncio.Future[int]") -> None:
        self._waiting.discard(stored)
        producer = self._known.get(key)
        if producer is not None and (stored.cancelled() or stored.exception() is not None):
            producer.batches = [batch for batch in producer.batches if batch.stored is not stored]
        self._note_change(key)

    # What is persisted

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    async def settled(self, within_s: float) -> bool:
        """Wait until the batches that are on their way now are stored, or not; whether they are."""
        if not self._waiting:
            return True
        _, waiting = await asyncio.wait(tuple(self._waiting), timeout=within_s)
        return not waiting

    def changed(self) -> tuple[tuple[SavedProducer, ...], tuple[ProducerKey, ...]]:
        """The producers that have stored a batch, and those that were forgotten, since the last call."""
        keys, self._changed = self._changed, {}
        stored = {key: _stored(self._known[key]) for key in keys if key in self._known}
        saved = tuple(SavedProducer(key, batches) for key, batches in stored.items() if batches)
        forgotten = tuple(key for key in keys if not stored.get(key))
        self._saved.update(one.key for one in saved)
        self._saved.difference_update(forgotten)
        return saved, forgotten

    def restore(self, saved: Iterable[SavedProducer], later: Iterable[SavedProducer]) -> None:
        """Take back what was persisted, the one unused for longest first; ``later`` is what the logs have
        besides, for each shard in its order. Both may have the same batches."""
        batches = {one.key: list(one.batches) for one in saved}
        self._saved.update(batches)
        for one in later:
            known = batches.pop(one.key, [])
            batches[one.key] = known + [batch for batch in one.batches if batch not in known]
            self._changed[one.key] = None
        loop = asyncio.get_running_loop()
        for key, found in batches.items():
            for batch in _newest(found):
                stored = loop.create_future()
                stored.set_result(batch.offset)
                self._add(key, batch.sequence, stored)


class LaterBatches:
    """The newest batches that the logs have besides what was ``saved``, of at most ``most`` producers: those
    unused for longest are forgotten first, with what was saved of them, since that is too old to go on from.
    """

    def __init__(self, saved: Iterable[SavedProducer], maximum: int) -> None:
        self._saved = {one.key: one for one in saved}
        self._most = maximum
        self._found: dict[ProducerKey, list[StoredBatch]] = {}
        self._used: dict[ProducerKey, int] = {}  # the time of the newest batch
        self._forgotten: dict[ProducerKey, None] = {}  # of the saved ones
        self._damaged: set[int] = set()

    def add(self, key: ProducerKey, batch: StoredBatch, at: int) -> None:
        """The next one of a log, with the time of its arrival. Logs are read one after the other, so only the
        time says which producers were used last, and only its sequence which batch of one came last: after
        splits and merges the newest may be in the log that is read first."""
        if key.topic in self._damaged:
            return
        found = self._found.setdefault(key, [])
        found.append(batch)
        if len(found) > 2 * REMEMBERED_BATCHES:  # sorted now and then only
            self._found[key] = _newest(found)
        self._used[key] = max(at, self._used.get(key, at))
        if len(self._found) > 2 * self._most:  # sorted now and then only
            self._forget_oldest()

    def _forget_oldest(self) -> None:
        oldest = sorted(self._found, key=lambda key: self._used[key])[: -self._most]
        for key in oldest:
            del self._found[key], self._used[key]
            self._forget(key)

    def forget(self, topic: int) -> None:
        """A log of the topic is damaged: what is known of its producers is old, and whatever they send would
        be out of order."""
        self._damaged.add(topic)
        for key in [key for key in (*self._found, *self._saved) if key.topic == topic]:
            self._found.pop(key, None)
            self._used.pop(key, None)
            self._forget(key)

    def _forget(self, key: ProducerKey) -> None:
        if self._saved.pop(key, None) is not None:
            self._forgotten[key] = None

    def result(self) -> tuple[tuple[SavedProducer, ...], tuple[SavedProducer, ...]]:
        """For `Producers.restore`: what was saved and is still of use, and what came later. Those that are
        forgotten are in the second, without batches."""
        self._forget_oldest()
        forgotten = [SavedProducer(key, ()) for key in self._forgotten if key not in self._found]
        last_used = sorted(self._found, key=lambda key: self._used[key])
        found = [SavedProducer(key, tuple(_newest(self._found[key]))) for key in last_used]
        return tuple(self._saved.values()), (*forgotten, *found)


def _stored(producer: _Producer) -> tuple[StoredBatch, ...]:
    """A batch may have failed just now: then it is about to be forgotten."""
    return tuple(
        StoredBatch(batch.sequence, batch.stored.result())
        for batch in producer.batches
        if batch.stored.done() and not batch.stored.cancelled() and batch.stored.exception() is None
    )


def _newest(batches: list[StoredBatch]) -> list[StoredBatch]:
    """The last batches of the newest epoch by their sequences: after a split, they are in several shards."""
    epoch = max((batch.sequence.epoch for batch in batches), default=0)
    found = [batch for batch in batches if batch.sequence.epoch == epoch]
    if not found:
        return []
    newest = reduce(lambda one, two: two if _is_before(one, two) else one, (b.sequence.first for b in found))
    found.sort(key=lambda batch: (newest - batch.sequence.first) % _SEQUENCES, reverse=True)
    return found[-REMEMBERED_BATCHES:]


def _is_before(sequence: int, expected: int) -> bool:
    """Whether a sequence was used before, where numbers begin again at 0."""
    return (expected - sequence) % _SEQUENCES < _SEQUENCES // 2
