"""The rows of Kafka groups and of idempotent producers: their facts as SQL statements and back.

A group belongs to a project, and an offset or a producer's row to a logstore or shard by its internal id, so
rows are deleted with their owner. Facts of a project, logstore or shard that was deleted meanwhile are
ignored: a request of a client may overlap with the deletion.
"""

from collections.abc import Iterable, Iterator

import apsw
import msgspec

from loghub_service.facts import KafkaGroupStepped, ProducerLogMarked, ProducersSaved
from loghub_service.kafka.coordinator.facts import (
    Fact,
    GroupForgotten,
    KafkaGroupSaved,
    MemberForgotten,
    MemberSaved,
    OffsetForgotten,
    OffsetSaved,
)
from loghub_service.kafka.coordinator.group import CommittedOffset, MemberInfo, MemberProtocol, TopicPartition
from loghub_service.kafka.coordinator.states import KafkaGroupState
from loghub_service.kafka.producers import ProducerKey, SavedProducer, Sequence, StoredBatch

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
    """Insert a mark, unless the shard has one: that one has an earlier cursor, from which everything is
    read."""
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
    """All producers, least recently used first."""
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


def kafka_statements(step: KafkaGroupStepped) -> Iterator[Statement]:
    """The statements that save the facts of a step, in order."""
    for fact in step.facts:
        yield _statement(fact, (step.project, step.group))


def _statement(fact: Fact, group: tuple[str, str]) -> Statement:
    match fact:
        case KafkaGroupSaved():
            return (
                "INSERT INTO kafka_group SELECT name, ?,?,?,?,?,?,? FROM project WHERE name=?"
                " ON CONFLICT DO UPDATE SET state=excluded.state, generation=excluded.generation,"
                " protocol_type=excluded.protocol_type, protocol=excluded.protocol, leader=excluded.leader,"
                " empty_since_ms=excluded.empty_since_ms",
                (group[1], *_group_row(fact), group[0]),
            )
        case GroupForgotten():
            return "DELETE FROM kafka_group WHERE project=? AND name=?", group
        case MemberSaved(info=info):
            return (
                "INSERT OR REPLACE INTO kafka_member SELECT project, name, ?,?,?,?,?,?,?,?"
                " FROM kafka_group WHERE project=? AND name=?",
                (*_member_row(info), *group),
            )
        case MemberForgotten(member_id=member_id):
            return "DELETE FROM kafka_member WHERE project=? AND name=? AND member_id=?", (*group, member_id)
        case OffsetSaved(partition=partition, committed=committed):
            return (
                "INSERT OR REPLACE INTO kafka_offset"
                " SELECT g.project, g.name, logstore.id, ?,?,?,? FROM kafka_group AS g, logstore"
                " WHERE g.project=? AND g.name=? AND logstore.id=?",
                (
                    partition.shard,
                    committed.offset,
                    committed.metadata,
                    committed.commit_unix_ms,
                    *group,
                    partition.logstore,
                ),
            )
        case OffsetForgotten(partition=partition):
            return (
                "DELETE FROM kafka_offset WHERE project=? AND name=? AND logstore=? AND shard=?",
                (*group, partition.logstore, partition.shard),
            )


def _group_row(saved: KafkaGroupSaved) -> tuple[object, ...]:
    return (
        saved.state.value,
        saved.generation,
        saved.protocol_type,
        saved.protocol,
        saved.leader,
        saved.empty_since_unix_ms,
    )


def _member_row(info: MemberInfo) -> tuple[object, ...]:
    return (
        info.member_id,
        info.group_instance_id,
        info.client_id,
        info.client_host,
        info.session_timeout_ms,
        info.rebalance_timeout_ms,
        msgspec.msgpack.encode([(protocol.name, protocol.metadata) for protocol in info.protocols]),
        info.assignment,
    )


def read_kafka_groups(connection: apsw.Connection) -> list[KafkaGroupStepped]:
    """Every group with all its facts, as one step."""
    groups: dict[tuple[str, str], list[Fact]] = {}
    for project, name, state, *values in connection.execute("SELECT * FROM kafka_group"):
        generation, protocol_type, protocol, leader, empty_since = values
        saved = KafkaGroupSaved(
            state=KafkaGroupState(state),
            generation=generation,
            protocol_type=protocol_type,
            protocol=protocol,
            leader=leader,
            empty_since_unix_ms=empty_since,
        )
        groups[project, name] = [saved]
    for project, name, *row in connection.execute("SELECT * FROM kafka_member"):
        groups[project, name].append(MemberSaved(info=_member_from(row)))
    for project, name, logstore, shard, *row in connection.execute("SELECT * FROM kafka_offset"):
        offset, metadata, commit_ms = row
        committed = CommittedOffset(offset=offset, metadata=metadata, commit_unix_ms=commit_ms)
        groups[project, name].append(
            OffsetSaved(partition=TopicPartition(logstore, shard), committed=committed)
        )
    return [
        KafkaGroupStepped(project=project, group=name, facts=tuple(facts))
        for (project, name), facts in groups.items()
    ]


def _member_from(row: Iterable[object]) -> MemberInfo:
    member_id, instance_id, client_id, host, session_ms, rebalance_ms, protocols, assignment = row
    named = msgspec.msgpack.decode(protocols, type=list[tuple[str, bytes]])  # type: ignore[call-overload]
    return MemberInfo(
        member_id=str(member_id),
        group_instance_id=None if instance_id is None else str(instance_id),
        client_id=str(client_id),
        client_host=str(host),
        session_timeout_ms=int(str(session_ms)),
        rebalance_timeout_ms=int(str(rebalance_ms)),
        protocols=tuple(MemberProtocol(name, metadata) for name, metadata in named),
        assignment=assignment,  # type: ignore[arg-type]
    )
