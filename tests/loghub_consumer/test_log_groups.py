"""Rows become log groups: what their columns mean, in which order they are written, and how large they
are."""

from collections import defaultdict
from itertools import groupby
from typing import Any

import pyarrow as pa
import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.client.port import ShardInfo
from loghub.domain.shards import even_ranges
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.log_groups import (
    GROUP_CHARS,
    GROUP_LOGS,
    MAX_OPEN_CHARS,
    FormedGroup,
    LogGroupBuilder,
    route_by_hash_key,
    route_by_shard,
)

MAX_GROUP_BYTES = 5 << 20  # the largest log group that SLS accepts (docs/sls-protocol.md 5)
NOW_S = 7


def formed(batch: pa.RecordBatch, builder: LogGroupBuilder | None = None) -> list[FormedGroup]:
    builder = builder or LogGroupBuilder(now_s=NOW_S)
    return [*builder.add(batch), *builder.finish()]


def rows(*texts: str) -> pa.RecordBatch:
    return pa.RecordBatch.from_pydict({"a": list(texts)})


def test_bytes_that_are_not_text_are_replaced_and_reject_no_row() -> None:
    """Spark casts a binary column to a string without looking at its bytes."""
    texts = pa.array([b"a\xffb", b"fine", None]).view(pa.string())
    keys, values = (
        pa.array(part).view(pa.string()) for part in ([b"k\xfe", b"k", b"k"], [b"v", None, b"\xff"])
    )
    batch = pa.RecordBatch.from_pydict(
        {"a": texts, "contents": pa.MapArray.from_arrays([0, 1, 2, 3], keys, values), "__time__": [1, 2, 3]}
    )
    (one,) = formed(batch)
    assert [log.contents for log in one.group.logs] == [
        (("k\ufffd", "v"), ("a", "a\ufffdb")),
        (("a", "fine"),),
        (("k", "\ufffd"),),
    ]
    assert [log.time for log in one.group.logs] == [1, 2, 3]


def test_a_large_row_begins_a_new_group() -> None:
    """Each of the two alone is accepted. A letter has three bytes, and together they would always be
    refused."""
    groups = formed(rows("字" * (GROUP_CHARS - 1000), "字" * (GROUP_CHARS - 100_000)))
    assert [len(one.group.logs) for one in groups] == [1, 1]
    assert all(len(encode(one.group)) < MAX_GROUP_BYTES for one in groups)


