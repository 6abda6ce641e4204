"""Lines to logs, logs to batches, and their pace: values in, values out."""

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import loggroup
from loghub.wire.loggroup import Log
from loghub_cli.log_lines import LineBuffer, LinesOrigin, PrintedPlace, as_line
from loghub_cli.put import LineBatch, LineBatches, LineBatchLimits, SendingPace

ONE, OTHER = LinesOrigin(topic="one"), LinesOrigin(topic="other")


@pytest.mark.parametrize(
    ("contents", "printed"),
    [
        ((("line", "GET /"),), "GET /"),
        ((("cid", "c-1"),), "cid=c-1"),  # a bare value below `user=ann  ms=12` would say nothing
        ((("user", "ann"), ("ms", "12")), "user=ann  ms=12"),
        ((("line", "a"), ("line", "b")), "line=a  line=b"),
        ((), ""),
    ],
)
def test_only_a_plain_line_is_printed_without_its_field(
    contents: tuple[tuple[str, str], ...], printed: str
) -> None:
    line = as_line(Log(time=0, contents=contents), PrintedPlace(shard=3, cursor="", index=0))
    assert line == f"1970-01-01T00:00:00Z  3  {printed}"


@given(st.binary(max_size=60), st.lists(st.integers(0, 20)))
def test_lines_do_not_depend_on_how_the_bytes_arrive(data: bytes, sizes: list[int]) -> None:
    buffer, at, lines = LineBuffer(), 0, []
    for size in (*sizes, len(data)):
        lines += list(buffer.add(data[at : at + size]))
        at += size
    lines += list(buffer.end())
    expected = data.split(b"\n")
    expected = expected if expected[-1] else expected[:-1]
    assert [line.data for line in lines] == [line.removesuffix(b"\r") for line in expected]
    assert [line.number for line in lines] == list(range(1, len(lines) + 1))


def test_a_line_without_an_end_is_given_out_in_pieces_before_it_is_long() -> None:
    buffer = LineBuffer(10)
    assert [line.data for line in buffer.add(b"a\n" + b"x" * 11)] == [b"a"]
    (first,) = buffer.add(b"x")
    assert (first.data, first.number, first.too_long, first.begins) == (b"x" * 10, 2, True, True)
    second, last = buffer.add(b"x" * 5 + b"\nb\n")
    assert (second.data, second.number, second.too_long, second.begins) == (b"x" * 7, 2, True, False)
    assert (last.data, last.number, last.too_long) == (b"b", 3, False)


def test_sizes_are_those_of_the_bytes() -> None:
    limits = LineBatchLimits(logs=100, size=1000, linger_s=1)
    assert [len(one.logs) for one in batches(limits, *[("支" * 100, ONE)] * 6)] == [2, 2, 2]


def batches(limits: LineBatchLimits, *logs: tuple[str, LinesOrigin]) -> list[LineBatch]:
    collected = LineBatches(limits)
    result: list[LineBatch] = []
    for number, (text, origin) in enumerate(logs, start=1):
        log = Log(time=1, contents=(("line", text),))
        result += collected.add(log, origin, line=number, now=float(number))
    return [*result, *collected.end()]


def texts(batch: LineBatch) -> list[str | bytes]:
    return [log.contents[0][1] for log in batch.logs]


def test_a_batch_ends_by_its_logs_its_bytes_and_its_origin() -> None:
    limits = LineBatchLimits(logs=2, size=1 << 20, linger_s=1)
    assert [texts(one) for one in batches(limits, ("a", ONE), ("b", ONE), ("c", ONE))] == [["a", "b"], ["c"]]
    result = batches(limits, ("a", ONE), ("b", OTHER), ("c", OTHER))
    assert [(one.origin, texts(one)) for one in result] == [(ONE, ["a"]), (OTHER, ["b", "c"])]
    assert [(one.first_line, one.last_line) for one in result] == [(1, 1), (2, 3)]
    assert loggroup.decode(result[0].encoded()).topic == "one"
    small = LineBatchLimits(logs=100, size=200, linger_s=1)
    result = batches(small, ("x" * 100, ONE), ("y" * 100, ONE), ("z" * 500, ONE), ("a", ONE))
    assert [len(one.logs) for one in result] == [1, 1, 1, 1], (
        "a log that is larger alone is a batch of its own"
    )


def test_a_batch_ends_when_its_first_log_has_waited() -> None:
    collected = LineBatches(LineBatchLimits(logs=100, size=1000, linger_s=1))
    assert list(collected.tick(now=5.0)) == []
    assert list(collected.add(Log(time=1, contents=()), ONE, line=1, now=5.0)) == []
    assert list(collected.tick(now=5.9)) == []
    assert len(list(collected.tick(now=6.0))) == 1
    assert list(collected.end()) == []


def test_a_pace_has_no_bursts() -> None:
    pace = SendingPace(10)
    assert pace.wait_s(now=0) == 0
    pace.sent(5, now=0)
    assert pace.wait_s(now=0.1) == pytest.approx(0.4)
    pace.sent(5, now=0.1)
    assert pace.wait_s(now=0.1) == pytest.approx(0.9)
    assert pace.wait_s(now=100) == 0
    pace.sent(5, now=100)
    assert pace.wait_s(now=100) == pytest.approx(0.5), "the pause was not saved up"
