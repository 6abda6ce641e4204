"""Facts of Kafka groups that are stored in SQLite are equal when they are read."""

from contextlib import closing
from dataclasses import replace
from pathlib import Path

import apsw
import pytest

from loghub_service.facts import (
    KafkaGroupStepped,
    LogstoreDeleted,
    LogstoreSaved,
    ProjectDeleted,
    ProjectSaved,
)
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
from loghub_service.storage.database import Database
from loghub_service.storage.schema import SCHEMA_VERSION
from tests.loghub_service.storage.old_metadata import take_back

PROJECT = ProjectSaved(name="p", description="", created_s=1, modified_s=2)
STORES = tuple(
    LogstoreSaved(
        id=number, project="p", name=name, ttl_days=3, next_shard=2, options="{}", created_s=4, modified_s=5
    )
    for number, name in ((1, "ls"), (2, "other"))
)
GROUP = KafkaGroupSaved(
    state=KafkaGroupState.STABLE,
    generation=7,
    protocol_type="consumer",
    protocol="range",
    leader="a-1",
    empty_since_unix_ms=None,
)
MEMBER = MemberInfo(
    member_id="a-1",
    group_instance_id="a",
    client_id="client",
    client_host="127.0.0.1",
    session_timeout_ms=6_000,
    rebalance_timeout_ms=300_000,
    protocols=(MemberProtocol("range", b"\x00\xff"), MemberProtocol("roundrobin", b"")),
    assignment=bytes(range(256)),
)
OTHER_MEMBER = replace(MEMBER, member_id="b-1", group_instance_id=None, assignment=b"")


def offset(number: int, *, logstore: int = 1, shard: int = 0) -> OffsetSaved:
    committed = CommittedOffset(offset=number, metadata="ünter\0wegs", commit_unix_ms=(1 << 41) + number)
    return OffsetSaved(partition=TopicPartition(logstore, shard), committed=committed)


ALL: tuple[Fact, ...] = (
    GROUP,
    MemberSaved(info=MEMBER),
    MemberSaved(info=OTHER_MEMBER),
    offset((1 << 62) + 1),
    offset(5, shard=1),
    offset(6, logstore=2),
)


def of_group(*facts: Fact, group: str = "g") -> KafkaGroupStepped:
    return KafkaGroupStepped(project="p", group=group, facts=facts)


def opened(path: Path, *facts: Fact) -> Database:
    """A database with two logstores and, after another start, these facts of the group ``g``."""
    with closing(Database(str(path / "m.sqlite"))) as database:
        database.commit([(PROJECT, *STORES), (of_group(*facts),)])
    return Database(str(path / "m.sqlite"))


def test_groups_are_equal_after_a_restart(tmp_path: Path) -> None:
    with closing(opened(tmp_path, *ALL)) as database:
        assert database.kafka_groups() == [of_group(*ALL)]


def test_later_facts_replace_earlier(tmp_path: Path) -> None:
    later = (
        replace(
            GROUP,
            state=KafkaGroupState.EMPTY,
            generation=8,
            leader=None,
            protocol=None,
            empty_since_unix_ms=9,
        ),
        MemberForgotten(member_id="a-1"),
        MemberSaved(info=replace(OTHER_MEMBER, assignment=b"new")),
        OffsetForgotten(partition=TopicPartition(1, 1)),
        offset(7),
    )
    with closing(opened(tmp_path, *ALL, *later)) as database:
        kept = (later[0], later[2], later[4], offset(6, logstore=2))
        assert database.kafka_groups() == [of_group(*kept)]


def test_a_group_that_is_deleted_leaves_nothing_to_its_successor(tmp_path: Path) -> None:
    again = replace(GROUP, generation=1)
    with closing(opened(tmp_path, *ALL, GroupForgotten(), again)) as database:
        assert database.kafka_groups() == [of_group(again)]


def test_offsets_of_a_deleted_logstore_are_gone_and_do_not_return_with_its_name(tmp_path: Path) -> None:
    with closing(opened(tmp_path, *ALL)) as database:
        database.commit([(LogstoreDeleted(id=1, project="p", name="ls"), replace(STORES[0], id=3))])
        # A commit that overlapped with the deletion.
        database.commit([(of_group(offset(9)),)])
        (group,) = database.kafka_groups()
        assert [fact for fact in group.facts if isinstance(fact, OffsetSaved)] == [offset(6, logstore=2)]


def test_groups_of_a_deleted_project_are_gone_and_facts_that_come_later_are_ignored(tmp_path: Path) -> None:
    with closing(opened(tmp_path, *ALL)) as database:
        stores = (LogstoreDeleted(id=store.id, project="p", name=store.name) for store in STORES)
        database.commit([(*stores, ProjectDeleted(name="p"))])
        database.commit([(of_group(*ALL),)])
        assert database.kafka_groups() == []


@pytest.mark.parametrize("version", [1, 2])
def test_a_database_of_an_earlier_release_gets_the_tables(tmp_path: Path, version: int) -> None:
    path = str(tmp_path / "m.sqlite")
    with closing(Database(path)) as database:
        database.commit([(PROJECT, *STORES)])
    with closing(apsw.Connection(path)) as connection:
        take_back(connection, version)
    with closing(Database(path)) as database:
        assert database.catalog_facts() == [PROJECT, *STORES]
        database.commit([(of_group(*ALL),)])
        assert database.kafka_groups() == [of_group(*ALL)]
    with closing(apsw.Connection(path)) as connection:
        assert connection.pragma("user_version") == SCHEMA_VERSION
