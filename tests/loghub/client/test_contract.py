"""The port's contract, run against every adapter: in memory, and over HTTP to a real service process.

The same tests pass for every adapter, so a test that uses the fake is meaningful. Each test has its own
project.
"""

from collections.abc import Callable

import pytest

from loghub.client.port import LogHub, Pulled
from loghub.wire import cursor, loggroup
from loghub.wire.errors import LogHubError
from loghub.wire.loggroup import Log, LogGroup
from tests.loghub.client.contract import (
    GROUP,
    HIGH,
    LOW,
    STORE,
    assert_refused,
    group_of,
    lines_of,
    pull_from_begin,
)

# --- projects and logstores ------------------------------------------------------------------


def test_a_project_is_created_and_deleted(empty: LogHub) -> None:
    assert not empty.project_exists()
    empty.create_project("words")
    assert empty.project_exists()
    empty.delete_project()
    assert not empty.project_exists()


def test_creating_a_project_twice_is_refused(empty: LogHub) -> None:
    empty.create_project()
    with pytest.raises(LogHubError) as error:
        empty.create_project()
    assert_refused("ProjectAlreadyExist", error)
    assert error.value.status == 400
    assert error.value.definite


def test_a_logstore_of_a_missing_project_is_refused(empty: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        empty.create_logstore(STORE, shards=1)
    assert_refused("ProjectNotExist", error)
    with pytest.raises(LogHubError) as error:
        empty.list_logstores()
    assert_refused("ProjectNotExist", error)


def test_a_project_is_described_and_listed(client: LogHub) -> None:
    info = client.get_project()
    assert (info.name, info.description) == (client.project, "for a test")
    assert info.created_unix_s is not None
    assert info.modified_unix_s is not None
    assert 1_700_000_000 < info.created_unix_s <= info.modified_unix_s
    assert [project for project in client.list_projects() if project.name == client.project] == [info]
    names = [project.name for project in client.list_projects()]
    assert names == sorted(set(names))


def test_the_list_of_projects_needs_no_project(empty: LogHub) -> None:
    assert empty.project not in [project.name for project in empty.list_projects()]
    with pytest.raises(LogHubError) as error:
        empty.get_project()
    assert_refused("ProjectNotExist", error)


def test_a_logstore_is_described(client: LogHub) -> None:
    client.create_logstore("described", shards=3, ttl_days=30)
    info = client.get_logstore("described")
    assert (info.name, info.ttl_days, info.shards) == ("described", 30, 3)
    assert info.created_unix_s is not None
    assert info.created_unix_s > 1_700_000_000


def test_a_project_is_deleted_with_its_logstores(client: LogHub) -> None:
    client.delete_project()
    assert not client.project_exists()
    client.create_project()
    assert client.list_logstores() == ()


def test_logstores_are_created_and_deleted(client: LogHub) -> None:
    client.create_logstore("second-store", shards=1, ttl_days=3650)
    assert client.list_logstores() == (STORE, "second-store")
    assert client.logstore_exists("second-store")
    client.delete_logstore("second-store")
    assert not client.logstore_exists("second-store")
    assert client.list_logstores() == (STORE,)


def test_creating_a_logstore_twice_is_refused(client: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        client.create_logstore(STORE, shards=1)
    assert_refused("LogStoreAlreadyExist", error)


@pytest.mark.parametrize("name", ["UPPER", "a", "with space", "a/../b", "a?b", "-a-"])
def test_an_invalid_logstore_name_is_refused_with_its_rule(client: LogHub, name: str) -> None:
    with pytest.raises(LogHubError) as error:
        client.create_logstore(name, shards=1)
    assert_refused("ParameterInvalid", error)
    assert "lower-case" in error.value.message


def test_every_call_reports_a_missing_logstore(client: LogHub) -> None:
    calls: list[Callable[[], object]] = [
        lambda: client.delete_logstore("missing"),
        lambda: client.get_logstore("missing"),
        lambda: client.delete_shard("missing", 0),
        lambda: client.list_shards("missing"),
        lambda: client.put_logs("missing", group_of("x")),
        lambda: client.get_cursor("missing", 0, "begin"),
        lambda: client.list_groups("missing"),
        lambda: client.create_group("missing", GROUP),
        lambda: client.heartbeat("missing", "g", consumer="c", held=()),
    ]
    for call in calls:
        with pytest.raises(LogHubError) as error:
            call()
        assert_refused("LogStoreNotExist", error)
        assert error.value.status == 404


# --- shards ----------------------------------------------------------------------------------


def test_shards_cover_the_key_space(client: LogHub) -> None:
    first, second = client.list_shards(STORE)
    assert (first.shard, second.shard) == (0, 1)
    assert (first.begin_key, second.end_key) == ("0" * 32, "f" * 32)
    assert first.end_key == second.begin_key == "8" + "0" * 31
    assert not first.read_only
    assert first.created_unix_s > 1_700_000_000


def test_split_in_the_middle_names_the_old_shard_first(client: LogHub) -> None:
    old, left, right = client.split_shard(STORE, 0)
    assert (old.shard, left.shard, right.shard) == (0, 2, 3)
    assert (old.read_only, left.read_only, right.read_only) == (True, False, False)
    assert (left.begin_key, right.end_key) == (old.begin_key, old.end_key)
    assert left.end_key == right.begin_key == "4" + "0" * 31
    assert [s.shard for s in client.list_shards(STORE)] == [0, 1, 2, 3]


def test_split_at_a_key(client: LogHub) -> None:
    key = "1" + "0" * 31
    _, left, right = client.split_shard(STORE, 0, key=key)
    assert left.end_key == right.begin_key == key


def test_split_into_several_parts(client: LogHub) -> None:
    old, *parts = client.split_shard(STORE, 0, parts=4)
    assert (old.shard, old.read_only) == (0, True)
    assert [part.shard for part in parts] == [2, 3, 4, 5]
    assert [part.begin_key[:2] for part in parts] == ["00", "20", "40", "60"]
    with pytest.raises(LogHubError) as error:
        client.split_shard(STORE, 2, key="1" + "0" * 31, parts=3)
    assert_refused("ParameterInvalid", error)
    with pytest.raises(LogHubError) as error:
        client.split_shard(STORE, 2, parts=1)
    assert_refused("ParameterInvalid", error)


def test_only_a_read_only_shard_is_deleted(client: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        client.delete_shard(STORE, 0)
    assert_refused("ParameterInvalid", error)
    client.split_shard(STORE, 0)
    client.delete_shard(STORE, 0)
    assert [shard.shard for shard in client.list_shards(STORE)] == [1, 2, 3]
    with pytest.raises(LogHubError) as error:
        client.delete_shard(STORE, 0)
    assert_refused("ShardNotExist", error)


def test_merge_with_the_right_neighbour(client: LogHub) -> None:
    *old, merged = client.merge_shards(STORE, 0)
    assert [(s.shard, s.read_only) for s in old] == [(0, True), (1, True)]
    assert (merged.shard, merged.begin_key, merged.end_key) == (2, "0" * 32, "f" * 32)


@pytest.mark.parametrize(
    ("shard", "key", "code"),
    [
        (9, "4" + "0" * 31, "ShardNotExist"),
        (9, None, "ShardNotExist"),
        (0, "f" * 32, "ParameterInvalid"),
        (0, "xyz", "ParameterInvalid"),
    ],
)
def test_an_impossible_split_is_refused(client: LogHub, shard: int, key: str | None, code: str) -> None:
    with pytest.raises(LogHubError) as error:
        client.split_shard(STORE, shard, key=key)
    assert_refused(code, error)


def test_read_only_or_last_shard_cannot_be_merged(client: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        client.merge_shards(STORE, 1)
    assert_refused("ParameterInvalid", error)
    client.merge_shards(STORE, 0)
    with pytest.raises(LogHubError) as error:
        client.merge_shards(STORE, 0)
    assert_refused("ParameterInvalid", error)


# --- data ------------------------------------------------------------------------------------


def test_log_groups_are_read_unchanged_and_in_order(client: LogHub) -> None:
    written = [group_of(f"line {n}", f"second {n}") for n in range(3)]
    for group in written:
        client.put_logs(STORE, group, hash_key=LOW)
    pulled = pull_from_begin(client, 0)
    assert [bytes(group) for group in loggroup.split(pulled.body)] == written
    assert pulled.count == 3
    assert pulled.end_of_shard
    assert pulled.next_cursor == client.get_cursor(STORE, 0, "end")


def test_a_packed_pull_is_the_same_answer(client: LogHub) -> None:
    begin = client.get_cursor(STORE, 0, "begin")
    for n in range(3):
        client.put_logs(STORE, group_of(f"line {n}" * 100), hash_key=LOW)
        for count in (1, 1000):
            packed = client.pull_packed(STORE, 0, cursor=begin, count=count)
            assert packed.unpacked() == client.pull_logs(STORE, 0, cursor=begin, count=count)
            assert packed.body.size == len(packed.unpacked().body)


def test_a_query_of_a_pull_is_refused_in_words(client: LogHub) -> None:
    """It would filter at the real SLS, and must not be ignored elsewhere."""
    begin = client.get_cursor(STORE, 0, "begin")
    with pytest.raises(LogHubError, match="does not support query") as raised:
        client.pull_packed(STORE, 0, cursor=begin, count=1, query="* | where a = 'b'")
    assert raised.value.code == "ParameterInvalid"


def test_values_need_not_be_text(client: LogHub) -> None:
    group = LogGroup(logs=(Log(time=1, contents=(("raw", bytes(range(256))),), time_ns=7),))
    client.put_logs(STORE, loggroup.encode(group), hash_key=LOW)
    (back,) = loggroup.split(pull_from_begin(client, 0).body)
    assert loggroup.decode(back) == group


def test_hash_key_chooses_the_shard(client: LogHub) -> None:
    client.put_logs(STORE, group_of("low"), hash_key=LOW)
    client.put_logs(STORE, group_of("high"), hash_key=HIGH)
    assert lines_of(pull_from_begin(client, 0)) == ["low"]
    assert lines_of(pull_from_begin(client, 1)) == ["high"]


@pytest.mark.long
def test_balanced_writes_all_arrive(client: LogHub) -> None:
    wanted = [f"line {n}" for n in range(20)]
    for line in wanted:
        client.put_logs(STORE, group_of(line))
    got = lines_of(pull_from_begin(client, 0)) + lines_of(pull_from_begin(client, 1))
    assert sorted(got) == sorted(wanted)


def test_a_range_before_the_oldest_group_is_empty_and_leads_to_it(client: LogHub) -> None:
    old = client.get_cursor(STORE, 0, "begin")
    client.delete_logstore(STORE)
    client.create_logstore(STORE, shards=1)
    stop = cursor.encode(cursor.decode(old) + 1)
    pulled = client.pull_logs(STORE, 0, cursor=old, count=1000, end_cursor=stop)
    assert (pulled.count, pulled.next_cursor) == (0, client.get_cursor(STORE, 0, "begin"))


def test_count_and_end_cursor_bound_a_pull(client: LogHub) -> None:
    for n in range(5):
        client.put_logs(STORE, group_of(str(n)), hash_key=LOW)
    first = pull_from_begin(client, 0, count=2)
    assert lines_of(first) == ["0", "1"]
    assert not first.end_of_shard
    stop = cursor.encode(cursor.decode(first.next_cursor) + 1)
    second = client.pull_logs(STORE, 0, cursor=first.next_cursor, count=1000, end_cursor=stop)
    assert lines_of(second) == ["2"]
    assert second.next_cursor == stop
    at_stop = client.pull_logs(STORE, 0, cursor=stop, count=1000, end_cursor=stop)
    assert (at_stop.body, at_stop.count, at_stop.next_cursor) == (b"", 0, stop)
    assert not at_stop.end_of_shard


def test_pull_at_the_end_keeps_the_cursor(client: LogHub) -> None:
    end = client.get_cursor(STORE, 0, "end")
    pulled = client.pull_logs(STORE, 0, cursor=end, count=10)
    assert pulled == Pulled(body=b"", count=0, next_cursor=end, end_of_shard=True)


def test_read_only_shard_can_still_be_read(client: LogHub) -> None:
    client.put_logs(STORE, group_of("before"), hash_key=LOW)
    client.split_shard(STORE, 0)
    client.put_logs(STORE, group_of("after"), hash_key=LOW)
    assert lines_of(pull_from_begin(client, 0)) == ["before"]
    assert lines_of(pull_from_begin(client, 2)) == ["after"]


def test_cursors_are_consecutive_integers(client: LogHub) -> None:
    begin = cursor.decode(client.get_cursor(STORE, 0, "begin"))
    assert begin > 0
    for n in range(3):
        client.put_logs(STORE, group_of(str(n)), hash_key=LOW)
    assert cursor.decode(client.get_cursor(STORE, 0, "begin")) == begin
    assert cursor.decode(client.get_cursor(STORE, 0, "end")) == begin + 3


def test_cursor_by_time_of_receipt(client: LogHub) -> None:
    client.put_logs(STORE, group_of("old log", time=1), hash_key=LOW)
    begin, end = client.get_cursor(STORE, 0, "begin"), client.get_cursor(STORE, 0, "end")
    received = client.get_cursor_time(STORE, 0, begin)
    assert received > 1_700_000_000  # not the log's own time, which is 1
    assert client.get_cursor(STORE, 0, received) == begin
    assert client.get_cursor(STORE, 0, 0) == begin
    assert client.get_cursor(STORE, 0, received + 3600) == end


def test_missing_shard_and_bad_cursor(client: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        client.get_cursor(STORE, 9, "begin")
    assert_refused("ShardNotExist", error)
    for bad in ("", "not base64!", cursor.encode(2**63 - 1)):
        with pytest.raises(LogHubError) as error:
            client.pull_logs(STORE, 0, cursor=bad, count=1)
        assert_refused("InvalidCursor", error)


def test_cursor_before_the_oldest_group_gives_the_oldest(client: LogHub) -> None:
    client.put_logs(STORE, group_of("only"), hash_key=LOW)
    assert lines_of(client.pull_logs(STORE, 0, cursor=cursor.encode(1), count=10)) == ["only"]


def test_a_body_that_is_not_a_log_group_is_refused_and_not_stored(client: LogHub) -> None:
    for body in (b"\xff\xff", b"no protobuf at all", group_of("cut")[:-3]):
        with pytest.raises(LogHubError) as error:
            client.put_logs(STORE, body, hash_key=LOW)
        assert_refused("PostBodyInvalid", error)
        assert error.value.status == 400
    assert pull_from_begin(client, 0).count == 0


@pytest.mark.parametrize("count", [0, 1001])
def test_count_out_of_bounds(client: LogHub, count: int) -> None:
    with pytest.raises(LogHubError) as error:
        pull_from_begin(client, 0, count=count)
    assert_refused("ParameterInvalid", error)
