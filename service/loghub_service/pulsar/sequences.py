"""What producers with a name have stored, by their sequence ids: a message that is sent again is not stored
again.

A producer numbers its messages at each partition that it addresses, in ascending order and with gaps as it
likes. So the highest number tells which messages were sent before, since none is stored behind one that was
refused (`AppendSeries`): the client sends all of them again, also in other batches than before. All chunks of
a message have its sequence id, and differ by their own number.

`changed` returns what the caller persists, and `restore` takes it back, together with what was stored
afterwards (`LaterSequences`). All of this is bounded by the number of producers that are remembered.
"""

import asyncio
from collections import OrderedDict
from collections.abc import Iterable
from dataclasses import dataclass, field
from typing import NamedTuple

from loghub_service.append_series import AppendSeries
from loghub_service.pulsar.origin import PulsarOrigin

# As the chunk of a whole message, and of the last chunk: the message is complete with it.
COMPLETE = (1 << 31) - 1


class NamedProducer(NamedTuple):
    """A producer at the partition that it addresses (`PulsarOrigin.partition`) of a logstore."""

    topic: int
    partition: int
    name: str


class MessageNumber(NamedTuple):
    """The sequence id of a message, or the last one of a batch, and which chunk it is. In the order in which
    a producer sends them."""

    sequence: int
    chunk: int = COMPLETE


class SavedSequence(NamedTuple):
    """The last message that a producer has stored."""

    producer: NamedProducer
    number: MessageNumber


def number_of(origin: PulsarOrigin) -> MessageNumber:
    """The number of what a SEND carries."""
    chunk = origin.chunk
    if chunk is None or chunk.number == chunk.count - 1:
        return MessageNumber(origin.highest)
    return MessageNumber(origin.highest, chunk.number)


@dataclass(slots=True)
class _Sent:
    """``stored`` is the last number that is durable, ``pushed`` the last one that was appended, which belongs
    to ``series``."""

    stored: MessageNumber | None = None
    pushed: MessageNumber | None = None
    waiting: "dict[MessageNumber, asyncio.Future[int | None]]" = field(default_factory=dict)
    series: AppendSeries = field(default_factory=AppendSeries)


