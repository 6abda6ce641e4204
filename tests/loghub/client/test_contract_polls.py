"""The port's contract for the extensions of consumers, some of which wait, run against every adapter.

See `test_contract`. Each test has its own project.
"""

from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import TypeVar

import pytest

from loghub.client.port import GroupRevision, LogHub, Poll, ShardEnds
from loghub.wire import cursor
from loghub.wire.errors import LogHubError
from tests.loghub.client.adapters import Opener, opener
from tests.loghub.client.contract import GROUP, LOW, STORE, assert_refused, group_of

T = TypeVar("T")
AT_ONCE = Poll(name="p", wait_s=0.0)
LONG = Poll(name="p", wait_s=60.0)  # a guard: the tests end the poll before
SHORT = Poll(name="p", wait_s=0.05)


@pytest.fixture(scope="module", params=("memory", "http"))
def open_project(
    request: pytest.FixtureRequest, tmp_path_factory: pytest.TempPathFactory
) -> Iterator[Opener]:
    """Not over the vendor's SDK, which has none of these calls (`test_aliyun`)."""
    with opener(request.param, tmp_path_factory.mktemp(request.param)) as opened:
        yield opened


@pytest.fixture
def polling(grouped: LogHub) -> LogHub:
    assert grouped.has_polls()
    return grouped


def ends_of(client: LogHub, *shards: int) -> dict[int, str]:
    return {shard: client.get_cursor(STORE, shard, "end") for shard in shards}


def waiting(call: Callable[[], T]) -> "Future[T]":
    """The call in a thread."""
    pool = ThreadPoolExecutor(1)
    try:
        return pool.submit(call)
    finally:
        pool.shutdown(wait=False)


def revision_of(client: LogHub, consumer: str = "a") -> GroupRevision:
    return client.await_group(STORE, GROUP.name, consumer=consumer, revision=0, poll=AT_ONCE)


def test_all_positions_come_in_one_call(polling: LogHub) -> None:
    polling.put_logs(STORE, group_of("a"), hash_key=LOW)
    begins = {shard: polling.get_cursor(STORE, shard, "begin") for shard in (0, 1)}
    expected = tuple(
        ShardEnds(shard=shard, begin=begins[shard], end=end) for shard, end in ends_of(polling, 0, 1).items()
    )
    assert polling.await_ends(STORE, {0: "", 1: ""}, poll=AT_ONCE) == expected
    assert expected[0].begin != expected[0].end


def test_a_poll_answers_once_one_of_its_shards_has_a_new_log_group(polling: LogHub) -> None:
    known = ends_of(polling, 0, 1)
    poll = waiting(lambda: polling.await_ends(STORE, known, poll=LONG))
    polling.put_logs(STORE, group_of("a"), hash_key=LOW)
    assert {one.shard: one.end for one in poll.result(180)} == ends_of(polling, 0, 1) != known


def test_a_poll_without_news_answers_what_is_known_after_its_time(polling: LogHub) -> None:
    known = ends_of(polling, 0, 1)
    assert {one.shard: one.end for one in polling.await_ends(STORE, known, poll=SHORT)} == known


@pytest.mark.parametrize("shift", [-1, 1])
def test_a_poll_with_an_expired_cursor_or_one_beyond_the_end_answers_at_once(
    polling: LogHub, shift: int
) -> None:
    end = ends_of(polling, 0)[0]
    known = {0: cursor.encode(cursor.decode(end) + shift)}
    (found,) = polling.await_ends(STORE, known, poll=LONG)
    assert found.end == end


def test_a_poll_for_a_shard_that_does_not_exist_answers_at_once_without_it(polling: LogHub) -> None:
    known = ends_of(polling, 1) | {7: ""}
    assert [one.shard for one in polling.await_ends(STORE, known, poll=LONG)] == [1]


def test_the_next_poll_of_the_same_name_ends_the_one_before(polling: LogHub) -> None:
    known = ends_of(polling, 0)
    poll = waiting(lambda: polling.await_ends(STORE, known, poll=LONG))
    while not poll.done():  # it may be the later one at the service
        assert polling.await_ends(STORE, known, poll=SHORT)
    assert {one.shard: one.end for one in poll.result()} == known


