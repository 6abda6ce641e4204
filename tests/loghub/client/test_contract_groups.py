"""The port's contract for consumer groups and extensions, run against every adapter.

See `test_contract`. Each test has its own project.
"""

from collections.abc import Callable

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.port import CheckpointInfo, GroupInfo, LogHub
from loghub.wire import cursor
from loghub.wire.errors import Code, ExtensionMissing, LogHubError
from tests.loghub.client.contract import (
    GROUP,
    LOW,
    STORE,
    assert_refused,
    group_of,
    lines_of,
    pull_from_begin,
)
from tests.support import wait_until

# --- consumer groups -------------------------------------------------------------------------


def test_groups_are_created_and_deleted(client: LogHub) -> None:
    assert client.list_groups(STORE) == ()
    client.create_group(STORE, GROUP)
    ordered = GroupInfo(name="Ordered_2", timeout_s=60, order=True)
    client.create_group(STORE, ordered)
    assert set(client.list_groups(STORE)) == {GROUP, ordered}
    changed = GroupInfo(name=GROUP.name, timeout_s=45, order=True)
    client.update_group(STORE, changed)
    assert set(client.list_groups(STORE)) == {changed, ordered}
    client.delete_group(STORE, GROUP.name)
    assert client.list_groups(STORE) == (ordered,)


def test_creating_a_group_twice_is_refused(grouped: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        grouped.create_group(STORE, GROUP)
    assert_refused("ConsumerGroupAlreadyExist", error)


def test_every_call_reports_a_missing_group(client: LogHub) -> None:
    mark = client.get_cursor(STORE, 0, "begin")
    calls: list[Callable[[], object]] = [
        lambda: client.update_group(STORE, GROUP),
        lambda: client.delete_group(STORE, GROUP.name),
        lambda: client.heartbeat(STORE, GROUP.name, consumer="a", held=()),
        lambda: client.get_checkpoints(STORE, GROUP.name),
        lambda: client.update_checkpoint(STORE, GROUP.name, shard=0, cursor=mark, consumer="a", force=True),
    ]
    for call in calls:
        with pytest.raises(LogHubError) as error:
            call()
        assert_refused("ConsumerGroupNotExist", error)


def test_an_invalid_group_name_is_refused(client: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        client.create_group(STORE, GroupInfo(name="no spaces", timeout_s=30, order=False))
    assert_refused("ParameterInvalid", error)


def test_first_heartbeat_registers_and_gets_all_shards(grouped: LogHub) -> None:
    assert grouped.heartbeat(STORE, GROUP.name, consumer="a", held=()) == (0, 1)
    assert grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1)) == (0, 1)


def test_a_shard_moves_only_once_its_holder_no_longer_reports_it(grouped: LogHub) -> None:
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=())
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    assert grouped.heartbeat(STORE, GROUP.name, consumer="b", held=()) == ()
    (kept,) = grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    assert grouped.heartbeat(STORE, GROUP.name, consumer="b", held=()) == ()
    assert grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(kept,)) == (kept,)
    assert grouped.heartbeat(STORE, GROUP.name, consumer="b", held=()) == (1 - kept,)


@pytest.mark.long
def test_silent_consumer_loses_its_shards(client: LogHub) -> None:
    client.create_group(STORE, GroupInfo(name="short", timeout_s=1, order=False))
    client.heartbeat(STORE, "short", consumer="a", held=())
    client.heartbeat(STORE, "short", consumer="a", held=(0, 1))
    # The other one beats and says what it holds, until the silent one is gone.
    held: tuple[int, ...] = ()

    def beat() -> bool:
        nonlocal held
        held = client.heartbeat(STORE, "short", consumer="b", held=held)
        return held == (0, 1)

    wait_until(beat, "the timeout of the silent consumer")


def test_split_gives_new_shards_and_an_empty_read_only_one_is_over(grouped: LogHub) -> None:
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=())
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    grouped.split_shard(STORE, 0)
    assert grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1)) == (1, 2, 3)


