"""Batches: both forms of the logs, the limits, and that nothing is decoded before it is used."""

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire.compression import Compression, Packed, compress
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_consumer.buffer import ShardBuffer
from loghub_consumer.held_shard import NOTHING, ReceiveLimits
from loghub_consumer.reading.answers import ShortReadError
from loghub_consumer.reading.decoding import SCHEMA

FIRST = 1000


def group(number: int, logs: int) -> bytes:
    return encode(
        LogGroup(
            topic=f"t{number}",
            source="s",
            tags=(("host", "h"),),
            logs=tuple(
                Log(time=7, time_ns=log or None, contents=(("id", f"{number}-{log}"), ("raw", b"\xff")))
                for log in range(logs)
            ),
        )
    )


def pulled(sizes: list[int], first: int = FIRST) -> PulledBody:
    groups = [group(first - FIRST + n, size) for n, size in enumerate(sizes)]
    return PulledBody(packed(wrap(groups)), shard=4, first=first, count=len(sizes))


def packed(body: bytes) -> Packed:
    """As the log service sends it."""
    return Packed(compress(body, Compression.LZ4), len(body), Compression.LZ4)


def batch(*bodies: PulledBody) -> LogBatch:
    return LogBatch(4, tuple(BodySlice(body, 0, body.count) for body in bodies))


def ids(logs: LogBatch) -> list[str | None]:
    return [log.get("id") for group in logs.groups for log in group.logs]


def test_the_log_groups_have_all_that_was_written() -> None:
    logs = batch(pulled([2]))
    (received,) = logs.groups
    assert (received.topic, received.source, received.tags) == ("t0", "s", [("host", "h")])
    assert (received.cursor, len(received)) == (encode_cursor(FIRST), 2)
    first, second = received.logs
    assert (first.time, first.time_ns, second.time_ns) == (7, None, 1)
    assert first.contents == [("id", "0-0"), ("raw", "�")]
    assert (first.get("raw"), first.get("none")) == ("�", None)


def test_of_a_key_that_occurs_twice_the_last_value_counts_and_the_contents_have_both() -> None:
    contents = (("a", "1"), ("b", "2"), ("a", "3"))
    body = wrap([encode(LogGroup(logs=(Log(time=5, contents=contents),)))])
    logs = batch(PulledBody(packed(body), shard=4, first=FIRST, count=1))
    ((received,),) = (group.logs for group in logs.groups)
    assert (received.get("a"), received.contents) == ("3", list(contents))
    assert logs.arrow.column("contents").to_pylist() == [[("b", "2"), ("a", "3")]]


def test_arrow_and_log_groups_agree_over_several_bodies() -> None:
    logs = batch(pulled([2, 0, 1]), pulled([3], FIRST + 3))
    assert isinstance(logs.arrow, pa.Table)
    assert logs.arrow.schema == SCHEMA
    rows = logs.arrow.to_pylist()
    assert (
        [dict(row["contents"])["id"] for row in rows]
        == ids(logs)
        == ["0-0", "0-1", "2-0", "3-0", "3-1", "3-2"]
    )
    assert [row["__cursor__"] - FIRST for row in rows] == [0, 0, 2, 3, 3, 3]
    assert (logs.shard, logs.begin, logs.end) == (4, FIRST, FIRST + 4)
    assert (logs.begin_cursor, logs.next_cursor) == (encode_cursor(FIRST), encode_cursor(FIRST + 4))
    assert [one.topic for one in logs.groups[1:3]] == ["t1", "t2"]
    assert logs.groups[-1].topic == "t3"