@given(st.lists(st.integers(0, 3 * GROUP_CHARS // 2), max_size=12))
def test_every_row_is_in_exactly_one_group_and_in_order(sizes: list[int]) -> None:
    groups = [one.group for one in formed(rows(*("x" * size for size in sizes)))]
    assert [len(log.contents[0][1]) for group in groups for log in group.logs] == sizes
    assert all(log.time == NOW_S for group in groups for log in group.logs)
    for group in groups:
        assert 1 <= len(group.logs) <= GROUP_LOGS
        assert len(group.logs) == 1 or sum(len(log.contents[0][1]) for log in group.logs) <= GROUP_CHARS


def test_a_group_has_a_maximum_number_of_rows() -> None:
    groups = formed(rows(*["x"] * (GROUP_LOGS + 1)))
    assert [len(one.group.logs) for one in groups] == [GROUP_LOGS, 1]


TAGS = pa.map_(pa.string(), pa.string())


def batch_of(*dicts: dict[str, Any], **types: pa.DataType) -> pa.RecordBatch:
    names = list(dict.fromkeys(name for row in dicts for name in row))
    arrays = [pa.array([row.get(name) for row in dicts], types.get(name)) for name in names]
    return pa.RecordBatch.from_arrays(arrays, names=names)


def test_reserved_columns_become_the_fields_of_log_and_group() -> None:
    batch = batch_of(
        {
            "__time__": 5,
            "__time_ns__": 123_456_789,
            "__topic__": "t",
            "__source__": "10.0.0.1",
            "__tags__": [("host", "h"), ("gone", None)],
            "contents": [("k", "1"), ("k", "2"), ("status", "old"), ("none", None)],
            "status": "200",
        },
        {"__time__": 6, "contents": [("status", "old")], "status": None},
        __tags__=TAGS,
        contents=TAGS,
    )
    first, second = formed(batch)
    assert first == FormedGroup(
        group=LogGroup(
            logs=(Log(time=5, time_ns=123_456_789, contents=(("k", "1"), ("k", "2"), ("status", "200"))),),
            topic="t",
            source="10.0.0.1",
            tags=(("host", "h"),),
        ),
        hash_key=None,
    )
    assert second.group == LogGroup(logs=(Log(time=6, contents=()),))


@given(st.lists(st.tuples(st.sampled_from("ab"), st.sampled_from("xy")), max_size=30))
def test_rows_of_different_topics_and_tags_stay_in_order_in_groups_of_their_own(
    kinds: list[tuple[str, str]],
) -> None:
    batch = batch_of(
        {"__topic__": "", "__tags__": [], "n": "-1"},
        *(
            {"__topic__": topic, "__tags__": [("t", tag)], "n": str(n)}
            for n, (topic, tag) in enumerate(kinds)
        ),
        __tags__=TAGS,
    ).slice(1)
    groups = [one.group for one in formed(batch)]
    assert [log.contents[0][1] for group in groups for log in group.logs] == [
        str(n) for n in range(len(kinds))
    ]
    assert [(group.topic, group.tags[0][1]) for group in groups] == [kind for kind, _ in groupby(kinds)]


KEYS = [keys.begin_key for keys in even_ranges(4)]


def shard_info(shard: int, begin_key: str, *, read_only: bool = False) -> ShardInfo:
    return ShardInfo(
        shard=shard, read_only=read_only, begin_key=begin_key, end_key="f" * 32, created_unix_s=1
    )


SHARDS = [shard_info(9, KEYS[0], read_only=True), *(shard_info(n, key) for n, key in enumerate(KEYS))]


@given(st.lists(st.integers(0, 2**128 - 1), max_size=40))
def test_rows_with_keys_of_one_shard_share_groups_and_keep_their_order(keys: list[int]) -> None:
    batch = batch_of(
        {"__hash_key__": "0" * 32, "n": "-1"},
        *({"__hash_key__": f"{key:032x}", "n": str(n)} for n, key in enumerate(keys)),
    ).slice(1)
    groups = formed(batch, LogGroupBuilder(now_s=NOW_S, route=route_by_hash_key(SHARDS)))
    written = defaultdict(list)
    for one in groups:
        assert one.hash_key is not None
        shard = max(begin for begin in KEYS if begin <= one.hash_key)
        written[shard] += [int(str(log.contents[0][1])) for log in one.group.logs]
    expected = defaultdict(list)
    for n, key in enumerate(keys):
        expected[max(begin for begin in KEYS if int(begin, 16) <= key)].append(n)
    assert written == expected
    assert len(groups) <= len(KEYS), "one group for each shard, not one for each key"


def test_a_row_without_a_key_may_go_to_any_shard() -> None:
    batch = batch_of({"__hash_key__": None, "n": "1"}, {"__hash_key__": "F" * 32, "n": "2"})
    groups = formed(batch, LogGroupBuilder(now_s=NOW_S, route=route_by_hash_key(SHARDS)))
    assert {one.hash_key for one in groups} == {None, "f" * 32}


@pytest.mark.parametrize("key", ["", "abc", "g" * 32, "0" * 33])
def test_a_key_that_is_none_is_an_error_that_says_what_one_is(key: str) -> None:
    builder = LogGroupBuilder(now_s=NOW_S, route=route_by_hash_key(SHARDS))
    with pytest.raises(ValueError, match=r"__hash_key__ .* 32 hex digits, such as md5"):
        list(builder.add(batch_of({"__hash_key__": key, "n": "1"})))


def test_rows_of_a_source_shard_go_to_the_shard_of_its_first_key() -> None:
    source = {3: KEYS[1], 5: KEYS[2]}
    batch = batch_of(*({"__shard__": shard, "n": str(n)} for n, shard in enumerate([3, 5, 3, 5, 5])))
    groups = formed(batch, LogGroupBuilder(now_s=NOW_S, route=route_by_shard(source.__getitem__)))
    assert {one.hash_key: [log.contents[0][1] for log in one.group.logs] for one in groups} == {
        KEYS[1]: ["0", "2"],
        KEYS[2]: ["1", "3", "4"],
    }


def test_groups_that_are_not_full_are_bounded_together() -> None:
    """Whatever the number of target shards."""
    text = "x" * (GROUP_CHARS - 1000)
    builder = LogGroupBuilder(now_s=NOW_S, route=route_by_shard(str))
    written = 0
    for shard in range(100):
        written += sum(1 for _ in builder.add(batch_of({"__shard__": shard, "a": text})))
        assert (shard + 1 - written) * len(text) <= MAX_OPEN_CHARS
    assert written + sum(1 for _ in builder.finish()) == 100
