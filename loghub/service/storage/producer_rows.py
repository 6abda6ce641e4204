"""The tables of idempotent producers, and their facts as SQL statements and back.

Rows go with their logstore or shard; facts of one that was deleted meanwhile are ignored.
"""

from collections.abc import Iterator

import apsw
import msgspec

from loghub.kafka.producers import ProducerKey, SavedProducer, Sequence, StoredBatch
from loghub.service.facts import ProducerLogMarked, ProducersSaved

# The order of the producers' rows is that in which they were saved.
SCHEMA = """
CREATE TABLE kafka_producer (
  id INTEGER PRIMARY KEY AUTOINCREMENT,
  logstore INTEGER NOT NULL REFERENCES logstore(id) ON DELETE CASCADE, partition INTEGER NOT NULL,
  producer INTEGER NOT NULL, batches BLOB NOT NULL, UNIQUE (logstore, partition, producer)
);
CREATE TABLE producer_log (
  logstore INTEGER NOT NULL, shard INTEGER NOT NULL, cursor INTEGER NOT NULL, PRIMARY KEY (logstore, shard),
  FOREIGN KEY (logstore, shard) REFERENCES shard(logstore, shard) ON DELETE CASCADE
) WITHOUT ROWID;
"""
Statement = tuple[str, tuple[object, ...]]
_Batches = list[tuple[int, int, int, int]]  # epoch, sequence of the first record, records, offset


def producer_statements(fact: ProducerLogMarked | ProducersSaved) -> Iterator[Statement]:
    """The statements that save a fact, in order."""
    match fact:
        case ProducerLogMarked():
            yield _mark(fact)
        case ProducersSaved():
            for key in fact.forgotten:
                yield (
                    "DELETE FROM kafka_producer WHERE logstore=? AND partition=? AND producer=?",
                    (key.topic, key.partition, key.producer_id),
                )
            for saved in fact.saved:
                yield (
                    "INSERT OR REPLACE INTO kafka_producer (logstore, partition, producer, batches)"
                    " SELECT id, ?, ?, ? FROM logstore WHERE id=?",
                    (saved.key.partition, saved.key.producer_id, _pack(saved), saved.key.topic),
                )
            yield "DELETE FROM producer_log", ()
            for mark in fact.marks:
                yield _mark(mark)


def _mark(mark: ProducerLogMarked) -> Statement:
    """One that is there is of an earlier cursor, from which everything is read."""
    return (
        "INSERT OR IGNORE INTO producer_log"
        " SELECT logstore, shard, ? FROM shard WHERE logstore=? AND shard=?",
        (mark.cursor, mark.logstore, mark.shard),
    )


def _pack(saved: SavedProducer) -> bytes:
    return msgspec.msgpack.encode(
        [
            (batch.sequence.epoch, batch.sequence.first, batch.sequence.count, batch.offset)
            for batch in saved.batches
        ]
    )


def read_producers(connection: apsw.Connection) -> list[SavedProducer]:
    """The one unused for longest first."""
    rows = connection.execute("SELECT logstore, partition, producer, batches FROM kafka_producer ORDER BY id")
    return [
        SavedProducer(
            ProducerKey(producer, logstore, partition),
            tuple(
                StoredBatch(Sequence(epoch=epoch, first=first, count=count), offset)
                for epoch, first, count, offset in msgspec.msgpack.decode(batches, type=_Batches)
            ),
        )
        for logstore, partition, producer, batches in rows
    ]


def read_marks(connection: apsw.Connection) -> list[ProducerLogMarked]:
    rows = connection.execute("SELECT logstore, shard, cursor FROM producer_log ORDER BY logstore, shard")
    return [
        ProducerLogMarked(logstore=logstore, shard=shard, cursor=cursor) for logstore, shard, cursor in rows
    ]
