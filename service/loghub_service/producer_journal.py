"""Makes durable what producers have sent: a batch or a message that is sent again after a crash is known.

These are the idempotent producers of Kafka and the producers of Pulsar with a name.

Each batch is stored together with its producer and its sequence (`stored_group`), so that one sync
makes both durable. A start need not read whole logs for them: every few seconds what the producers have sent
is saved to the database, with the cursors from which the next start reads the logs; sooner, if there are as
many batches as producers are remembered, so that the time of a start is bounded. A shard that no producer has
written to since the last time has no such cursor, so its next batch waits until one is durable.
"""

import asyncio
from collections.abc import Callable, Iterable, Mapping
from contextlib import suppress
from typing import NamedTuple

import structlog

from loghub_service.facts import ProducerLogMarked, ProducersSaved
from loghub_service.kafka.broker.store import offset_of
from loghub_service.kafka.producers import LaterBatches, ProducerKey, Producers, Sequence, StoredBatch
from loghub_service.pulsar.sequences import LaterSequences, NamedProducer, SavedSequence, Sequences, number_of
from loghub_service.storage.segment import LogDamaged
from loghub_service.storage.shardlog import ShardLog, ordinal_of
from loghub_service.storage.stored_group import origin_of, pulsar_origin_of

_log = structlog.get_logger("loghub_service")
Submit = Callable[..., "asyncio.Future[object]"]
_GROUPS_AT_ONCE = 4096  # with _BYTES_AT_ONCE a recovery reads a shard in steps of a bounded memory
_BYTES_AT_ONCE = 4 << 20  # of one shard, in a thread that others wait for
_SETTLE_S = 5.0  # commits take milliseconds; what is still on its way is saved in the next round


class ProducerJournal:
    """``logs`` are the service's logs, by logstore and shard. Used on the event loop only."""

    def __init__(self, maximum: int, submit: Submit, logs: Mapping[tuple[int, int], ShardLog]) -> None:
        self.maximum = maximum
        self.producers = Producers(maximum)
        self.sequences = Sequences(maximum)
        self._submit = submit
        self._logs = logs
        self._marks: dict[ShardLog, int] = {}  # where the next start begins to read; durable
        self._marking: dict[ShardLog, int] = {}  # not durable yet
        self._written: set[ShardLog] = set()  # since the last save
        self._batches = 0  # since then
        self._many = asyncio.Event()  # are not saved
        self._saving = asyncio.Lock()

    async def restore(
        self, sequences: Iterable[SavedSequence], later: "LaterSent", marks: Mapping[ShardLog, int]
    ) -> None:
        """Take over what was saved, and what was read ``later`` from the logs with these marks; they need not
        be read again afterwards."""
        self.producers.restore(*later.batches.result())
        self.sequences.restore(sequences, later.sequences.result())
        self._marks = dict(marks)
        await self.save()

    def begin(self, log: ShardLog) -> bool:
        """Whether a batch may be appended to this log now, with nothing awaited in between. If not, call
        `mark`, and ask again."""
        if log not in self._marks:
            return False
        self._written.add(log)
        self._batches += 1
        if self._batches >= self.maximum:
            self._many.set()
        return True

    async def mark(self, log: ShardLog) -> None:
        """Persist that the next start has to read the log from its present end on. Nothing, if the log was
        deleted."""
        names = [key for key, known in self._logs.items() if known is log]
        if not names:
            return
        cursor = self._marking.setdefault(log, log.extent.end_cursor)
        self._written.add(log)
        await self._submit(ProducerLogMarked(logstore=names[0][0], shard=names[0][1], cursor=cursor))
        self._marks.setdefault(log, cursor)
        self._marking.pop(log, None)

    async def run(self, interval_s: float) -> None:
        """Save at this interval and whenever there are many batches, forever."""
        while True:
            with suppress(TimeoutError):
                async with asyncio.timeout(interval_s):
                    await self._many.wait()
            try:
                await self.save()
            except Exception:  # noqa: BLE001 - it is logged, and the next attempt may succeed
                _log.exception("batches of producers not saved")

    async def save(self) -> None:
        """Save what has changed; durable on return. `run` calls it; call it at the end."""
        async with self._saving:
            changed = self.producers.has_changed or self.sequences.has_changed
            if self._written or self._marks or changed:
                await self._save()

    async def _save(self) -> None:
        written, self._written = self._written, set()
        self._batches = 0
        self._many.clear()
        ends = {log: log.extent.end_cursor for log in written & self._marks.keys()}
        for log in self._marks.keys() - written:
            del self._marks[log]  # the next batch waits until the log is marked again
        # All batches below these ends are known once those on their way have their offsets.
        settled = await asyncio.gather(self.producers.settled(_SETTLE_S), self.sequences.settled(_SETTLE_S))
        if not all(settled):
            self._written |= written
            return
        self._marks |= ends
        saved, forgotten = self.producers.changed()
        sequences, forgotten_sequences = self.sequences.changed()
        names = {log: key for key, log in self._logs.items()}
        marks = tuple(
            ProducerLogMarked(logstore=names[log][0], shard=names[log][1], cursor=cursor)
            for log, cursor in (self._marking | self._marks).items()
            if log in names
        )
        fact = ProducersSaved(
            saved=saved,
            forgotten=forgotten,
            marks=marks,
            sequences=sequences,
            forgotten_sequences=forgotten_sequences,
        )
        await self._submit(fact)


class LaterSent(NamedTuple):
    """What the logs have of producers besides what was saved."""

    batches: LaterBatches
    sequences: LaterSequences


def read_later(log: ShardLog, logstore: int, cursor: int, later: LaterSent) -> None:
    """Add what producers have sent to a log, from a cursor on. Blocks."""
    end = log.extent.end_cursor
    try:
        while cursor < end:
            read = log.read(
                cursor=cursor, end_cursor=end, max_groups=_GROUPS_AT_ONCE, max_bytes=_BYTES_AT_ONCE
            )
            for entry in read.entries:
                origin = origin_of(entry.group)
                if origin is not None:
                    key = ProducerKey(origin.producer_id, logstore, origin.partition)
                    sequence = Sequence(epoch=origin.epoch, first=origin.first, count=entry.logs)
                    stored = StoredBatch(sequence, offset_of(ordinal_of(log, entry.cursor)))
                    later.batches.add(key, stored, entry.received_us)
                sent = pulsar_origin_of(entry.group)
                if sent is not None and sent.is_named:
                    producer = NamedProducer(logstore, sent.partition, sent.producer)
                    later.sequences.add(producer, number_of(sent), entry.received_us)
            if not read.entries:
                break
            cursor = read.next_cursor
    except LogDamaged as error:  # who reads the log gets an error; a producer may begin anywhere
        _log.error("batches of producers not read", logstore=logstore, error=str(error))
        later.batches.forget(logstore)
