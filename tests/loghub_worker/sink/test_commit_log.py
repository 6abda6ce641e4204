"""Exactly once in a folder: killed at every step, held at every step, moved on purpose."""

import os
import signal
import subprocess
import sys
import threading
from collections import Counter
from pathlib import Path

import pytest

from loghub_worker.batch_plan import Range
from loghub_worker.sink.commit_log import TOMBSTONE_S, Incarnation, LeaseLostError, RangeTakenError
from tests.loghub_worker.sink.commit_log_child import (
    BEGIN,
    END,
    GROUPS,
    SHARDS,
    LineWorker,
    delivered,
    everything,
)

ROOT = Path(__file__).parents[3]
# Every step of a batch of two shards and two files, with how often to let it pass first.
STEPS = [
    ("sealed", 1),
    ("claimed one", 1),
    ("claimed one", 2),
    ("claimed all", 2),
    ("lease checked", 1),
    ("decided", 2),
    ("placed one", 1),
    ("placed one", 4),
    ("placed", 1),
    ("checkpoint saved", 3),
    ("checkpoint saved", 4),
    ("acknowledged", 3),
]
IDS = [f"{step} {nth}" for step, nth in STEPS]
GUARD_S = 60


def leftovers(folder: Path) -> list[str]:
    """What the ledger still keeps, but for aborts."""
    home = folder / "sink" / "_loghub" / "p" / "l" / "g"
    kept = [path for path in (*home.glob("claims/*"), *home.glob("batches/*")) if path.is_file()]
    return [path.name for path in kept if '"committed":false' not in path.read_text()]


@pytest.mark.parametrize(("step", "nth"), STEPS, ids=IDS)
def test_killed_at_a_step_the_next_worker_delivers_the_rest_once(tmp_path: Path, step: str, nth: int) -> None:
    command = [
        sys.executable,
        "-m",
        "tests.loghub_worker.sink.commit_log_child",
        str(tmp_path),
        step,
        str(nth),
    ]
    run = subprocess.run(command, cwd=ROOT, timeout=GUARD_S, check=False)
    assert run.returncode == -signal.SIGKILL, "the step was never reached"
    LineWorker(tmp_path, "second").run()
    assert delivered(tmp_path) == everything()
    assert leftovers(tmp_path) == []


@pytest.mark.parametrize(("step", "nth"), STEPS, ids=IDS)
@pytest.mark.parametrize("taken", [(0,), (1,), (0, 1)], ids=["first shard", "second shard", "both"])
def test_held_at_a_step_while_another_takes_over(
    tmp_path: Path, step: str, nth: int, taken: tuple[int, ...]
) -> None:
    """The first worker is stopped at a step for so long that its shards go to the second, which
    delivers them to their end. Then the first wakes up, finds its lease over where it still asks
    for it, and its shards that were not taken go on by a third."""
    reached, go_on = threading.Event(), threading.Event()
    lost = threading.Event()
    count = 0

    def at_step(name: str) -> None:
        nonlocal count
        count += name == step
        if name == step and count == nth:
            reached.set()
            assert go_on.wait(GUARD_S)

    first = LineWorker(tmp_path, "first", at_step=at_step, may_commit=lambda: not lost.is_set())
    saved_by_first = first.save
    # The service refuses checkpoints of a consumer that does not hold the shard.
    first.save = lambda shard, position: None if lost.is_set() else saved_by_first(shard, position)  # type: ignore[method-assign]

    def run_first() -> None:
        try:
            first.run()
        except (LeaseLostError, RangeTakenError):
            assert lost.is_set()

    thread = threading.Thread(target=run_first, daemon=True)
    thread.start()
    assert reached.wait(GUARD_S)
    lost.set()
    second = LineWorker(tmp_path, "second")
    second.take(taken)
    while second.deliver():
        pass
    go_on.set()
    thread.join(GUARD_S)
    assert not thread.is_alive()
    LineWorker(tmp_path, "third").run()
    assert delivered(tmp_path) == everything()


def test_range_delivered_twice_is_refused(tmp_path: Path) -> None:
    first, second = LineWorker(tmp_path, "first"), LineWorker(tmp_path, "second")
    first.take(SHARDS)
    second.take(SHARDS)
    first.deliver(save=False)
    with pytest.raises(RangeTakenError):
        second.deliver()
    second.take(SHARDS)
    assert second.positions == dict.fromkeys(SHARDS, BEGIN + GROUPS)


def test_checkpoint_moved_back_on_purpose_delivers_again(tmp_path: Path) -> None:
    worker = LineWorker(tmp_path, "first")
    worker.run()
    (tmp_path / "checkpoints" / "0").write_text(str(BEGIN + 3))
    again = LineWorker(tmp_path, "second")
    again.take((0,))
    assert again.positions == {0: BEGIN + 3}
    while again.deliver():
        pass
    counts = delivered(tmp_path)
    assert counts - everything() == everything() - delivered_before(BEGIN + 3)


