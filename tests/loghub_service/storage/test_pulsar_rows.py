"""What producers of Pulsar have stored and declared is read back, and goes with its logstore."""

from pathlib import Path

from loghub_service.facts import (
    LogstoreDeleted,
    LogstoreSaved,
    ProducerEpochSaved,
    ProducersSaved,
    ProjectSaved,
    SchemaSaved,
)
from loghub_service.pulsar.sequences import MessageNumber, NamedProducer, SavedSequence
from loghub_service.storage.database import Database

PROJECT = ProjectSaved(name="demo", description="", created_s=1, modified_s=1)
LOGSTORE = LogstoreSaved(
    id=1, project="demo", name="logs", ttl_days=1, next_shard=2, options="{}", created_s=1, modified_s=1
)
FIRST, SECOND = NamedProducer(1, 0, "日志"), NamedProducer(1, 1, "b")


def saved(*sequences: SavedSequence, forgotten: tuple[NamedProducer, ...] = ()) -> ProducersSaved:
    return ProducersSaved(
        saved=(), forgotten=(), marks=(), sequences=sequences, forgotten_sequences=forgotten
    )


def test_sequences_schemas_and_epochs_are_read_back(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "metadata"))
    database.commit([[PROJECT, LOGSTORE]])
    one = SavedSequence(FIRST, MessageNumber((1 << 63) - 1, 5))
    other = SavedSequence(SECOND, MessageNumber(2))
    schemas = [SchemaSaved(logstore=1, version=version, schema=bytes(version)) for version in range(3)]
    epoch = ProducerEpochSaved(logstore=1, partition=1, epoch=7)
    database.commit(
        [[saved(other, one), *schemas, ProducerEpochSaved(logstore=1, partition=1, epoch=6), epoch]]
    )
    assert (database.sequences(), database.schemas(), database.producer_epochs()) == (
        [other, one],
        schemas,
        [epoch],
    )
    newer = SavedSequence(SECOND, MessageNumber(3))
    database.commit([[saved(newer, forgotten=(FIRST,))]])
    assert database.sequences() == [newer]
    database.commit([[LogstoreDeleted(id=1, project="demo", name="logs")]])
    assert (database.sequences(), database.schemas(), database.producer_epochs()) == ([], [], [])


def test_facts_of_a_deleted_logstore_are_ignored(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "metadata"))
    late = (
        saved(SavedSequence(FIRST, MessageNumber(1))),
        SchemaSaved(logstore=1, version=0, schema=b""),
        ProducerEpochSaved(logstore=1, partition=1, epoch=7),
    )
    database.commit([[*late]])
    assert (database.sequences(), database.schemas(), database.producer_epochs()) == ([], [], [])