def test_a_poll_for_a_logstore_that_does_not_exist_or_is_deleted_meanwhile_says_so(polling: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        polling.await_ends("no-such-store", {0: ""}, poll=LONG)
    assert_refused("LogStoreNotExist", error)
    known = ends_of(polling, 0)
    poll = waiting(lambda: polling.await_ends(STORE, known, poll=LONG))
    polling.delete_logstore(STORE)
    with pytest.raises(LogHubError) as error:
        poll.result(180)
    assert_refused("LogStoreNotExist", error)


def test_the_revision_of_a_group_changes_with_its_assignment_and_not_with_heartbeats(
    polling: LogHub,
) -> None:
    empty = revision_of(polling)
    assert empty.assigned == ()
    polling.heartbeat(STORE, GROUP.name, consumer="a", held=())
    joined = revision_of(polling)
    assert joined.assigned == (0, 1)
    polling.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    assert revision_of(polling) == joined
    polling.heartbeat(STORE, GROUP.name, consumer="b", held=())
    moved = revision_of(polling)
    assert len(moved.assigned) == 1
    assert len({empty.revision, joined.revision, moved.revision}) == 3


def test_a_watch_answers_once_a_heartbeat_was_answered_with_what_is_being_taken_away(polling: LogHub) -> None:
    """The next heartbeat is answered otherwise, so a consumer that watches should not wait an interval."""
    for consumer in "ab":
        polling.heartbeat(STORE, GROUP.name, consumer=consumer, held=())
    before = revision_of(polling)
    assert polling.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1)) == (0, 1)
    after = revision_of(polling)
    assert (after.assigned, after.revision != before.revision) == (before.assigned, True)
    assert polling.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1)) == after.assigned
    assert revision_of(polling) == after


def test_a_watch_answers_once_the_group_changes_and_after_its_time(polling: LogHub) -> None:
    known = revision_of(polling).revision
    same = polling.await_group(STORE, GROUP.name, consumer="a", revision=known, poll=SHORT)
    assert same.revision == known
    watch = waiting(lambda: polling.await_group(STORE, GROUP.name, consumer="a", revision=known, poll=LONG))
    polling.heartbeat(STORE, GROUP.name, consumer="a", held=())
    assert watch.result(180).assigned == (0, 1)


def test_a_watch_of_a_group_that_does_not_exist_or_is_deleted_meanwhile_says_so(polling: LogHub) -> None:
    with pytest.raises(LogHubError) as error:
        polling.await_group(STORE, "nobody", consumer="a", revision=0, poll=LONG)
    assert_refused("ConsumerGroupNotExist", error)
    known = revision_of(polling).revision
    watch = waiting(lambda: polling.await_group(STORE, GROUP.name, consumer="a", revision=known, poll=LONG))
    polling.delete_group(STORE, GROUP.name)
    with pytest.raises(LogHubError) as error:
        watch.result(180)
    assert_refused("ConsumerGroupNotExist", error)


def test_a_poll_is_not_a_heartbeat(polling: LogHub) -> None:
    revision_of(polling, "a")
    polling.await_ends(STORE, {0: ""}, poll=AT_ONCE)
    assert polling.group_status(STORE, GROUP.name).consumers == ()


def test_checkpoints_of_several_shards_are_saved_in_one_call(polling: LogHub) -> None:
    polling.heartbeat(STORE, GROUP.name, consumer="a", held=())
    cursors = ends_of(polling, 0, 1)
    assert polling.save_checkpoints(STORE, GROUP.name, cursors, consumer="a") == {}
    saved = polling.get_checkpoints(STORE, GROUP.name)
    assert {one.shard: (one.cursor, one.consumer) for one in saved} == {
        shard: (end, "a") for shard, end in cursors.items()
    }


def test_a_checkpoint_that_is_rejected_keeps_no_other_from_being_saved(polling: LogHub) -> None:
    polling.heartbeat(STORE, GROUP.name, consumer="a", held=())
    polling.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    polling.heartbeat(STORE, GROUP.name, consumer="b", held=())
    (kept,) = polling.heartbeat(STORE, GROUP.name, consumer="a", held=(0, 1))
    polling.heartbeat(STORE, GROUP.name, consumer="a", held=(kept,))
    polling.heartbeat(STORE, GROUP.name, consumer="b", held=())
    ends = ends_of(polling, 0, 1)
    beyond = cursor.encode(cursor.decode(ends[kept]) + 1)
    rejected = polling.save_checkpoints(STORE, GROUP.name, ends | {9: beyond}, consumer="a")
    assert {shard: error.code for shard, error in rejected.items()} == {
        1 - kept: "ConsumerNotMatch",
        9: "ShardNotExist",
    }
    saved = {one.shard: one.cursor for one in polling.get_checkpoints(STORE, GROUP.name)}
    assert saved == {kept: ends[kept], 1 - kept: ""}
    rejected = polling.save_checkpoints(STORE, GROUP.name, {kept: beyond}, consumer="a")
    assert [error.code for error in rejected.values()] == ["InvalidShardCheckPoint"]
