"""`loghub fsck`: what it lists of damaged log data, and how the log goes on; it only reads otherwise.

Each story begins with a folder on which the service refuses to start, and ends with one on which it serves
what is left, and gives no cursor out twice.
"""

import shutil
from pathlib import Path

import pytest
import yaml

from loghub.progress_line import ProgressLine
from loghub_service import server
from loghub_service.engine import Engine
from loghub_service.fsck.__main__ import main
from loghub_service.fsck.folder import FsckProgress
from loghub_service.kafka.broker.store import offset_of
from loghub_service.kafka.shard_bounds import shard_bounds
from loghub_service.ports import OsDisk
from tests.loghub_service.engines import STORE_ID, ManualClock, live
from tests.loghub_service.fsck_runs import (
    FIRST,
    Fsck,
    as_killed,
    files,
    first_groups,
    flip,
    only_lists,
    put,
    segment_of,
    segments,
    stored,
)
from tests.loghub_service.simdisk import SimDisk
from tests.loghub_service.storage import old_format


def test_a_whole_folder_is_whole(fsck: Fsck, data: Path) -> None:
    before = files(data)
    reported = fsck("--check-data")
    assert (reported.status, reported.kinds, reported.document["starts"]) == (0, [], True)
    assert files(data) == before


@pytest.mark.long
def test_a_damaged_tail_is_dropped_and_the_log_goes_on_above_it(
    fsck: Fsck, data: Path, clock: ManualClock
) -> None:
    flip(segment_of(data, b"first 29 "), b"first 29 ")
    reported = only_lists(fsck, data)
    assert (reported.kinds, reported.lost) == (["damaged_records"], [(FIRST + 29, None)])
    repaired = fsck("--accept-loss", f"{STORE_ID}/0")
    assert (repaired.status, repaired.kinds) == (0, [])
    assert f"[{FIRST + 29}, {FIRST + 30})" in repaired.document["repairs"][0]

    async def after(engine: Engine) -> None:
        # The service was stopped cleanly, so its end is known exactly.
        assert engine.logs[STORE_ID, 0].extent.end_cursor == FIRST + 30
        assert stored(engine) == first_groups(*range(29))
        await put(engine, 1, name="second")
        assert stored(engine) == first_groups(*range(29)) | {FIRST + 30: b"second 0"}
        place = engine.logs[STORE_ID, 0].place(FIRST, now_us=engine.now_us())
        assert (place.groups_left, place.logs_left) == (30, 30)

    live(data, clock, after)
    live(data, clock, after_restart)
    assert len([*data.glob("lost-and-found/*/logs/*/*/*.seg")]) == 1


async def after_restart(engine: Engine) -> None:
    assert max(stored(engine)) == FIRST + 30


def test_a_kafka_client_can_read_up_to_the_end_of_a_log_that_goes_on_above_a_loss(
    fsck: Fsck, data: Path, clock: ManualClock
) -> None:
    flip(segment_of(data, b"first 29 "), b"first 29 ")
    assert fsck("--accept-loss", "all").status == 0

    async def after(engine: Engine) -> None:
        log = engine.logs[STORE_ID, 0]
        bounds = await shard_bounds(log)
        assert (bounds.end, bounds.next) == (offset_of(28, 1), offset_of(30))
        await put(engine, 1, name="second")
        bounds = await shard_bounds(log)
        assert (bounds.end, bounds.next) == (offset_of(30, 1), offset_of(31))

    live(data, clock, after)


def test_without_a_clean_stop_the_log_goes_on_far_above_what_is_known(
    fsck: Fsck, data: Path, clock: ManualClock, tmp_path: Path
) -> None:
    """More may have been acknowledged than the database knows."""
    as_killed(data, clock, tmp_path)
    flip(segment_of(data, b"first 29 "), b"first 29 ")
    assert fsck("--accept-loss", "all").status == 0

    async def after(engine: Engine) -> None:
        end = engine.logs[STORE_ID, 0].extent.end_cursor
        assert FIRST + 100_000 < end < FIRST + 10_000_000
        assert stored(engine) == first_groups(*range(29))
        await put(engine, 1, name="second")
        assert stored(engine)[end] == b"second 0"

    live(data, clock, after)