def test_checkpoints_have_an_entry_for_each_shard(grouped: LogHub) -> None:
    empty = [CheckpointInfo(shard=n, cursor="", updated_unix_us=0, consumer="") for n in (0, 1)]
    assert list(grouped.get_checkpoints(STORE, GROUP.name)) == empty
    assert list(grouped.get_checkpoints(STORE, GROUP.name, 1)) == empty[1:]
    assert grouped.get_checkpoints(STORE, GROUP.name, 9) == ()


def test_holder_saves_its_checkpoint(grouped: LogHub) -> None:
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=())
    mark = grouped.get_cursor(STORE, 0, "end")
    grouped.update_checkpoint(STORE, GROUP.name, shard=0, cursor=mark, consumer="a", force=False)
    (saved,) = grouped.get_checkpoints(STORE, GROUP.name, 0)
    assert (saved.shard, saved.cursor, saved.consumer) == (0, mark, "a")
    assert saved.updated_unix_us > 1_700_000_000_000_000


def test_an_unknown_consumer_saves_only_with_force(grouped: LogHub) -> None:
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=())
    mark = grouped.get_cursor(STORE, 0, "begin")
    with pytest.raises(LogHubError) as error:
        grouped.update_checkpoint(STORE, GROUP.name, shard=0, cursor=mark, consumer="b", force=False)
    assert_refused("ConsumerNotMatch", error)
    grouped.update_checkpoint(STORE, GROUP.name, shard=0, cursor=mark, consumer="b", force=True)
    (saved,) = grouped.get_checkpoints(STORE, GROUP.name, 0)
    assert (saved.cursor, saved.consumer) == (mark, "b")


def test_checkpoint_without_consumer_needs_force(grouped: LogHub) -> None:
    mark = grouped.get_cursor(STORE, 0, "begin")
    with pytest.raises(LogHubError) as error:
        grouped.update_checkpoint(STORE, GROUP.name, shard=0, cursor=mark, consumer="", force=False)
    assert_refused("ParameterInvalid", error)
    grouped.update_checkpoint(STORE, GROUP.name, shard=0, cursor=mark, consumer="", force=True)


def test_a_checkpoint_of_a_missing_shard_is_refused(grouped: LogHub) -> None:
    mark = grouped.get_cursor(STORE, 0, "begin")
    with pytest.raises(LogHubError) as error:
        grouped.update_checkpoint(STORE, GROUP.name, shard=9, cursor=mark, consumer="a", force=True)
    assert_refused("ShardNotExist", error)


def test_checkpoint_beyond_the_end_is_refused(grouped: LogHub) -> None:
    end = cursor.decode(grouped.get_cursor(STORE, 0, "end"))
    beyond = cursor.encode(end + 1)
    with pytest.raises(LogHubError) as error:
        grouped.update_checkpoint(STORE, GROUP.name, shard=0, cursor=beyond, consumer="a", force=True)
    assert_refused("InvalidShardCheckPoint", error)
    (saved,) = grouped.get_checkpoints(STORE, GROUP.name, 0)
    assert saved.cursor == ""


def test_ordered_group_gets_the_children_when_the_parent_is_consumed(client: LogHub) -> None:
    ordered = GroupInfo(name="ordered", timeout_s=60, order=True)
    client.create_group(STORE, ordered)
    client.put_logs(STORE, group_of("before"), hash_key=LOW)
    assert client.heartbeat(STORE, "ordered", consumer="a", held=()) == (0, 1)
    client.split_shard(STORE, 0)
    client.put_logs(STORE, group_of("after"), hash_key=LOW)
    assert client.heartbeat(STORE, "ordered", consumer="a", held=(0, 1)) == (0, 1)
    end = client.get_cursor(STORE, 0, "end")
    for mark, owned in ((client.get_cursor(STORE, 0, "begin"), (0, 1)), (end, (1, 2, 3))):
        client.update_checkpoint(STORE, "ordered", shard=0, cursor=mark, consumer="a", force=False)
        assert client.heartbeat(STORE, "ordered", consumer="a", held=(0, 1)) == owned
    assert lines_of(pull_from_begin(client, 2)) == ["after"]


