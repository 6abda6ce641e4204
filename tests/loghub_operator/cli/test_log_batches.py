"""Lines to logs, logs to batches, and their pace: values in, values out."""

import itertools
from pathlib import Path

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.wire import loggroup
from loghub.wire.loggroup import Log
from loghub_operator.cli.followed_file import FollowedFile
from loghub_operator.cli.log_batches import Batch, Batches, BatchLimits, Pace
from loghub_operator.cli.log_lines import MAX_LINE_BYTES, BadLine, LineBuffer, Origin

ONE, OTHER = Origin(topic="one"), Origin(topic="other")


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


def test_a_line_without_an_end_is_refused_before_it_is_long() -> None:
    buffer = LineBuffer()
    (line,) = buffer.add(b"a\n" + b"x" * MAX_LINE_BYTES)
    assert line.data == b"a"
    with pytest.raises(BadLine, match="line 2 has more than"):
        list(buffer.add(b"x"))


def batches(limits: BatchLimits, *logs: tuple[str, Origin]) -> list[Batch]:
    collected = Batches(limits)
    result: list[Batch] = []
    for number, (text, origin) in enumerate(logs, start=1):
        log = Log(time=1, contents=(("line", text),))
        result += collected.add(log, origin, line=number, now=float(number))
    return [*result, *collected.end()]


def texts(batch: Batch) -> list[str | bytes]:
    return [log.contents[0][1] for log in batch.logs]


def test_a_batch_ends_by_its_logs_its_bytes_and_its_origin() -> None:
    limits = BatchLimits(logs=2, size=1 << 20, linger_s=1)
    assert [texts(one) for one in batches(limits, ("a", ONE), ("b", ONE), ("c", ONE))] == [["a", "b"], ["c"]]
    result = batches(limits, ("a", ONE), ("b", OTHER), ("c", OTHER))
    assert [(one.origin, texts(one)) for one in result] == [(ONE, ["a"]), (OTHER, ["b", "c"])]
    assert [(one.first_line, one.last_line) for one in result] == [(1, 1), (2, 3)]
    assert loggroup.decode(result[0].encoded()).topic == "one"
    small = BatchLimits(logs=100, size=200, linger_s=1)
    result = batches(small, ("x" * 100, ONE), ("y" * 100, ONE), ("z" * 500, ONE), ("a", ONE))
    assert [len(one.logs) for one in result] == [1, 1, 1, 1], (
        "a log that is larger alone is a batch of its own"
    )


def test_a_batch_ends_when_its_first_log_has_waited() -> None:
    collected = Batches(BatchLimits(logs=100, size=1000, linger_s=1))
    assert list(collected.tick(now=5.0)) == []
    assert list(collected.add(Log(time=1, contents=()), ONE, line=1, now=5.0)) == []
    assert list(collected.tick(now=5.9)) == []
    assert len(list(collected.tick(now=6.0))) == 1
    assert list(collected.end()) == []


def test_a_pace_has_no_bursts() -> None:
    pace = Pace(10)
    assert pace.wait_s(now=0) == 0
    pace.sent(5, now=0)
    assert pace.wait_s(now=0.1) == pytest.approx(0.4)
    pace.sent(5, now=0.1)
    assert pace.wait_s(now=0.1) == pytest.approx(0.9)
    assert pace.wait_s(now=100) == 0
    pace.sent(5, now=100)
    assert pace.wait_s(now=100) == pytest.approx(0.5), "the pause was not saved up"


# --- a file that grows ---------------------------------------------------------------------------


def followed(file: Path, *changes: object, from_end: bool = False) -> list[bytes | None]:
    """What is read while these changes happen, one at each look that finds nothing."""
    todo = iter(changes)

    def wait() -> bool:
        change = next(todo, None)
        if callable(change):
            change()
        return change is not None

    chunks = FollowedFile(file, from_end=from_end, wait=wait).chunks()
    return [chunk for chunk in itertools.islice(chunks, 100) if chunk != b""]


def append(file: Path, text: str) -> None:
    with file.open("a") as writer:
        writer.write(text)


def test_a_file_is_followed_through_every_kind_of_rotation(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    file.write_text("1")

    def rename() -> None:
        append(file, "2")
        file.rename(tmp_path / "a.log.1")

    def late_and_new() -> None:
        append(tmp_path / "a.log.1", "3")
        file.write_text("4")

    def truncate() -> None:
        file.write_text("")

    changes = (
        rename,
        late_and_new,
        truncate,
        lambda: append(file, "5"),
        file.unlink,
        lambda: file.write_text("6"),
    )
    assert followed(file, *changes) == [b"1", b"2", b"3", None, b"4", None, b"5", None, b"6"]


def test_a_file_is_followed_from_its_end_and_must_exist(tmp_path: Path) -> None:
    file = tmp_path / "a.log"
    with pytest.raises(FileNotFoundError):
        followed(file)
    file.write_text("old")
    assert followed(file, lambda: append(file, "new"), from_end=True) == [b"new"]