@pytest.mark.long
def test_an_older_catalog_knows_no_exact_end_although_the_logs_were_stopped_cleanly(
    fsck: Fsck, data: Path, clock: ManualClock, tmp_path: Path
) -> None:
    shutil.copy(data / "metadata.sqlite", tmp_path)

    async def later(engine: Engine) -> None:
        await put(engine, 10, name="later")

    live(data, clock, later)
    shutil.copy(tmp_path / "metadata.sqlite", data)
    flip(segment_of(data, b"later 8 "), b"later 8 ")
    flip(segment_of(data, b"later 9 "), b"later 9 ")
    assert fsck("--accept-loss", "all").status == 1
    assert fsck("--accept-catalog").status == 0

    async def after(engine: Engine) -> None:
        await put(engine, 1, name="second")
        assert max(stored(engine)) >= FIRST + 40

    live(data, clock, after)


@pytest.mark.parametrize("lose", [3, 29])
def test_a_damaged_record_loses_only_itself(fsck: Fsck, data: Path, clock: ManualClock, lose: int) -> None:
    """Also in a sealed segment, whose records only --check-data reads."""
    flip(segment_of(data, b"first %d " % lose), b"first %d " % lose)
    reported = fsck("--check-data")
    assert reported.status == 1
    assert reported.lost[0][0] == FIRST + lose
    assert fsck("--check-data", "--accept-loss", f"{STORE_ID}/0").status == 0
    assert fsck("--check-data").kinds == []

    async def after(engine: Engine) -> None:
        assert stored(engine) == first_groups(*(number for number in range(30) if number != lose))
        await put(engine, 1, name="second")
        assert stored(engine)[FIRST + 30] == b"second 0"

    live(data, clock, after)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_missing_segment_is_dropped(fsck: Fsck, data: Path, clock: ManualClock, which: int) -> None:
    paths = segments(data)
    assert len(paths) >= 4
    cursors = [int(path.name[:20]) for path in paths] + [FIRST + 30]
    index = which % len(paths)
    lost = (cursors[index], cursors[index + 1])
    paths[which].unlink()
    reported = only_lists(fsck, data)
    assert (reported.kinds, reported.lost) == (["missing_records"], [lost])
    assert fsck("--accept-loss", "all").status == 0

    async def after(engine: Engine) -> None:
        kept = (number for number in range(30) if not lost[0] <= FIRST + number < lost[1])
        assert stored(engine) == first_groups(*kept)
        await put(engine, 1, name="second")
        assert stored(engine)[FIRST + 30] == b"second 0"

    live(data, clock, after)


@pytest.mark.parametrize("which", [0, 1, -1])
def test_a_segment_with_a_damaged_header_keeps_its_records(
    fsck: Fsck, data: Path, clock: ManualClock, which: int
) -> None:
    path = segments(data)[which]
    path.write_bytes(b"?" * 64 + path.read_bytes()[64:])
    assert only_lists(fsck, data).kinds == ["damaged_header"]
    assert fsck("--accept-loss", "all").status == 0

    async def after(engine: Engine) -> None:
        assert stored(engine) == first_groups(*range(30))

    live(data, clock, after)


def test_all_log_data_of_a_shard_may_be_lost(fsck: Fsck, data: Path, clock: ManualClock) -> None:
    for path in segments(data):
        path.unlink()
    assert only_lists(fsck, data).lost == [(FIRST, FIRST + 30)]
    assert fsck("--accept-loss", "all").status == 0

    async def after(engine: Engine) -> None:
        assert stored(engine) == {}
        await put(engine, 1, name="second")
        assert stored(engine) == {FIRST + 30: b"second 0"}

    live(data, clock, after)


def test_harmless_things_are_listed_and_do_not_prevent_the_start(fsck: Fsck, data: Path) -> None:
    (data / "logs" / "notes.txt").write_text("mine")
    last = segments(data)[-1]
    content = last.read_bytes()
    end = len(content.rstrip(b"\0"))
    last.write_bytes(content[:end] + b"\x05\0\0\0torn" + content[end + 8 :])
    reported = fsck()
    assert reported.status == 0
    assert sorted(reported.kinds) == ["torn_tail", "unknown_file"]


