"""A Delta table has each log once: writers that race, die, sleep, or do not know what became of a commit."""

import errno
import os
import secrets
import shutil
import subprocess
import sys
import threading
import time
from collections import Counter
from collections.abc import Iterator, Mapping
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import pyarrow as pa
import pytest
from deltalake import write_deltalake
from deltalake.exceptions import CommitFailedError

from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.delta.sink import ABANDONED_S
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from tests.loghub_worker.sink import delta_child
from tests.loghub_worker.sink.commit_log_child import date_back
from tests.loghub_worker.sink.delta_child import BEGIN, END, SHARDS
from tests.loghub_worker.sink.delta_tables import (
    actions,
    active_files,
    delivered,
    ids,
    opened,
    rows,
    table_sink,
)
from tests.support import PYTHON_PATH, ROOT

# A table of files takes half a second for a few commits.
pytestmark = pytest.mark.long

GUARD_S = 120
NO_BUCKET: Mapping[str, str] = {}


def start(
    folder: Path, name: str, step: str = "-", nth: int = 0, *, bucket: Mapping[str, str] = NO_BUCKET
) -> subprocess.Popen[str]:
    """A writer. `bucket` are the variables that lead it to a bucket."""
    module = "tests.loghub_worker.sink.delta_child"
    command = [sys.executable, "-m", module, str(folder), name, step, str(nth)]
    environment = os.environ | {"PYTHONPATH": PYTHON_PATH} | bucket
    return subprocess.Popen(command, cwd=ROOT, env=environment, stdout=subprocess.PIPE, text=True)


def run(*processes: subprocess.Popen[str]) -> list[str]:
    """What they print. All of them have ended then."""
    try:
        return [process.communicate(timeout=GUARD_S)[0] for process in processes]
    finally:
        for process in processes:
            process.kill()
            process.wait()


def everything() -> Counter[str]:
    return Counter(one for shard in SHARDS for one in ids(shard, BEGIN, END))


def deliver(sink: Any, begin: int, end: int) -> None:
    batch = f"w-{secrets.token_hex(8)}"
    sink.write(rows(0, begin, end), batch)
    sink.publish(batch, (Range(0, begin, end),), lambda: True)


def test_four_racing_writers_deliver_everything_once(tmp_path: Path) -> None:
    printed = run(*(start(tmp_path, f"w-{number}") for number in range(4)))
    won, refused = (sum(map(int, column)) for column in zip(*map(str.split, printed), strict=True))
    print(f"\n{won} batches committed, {refused} refused")
    assert delivered(tmp_path / "table") == everything()
    assert len(list((tmp_path / "table").glob("*.parquet"))) == won, "files of refused batches are removed"


@pytest.mark.parametrize(
    "step", ["file placed", pytest.param("session checked", marks=pytest.mark.deep), "committed"]
)
def test_a_worker_that_is_killed_leaves_nothing_half_done(tmp_path: Path, step: str) -> None:
    victim = start(tmp_path, "w-0", step, 4)
    run(victim)
    assert victim.returncode == -9
    assert 0 < delivered(tmp_path / "table").total() < everything().total()
    delta_child.main(str(tmp_path), "w-0", "-", "0")
    assert delivered(tmp_path / "table") == everything()
    assert list(tmp_path.glob("table/_loghub/p/l/g/stage/*")) == [], "its staged files are removed"


@contextmanager
def stalled(sink: Any, step: str, **how: Any) -> Iterator[list[BaseException]]:
    """A worker that stops at a step, with a batch from 20 to 30 or while it opens the shard, and goes on when
    the body has run. Yields what it then raises."""
    reached, go_on = threading.Event(), threading.Event()
    raised: list[BaseException] = []

    def at_step(name: str) -> None:
        if name == step and not go_on.is_set():
            reached.set()
            assert go_on.wait(GUARD_S)

    def work() -> None:
        try:
            if how:
                opened(sink, **how)
            else:
                deliver(sink, 20, 30)
        except (RangeTakenError, SessionLostError, OSError) as error:
            raised.append(error)

    sink._table.at_step = at_step
    thread = threading.Thread(target=work, daemon=True)
    thread.start()
    try:
        assert reached.wait(GUARD_S), "the step was never reached"
        yield raised
    finally:
        go_on.set()
        thread.join(GUARD_S)
    assert not thread.is_alive()


