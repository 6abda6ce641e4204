"""The count that the cluster tests rely on detects a lost, a duplicated and an altered line."""

from collections import Counter
from itertools import islice
from pathlib import Path

import msgspec
import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from tests.cluster import lines
from tests.cluster.lines import Line

LINES = list(islice(lines.endless(), 50))


def write(folder: Path, name: str, rows: list[Line]) -> None:
    names = ("file", "pass", "number", "line")
    columns = {name: [row[at] for row in rows] for at, name in enumerate(names)}
    pq.write_table(pa.table(columns), folder / name)


def test_every_line_exactly_once_is_a_success(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", LINES[:20])
    write(tmp_path, "b.parquet", LINES[20:])
    lines.wait_equal(lambda: lines.in_parquet(tmp_path), Counter(LINES), what="sink", guard_s=1)


def test_a_lost_file_is_detected(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", LINES[:20])
    with pytest.raises(AssertionError, match="30 lines lost"):
        lines.wait_equal(lambda: lines.in_parquet(tmp_path), Counter(LINES), what="sink", guard_s=0)


def test_a_duplicated_line_is_detected(tmp_path: Path) -> None:
    write(tmp_path, "a.parquet", [*LINES, LINES[0]])
    with pytest.raises(AssertionError, match="1 lines too many"):
        lines.wait_equal(lambda: lines.in_parquet(tmp_path), Counter(LINES), what="sink", guard_s=0)


def test_an_altered_line_is_detected(tmp_path: Path) -> None:
    name, turn, number, text = LINES[0]
    write(tmp_path, "a.parquet", [(name, turn, number, text + "!"), *LINES[1:]])
    with pytest.raises(AssertionError, match="1 lines lost"):
        lines.wait_equal(lambda: lines.in_parquet(tmp_path), Counter(LINES), what="sink", guard_s=0)


def test_files_that_are_not_part_of_the_sink_do_not_count(tmp_path: Path) -> None:
    stage = tmp_path / "_loghub" / "stage"
    stage.mkdir(parents=True)
    write(stage, "a.parquet", LINES)
    assert lines.in_parquet(tmp_path) == Counter()


def test_what_processors_wrote_counts_up_to_the_line_that_is_being_written(tmp_path: Path) -> None:
    written = [msgspec.json.encode([str(part) for part in line]) + b"\n" for line in LINES]
    (tmp_path / "one").write_bytes(b"".join(written[:20]))
    (tmp_path / "other").write_bytes(b"".join(written[19:]) + written[0][:-1])
    assert lines.in_files(tmp_path) == Counter(LINES) + Counter([LINES[19]])


def test_lines_have_an_identity_even_where_texts_are_equal() -> None:
    many = list(islice(lines.endless(), 5000))
    assert len(set(many)) == len(many)
