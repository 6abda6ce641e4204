"""Facts of subscriptions that are stored in SQLite are equal when they are read."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from loghub.domain.log_position import position_of
from loghub.domain.shards import HashRange, Shard
from loghub.domain.subscription import SubscriptionType
from loghub_service.facts import (
    CursorAdvanced,
    CursorSaved,
    LogstoreDeleted,
    LogstoreSaved,
    ProjectSaved,
    ServiceFact,
    ShardDeleted,
    ShardSaved,
    SubscriptionDeleted,
    SubscriptionSaved,
)
from loghub_service.storage.database import Database, DatabaseUnusable, UsedCursor
from loghub_service.storage.schema import SCHEMA_VERSION
from loghub_service.storage.subscription_rows import StoredSubscription
from loghub_service.subscription.cursor_format import pack_cursor, pack_delta
from loghub_service.subscription.state import SavedCursor
from tests.loghub_service.storage.old_metadata import take_back

PROJECT = ProjectSaved(name="p", description="", created_s=1, modified_s=2)
STORE = LogstoreSaved(
    id=1,
    project="p",
    name="ls",
    ttl_days=3,
    next_shard=2,
    options="{}",
    created_s=4,
    modified_s=5,
    first_ordinal=1000,
)
SHARDS = tuple(
    ShardSaved(
        logstore=1,
        spec=Shard(shard=n, keys=HashRange(begin=n << 100, end=(n + 1) << 100), read_only=False, parents=()),
        born_us=1,
        first_cursor=50,
    )
    for n in (0, 1)
)
SETTINGS = SubscriptionSaved(logstore=1, name="s", type=SubscriptionType.SHARED, in_order=False)
CURSOR = SavedCursor(
    mark=position_of(1003), ranges=((position_of(1004), position_of(1006)),), high=position_of(1009)
)
WHOLE = CursorSaved(logstore=1, name="s", shard=0, packed=pack_cursor(CURSOR))
OTHER = replace(WHOLE, shard=1, packed=pack_cursor(SavedCursor(mark=0)))
DELTA = CursorAdvanced(
    logstore=1,
    name="s",
    shard=0,
    packed=pack_delta([(position_of(1003), position_of(1004))], (CURSOR.high, 2)),
)
ALL: tuple[ServiceFact, ...] = (SETTINGS, WHOLE, OTHER, DELTA)
ADVANCED = SavedCursor(mark=position_of(1006), high=CURSOR.high, unacked_below=2)


def opened(path: Path, *facts: ServiceFact) -> Database:
    """A database with a logstore of two shards and, after another start, these facts."""
    with closing(Database(str(path / "m.sqlite"))) as database:
        database.commit([(PROJECT, STORE, *SHARDS), facts])
    return Database(str(path / "m.sqlite"))


def stored(**cursors: SavedCursor) -> StoredSubscription:
    return StoredSubscription(
        logstore=1,
        name="s",
        type=SubscriptionType.SHARED,
        in_order=False,
        cursors={int(shard[1:]): cursor for shard, cursor in cursors.items()},
    )


def test_subscriptions_are_equal_after_a_restart(tmp_path: Path) -> None:
    with closing(opened(tmp_path, *ALL)) as database:
        assert database.subscriptions() == [stored(s0=ADVANCED, s1=SavedCursor(mark=0))]


def test_a_whole_cursor_replaces_its_deltas_and_settings_replace_settings(tmp_path: Path) -> None:
    changed = replace(SETTINGS, type=SubscriptionType.FAILOVER, in_order=True)
    with closing(opened(tmp_path, *ALL, changed, WHOLE)) as database:
        (found,) = database.subscriptions()
        assert (found.type, found.in_order) == (SubscriptionType.FAILOVER, True)
        assert found.cursors[0] == CURSOR


def test_a_deleted_subscription_leaves_nothing_to_one_of_its_name(tmp_path: Path) -> None:
    deleted = SubscriptionDeleted(logstore=1, name="s")
    with closing(opened(tmp_path, *ALL, deleted, DELTA, SETTINGS)) as database:
        assert database.subscriptions() == [stored()]


def test_cursors_go_with_their_shard_and_facts_that_come_later_are_ignored(tmp_path: Path) -> None:
    with closing(opened(tmp_path, *ALL, ShardDeleted(logstore=1, shard=0), DELTA, WHOLE)) as database:
        assert database.subscriptions() == [stored(s1=SavedCursor(mark=0))]


def test_subscriptions_go_with_their_logstore_and_facts_that_come_later_are_ignored(tmp_path: Path) -> None:
    deleted = LogstoreDeleted(id=1, project="p", name="ls")
    with closing(opened(tmp_path, *ALL, deleted, *ALL)) as database:
        assert database.subscriptions() == []


def test_the_last_acknowledgment_is_a_cursor_that_was_given_out(tmp_path: Path) -> None:
    """So a log that ends before it has lost groups, and new ones are not taken for acknowledged."""
    with closing(opened(tmp_path, SETTINGS, WHOLE, OTHER)) as database:
        assert database.used_cursors() == [
            UsedCursor(logstore=1, shard=0, known_by="subscription s has an acknowledgment", cursor=56)
        ]


def test_a_saved_cursor_that_cannot_be_read_is_reported(tmp_path: Path) -> None:
    database = opened(tmp_path, SETTINGS, replace(WHOLE, packed=b"\x80"))
    with closing(database), pytest.raises(DatabaseUnusable, match="a saved cursor ends within"):
        database.subscriptions()


def test_a_database_of_an_earlier_release_gets_the_tables(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    with closing(Database(path)) as database:
        database.commit([(PROJECT, STORE, *SHARDS)])
    with closing(apsw.Connection(path)) as connection:
        take_back(connection, 5)
    with closing(Database(path)) as database:
        database.commit([ALL])
        assert database.subscriptions() == [stored(s0=ADVANCED, s1=SavedCursor(mark=0))]
    with closing(apsw.Connection(path)) as connection:
        assert connection.pragma("user_version") == SCHEMA_VERSION


def test_a_type_that_an_earlier_release_spelled_as_pulsar_does_is_read(tmp_path: Path) -> None:
    keyed = replace(SETTINGS, type=SubscriptionType.KEY_SHARED)
    path = str(tmp_path / "m.sqlite")
    opened(tmp_path, keyed).close()
    with closing(apsw.Connection(path)) as connection:
        take_back(connection, 7)
        assert connection.execute("SELECT type FROM subscription").get == "Key_Shared"
    with closing(Database(path)) as database:
        (found,) = database.subscriptions()
    assert (found.type, found.key) == (SubscriptionType.KEY_SHARED, ())


def test_the_generation_is_kept_and_one_of_an_earlier_release_has_none(tmp_path: Path) -> None:
    path = str(tmp_path / "m.sqlite")
    with closing(opened(tmp_path, SETTINGS, replace(SETTINGS, generation="A1"))) as database:
        (found,) = database.subscriptions()
    assert found.generation == "A1"
    with closing(apsw.Connection(path)) as connection:
        take_back(connection, 8)
    with closing(Database(path)) as database:
        (found,) = database.subscriptions()
    assert found.generation == ""


def test_the_fields_of_the_key_are_kept(tmp_path: Path) -> None:
    with closing(opened(tmp_path, SETTINGS, replace(SETTINGS, key=("user", "a,b")))) as database:
        (found,) = database.subscriptions()
    assert found.key == ("user", "a,b")