@pytest.mark.parametrize(
    "step",
    [
        pytest.param("file placed", marks=pytest.mark.deep),
        pytest.param("refreshed", marks=pytest.mark.deep),
        "session checked",
    ],
)
def test_of_two_workers_on_one_shard_the_paused_one_is_refused(tmp_path: Path, step: str) -> None:
    table = tmp_path / "table"
    slow = table_sink(str(table), tmp_path, name="slow")
    opened(slow, 10)
    deliver(slow, 10, 20)
    quick = table_sink(str(table), tmp_path, name="quick")
    with stalled(slow, step) as raised:
        assert opened(quick, 10) == 20
        deliver(quick, 20, 25)
    assert [type(error) for error in raised] == [RangeTakenError]
    assert opened(slow, 10) == 25
    deliver(slow, 25, 30)
    assert delivered(table) == Counter(ids(0, 10, 30))
    assert len(active_files(table)) == len(list(table.glob("*.parquet"))) == 3


def test_a_paused_worker_that_goes_on_first_makes_the_next_one_plan_again(tmp_path: Path) -> None:
    table = tmp_path / "table"
    slow, quick = (table_sink(str(table), tmp_path, name=name) for name in ("slow", "quick"))
    assert opened(slow, 10) == opened(quick, 10) == 10
    deliver(slow, 10, 20)
    with pytest.raises(RangeTakenError):
        deliver(quick, 10, 15)
    assert opened(quick, 10) == 20
    assert delivered(table) == Counter(ids(0, 10, 20))


def test_a_checkpoint_that_was_moved_back_is_delivered_again_once(tmp_path: Path) -> None:
    """Also if the worker that moves the table back dies before it saves the checkpoint, and if the one before
    finds the very cursor that it has left."""
    table = tmp_path / "table"
    before, after = (table_sink(str(table), tmp_path, name=name) for name in ("before", "after"))
    opened(before, 10)
    deliver(before, 10, 20)
    deliver(before, 20, 30)
    for _ in range(2):
        assert opened(after, 15, origin=CheckpointOrigin.MOVED) == 15
    with pytest.raises(RangeTakenError):
        deliver(before, 30, 40)
    deliver(after, 15, 30)
    with pytest.raises(RangeTakenError):
        deliver(before, 30, 40)
    assert opened(before, 15) == 30
    deliver(before, 30, 40)
    assert delivered(table) == Counter(ids(0, 10, 40)) + Counter(ids(0, 15, 30))


@pytest.mark.parametrize("step", ["refreshed", "session checked"])
def test_a_worker_that_stalls_while_it_moves_back_does_not_do_it_twice(tmp_path: Path, step: str) -> None:
    table = tmp_path / "table"
    slow, quick = (table_sink(str(table), tmp_path, name=name) for name in ("slow", "quick"))
    opened(slow, 10)
    deliver(slow, 10, 30)
    with stalled(slow, step, checkpoint=10, origin=CheckpointOrigin.MOVED) as raised:
        assert opened(quick, 10, origin=CheckpointOrigin.MOVED) == 10
        deliver(quick, 10, 30)
    assert [isinstance(error, OSError) for error in raised] == [True]
    assert opened(slow, 10) == 30
    assert delivered(table) == Counter(2 * ids(0, 10, 30))


def test_a_batch_from_before_its_shard_was_opened_again_is_refused(tmp_path: Path) -> None:
    """The worker has lost the shard meanwhile and got it back, so it knows the table's position."""
    table = tmp_path / "table"
    sink, other = (table_sink(str(table), tmp_path, name=name) for name in ("w-0", "w-1"))
    opened(sink, 10)
    sink.write(rows(0, 10, 20), "w-0-early")
    opened(other, 10)
    deliver(other, 10, 30)
    assert opened(sink, 10) == 30
    with pytest.raises(RangeTakenError):
        sink.publish("w-0-early", (Range(0, 10, 20),), lambda: True)
    assert delivered(table) == Counter(ids(0, 10, 30))


