"""The port's contract, run against every adapter: in memory, and over HTTP to a real service process.

What for: whatever holds for one adapter holds for all, so a test against the fake means
something. Each test has a project of its own.
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


def test_project_comes_and_goes(empty: LogHub) -> None:
    assert not empty.project_exists()
    empty.create_project("words")
    assert empty.project_exists()
    empty.delete_project()
    assert not empty.project_exists()


def test_project_made_twice_is_told(empty: LogHub) -> None:
    empty.create_project()
    with pytest.raises(LogHubError) as error:
        empty.create_project()
    assert_refused("ProjectAlreadyExist", error)
    assert error.value.status == 400
    assert error.value.definite


def test_logstore_of_no_project(empty: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        empty.create_logstore(STORE, shards=1)
    assert_refused("ProjectNotExist", error)
    with pytest.raises(LogHubError) as error:
        empty.list_logstores()
    assert_refused("ProjectNotExist", error)


def test_project_with_a_logstore_is_not_deleted(hub: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        hub.delete_project()
    assert_refused("ParameterInvalid", error)
    hub.delete_logstore(STORE)
    hub.delete_project()
    assert not hub.project_exists()


def test_logstores_come_and_go(hub: LogHub) -> None:
    hub.create_logstore("second-store", shards=1, ttl_days=3650)
    assert hub.list_logstores() == (STORE, "second-store")
    assert hub.logstore_exists("second-store")
    hub.delete_logstore("second-store")
    assert not hub.logstore_exists("second-store")
    assert hub.list_logstores() == (STORE,)


def test_logstore_made_twice_is_told(hub: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        hub.create_logstore(STORE, shards=1)
    assert_refused("LogStoreAlreadyExist", error)


@pytest.mark.parametrize("name", ["UPPER", "a", "with space", "a/../b", "a?b", "-a-"])
def test_bad_logstore_name_is_refused_with_its_rule(hub: LogHub, name: str) -> None:
    with pytest.raises(LogHubError) as error:
        hub.create_logstore(name, shards=1)
    assert_refused("ParameterInvalid", error)
    assert "lower-case" in error.value.message


def test_missing_logstore_is_told_by_every_call(hub: LogHub) -> None:
    calls: list[Callable[[], object]] = [
        lambda: hub.delete_logstore("missing"),
        lambda: hub.list_shards("missing"),
        lambda: hub.put_logs("missing", group_of("x")),
        lambda: hub.get_cursor("missing", 0, "begin"),
        lambda: hub.list_groups("missing"),
        lambda: hub.create_group("missing", GROUP),
        lambda: hub.heartbeat("missing", "g", consumer="c", held=()),
    ]
    for call in calls:
        with pytest.raises(LogHubError) as error:
            call()
        assert_refused("LogStoreNotExist", error)
        assert error.value.status == 404


# --- shards ----------------------------------------------------------------------------------


def test_shards_cover_the_key_space(hub: LogHub) -> None:
    first, second = hub.list_shards(STORE)
    assert (first.shard, second.shard) == (0, 1)
    assert (first.begin_key, second.end_key) == ("0" * 32, "f" * 32)
    assert first.end_key == second.begin_key == "8" + "0" * 31
    assert not first.read_only
    assert first.created_unix_s > 1_700_000_000


def test_split_in_the_middle_names_the_old_shard_first(hub: LogHub) -> None:
    old, left, right = hub.split_shard(STORE, 0)
    assert (old.shard, left.shard, right.shard) == (0, 2, 3)
    assert (old.read_only, left.read_only, right.read_only) == (True, False, False)
    assert (left.begin_key, right.end_key) == (old.begin_key, old.end_key)
    assert left.end_key == right.begin_key == "4" + "0" * 31
    assert [s.shard for s in hub.list_shards(STORE)] == [0, 1, 2, 3]


def test_split_at_a_key(hub: LogHub) -> None:
    key = "1" + "0" * 31
    _, left, right = hub.split_shard(STORE, 0, key=key)
    assert left.end_key == right.begin_key == key


def test_merge_with_the_right_neighbour(hub: LogHub) -> None:
    *old, merged = hub.merge_shards(STORE, 0)
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
def test_impossible_split_is_refused(hub: LogHub, shard: int, key: str | None, code: str) -> None:
    with pytest.raises(LogHubError) as error:
        hub.split_shard(STORE, shard, key=key)
    assert_refused(code, error)


def test_read_only_or_last_shard_cannot_be_merged(hub: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        hub.merge_shards(STORE, 1)
    assert_refused("ParameterInvalid", error)
    hub.merge_shards(STORE, 0)
    with pytest.raises(LogHubError) as error:
        hub.merge_shards(STORE, 0)
    assert_refused("ParameterInvalid", error)


# --- data ------------------------------------------------------------------------------------


def test_groups_come_back_byte_for_byte_in_order(hub: LogHub) -> None:
    written = [group_of(f"line {n}", f"second {n}") for n in range(3)]
    for group in written:
        hub.put_logs(STORE, group, hash_key=LOW)
    pulled = pull_from_begin(hub, 0)
    assert [bytes(group) for group in loggroup.split(pulled.body)] == written
    assert pulled.count == 3
    assert pulled.end_of_shard
    assert pulled.next_cursor == hub.get_cursor(STORE, 0, "end")


def test_values_need_not_be_text(hub: LogHub) -> None:
    group = LogGroup(logs=(Log(time=1, contents=(("raw", bytes(range(256))),), time_ns=7),))
    hub.put_logs(STORE, loggroup.encode(group), hash_key=LOW)
    (back,) = loggroup.split(pull_from_begin(hub, 0).body)
    assert loggroup.decode(back) == group


def test_hash_key_chooses_the_shard(hub: LogHub) -> None:
    hub.put_logs(STORE, group_of("low"), hash_key=LOW)
    hub.put_logs(STORE, group_of("high"), hash_key=HIGH)
    assert lines_of(pull_from_begin(hub, 0)) == ["low"]
    assert lines_of(pull_from_begin(hub, 1)) == ["high"]


def test_balanced_writes_all_arrive(hub: LogHub) -> None:
    wanted = [f"line {n}" for n in range(20)]
    for line in wanted:
        hub.put_logs(STORE, group_of(line))
    got = lines_of(pull_from_begin(hub, 0)) + lines_of(pull_from_begin(hub, 1))
    assert sorted(got) == sorted(wanted)


def test_a_range_before_the_oldest_group_is_empty_and_leads_to_it(hub: LogHub) -> None:
    old = hub.get_cursor(STORE, 0, "begin")
    hub.delete_logstore(STORE)
    hub.create_logstore(STORE, shards=1)
    stop = cursor.encode(cursor.decode(old) + 1)
    pulled = hub.pull_logs(STORE, 0, cursor=old, count=1000, end_cursor=stop)
    assert (pulled.count, pulled.next_cursor) == (0, hub.get_cursor(STORE, 0, "begin"))


def test_count_and_end_cursor_bound_a_pull(hub: LogHub) -> None:
    for n in range(5):
        hub.put_logs(STORE, group_of(str(n)), hash_key=LOW)
    first = pull_from_begin(hub, 0, count=2)
    assert lines_of(first) == ["0", "1"]
    assert not first.end_of_shard
    stop = cursor.encode(cursor.decode(first.next_cursor) + 1)
    second = hub.pull_logs(STORE, 0, cursor=first.next_cursor, count=1000, end_cursor=stop)
    assert lines_of(second) == ["2"]
    assert second.next_cursor == stop
    at_stop = hub.pull_logs(STORE, 0, cursor=stop, count=1000, end_cursor=stop)
    assert (at_stop.body, at_stop.count, at_stop.next_cursor) == (b"", 0, stop)
    assert not at_stop.end_of_shard


def test_pull_at_the_end_keeps_the_cursor(hub: LogHub) -> None:
    end = hub.get_cursor(STORE, 0, "end")
    pulled = hub.pull_logs(STORE, 0, cursor=end, count=10)
    assert pulled == Pulled(body=b"", count=0, next_cursor=end, end_of_shard=True)


def test_read_only_shard_can_still_be_read(hub: LogHub) -> None:
    hub.put_logs(STORE, group_of("before"), hash_key=LOW)
    hub.split_shard(STORE, 0)
    hub.put_logs(STORE, group_of("after"), hash_key=LOW)
    assert lines_of(pull_from_begin(hub, 0)) == ["before"]
    assert lines_of(pull_from_begin(hub, 2)) == ["after"]


def test_cursors_are_consecutive_integers(hub: LogHub) -> None:
    begin = cursor.decode(hub.get_cursor(STORE, 0, "begin"))
    assert begin > 0
    for n in range(3):
        hub.put_logs(STORE, group_of(str(n)), hash_key=LOW)
    assert cursor.decode(hub.get_cursor(STORE, 0, "begin")) == begin
    assert cursor.decode(hub.get_cursor(STORE, 0, "end")) == begin + 3


def test_cursor_by_time_of_receipt(hub: LogHub) -> None:
    hub.put_logs(STORE, group_of("old log", time=1), hash_key=LOW)
    begin, end = hub.get_cursor(STORE, 0, "begin"), hub.get_cursor(STORE, 0, "end")
    received = hub.get_cursor_time(STORE, 0, begin)
    assert received > 1_700_000_000  # not the log's own time, which is 1
    assert hub.get_cursor(STORE, 0, received) == begin
    assert hub.get_cursor(STORE, 0, 0) == begin
    assert hub.get_cursor(STORE, 0, received + 3600) == end


def test_missing_shard_and_bad_cursor(hub: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        hub.get_cursor(STORE, 9, "begin")
    assert_refused("ShardNotExist", error)
    for bad in ("", "not base64!", cursor.encode(2**63 - 1)):
        with pytest.raises(LogHubError) as error:
            hub.pull_logs(STORE, 0, cursor=bad, count=1)
        assert_refused("InvalidCursor", error)


def test_cursor_before_the_oldest_group_gives_the_oldest(hub: LogHub) -> None:
    hub.put_logs(STORE, group_of("only"), hash_key=LOW)
    assert lines_of(hub.pull_logs(STORE, 0, cursor=cursor.encode(1), count=10)) == ["only"]


def test_body_that_is_no_group_is_refused_and_not_kept(hub: LogHub) -> None:
    for body in (b"\xff\xff", b"no protobuf at all", group_of("cut")[:-3]):
        with pytest.raises(LogHubError) as error:
            hub.put_logs(STORE, body, hash_key=LOW)
        assert_refused("PostBodyInvalid", error)
        assert error.value.status == 400
    assert pull_from_begin(hub, 0).count == 0


@pytest.mark.parametrize("count", [0, 1001])
def test_count_out_of_bounds(hub: LogHub, count: int) -> None:
    with pytest.raises(LogHubError) as error:
        pull_from_begin(hub, 0, count=count)
    assert_refused("ParameterInvalid", error)
