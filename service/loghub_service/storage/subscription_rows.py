"""The rows of subscriptions: their facts as SQL statements and back.

A cursor goes with its subscription, its logstore or its shard; facts of one that was deleted meanwhile are
ignored: a request of a client may overlap with the deletion.
"""

from collections import defaultdict
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass

import apsw
import msgspec

from loghub.domain.log_position import ordinal_of
from loghub.domain.subscription import SubscriptionType
from loghub_service.facts import (
    CursorAdvanced,
    CursorSaved,
    SubscriptionDeleted,
    SubscriptionFact,
    SubscriptionSaved,
)
from loghub_service.subscription.cursor_format import BadSavedCursor, unpack
from loghub_service.subscription.state import SavedCursor

Statement = tuple[str, tuple[object, ...]]


@dataclass(frozen=True, slots=True, kw_only=True)
class StoredSubscription:
    """A subscription as it was saved, with the cursors of its shards."""

    logstore: int
    name: str
    type: SubscriptionType
    in_order: bool
    key: tuple[str, ...] = ()
    generation: str = ""
    cursors: dict[int, SavedCursor]


def subscription_statements(fact: SubscriptionFact) -> Iterator[Statement]:
    """The statements that save a fact, in order."""
    match fact:
        case SubscriptionSaved():
            yield (
                "INSERT INTO subscription (logstore, name, type, in_order, key, generation)"
                " SELECT id, ?, ?, ?, ?, ? FROM logstore WHERE id=?"
                " ON CONFLICT DO UPDATE SET type=excluded.type, in_order=excluded.in_order, key=excluded.key,"
                " generation=excluded.generation",
                (
                    fact.name,
                    fact.type.value,
                    fact.in_order,
                    _packed(fact.key),
                    fact.generation,
                    fact.logstore,
                ),
            )
        case SubscriptionDeleted():
            yield "DELETE FROM subscription WHERE logstore=? AND name=?", (fact.logstore, fact.name)
        case CursorSaved():
            cursor = (fact.logstore, fact.name, fact.shard)
            yield "DELETE FROM subscription_delta WHERE logstore=? AND name=? AND shard=?", cursor
            yield (
                "INSERT INTO subscription_cursor"
                " SELECT s.logstore, s.name, shard.shard, ? FROM subscription AS s, shard"
                " WHERE s.logstore=? AND s.name=? AND shard.logstore=s.logstore AND shard.shard=?"
                " ON CONFLICT DO UPDATE SET packed=excluded.packed",
                (fact.packed, *cursor),
            )
        case CursorAdvanced():
            yield (
                "INSERT INTO subscription_delta (logstore, name, shard, packed)"
                " SELECT logstore, name, shard, ? FROM subscription_cursor"
                " WHERE logstore=? AND name=? AND shard=?",
                (fact.packed, fact.logstore, fact.name, fact.shard),
            )


def _packed(key: tuple[str, ...]) -> str:
    return msgspec.json.encode(key).decode()


def read_subscriptions(connection: apsw.Connection) -> list[StoredSubscription]:
    """All stored subscriptions, by logstore and name. Raises BadSavedCursor."""
    deltas: defaultdict[tuple[int, str, int], list[bytes]] = defaultdict(list)
    for logstore, name, shard, packed in connection.execute(
        "SELECT logstore, name, shard, packed FROM subscription_delta ORDER BY number"
    ):
        deltas[logstore, name, shard].append(packed)
    stored: dict[tuple[int, str], StoredSubscription] = {}
    for logstore, name, kind, in_order, key, generation in connection.execute(
        "SELECT logstore, name, type, in_order, key, generation FROM subscription ORDER BY logstore, name"
    ):
        with _named(f"subscription {name}"):
            stored[logstore, name] = StoredSubscription(
                logstore=logstore,
                name=name,
                type=SubscriptionType(kind),
                in_order=bool(in_order),
                key=msgspec.json.decode(key, type=tuple[str, ...]),
                generation=generation,
                cursors={},
            )
    for logstore, name, shard, packed in connection.execute(
        "SELECT logstore, name, shard, packed FROM subscription_cursor"
    ):
        with _named(f"subscription {name}, shard {shard}"):
            stored[logstore, name].cursors[shard] = unpack(packed, deltas[logstore, name, shard])
    return list(stored.values())


@contextmanager
def _named(row: str) -> Iterator[None]:
    """Say in which row something cannot be read."""
    try:
        yield
    except (ValueError, msgspec.MsgspecError) as error:
        raise BadSavedCursor(f"{row}: {error}") from error


def used_ordinals(connection: apsw.Connection) -> Iterator[tuple[int, int, str, int]]:
    """For each cursor with an acknowledgment: the logstore, the shard, the name of the subscription, and the
    ordinal after the last group of which a log is acknowledged."""
    for subscription in read_subscriptions(connection):
        for shard, cursor in subscription.cursors.items():
            stop = cursor.ranges[-1][1] if cursor.ranges else cursor.mark
            if stop > 0:
                yield subscription.logstore, shard, subscription.name, ordinal_of(stop - 1) + 1