@pytest.mark.long
def test_it_refuses_while_a_service_owns_the_folder(fsck: Fsck, data: Path) -> None:
    with server.owned(OsDisk(), str(data)):
        reported = fsck()
    assert reported.status == 3
    assert "in use by process" in reported.error


@pytest.mark.long
@pytest.mark.parametrize("arguments", [["--accept-loss", "x"], ["--adopt", "1=p"], ["--drop", "all"]])
def test_an_invalid_command_line_is_a_usage_error(data: Path, arguments: list[str]) -> None:
    with pytest.raises(SystemExit) as ended:
        main([str(data), *arguments])
    assert ended.value.code == 2


def test_a_folder_that_is_none_of_a_service_is_refused(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    assert main([str(tmp_path)]) == 2
    assert main([str(tmp_path / "absent")]) == 2
    (tmp_path / "file").touch()
    assert main([str(tmp_path / "file")]) == 2
    assert "not a data folder" in capsys.readouterr().err


def test_words_for_people_say_what_to_do(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    flip(segment_of(data, b"first 29 "), b"first 29 ")
    assert main([str(data)]) == 1
    printed = capsys.readouterr().out
    assert f"p/ls shard 0 ({data}/logs/00000001/000000)" in printed
    assert "lost: from cursor 1029 to the end, which is not known" in printed
    assert "--accept-loss 1/0" in printed
    assert printed.endswith("1 problem, see above\n")


def test_every_format_of_the_output_has_the_same_values(
    fsck: Fsck, data: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    flip(segment_of(data, b"first 29 "), b"first 29 ")
    in_json = fsck()
    assert main([str(data), "-o", "yaml"]) == 1
    assert yaml.safe_load(capsys.readouterr().out) == in_json.document


class FastClock(ManualClock):
    """A second passes whenever it is asked."""

    def monotonic_s(self) -> float:
        self.now_s += 1
        return self.now_s


def test_a_terminal_shows_how_far_it_is(data: Path, capsys: pytest.CaptureFixture[str]) -> None:
    sealed = segments(data)[:-1]
    progress = FsckProgress(ProgressLine(FastClock(), enabled=True))
    assert main([str(data), "--check-data"], progress=progress) == 0
    lines = [line.removesuffix("\x1b[K") for line in capsys.readouterr().err.split("\r")]
    total = sum(path.stat().st_size for path in sealed) / 1e6
    assert lines[:2] == ["", "shard 1 of 1"]
    assert lines[-2:] == [f"{total:,.1f} of {total:,.1f} MB of records", ""]
    assert len(lines) == 3 + len(sealed)
    assert main([str(data), "--check-data"]) == 0
    assert capsys.readouterr().err == ""  # no terminal


@pytest.mark.long
def test_a_log_of_the_old_format_goes_on_above_its_checkpoint(
    fsck: Fsck, data: Path, clock: ManualClock
) -> None:
    """Its damaged tail looks like a torn one, but the checkpoint says that it was acknowledged."""
    disk = SimDisk()
    groups = [f"first {number} ".encode() * 50 for number in range(30)]
    old_format.write_log(disk, "/log", groups, first_cursor=FIRST, per_segment=8, size=8192)
    for path in segments(data):
        path.unlink()
    for name in disk.list_names("/log"):
        content = bytes(disk.live[f"/log/{name}"].live)
        (data / "logs" / f"{STORE_ID:08d}" / "000000" / name).write_bytes(content)
    assert fsck("--check-data").status == 0
    flip(segment_of(data, b"first 29 "), b"first 29 ")
    assert only_lists(fsck, data).lost == [(FIRST + 29, FIRST + 30)]
    assert fsck("--accept-loss", "all").status == 0

    async def after(engine: Engine) -> None:
        assert stored(engine) == first_groups(*range(29))
        await put(engine, 1, name="second")
        assert stored(engine)[FIRST + 30] == b"second 0"

    live(data, clock, after)
