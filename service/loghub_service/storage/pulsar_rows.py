"""The rows of Pulsar's producers and schemas: their facts as SQL statements and back.

Rows go with their logstore; facts of one that was deleted meanwhile are ignored.
"""

from collections.abc import Iterator

import apsw

from loghub_service.facts import ProducerEpochSaved, ProducersSaved, SchemaSaved
from loghub_service.pulsar.sequences import MessageNumber, NamedProducer, SavedSequence

Statement = tuple[str, tuple[object, ...]]


def sequence_statements(fact: ProducersSaved) -> Iterator[Statement]:
    """The statements that save the producers with a name, in order."""
    for forgotten in fact.forgotten_sequences:
        yield "DELETE FROM pulsar_producer WHERE logstore=? AND partition=? AND producer=?", forgotten
    for producer, number in fact.sequences:
        yield (
            "INSERT OR REPLACE INTO pulsar_producer (logstore, partition, producer, sequence, chunk)"
            " SELECT id, ?, ?, ?, ? FROM logstore WHERE id=?",
            (producer.partition, producer.name, number.sequence, number.chunk, producer.topic),
        )


def pulsar_statement(fact: SchemaSaved | ProducerEpochSaved) -> Statement:
    """The statement that saves a fact."""
    match fact:
        case SchemaSaved():
            return (
                "INSERT OR REPLACE INTO pulsar_schema SELECT id, ?, ? FROM logstore WHERE id=?",
                (fact.version, fact.schema, fact.logstore),
            )
        case ProducerEpochSaved():
            return (
                "INSERT OR REPLACE INTO pulsar_epoch SELECT id, ?, ? FROM logstore WHERE id=?",
                (fact.partition, fact.epoch, fact.logstore),
            )


def read_sequences(connection: apsw.Connection) -> list[SavedSequence]:
    """The one unused for longest first."""
    rows = connection.execute(
        "SELECT logstore, partition, producer, sequence, chunk FROM pulsar_producer ORDER BY id"
    )
    return [
        SavedSequence(NamedProducer(logstore, partition, name), MessageNumber(sequence, chunk))
        for logstore, partition, name, sequence, chunk in rows
    ]


def read_schemas(connection: apsw.Connection) -> list[SchemaSaved]:
    """By logstore and version."""
    rows = connection.execute(
        "SELECT logstore, version, schema FROM pulsar_schema ORDER BY logstore, version"
    )
    return [
        SchemaSaved(logstore=logstore, version=version, schema=schema) for logstore, version, schema in rows
    ]


def read_epochs(connection: apsw.Connection) -> list[ProducerEpochSaved]:
    rows = connection.execute("SELECT logstore, partition, epoch FROM pulsar_epoch")
    return [
        ProducerEpochSaved(logstore=logstore, partition=partition, epoch=epoch)
        for logstore, partition, epoch in rows
    ]