def test_nothing_is_decoded_before_it_is_used() -> None:
    not_lz4 = Packed(b"not LZ4", 99, Compression.LZ4)
    for content in (Packed.plain(b"not protobuf"), packed(b"not protobuf"), not_lz4):
        body = PulledBody(content, shard=0, first=FIRST, count=3)
        buffered = buffer()
        buffered.add(body, now=0)
        logs = buffered.take()
        assert (len(logs.groups), logs.next_cursor) == (3, encode_cursor(FIRST + 3))
        assert (logs.size_bytes, body.packed) == (content.size, content)
        for use in (lambda logs: list(logs.groups), lambda logs: logs.arrow, lambda logs: logs.divided(1)):
            with pytest.raises(ShortReadError):
                use(logs)


def test_an_answer_is_divided_only_if_it_is_larger_than_a_batch() -> None:
    """Otherwise each would have to be decompressed, for handlers that do not look at it, too."""
    answers = [pulled([2, 2]), pulled([2, 2], FIRST + 2), pulled([2, 2], FIRST + 4)]
    buffered = buffer(max_bytes=answers[0].size * 5 // 2)
    for answer in answers:
        buffered.add(answer, now=0)
    assert [len(buffered.take().groups) for _ in range(2)] == [4, 2]
    assert not any(answer.is_unpacked for answer in answers)
    buffered = buffer(max_bytes=answers[0].size - 1)
    buffered.add(answers[0], now=0)
    assert [len(buffered.take().groups) for _ in range(2)] == [1, 1]


def test_an_answer_with_another_number_of_log_groups_is_noticed_in_both_forms() -> None:
    for use in (lambda logs: logs.arrow, lambda logs: list(logs.groups)):
        body = PulledBody(Packed.plain(pulled([1, 1]).body), shard=0, first=FIRST, count=3)
        with pytest.raises(ShortReadError, match="has 2 log groups and says that it has 3"):
            use(batch(body))


def buffer(*, max_logs: int | None = None, max_bytes: int = 1 << 30) -> ShardBuffer:
    return ShardBuffer(4, ReceiveLimits(max_logs=max_logs, max_bytes=max_bytes, max_wait_s=0))


def test_a_batch_takes_log_groups_of_several_answers_up_to_the_limit_of_logs() -> None:
    buffered = buffer(max_logs=5)
    buffered.add(pulled([2, 2]), now=1)
    buffered.add(pulled([2, 9, 1], FIRST + 2), now=2)
    assert (buffered.summary.groups, buffered.summary.logs, buffered.summary.since_s) == (5, 16, 1)
    assert ids(buffered.take()) == ["0-0", "0-1", "1-0", "1-1"]
    assert buffered.summary.since_s == 2
    assert len(ids(buffered.take())) == 2
    assert len(ids(buffered.take())) == 9, "a log group is never divided"
    assert len(ids(buffered.take())) == 1
    assert buffered.summary == NOTHING


SIZES = st.lists(st.lists(st.integers(0, 4), min_size=1, max_size=5), min_size=1, max_size=4)


@pytest.mark.long
@given(SIZES, st.integers(1, 400), st.none() | st.integers(1, 6))
def test_batches_keep_the_order_lose_nothing_and_respect_the_limits(
    answers: list[list[int]], max_bytes: int, max_logs: int | None
) -> None:
    buffered, first = buffer(max_logs=max_logs, max_bytes=max_bytes), FIRST
    for answer in answers:
        buffered.add(pulled(answer, first), now=0)
        first += len(answer)
    expected, position = buffered.summary.bytes, FIRST
    seen: list[str | None] = []
    size = 0
    while buffered.summary.groups:
        logs = buffered.take()
        assert logs.begin == position
        position = logs.end
        size += logs.size_bytes
        found = ids(logs)
        assert len(logs.groups) == 1 or logs.size_bytes <= max_bytes
        assert len(logs.groups) == 1 or max_logs is None or len(found) <= max_logs
        assert logs.arrow.num_rows == len(found)
        seen += found
    assert position == first
    numbers = [n for answer in answers for n in answer]
    assert seen == [f"{n}-{log}" for n, logs in enumerate(numbers) for log in range(logs)]
    assert size == expected, "what is freed is what was held"
