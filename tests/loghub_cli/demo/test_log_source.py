"""The demo's lines: identities, passes, bytes that are not text, files that have no lines."""

import itertools
import os
import re
from pathlib import Path

import pytest

from loghub.wire import loggroup
from loghub_cli.demo.ground_truth import (
    MAX_LINE_BYTES,
    BadLogsError,
    SourceLine,
    check_file,
    generated,
    of_file,
)
from loghub_cli.demo.producer import GROUP_BYTES, encode, take
from tests.support import ROOT

LOGS = Path(os.environ.get("LOGHUB_TEST_LOGS", ROOT.parent / "shared" / "data" / "logs"))
# Without the folder the same test runs on lines of our own.
REAL: list[Path | None] = [*sorted(LOGS.glob("*.log"))] or [None]
COMBINED = re.compile(r'^\S+ \S+ \S+ \[[^\]]+\] "[A-Z]+ \S+ HTTP/1\.1" \d{3} (\d+|-) "-" "[^"]+"$')


def written(folder: Path, content: bytes) -> Path:
    path = folder / "some.log"
    path.write_bytes(content)
    return path


@pytest.mark.parametrize("given", REAL, ids=lambda path: path.name if path else "generated")
def test_a_file_is_repeated_with_a_pass_number(given: Path | None, tmp_path: Path) -> None:
    path = given or written(tmp_path, b"".join(b"line %d\r\n" % (n % 7) for n in range(2000)))
    raw = path.read_bytes().split(b"\n")
    bodies = [one.rstrip(b"\r") for one in (raw[:-1] if raw[-1] == b"" else raw)]
    lines = list(itertools.islice(of_file(path), 2 * len(bodies) + 1))
    assert [line.text.encode() for line in lines[: len(bodies)]] == bodies
    assert [line.number for line in lines] == [*range(1, len(bodies) + 1)] * 2 + [1]
    assert [line.turn for line in lines] == [1] * len(bodies) + [2] * len(bodies) + [3]
    assert {line.file for line in lines} == {path.name}


def test_bytes_that_are_not_text_are_shown_and_empty_lines_count(tmp_path: Path) -> None:
    path = written(tmp_path, b"caf\xe9\n\n\xc3\xa9t\xc3\xa9 \\x41\nlast")
    lines = list(itertools.islice(of_file(path), 4))
    assert [line.text for line in lines] == ["caf\\xe9", "", "été \\x41", "last"]
    assert [line.replaced for line in lines] == [True, False, False, False]


def test_a_line_that_is_too_long_is_cut_and_the_next_one_is_whole(tmp_path: Path) -> None:
    path = written(tmp_path, b"x" * (3 * MAX_LINE_BYTES) + b"\nnext\n")
    first, second = itertools.islice(of_file(path), 2)
    assert (len(first.text), first.cut) == (MAX_LINE_BYTES, True)
    assert (second.text, second.number, second.cut) == ("next", 2, False)


def test_an_unusable_file_is_rejected(tmp_path: Path) -> None:
    for path, message in (
        (tmp_path / "absent", "there is no file"),
        (tmp_path, "is not a file"),
        (written(tmp_path, b""), "is empty"),
    ):
        with pytest.raises(BadLogsError, match=message):
            check_file(path)


def test_the_generated_access_log_is_the_same_for_a_seed() -> None:
    lines = list(itertools.islice(generated(1, lambda: 1_790_000_000.0), 500))
    assert all(COMBINED.match(line.text) for line in lines)
    assert [line.number for line in lines] == list(range(1, 501))
    assert lines == list(itertools.islice(generated(1, lambda: 1_790_000_000.0), 500))
    assert lines != list(itertools.islice(generated(2, lambda: 1_790_000_000.0), 500))


def test_groups_are_bounded_in_lines_and_bytes_and_lose_nothing() -> None:
    texts = ["é" * (GROUP_BYTES // 8)] * 9 + ["short"] * 20
    lines = iter([SourceLine(file="f", turn=1, number=n, text=text) for n, text in enumerate(texts, 1)])
    carried: list[SourceLine] = []
    groups: list[list[SourceLine]] = []
    while sum(len(group) for group in groups) + len(carried) < len(texts) - 5:
        group, carried = take(lines, carried, 5)
        groups.append(group)
    numbers = [line.number for group in groups for line in group] + [line.number for line in carried]
    assert numbers == list(range(1, len(numbers) + 1))
    assert max(len(group) for group in groups) == 5
    assert max(len(encode(group, unix_s=1)) for group in groups) < 2 * GROUP_BYTES


def test_a_group_has_the_line_and_its_identity() -> None:
    line = SourceLine(file="a.log", turn=2, number=7, text="été")
    group = loggroup.decode(encode([line], unix_s=12))
    (log,) = group.logs
    assert log.time == 12
    assert dict(log.contents) == {
        "line": "été".encode(),
        "file": b"a.log",
        "pass": b"2",
        "number": b"7",
    }