class Sequences:
    """At most ``maximum`` producers; the one unused for longest is forgotten first, unless something of it is
    on its way. Used on the event loop only."""

    def __init__(self, maximum: int) -> None:
        self._max = maximum
        self._known: OrderedDict[NamedProducer, _Sent] = OrderedDict()
        self._changed: dict[NamedProducer, None] = {}  # in order
        self._saved: set[NamedProducer] = set()  # what the caller has persisted

    def __len__(self) -> int:
        return len(self._known)

    def last_stored(self, producer: NamedProducer) -> int | None:
        """The highest sequence id that is durable; None if none is known."""
        known = self._known.get(producer)
        return None if known is None or known.stored is None else known.stored.sequence

    def series_of(self, producer: NamedProducer) -> AppendSeries:
        """The series of a new connection of the producer: the present one while something of it is on its
        way, and may still be refused."""
        known = self._known.get(producer)
        return AppendSeries() if known is None or not known.waiting else known.series

    def repeated(self, producer: NamedProducer, number: MessageNumber) -> "asyncio.Future[int | None] | None":
        """Done once the message is durable, if it was sent before: with the ordinal of its log group, or with
        None if that is not known any more. None if the message is new, or was not stored."""
        known = self._known.get(producer)
        if known is None or known.pushed is None or number > known.pushed:
            return None
        # Its batch may have had another end, as a client puts together what it sends again.
        later = [sent for sent in known.waiting if sent >= number]
        if later and (known.stored is None or number > known.stored):
            return known.waiting[min(later)]
        done: asyncio.Future[int | None] = asyncio.get_running_loop().create_future()
        done.set_result(None)
        return done

    def sent(
        self,
        producer: NamedProducer,
        number: MessageNumber,
        stored: "asyncio.Future[int | None]",
        series: AppendSeries,
    ) -> None:
        """A message was appended that `repeated` did not know; if it is not stored, it may come again."""
        known = self._known.setdefault(producer, _Sent())
        before, known.pushed = known.pushed, number
        known.waiting[number] = stored
        known.series = series
        self._known.move_to_end(producer)
        self._forget_oldest()
        stored.add_done_callback(lambda done: self._settled(producer, number, before, done))

    def _settled(
        self,
        producer: NamedProducer,
        number: MessageNumber,
        before: MessageNumber | None,
        done: "asyncio.Future[int | None]",
    ) -> None:
        known = self._known.get(producer)
        if known is None or known.waiting.get(number) is not done:
            return
        del known.waiting[number]
        if done.cancelled() or done.exception() is not None:
            # Whatever was appended after it is about to be refused, too.
            if known.pushed is not None and (before is None or before < known.pushed):
                known.pushed = before
            return
        known.stored = number if known.stored is None else max(known.stored, number)
        self._changed[producer] = None

    def _forget_oldest(self) -> None:
        while len(self._known) > self._max:
            idle = next((producer for producer, sent in self._known.items() if not sent.waiting), None)
            if idle is None:
                return
            del self._known[idle]
            self._changed.pop(idle, None)
            if idle in self._saved:
                self._changed[idle] = None

    # What is persisted

    @property
    def has_changed(self) -> bool:
        return bool(self._changed)

    async def settled(self, within_s: float) -> bool:
        """Wait until the messages that are on their way now are stored, or not; whether they are."""
        waiting = [future for known in self._known.values() for future in known.waiting.values()]
        if not waiting:
            return True
        _, left = await asyncio.wait(waiting, timeout=within_s)
        return not left

    def changed(self) -> tuple[tuple[SavedSequence, ...], tuple[NamedProducer, ...]]:
        """The producers that have stored a message, and those that were forgotten, since the last call."""
        changed, self._changed = self._changed, {}
        saved = [
            SavedSequence(producer, known.stored)
            for producer in changed
            if (known := self._known.get(producer)) is not None and known.stored is not None
        ]
        forgotten = tuple(producer for producer in changed if producer not in self._known)
        self._saved.update(each.producer for each in saved)
        self._saved.difference_update(forgotten)
        return tuple(saved), forgotten

    def restore(self, saved: Iterable[SavedSequence], later: Iterable[SavedSequence]) -> None:
        """Take back what was persisted, the one unused for longest first; ``later`` is what the logs have
        besides, also in this order."""
        for producer, number in saved:
            self._known[producer] = _Sent(number, number)
            self._saved.add(producer)
        for producer, number in later:
            known = self._known.setdefault(producer, _Sent())
            known.stored = known.pushed = number if known.stored is None else max(known.stored, number)
            self._known.move_to_end(producer)
            self._changed[producer] = None
        self._forget_oldest()


class LaterSequences:
    """The last messages that the logs have besides what was saved, of at most ``maximum`` producers: those
    unused for longest are forgotten first."""

    def __init__(self, maximum: int) -> None:
        self._max = maximum
        self._found: dict[NamedProducer, tuple[int, MessageNumber]] = {}  # with the time of the newest

    def add(self, producer: NamedProducer, number: MessageNumber, at: int) -> None:
        """The next message of a log, with the time of its arrival. Logs are read one after the other."""
        used, last = self._found.get(producer, (at, number))
        self._found[producer] = max(used, at), max(last, number)
        if len(self._found) > 2 * self._max:  # sorted now and then only
            self._found = dict(self._newest())

    def _newest(self) -> list[tuple[NamedProducer, tuple[int, MessageNumber]]]:
        return sorted(self._found.items(), key=lambda item: item[1][0])[-self._max :]

    def result(self) -> tuple[SavedSequence, ...]:
        """For `Sequences.restore`, the one unused for longest first."""
        return tuple(SavedSequence(producer, number) for producer, (_, number) in self._newest())
