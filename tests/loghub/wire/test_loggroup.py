"""The LogGroup codec (docs/sls-protocol.md 3), against the vendor SDK's protobuf classes."""

from typing import Any

import pytest
from aliyun.log.proto import LogGroupList, LogGroupListRaw, LogGroupRaw
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import loggroup
from loghub.wire.errors import MalformedLogGroup
from loghub.wire.loggroup import Log, LogGroup
from tests.loghub.wire.groups import groups, real_lines


def to_vendor(group: LogGroup) -> Any:
    message = LogGroupRaw()
    for log in group.logs:
        created = message.Logs.add()
        created.Time = log.time
        for key, value in log.contents:
            content = created.Contents.add()
            content.Key, content.Value = key, value
        if log.time_ns is not None:
            created.Time_ns = log.time_ns
    for name, text in (
        ("Reserved", group.category),
        ("Topic", group.topic),
        ("Source", group.source),
        ("MachineUUID", group.machine_uuid),
    ):
        if text:
            setattr(message, name, text)
    for key, value in group.tags:
        tag = message.LogTags.add()
        tag.Key, tag.Value = key, value
    return message


@given(groups)
def test_a_log_group_is_equal_after_decoding(group: LogGroup) -> None:
    assert loggroup.decode(loggroup.encode(group)) == group


@given(groups)
def test_encoded_bytes_equal_those_of_the_vendor_sdk(group: LogGroup) -> None:
    assert loggroup.encode(group) == to_vendor(group).SerializeToString()


def test_real_lines_are_equal_after_both_codecs() -> None:
    logs = tuple(Log(time=n, contents=(("content", line),)) for n, line in enumerate(real_lines()))
    body = loggroup.encode(LogGroup(logs=logs, topic="access"))
    assert [value for log in loggroup.decode(body).logs for _, value in log.contents] == real_lines()
    vendor = LogGroupRaw()
    vendor.ParseFromString(body)
    assert [content.Value for log in vendor.Logs for content in log.Contents] == real_lines()


def test_text_and_bytes_may_both_be_given() -> None:
    as_text = Log(time=1, contents=(("ключ", "значение"),))
    as_bytes = Log(time=1, contents=(("ключ".encode(), "значение".encode()),))
    assert loggroup.encode(LogGroup(logs=(as_text,))) == loggroup.encode(LogGroup(logs=(as_bytes,)))


@pytest.mark.parametrize("time", [-1, 2**32])
def test_time_must_fit_32_bits(time: int) -> None:
    with pytest.raises(MalformedLogGroup, match="32 bits"):
        loggroup.encode(LogGroup(logs=(Log(time=time, contents=()),)))


@pytest.mark.parametrize("time_ns", [-1, 1_000_000_000])
def test_time_ns_is_below_a_second(time_ns: int) -> None:
    with pytest.raises(MalformedLogGroup, match="below one second"):
        loggroup.encode(LogGroup(logs=(Log(time=0, contents=(), time_ns=time_ns),)))


# --- lists -----------------------------------------------------------------------------------


@given(st.lists(groups, max_size=4))
def test_a_list_equals_that_of_the_vendor_sdk_and_splits_into_the_same_bytes(created: list[LogGroup]) -> None:
    bodies = [loggroup.encode(group) for group in created]
    listed = loggroup.wrap(bodies)
    vendor = LogGroupListRaw()
    vendor.ParseFromString(listed)
    assert [g.SerializeToString() for g in vendor.LogGroups] == bodies
    assert [bytes(view) for view in loggroup.split(listed)] == bodies
    assert loggroup.wrap(memoryview(body) for body in bodies) == listed


@given(st.integers(0, 2**40))
def test_header_of_a_list_is_what_wrap_writes(size: int) -> None:
    header = loggroup.list_header(size)
    assert header[0] == 0x0A
    assert len(header) <= 8
    if size < 1000:
        assert loggroup.wrap([bytes(size)]) == header + bytes(size)


def test_text_list_reads_what_is_text() -> None:
    """Python reads with text values first (docs/sls-protocol.md 3)."""
    group = LogGroup(logs=(Log(time=1, contents=(("k", "v"),)),))
    vendor = LogGroupList()
    vendor.ParseFromString(loggroup.wrap([loggroup.encode(group)]))
    assert vendor.LogGroups[0].Logs[0].Contents[0].Value == "v"


@given(st.binary(max_size=60))
def test_arbitrary_bytes_are_malformed_and_never_crash(body: bytes) -> None:
    for read in (loggroup.decode, lambda raw: list(loggroup.split(raw))):
        try:
            read(body)
        except MalformedLogGroup:
            continue


@given(groups, st.data())
def test_truncated_list_is_malformed(group: LogGroup, data: st.DataObject) -> None:
    listed = loggroup.wrap([loggroup.encode(group)])
    cut = data.draw(st.integers(1, len(listed) - 1))
    with pytest.raises(MalformedLogGroup):
        list(loggroup.split(listed[:cut]))
