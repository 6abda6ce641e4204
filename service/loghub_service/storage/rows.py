"""Converts facts to SQL statements, and rows back to facts and values of the domain.

With `schema`, `database`, and the rows of Kafka, of subscriptions and of Pulsar, this module contains the
only SQL of the project.
"""

from collections.abc import Iterator
from functools import singledispatch

from loghub.domain import group as domain
from loghub.domain.fsm import ShardState
from loghub.domain.shards import HashRange, Shard
from loghub_service.facts import (
    CursorAdvanced,
    CursorSaved,
    CursorsUsed,
    EndsKnown,
    ExpiryReached,
    FolderRemoved,
    FolderStarted,
    GroupDeleted,
    GroupStepped,
    KafkaGroupStepped,
    LogstoreDeleted,
    LogstoreSaved,
    ProducerEpochSaved,
    ProducerLogMarked,
    ProducersSaved,
    ProjectDeleted,
    ProjectSaved,
    SchemaSaved,
    ServiceFact,
    ShardDeleted,
    ShardSaved,
    SubscriptionDeleted,
    SubscriptionSaved,
)
from loghub_service.storage.kafka_rows import kafka_statements, producer_statements
from loghub_service.storage.pulsar_rows import pulsar_statement, sequence_statements
from loghub_service.storage.subscription_rows import subscription_statements

LOGSTORE_COLUMNS = (
    "id", "project", "name", "ttl_days", "next_shard", "options", "created_s", "modified_s",
    "first_ordinal",
)  # fmt: skip
# Of logstores that may be created again: a megabyte. Older ones begin at ordinal 0.
MAX_DELETED_NAMES = 10_000
WHOLE_LOGSTORE = -1  # in the column `shard` of a deletion
Statement = tuple[str, tuple[object, ...]]


def statements(fact: ServiceFact) -> Iterator[Statement]:
    """The statements that save a fact, in order."""
    match fact:
        case GroupStepped():
            for inner in fact.facts:
                yield _group_row(inner, fact.logstore, fact.group)
        case KafkaGroupStepped():
            yield from kafka_statements(fact)
        case SubscriptionSaved() | SubscriptionDeleted() | CursorSaved() | CursorAdvanced():
            yield from subscription_statements(fact)
        case ProducerLogMarked() | ProducersSaved():
            yield from producer_statements(fact)
            if isinstance(fact, ProducersSaved):
                yield from sequence_statements(fact)
        case SchemaSaved() | ProducerEpochSaved():
            yield pulsar_statement(fact)
        case LogstoreDeleted():
            yield "DELETE FROM deletion WHERE logstore=?", (fact.id,)  # of its shards
            yield "INSERT INTO deletion VALUES (?,?)", (fact.id, WHOLE_LOGSTORE)
            yield "DELETE FROM logstore WHERE id=?", (fact.id,)
            yield (
                "INSERT OR REPLACE INTO deleted_name (project, name, next_ordinal) VALUES (?,?,?)",
                (fact.project, fact.name, fact.next_ordinal),
            )
            yield (
                "DELETE FROM deleted_name WHERE number <= (SELECT max(number) FROM deleted_name) - ?",
                (MAX_DELETED_NAMES,),
            )
        case ShardDeleted():
            yield "INSERT INTO deletion VALUES (?,?)", (fact.logstore, fact.shard)
            yield "INSERT INTO final_offset VALUES (?,?,?)", (fact.logstore, fact.shard, fact.final_offset)
            yield "DELETE FROM shard WHERE logstore=? AND shard=?", (fact.logstore, fact.shard)
        case EndsKnown():
            # Of shards that exist: an extent may be saved after its shard was deleted.
            for end in fact.ends:
                yield (
                    "INSERT INTO log_end SELECT logstore, shard, ?, ?, ? FROM shard"
                    " WHERE logstore=? AND shard=?"
                    " ON CONFLICT DO UPDATE SET expired_logs=CASE"
                    " WHEN excluded.oldest_cursor < oldest_cursor THEN expired_logs"
                    # A repair does not know it.
                    " WHEN excluded.oldest_cursor = oldest_cursor"
                    " THEN coalesce(excluded.expired_logs, expired_logs)"
                    " ELSE excluded.expired_logs END,"
                    " oldest_cursor=max(oldest_cursor, excluded.oldest_cursor),"
                    " end_cursor=max(end_cursor, excluded.end_cursor)",
                    (end.oldest_cursor, end.end_cursor, end.expired_logs, end.logstore, end.shard),
                )
        case ExpiryReached():
            yield _value("expiry_us", fact.unix_us)
            yield _value("expiry_wall_us", fact.wall_us)
            yield _value("expiry_behind_us", fact.behind_us)
        case FolderStarted():
            yield _value("folder", fact.folder)
            yield _value("starts", fact.starts)
        case _:
            yield _row(fact)


def _value(name: str, value: object) -> Statement:
    return (
        "INSERT INTO single_value VALUES (?,?) ON CONFLICT DO UPDATE SET value=excluded.value",
        (name, value),
    )


