"""The independent count: what it must detect if lines are missing, duplicated, changed or never sent."""

import os
from collections import Counter
from pathlib import Path

import pyarrow as pa
import pyarrow.parquet as pq
import pytest

from loghub_cli.demo.ground_truth import RecordWriter, SourceLine, Truth, identity, read_record
from loghub_cli.demo.verify import SinkCounter, compare, main, read_sink


def line(number: int, text: str = "same text", turn: int = 1) -> SourceLine:
    return SourceLine(file="a.log", turn=turn, number=number, text=text)


def record(path: Path, groups: list[tuple[list[SourceLine], str | None]]) -> Path:
    with path.open("wb") as file:
        writer = RecordWriter(file)
        for number, (lines, outcome) in enumerate(groups, 1):
            writer.sending(number, lines)
            if outcome is not None:
                writer.outcome(number, outcome)  # type: ignore[arg-type]
    return path


def sink(folder: Path, name: str, lines: list[SourceLine]) -> Path:
    folder.mkdir(exist_ok=True, parents=True)
    rows = {
        "file": [one.file for one in lines],
        "pass": pa.array([one.turn for one in lines], pa.int64()),
        "number": pa.array([one.number for one in lines], pa.int64()),
        "line": [one.text for one in lines],
        "shard": [0] * len(lines),
    }
    path = folder / name
    pq.write_table(pa.table(rows), path)
    return path


def test_every_line_present_once_is_a_success(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    truth = record(tmp_path / "record", [([line(1), line(2)], "sent"), ([line(1, turn=2)], "sent")])
    sink(tmp_path / "sink", "a.parquet", [line(2), line(1, turn=2)])
    sink(tmp_path / "sink", "b.parquet", [line(1)])
    assert main([str(truth), str(tmp_path / "sink")]) == 0
    assert capsys.readouterr().out == "sent 3, in the sink 3, lost 0, duplicates 0\n"
    assert SinkCounter(tmp_path / "sink").count() == 3


def test_a_deleted_file_is_lost_lines_and_exit_status_1(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    truth = record(tmp_path / "record", [([line(1), line(2), line(3)], "sent")])
    sink(tmp_path / "sink", "a.parquet", [line(1)])
    sink(tmp_path / "sink", "b.parquet", [line(2), line(3)]).unlink()
    assert main([str(truth), str(tmp_path / "sink")]) == 1
    assert capsys.readouterr().out == "sent 3, in the sink 1, lost 2, duplicates 0\n"


def test_equal_lines_are_counted_and_a_repeated_row_is_a_duplicate(tmp_path: Path) -> None:
    truth = read_record(record(tmp_path / "record", [([line(1), line(2)], "sent")]))
    sink(tmp_path / "sink", "a.parquet", [line(1), line(2), line(2)])
    verdict = compare(truth, read_sink(tmp_path / "sink"))
    assert (verdict.lost, verdict.duplicates, verdict.foreign) == (0, 1, 0)
    assert not verdict.exactly_once


def test_a_changed_text_is_lost_and_foreign(tmp_path: Path) -> None:
    truth = read_record(record(tmp_path / "record", [([line(1, "as sent")], "sent")]))
    sink(tmp_path / "sink", "a.parquet", [line(1, "otherwise")])
    verdict = compare(truth, read_sink(tmp_path / "sink"))
    assert (verdict.lost, verdict.duplicates, verdict.foreign) == (1, 0, 1)


def test_an_uncertain_group_may_be_present_once_or_missing(tmp_path: Path) -> None:
    path = record(tmp_path / "record", [([line(1)], "sent"), ([line(2)], "unsure"), ([line(3)], None)])
    truth = read_record(path)
    assert truth.unsure.total() == 2
    without = Counter([identity("a.log", 1, 1, "same text")])
    also = without + Counter([identity("a.log", 1, 2, "same text")])
    assert compare(truth, without).exactly_once
    assert compare(truth, also).exactly_once
    assert compare(truth, also + also).duplicates == 2


def test_a_record_cut_off_in_its_last_entry_can_be_read(tmp_path: Path) -> None:
    path = record(tmp_path / "record", [([line(1)], "sent"), ([line(2)], "sent")])
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    truth = read_record(path)
    assert (truth.sent.total(), truth.unsure.total()) == (1, 1)


def test_hidden_files_are_not_counted(tmp_path: Path) -> None:
    sink(tmp_path / "sink" / "_loghub" / "stage", "a.parquet", [line(1)])
    sink(tmp_path / "sink", ".b.parquet", [line(1)])
    assert read_sink(tmp_path / "sink") == Counter()


def test_without_logs_nothing_is_lost(tmp_path: Path) -> None:
    assert compare(Truth(sent=Counter(), unsure=Counter()), read_sink(tmp_path / "none")).lost == 0
    assert main([str(tmp_path / "absent"), str(tmp_path)]) == 2


def test_hidden_folders_that_vanish_meanwhile_do_not_stop_the_count(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    stage = tmp_path / "sink" / "_loghub" / "stage"
    sink(stage, "a.parquet", [line(1)])
    sink(tmp_path / "sink", "b.parquet", [line(2)])
    real = os.scandir

    def scandir(path: str) -> object:
        if "_loghub" in str(path):
            raise FileNotFoundError(path)
        return real(path)

    monkeypatch.setattr(os, "scandir", scandir)
    assert SinkCounter(tmp_path / "sink").count() == 1