def test_checkpoint_moved_to_where_a_batch_was_left_unsaved_delivers_it_again(tmp_path: Path) -> None:
    """The one case that cursors alone do not tell from a crash."""
    worker = LineWorker(tmp_path, "first")
    worker.take((0,))
    worker.deliver(save=False)
    ledger, incarnation = worker.ledger, worker.incarnation(0)
    assert ledger.resume(incarnation, BEGIN, confirm=worker.confirm) == BEGIN + GROUPS
    assert ledger.resume(incarnation, BEGIN, confirm=worker.confirm, moved=True) == BEGIN
    again = Range(0, BEGIN, BEGIN + GROUPS)
    (ledger.stage("again")).mkdir(parents=True)
    ledger.publish("again", [(incarnation, again)], may_commit=lambda: True)
    # Committed anew, and found as such by the next one.
    assert ledger.resume(incarnation, BEGIN, confirm=worker.confirm) == BEGIN + GROUPS


def delivered_before(cursor: int) -> Counter[str]:
    """Lines that the second delivery did not bring again."""
    kept = Counter(f"0:{c}" for c in range(BEGIN, cursor))
    return kept + Counter(f"1:{c}" for c in range(BEGIN, END))


def test_checkpoint_moved_into_an_unsaved_range_delivers_again_from_there(tmp_path: Path) -> None:
    worker = LineWorker(tmp_path, "first")
    worker.take((0,))
    worker.deliver(save=False)  # died before its checkpoint; then an operator moved it
    (tmp_path / "checkpoints" / "0").write_text(str(BEGIN + 3))
    again = LineWorker(tmp_path, "second")
    again.take((0,))
    assert again.positions == {0: BEGIN + 3}


def test_logstore_made_anew_does_not_find_the_old_ones_claims(tmp_path: Path) -> None:
    worker = LineWorker(tmp_path, "first")
    worker.take((0,))
    worker.deliver(save=False)
    assert worker.ledger.resume(Incarnation(shard=0, created=2), BEGIN, confirm=worker.confirm) == BEGIN


def test_lease_lost_before_the_decision_shows_nothing(tmp_path: Path) -> None:
    worker = LineWorker(tmp_path, "first")
    worker.take(SHARDS)
    worker.may_commit = lambda: False
    with pytest.raises(LeaseLostError):
        worker.deliver()
    assert delivered(tmp_path) == {}
    LineWorker(tmp_path, "second").run()
    assert delivered(tmp_path) == everything()


def test_prune_forgets_only_old_aborts(tmp_path: Path) -> None:
    worker = LineWorker(tmp_path, "first")
    batches = tmp_path / "sink/_loghub/p/l/g/batches"
    worker.ledger.abort("gone")
    worker.take((0,))
    worker.deliver(save=False)
    now = (batches / "gone.json").stat().st_mtime
    worker.ledger.prune(owner="other", now_unix_s=now + TOMBSTONE_S - 10)
    assert (batches / "gone.json").exists()
    worker.ledger.prune(owner="other", now_unix_s=now + TOMBSTONE_S + 10)
    assert [path.name.startswith(f"first-{os.getpid()}") for path in batches.iterdir()] == [True]
    assert worker.ledger.resume(worker.incarnation(0), BEGIN, confirm=worker.confirm) == BEGIN + GROUPS


def test_no_gap_between_two_unsaved_batches(tmp_path: Path) -> None:
    worker = LineWorker(tmp_path, "first")
    worker.take(SHARDS)
    worker.deliver(save=False)
    worker.deliver(save=False)
    second = LineWorker(tmp_path, "second")
    second.take(SHARDS)
    assert second.positions == dict.fromkeys(SHARDS, BEGIN + 2 * GROUPS)
    ranges = [(worker.incarnation(0), Range(0, BEGIN, BEGIN + 1))]
    second.ledger.stage("x").mkdir()
    second.ledger.publish("x", ranges, may_commit=lambda: True)  # acknowledged: free again


def test_prune_ends_what_an_earlier_process_of_this_consumer_staged(tmp_path: Path) -> None:
    ledger = LineWorker(tmp_path, "first").ledger
    for batch in ("w-1-aa", "w-10-bb"):
        ledger.stage(batch).mkdir()
    now = ledger.stage("w-1-aa").stat().st_mtime
    ledger.prune(owner="w-1", now_unix_s=now)
    assert not ledger.stage("w-1-aa").exists()
    assert ledger.stage("w-10-bb").exists()
    ranges = [(Incarnation(shard=0, created=1), Range(0, BEGIN, END))]
    with pytest.raises(RangeTakenError):
        ledger.publish("w-1-aa", ranges, may_commit=lambda: True)


def test_a_disk_that_is_full_at_the_claim_gets_the_batchs_files_back(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even where no decision can be written any more; once there is room, the range is delivered."""
    ledger = LineWorker(tmp_path, "first").ledger
    ranges = [(Incarnation(shard=0, created=1), Range(0, BEGIN, END))]
    ledger.stage("full").mkdir()
    (ledger.stage("full") / "part").write_text("rows")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space left"):
            ledger.publish("full", ranges, may_commit=lambda: True)
    assert not ledger.stage("full").exists()
    ledger.stage("next").mkdir()
    ledger.publish("next", ranges, may_commit=lambda: True)