def test_a_commit_whose_reply_is_lost_counts_once(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """A repeated request finds its own file and reports a conflict."""
    sink = table_sink(str(tmp_path / "table"), tmp_path)
    opened(sink, 10)
    real = type(sink._table)._commit

    def commit(*arguments: Any) -> None:
        real(*arguments)
        raise CommitFailedError("a concurrent transaction")

    monkeypatch.setattr(type(sink._table), "_commit", commit)
    deliver(sink, 10, 20)
    deliver(sink, 20, 30)
    assert delivered(tmp_path / "table") == Counter(ids(0, 10, 30))


def test_a_commit_with_an_unknown_outcome_keeps_its_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    sink = table_sink(str(tmp_path / "table"), tmp_path)
    opened(sink, 10)
    real = type(sink._table)._commit

    def commit(*arguments: Any) -> None:
        real(*arguments)
        raise OSError(errno.ETIMEDOUT, "no reply")

    with monkeypatch.context() as patch:
        patch.setattr(type(sink._table), "_commit", commit)
        with pytest.raises(OSError, match="no reply"):
            deliver(sink, 10, 20)
    with pytest.raises(RangeTakenError):
        deliver(sink, 10, 20)
    assert opened(sink, 10) == 20
    assert delivered(tmp_path / "table") == Counter(ids(0, 10, 20))


def test_a_disk_that_is_full_leaves_no_files(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    table = tmp_path / "table"
    sink = table_sink(str(table), tmp_path)
    opened(sink, 10)

    def full(_: Path) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        # The file has its name in the table by then.
        patch.setattr(type(sink._files), "placed", full)
        with pytest.raises(OSError, match="No space left"):
            deliver(sink, 10, 20)
    assert [path.name for path in table.rglob("*.parquet")] == []
    deliver(sink, 10, 20)
    assert delivered(table) == Counter(ids(0, 10, 20))


def test_a_session_that_is_over_commits_nothing(tmp_path: Path) -> None:
    sink = table_sink(str(tmp_path / "table"), tmp_path)
    opened(sink, 10)
    sink.write(rows(0, 10, 20), "w-0-1")
    with pytest.raises(SessionLostError):
        sink.publish("w-0-1", (Range(0, 10, 20),), lambda: False)
    assert delivered(tmp_path / "table") == Counter()
    assert list((tmp_path / "table").glob("*.parquet")) == []
    assert opened(sink, 10) == 10


def test_a_batch_without_rows_is_no_commit_and_settled_logs_are(tmp_path: Path) -> None:
    """Settled logs were skipped or dead-lettered, and must not be so again."""
    table = tmp_path / "table"
    sink = table_sink(str(table), tmp_path)
    opened(sink, 10)
    deliver(sink, 10, 10)
    sink.publish("w-0-1", (Range(0, 10, 20),), lambda: True)
    before = len(list(actions(table)))
    sink.write(rows(0, 20, 20), "w-0-2")
    sink.publish("w-0-2", (Range(0, 20, 30),), lambda: True)
    assert len(list(actions(table))) == before
    deliver(sink, 30, 40)
    assert delivered(table) == Counter(ids(0, 30, 40))
    assert opened(sink, 10) == 40
    assert opened(sink, 60) == 60, "a checkpoint ahead of the table was moved there"
    deliver(sink, 60, 70)
    assert opened(sink, 10) == 70


def test_groups_and_recreated_logstores_do_not_meet(tmp_path: Path) -> None:
    sink = table_sink(str(tmp_path / "table"), tmp_path)
    opened(sink, 10)
    deliver(sink, 10, 20)
    assert opened(sink, 10, shard=ShardIncarnation(shard=0, created=2)) == 10


def test_positions_survive_a_checkpoint_of_the_log(tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = table_sink(str(table), tmp_path)
    opened(sink, 10)
    deliver(sink, 10, 30)
    opened(sink, 10, origin=CheckpointOrigin.MOVED)
    sink._table._table.create_checkpoint()
    for commit in sorted(table.glob("_delta_log/*.json"))[:-1]:
        commit.unlink()
    sink = table_sink(str(table), tmp_path)
    assert opened(sink, 5) == 10
    deliver(sink, 10, 20)
    assert delivered(table) == Counter(ids(0, 10, 30) + ids(0, 10, 20))


@pytest.mark.parametrize("commits", [1, 3, 9])
def test_a_table_that_was_created_again_is_the_one_that_gets_the_rows(tmp_path: Path, commits: int) -> None:
    """With fewer commits than the former one, as many, or more. The logs before went with that one."""
    table = tmp_path / "table"
    sink = table_sink(str(table), tmp_path)
    opened(sink, 10)
    for begin in (10, 20):
        deliver(sink, begin, begin + 10)
    shutil.rmtree(table)
    for number in range(commits):
        write_deltalake(table, pa.table({"id": [f"other {number}"]}), mode="append")
    with pytest.raises(RangeTakenError):
        deliver(sink, 30, 40)
    assert opened(sink, 30) == 30
    deliver(sink, 30, 40)
    assert delivered(table) == Counter(ids(0, 30, 40) + [f"other {number}" for number in range(commits)])


def test_a_table_that_was_created_again_with_other_columns_is_not_damaged(tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = table_sink(str(table), tmp_path)
    opened(sink, 10)
    deliver(sink, 10, 20)
    shutil.rmtree(table)
    for number in range(9):
        write_deltalake(table, pa.table({"id": [number]}), mode="append")
    assert opened(sink, 20) == 20
    with pytest.raises(InvalidSinkError, match="'id' is string in the query and long in the table"):
        deliver(sink, 20, 30)
    assert delivered(table) == Counter(range(9))


def test_a_table_that_is_gone_gets_no_files(tmp_path: Path) -> None:
    table = tmp_path / "table"
    sink = table_sink(str(table), tmp_path)
    opened(sink, 10)
    deliver(sink, 10, 20)
    shutil.rmtree(table)
    with pytest.raises(FileNotFoundError, match="the Delta table is gone"):
        deliver(sink, 20, 30)
    assert [path.name for path in table.iterdir()] == ["_loghub"]


def test_a_table_is_not_created_among_files_that_its_vacuum_would_remove(tmp_path: Path) -> None:
    table = tmp_path / "table"
    table.mkdir()
    (table / "lines.parquet").write_bytes(b"of another sink")
    with pytest.raises(InvalidSinkError, match=r"lines\.parquet, and is no Delta table"):
        table_sink(str(table), tmp_path)
    (table / "lines.parquet").unlink()
    deliver_to = table_sink(str(table), tmp_path)
    opened(deliver_to, 10)
    deliver(deliver_to, 10, 20)
    assert delivered(table) == Counter(ids(0, 10, 20))


def test_staged_files_are_old_by_the_clock_of_the_storage(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """By its own clock a worker that is two days ahead would remove what another one is writing."""
    stage = tmp_path / "table/_loghub/p/l/g/stage"
    for name, age_s in {"other-1": 0.0, "other-2": ABANDONED_S + 100, "other-3": ABANDONED_S - 100}.items():
        (stage / name).mkdir(parents=True)
        date_back(stage / name, age_s)
    ahead = time.time() + 2 * ABANDONED_S
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: ahead)
        table_sink(str(tmp_path / "table"), tmp_path)
    assert sorted(path.name for path in stage.iterdir()) == ["other-1", "other-3"]


@pytest.mark.parametrize("name", ["a%20b", "a\\b"])
def test_a_path_that_the_library_takes_for_another_is_refused(tmp_path: Path, name: str) -> None:
    with pytest.raises(InvalidSinkError, match="must not have"):
        table_sink(str(tmp_path / name), tmp_path)