@singledispatch
def _row(fact: ServiceFact) -> Statement:
    raise TypeError(f"{type(fact).__name__} has no table")


@_row.register
def _(fact: ProjectSaved) -> Statement:
    return (
        "INSERT INTO project VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET"
        " description=excluded.description, modified_s=excluded.modified_s",
        (fact.name, fact.description, fact.created_s, fact.modified_s),
    )


@_row.register
def _(fact: ProjectDeleted) -> Statement:
    return "DELETE FROM project WHERE name=?", (fact.name,)


@_row.register
def _(fact: LogstoreSaved) -> Statement:
    return (
        "INSERT INTO logstore VALUES (?,?,?,?,?,?,?,?,?) ON CONFLICT (id) DO UPDATE SET"
        " ttl_days=excluded.ttl_days, next_shard=excluded.next_shard,"
        " options=excluded.options, modified_s=excluded.modified_s",
        tuple(getattr(fact, column) for column in LOGSTORE_COLUMNS),
    )


@_row.register
def _(fact: ShardSaved) -> Statement:
    return (
        "INSERT INTO shard VALUES (?,?,?,?,?,?,?,?) ON CONFLICT DO UPDATE SET read_only=excluded.read_only",
        (
            fact.logstore,
            fact.shard,
            fact.spec.keys.begin_key,
            fact.spec.keys.end_key,
            fact.spec.read_only,
            _join(fact.spec.parents),
            fact.born_us,
            fact.first_cursor,
        ),
    )


@_row.register
def _(fact: FolderRemoved) -> Statement:
    shard = WHOLE_LOGSTORE if fact.shard is None else fact.shard
    return "DELETE FROM deletion WHERE logstore=? AND shard=?", (fact.logstore, shard)


@_row.register
def _(fact: CursorsUsed) -> Statement:
    return (
        "INSERT INTO single_value VALUES ('least_cursor', ?)"
        " ON CONFLICT DO UPDATE SET value=max(value, excluded.value)",
        (fact.end_cursor,),
    )


@_row.register
def _(fact: GroupDeleted) -> Statement:
    return "DELETE FROM consumer_group WHERE logstore=? AND name=?", (fact.logstore, fact.group)


def _group_row(fact: domain.Fact, logstore: int, group: str) -> Statement:
    match fact:
        case domain.GroupSaved():
            return (
                "INSERT INTO consumer_group VALUES (?,?,?,?) ON CONFLICT DO UPDATE SET"
                " timeout_s=excluded.timeout_s, ordered=excluded.ordered",
                (logstore, group, fact.timeout_s, fact.order),
            )
        case domain.GroupShardForgotten():
            return (
                "DELETE FROM group_shard WHERE logstore=? AND name=? AND shard=?",
                (logstore, group, fact.shard),
            )
        case domain.GroupShardSaved():
            return (
                "INSERT OR REPLACE INTO group_shard VALUES (?,?,?,?,?,?,?,?,?,?,?,?,?)",
                (logstore, group, *_entry_row(fact.entry)),
            )


def _entry_row(entry: domain.ShardEntry) -> tuple[object, ...]:
    saved = entry.checkpoint
    return (
        entry.shard,
        _join(entry.log_shard.parents),
        entry.log_shard.begin_cursor,
        entry.log_shard.end_cursor,
        entry.state.value,
        entry.holder,
        entry.next_holder,
        entry.last_holder,
        saved.cursor if saved else None,
        saved.consumer if saved else None,
        saved.updated_unix_us if saved else None,
    )


def entry_from(row: tuple[object, ...]) -> domain.ShardEntry:
    _, _, shard, parents, begin, end, state, holder, next_holder, last_holder, cursor, consumer, updated = row
    checkpoint = None
    if cursor is not None:
        checkpoint = domain.SavedCheckpoint(cursor=cursor, consumer=consumer, updated_unix_us=updated)  # type: ignore[arg-type]
    return domain.ShardEntry(
        log_shard=domain.LogShard(shard=shard, parents=_split(parents), begin_cursor=begin, end_cursor=end),  # type: ignore[arg-type]
        state=ShardState(str(state)),
        holder=holder,  # type: ignore[arg-type]
        next_holder=next_holder,  # type: ignore[arg-type]
        last_holder=last_holder,  # type: ignore[arg-type]
        checkpoint=checkpoint,
    )


def shard_from(row: tuple[object, ...]) -> ShardSaved:
    logstore, shard, begin, end, read_only, parents, born_us, first_cursor = row
    return ShardSaved(
        logstore=int(str(logstore)),
        spec=Shard(
            shard=int(str(shard)),
            keys=HashRange.parse(begin_key=str(begin), end_key=str(end)),
            read_only=bool(read_only),
            parents=_split(parents),
        ),
        born_us=int(str(born_us)),
        first_cursor=int(str(first_cursor)),
    )


def _join(numbers: tuple[int, ...]) -> str:
    return ",".join(map(str, numbers))


def _split(text: object) -> tuple[int, ...]:
    return tuple(int(part) for part in str(text).split(",") if part)
