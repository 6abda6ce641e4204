"""Log groups are copied byte by byte, in the order of their shard, and after an error from where it
occurred."""

from collections.abc import Callable
from typing import Any

import pytest

from loghub.client.port import Pulled
from loghub.domain.shards import even_ranges
from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError
from loghub.wire.loggroup import Log, LogGroup, encode, split, wrap
from loghub_consumer.batch_plan import Range
from loghub_consumer.log_groups import number_of_logs
from loghub_consumer.log_service import ShardKeys
from loghub_worker.sink.logstore.sink import LogGroupCopier
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer

SOURCE, TARGET = "from", "to"
KEYS = [keys.begin_key for keys in even_ranges(2)]
# A field that no decoder of this project knows, a value that is no text, and nanoseconds.
UNKNOWN_FIELD = b"\xa2\x06\x03abc"


def group(number: int) -> bytes:
    logs = tuple(
        Log(time=number, time_ns=n, contents=(("n", f"{number}.{n}"), ("raw", b"\xff\xfe"))) for n in range(3)
    )
    body = LogGroup(logs=logs, topic="t", source="s", tags=(("a", "b"),), category="c", machine_uuid="m")
    return encode(body) + UNKNOWN_FIELD


class Target:
    """The client of the target: it records what is written, and fails as the test says."""

    def __init__(self, client: MemoryLogHub) -> None:
        self._client = client
        self.fails: Callable[[bytes], Exception | None] = lambda log_group: None

    def put_logs(self, logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None:
        error = self.fails(log_group)
        if error is not None:
            raise error
        self._client.put_logs(logstore, log_group, hash_key=hash_key)

    def __getattr__(self, name: str) -> Any:
        return getattr(self._client, name)


class Copying:
    """A logstore of two shards, and another one of four."""

    def __init__(self) -> None:
        self.client = MemoryServer().client("proj")
        self.client.create_project()
        self.client.create_logstore(SOURCE, shards=2)
        self.client.create_logstore(TARGET, shards=4)
        self.target = Target(self.client)
        target: Any = self.target
        keys = ShardKeys(self.client, SOURCE)
        self.copier = LogGroupCopier(
            self.client, SOURCE, target=target, target_logstore=TARGET, begin_key=keys.begin_key
        )
        self.begins = {shard: decode(self.client.get_cursor(SOURCE, shard, "begin")) for shard in (0, 1)}

    def put(self, shard: int, *numbers: int) -> None:
        for number in numbers:
            self.client.put_logs(SOURCE, group(number), hash_key=KEYS[shard])

    def range_of(self, shard: int, begin: int, end: int) -> Range:
        return Range(shard, self.begins[shard] + begin, self.begins[shard] + end)

    def copied(self, shard: int) -> list[bytes]:
        begin = self.client.get_cursor(TARGET, shard, "begin")
        pulled = self.client.pull_logs(TARGET, shard, cursor=begin, count=1000)
        return [bytes(one) for one in split(pulled.body)]


@pytest.fixture
def copying() -> Copying:
    return Copying()


def test_log_groups_are_unchanged_and_in_the_order_of_their_shard(copying: Copying) -> None:
    """The first keys of the source shards belong to the shards 0 and 2 of the target."""
    copying.put(0, *range(5))
    copying.put(1, 10, 11)
    count = copying.copier.copy(copying.range_of(0, 1, 4))
    assert (count.logs, count.bytes, count.end) == (9, 3 * len(group(1)), 0)
    copying.copier.copy(copying.range_of(1, 0, 2))
    expected = [[group(n) for n in (1, 2, 3)], [], [group(10), group(11)], []]
    assert [copying.copied(shard) for shard in range(4)] == expected


@pytest.mark.parametrize(
    "error",
    [
        EndpointUnreachable("x", "reset", definite=False),
        LogHubError.of(Code.POST_BODY_TOO_LARGE),
        LogHubError.of(Code.WRITE_QUOTA_EXCEED),
    ],
)
def test_an_error_ends_the_range_before_its_log_group_and_is_reported_at_its_begin(
    copying: Copying, error: Exception
) -> None:
    """So what was copied before it counts, and is not copied again."""
    copying.put(0, *range(5))
    copying.target.fails = lambda log_group: error if log_group == group(3) else None
    count = copying.copier.copy(copying.range_of(0, 0, 5))
    assert (count.logs, count.end, count.failure) == (9, copying.begins[0] + 3, None)
    failure = copying.copier.copy(copying.range_of(0, 3, 5)).failure
    assert failure is not None
    copying.target.fails = lambda log_group: None
    copying.copier.copy(copying.range_of(0, 3, 5))
    assert copying.copied(0) == [group(n) for n in range(5)], "once each, and in order"
    if isinstance(error, LogHubError):
        cursor = encode_cursor(copying.begins[0] + 3)
        assert (failure.reason, failure.rejected) == (error.code, error.code == Code.POST_BODY_TOO_LARGE)
        for part in (f"{len(group(3))} bytes", f"proj/{TARGET}", "shard 0", cursor):
            assert part in failure.message


def test_a_shard_that_cannot_be_copied_does_not_undo_the_copies_of_the_others(copying: Copying) -> None:
    """A shard of the target may have used up its quota, for example."""
    copying.put(0, *range(5))
    copying.put(1, 10, 11)
    error = LogHubError.of(Code.WRITE_QUOTA_EXCEED)
    copying.target.fails = lambda log_group: error if log_group == group(10) else None
    gone = Range(7, 0, 5)
    ranges = [copying.range_of(0, 0, 5), copying.range_of(1, 0, 2), gone]
    counts = copying.copier.copy_all(ranges)
    failures = [counts[one].failure for one in ranges]
    assert [failure and failure.reason for failure in failures] == [None, "WriteQuotaExceed", "ShardNotExist"]
    assert counts[ranges[0]].logs == 15


def test_an_outage_of_the_source_ends_the_range_too(
    copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    copying.put(0, *range(4))
    real = copying.client.pull_logs

    def two_at_a_time(logstore: str, shard: int, **options: Any) -> Pulled:
        if decode(options["cursor"]) > copying.begins[0]:
            raise EndpointUnreachable("x", "reset", definite=False)
        return real(logstore, shard, **options | {"count": 2})

    monkeypatch.setattr(copying.client, "pull_logs", two_at_a_time)
    assert copying.copier.copy(copying.range_of(0, 0, 4)).end == copying.begins[0] + 2
    failure = copying.copier.copy(copying.range_of(0, 2, 4)).failure
    assert failure is not None
    assert (failure.reason, failure.rejected) == ("EndpointUnreachable", False)


def test_fewer_log_groups_than_promised_end_the_range_after_those_that_were_copied(
    copying: Copying,
) -> None:
    copying.put(0, *range(3))
    assert copying.copier.copy(copying.range_of(0, 0, 5)).end == copying.begins[0] + 3
    failure = copying.copier.copy(copying.range_of(0, 3, 5)).failure
    assert failure is not None
    assert (failure.reason, failure.rejected) == ("PipelineFailed", False)
    assert "ShortReadError" in failure.message


def test_nothing_of_an_answer_with_fewer_log_groups_than_it_says_is_copied(
    copying: Copying, monkeypatch: pytest.MonkeyPatch
) -> None:
    cursor = encode_cursor(copying.begins[0] + 3)
    lie = Pulled(body=wrap([group(0), group(1)]), count=3, next_cursor=cursor, end_of_shard=False)
    monkeypatch.setattr(copying.client, "pull_logs", lambda *_, **__: lie)
    failure = copying.copier.copy(copying.range_of(0, 0, 3)).failure
    assert failure is not None
    assert "ShortReadError" in failure.message
    monkeypatch.undo()
    assert copying.copied(0) == []


def test_expired_log_groups_are_counted(copying: Copying, monkeypatch: pytest.MonkeyPatch) -> None:
    copying.put(0, *range(2))
    begin = copying.begins[0]
    expired = Pulled(body=wrap([group(7)]), count=1, next_cursor=encode_cursor(begin + 8), end_of_shard=False)
    monkeypatch.setattr(copying.client, "pull_logs", lambda *_, **__: expired)
    count = copying.copier.copy(copying.range_of(0, 0, 8))
    assert (count.missing, count.logs) == (7, 3)


def test_the_logs_of_a_group_are_counted_without_decoding_them() -> None:
    assert number_of_logs(group(1)) == 3
    assert number_of_logs(encode(LogGroup(logs=()))) == 0
