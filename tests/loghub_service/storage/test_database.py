"""Facts that are stored in SQLite are equal when they are read."""

from contextlib import closing
from pathlib import Path

import apsw
import pytest

from loghub.domain import group as domain
from loghub.domain.fsm import ShardState
from loghub.domain.shards import WHOLE, Shard, even_ranges
from loghub_service.facts import (
    CatalogFact,
    EndsKnown,
    GroupDeleted,
    GroupStepped,
    KnownEnd,
    LogstoreDeleted,
    LogstoreSaved,
    ProjectDeleted,
    ProjectSaved,
    ShardDeleted,
    ShardSaved,
)
from loghub_service.storage.database import Database, DatabaseUnusable

PROJECT = ProjectSaved(name="p", description="words", created_s=1, modified_s=2)
STORE = LogstoreSaved(
    id=1, project="p", name="ls", ttl_days=3, next_shard=2, options="{}", created_s=4, modified_s=5
)
LEFT, RIGHT = (
    ShardSaved(
        logstore=1,
        spec=Shard(shard=n, keys=keys, parents=(7, 9) if n else ()),
        born_us=6,
        first_cursor=(1 << 62) + n,
    )
    for n, keys in enumerate(even_ranges(2))
)
ENTRY = domain.ShardEntry(
    log_shard=domain.LogShard(shard=0, parents=(3, 4), begin_cursor=8, end_cursor=9),
    state=ShardState.TRANSFER,
    holder="a",
    next_holder="b",
    checkpoint=domain.SavedCheckpoint(cursor=(1 << 62) + 5, consumer="a", updated_unix_us=10),
)
BARE = domain.ShardEntry(log_shard=domain.LogShard(shard=1), state=ShardState.NOT_ALLOC)
GROUP = GroupStepped(
    logstore=1,
    group="g",
    facts=(
        domain.GroupSaved(timeout_s=30.0, order=True),
        domain.GroupShardSaved(entry=ENTRY),
        domain.GroupShardSaved(entry=BARE),
    ),
)


def _reopened(path: Path, *facts: CatalogFact | GroupStepped | GroupDeleted) -> Database:
    """A database that was closed after these facts, open again."""
    database = Database(str(path / "m.sqlite"))
    database.commit([facts])
    database.close()
    return Database(str(path / "m.sqlite"))


def test_catalog_facts_are_equal_after_a_restart(tmp_path: Path) -> None:
    facts: list[CatalogFact] = [PROJECT, STORE, LEFT, RIGHT]
    database = _reopened(tmp_path, *facts)
    assert database.catalog_facts() == facts
    assert WHOLE.end == RIGHT.spec.keys.end
    database.close()


def test_groups_are_equal_after_a_restart(tmp_path: Path) -> None:
    database = _reopened(tmp_path, PROJECT, STORE, GROUP)
    assert database.groups() == [(1, "g", 30.0, True)]
    assert database.group_entries(logstore=1, group="g") == [ENTRY, BARE]
    database.close()


def test_later_facts_replace_earlier(tmp_path: Path) -> None:
    settings = GroupStepped(
        logstore=1,
        group="g",
        facts=(domain.GroupSaved(timeout_s=9.0, order=False), domain.GroupShardForgotten(shard=1)),
    )
    database = _reopened(tmp_path, PROJECT, STORE, GROUP, settings)
    assert database.groups() == [(1, "g", 9.0, False)]
    assert database.group_entries(logstore=1, group="g") == [ENTRY]
    database.close()


def test_a_deletion_includes_dependent_rows(tmp_path: Path) -> None:
    facts = (PROJECT, STORE, LEFT, RIGHT, GROUP, ShardDeleted(logstore=1, shard=0))
    database = _reopened(tmp_path, *facts)
    assert database.catalog_facts() == [PROJECT, STORE, RIGHT]
    database.commit([(LogstoreDeleted(id=1, project="p", name="ls"), ProjectDeleted(name="p"))])
    assert (database.catalog_facts(), database.groups()) == ([], [])
    assert database.group_entries(logstore=1, group="g") == []
    database.close()


def test_a_group_that_is_created_again_starts_empty(tmp_path: Path) -> None:
    second = GroupStepped(logstore=1, group="g", facts=(domain.GroupSaved(timeout_s=5.0, order=False),))
    database = _reopened(tmp_path, PROJECT, STORE, GROUP, GroupDeleted(logstore=1, group="g"), second)
    assert database.groups() == [(1, "g", 5.0, False)]
    assert database.group_entries(logstore=1, group="g") == []
    database.close()


def test_a_logstore_id_is_never_reused(tmp_path: Path) -> None:
    database = _reopened(tmp_path, PROJECT, STORE, LogstoreDeleted(id=1, project="p", name="ls"))
    assert database.catalog_facts() == [PROJECT]
    assert database.next_logstore_id() == 2
    database.close()


def test_a_failing_fact_rolls_back_the_whole_batch(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "m.sqlite"))
    with pytest.raises(Exception, match="FOREIGN KEY"):
        database.commit([(PROJECT,), (GROUP,)])
    assert database.catalog_facts() == []
    database.close()


def test_durable_settings(tmp_path: Path) -> None:
    database = Database(str(tmp_path / "m.sqlite"))
    pragma = database._connection.pragma
    assert (pragma("journal_mode"), pragma("synchronous")) == ("wal", 2)  # 2: FULL
    database.close()


@pytest.mark.parametrize("content", [b"not a database" * 100, b""])
def test_files_that_are_not_a_database_are_refused(tmp_path: Path, content: bytes) -> None:
    path = tmp_path / "m.sqlite"
    path.write_bytes(content)
    if content:
        with pytest.raises(DatabaseUnusable, match=r"m\.sqlite"):
            Database(str(path))
    else:  # a crash between creation and first write
        Database(str(path)).close()


def test_another_version_is_refused(tmp_path: Path) -> None:
    Database(str(tmp_path / "m.sqlite")).close()
    with closing(apsw.Connection(str(tmp_path / "m.sqlite"))) as connection:
        connection.pragma("user_version", 99)
    with pytest.raises(DatabaseUnusable, match="version 99"):
        Database(str(tmp_path / "m.sqlite"))


def test_the_ends_of_deleted_shards_and_the_logs_before_a_begin_survive_a_restart(tmp_path: Path) -> None:
    def end(oldest: int, expired_logs: int | None) -> EndsKnown:
        known = KnownEnd(
            logstore=1, shard=1, oldest_cursor=oldest, end_cursor=oldest + 5, expired_logs=expired_logs
        )
        return EndsKnown(ends=(known,))

    database = Database(str(tmp_path / "m.sqlite"))
    facts = (PROJECT, STORE, LEFT, RIGHT, ShardDeleted(logstore=1, shard=0, final_offset=131_077))
    # The last one is what a repair of the log knows.
    database.commit([facts, (end(1000, None), end(1003, 7), end(1001, 2), end(1003, None))])
    database.close()
    database = Database(str(tmp_path / "m.sqlite"))
    assert database.final_offsets() == [(1, 0, 131_077)]
    (known,) = database.known_ends()
    assert (known.oldest_cursor, known.end_cursor, known.expired_logs) == (1003, 1008, 7)
    database.commit([(LogstoreDeleted(id=1, project="p", name="ls"),)])
    assert database.final_offsets() == []
    database.close()