# --- extensions ------------------------------------------------------------------------------


def test_all_adapters_except_the_vendor_sdk_support_the_extensions(client: LogHub) -> None:
    """Otherwise the tests below would only check the refusal."""
    assert client.has_extensions() is not isinstance(client, AliyunLogHub)


def test_group_status_has_holders_checkpoints_and_lag(grouped: LogHub) -> None:
    if not grouped.has_extensions():
        with pytest.raises(ExtensionMissing, match="extension"):
            grouped.group_status(STORE, GROUP.name)
        return
    for n in range(3):
        grouped.put_logs(STORE, group_of(f"{n}a", f"{n}b"), hash_key=LOW)
    untouched = grouped.group_status(STORE, GROUP.name).shards[0]
    assert (untouched.lag_groups, untouched.lag_logs, untouched.lag_s) == (None, None, None)
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=())
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    one = cursor.encode(cursor.decode(grouped.get_cursor(STORE, 0, "begin")) + 1)
    grouped.update_checkpoint(STORE, GROUP.name, shard=0, cursor=one, consumer="a", force=False)
    status = grouped.group_status(STORE, GROUP.name)
    assert status.group == GROUP
    (consumer,) = status.consumers
    assert (consumer.name, consumer.held, consumer.owned) == ("a", (0, 1), (0, 1))
    assert consumer.last_heartbeat_age_s >= 0
    first, second = status.shards
    assert (first.state, first.holder, first.next_holder) == ("already_alloc", "a", "")
    assert (first.checkpoint, first.lag_groups, first.lag_logs) == (one, 2, 4)
    assert (first.checkpoint_consumer, second.checkpoint_consumer) == ("a", "")
    assert first.end_cursor == grouped.get_cursor(STORE, 0, "end")
    assert first.lag_s is not None
    assert first.lag_s >= 0
    assert (second.lag_groups, second.lag_logs, second.lag_s) == (0, 0, 0)


def test_group_status_has_the_next_holder_and_the_parents(grouped: LogHub) -> None:
    if not grouped.has_extensions():
        return
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=())
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    grouped.heartbeat(STORE, GROUP.name, consumer="b", held=())
    moving = [s for s in grouped.group_status(STORE, GROUP.name).shards if s.state == "transfer"]
    assert [(s.holder, s.next_holder) for s in moving] == [("a", "b")]
    grouped.split_shard(STORE, 0)
    shards = {s.shard: s for s in grouped.group_status(STORE, GROUP.name).shards}
    assert (shards[0].state, shards[0].read_only) == ("over", True)
    assert (shards[2].parents, shards[3].parents) == ((0,), (0,))


def test_without_kafka_clients_no_group_of_them_is_listed(client: LogHub) -> None:
    if not client.has_extensions():
        with pytest.raises(ExtensionMissing, match="extension"):
            client.list_kafka_groups(STORE)
        return
    assert client.list_kafka_groups(STORE) == client.list_kafka_groups() == ()
    with pytest.raises(LogHubError) as caught:
        client.list_kafka_groups("nothing")
    assert caught.value.code == Code.LOG_STORE_NOT_EXIST


def test_a_consumer_that_leaves_frees_its_shards_immediately(grouped: LogHub) -> None:
    if not grouped.has_extensions():
        with pytest.raises(ExtensionMissing, match="extension"):
            grouped.leave(STORE, GROUP.name, consumer="a")
        return
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=())
    grouped.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    grouped.leave(STORE, GROUP.name, consumer="a")
    assert grouped.group_status(STORE, GROUP.name).consumers == ()
    assert grouped.heartbeat(STORE, GROUP.name, consumer="b", held=()) == (0, 1)
