"""Exactly-once delivery into a folder: a worker is killed or stalled at every step, or a checkpoint is
moved."""

import json
import os
import signal
import threading
import time
from collections import Counter
from collections.abc import Callable
from pathlib import Path

import msgspec
import pytest

from loghub.contract.sinks import ParquetSink, S3Settings
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.sink.batch_sink import SinkOwner
from loghub_worker.sink.files.commit_log import TOMBSTONE_S, CommitLog, RangeTakenError, SessionLostError
from loghub_worker.sink.files.formats import JSON
from loghub_worker.sink.files.sink import FilesSink, make_files_sink
from loghub_worker.sink.files.storage import FolderStorage
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles
from tests.loghub_worker.sink.commit_log_child import (
    BEGIN,
    BUCKET,
    END,
    GROUP_PATH,
    GROUPS,
    SHARDS,
    BucketOfATest,
    LineWorker,
    date_back,
    delivered,
    everything,
    move,
    storage_in,
)
from tests.loghub_worker.sink.in_turn import in_turn

# Every step of a batch of two shards and two files, and at which of its occurrences to act.
STEPS = [
    ("sealed", 1),
    ("range claimed", 1),
    ("range claimed", 2),
    ("all ranges claimed", 2),
    ("session checked", 1),
    ("decided", 2),
    ("file moved", 1),
    ("file moved", 4),
    ("files moved", 1),
    ("checkpoint saved", 3),
    ("checkpoint saved", 4),
    ("acknowledged", 3),
]
IDS = [f"{step} {nth}" for step, nth in STEPS]
GUARD_S = 120


def leftovers(folder: Path) -> list[str]:
    """The claims and decisions that remain, except for aborts, and for the last claim of each shard."""
    records = folder / "sink" / "_loghub" / "p" / "l" / "g"
    claims = {path: json.loads(path.read_text()) for path in records.glob("range-claims/*")}
    last = {
        path: claim["batch"]
        for path, claim in claims.items()
        if any(row[3] == END and path.name.startswith(f"{row[0]}-1-{row[2]}-") for row in claim["ranges"])
    }
    assert len(last) == len(SHARDS), "the sink knows how far it has each shard"
    decisions = [path for path in records.glob("batches/*") if path.stem not in last.values()]
    left = [*(claims.keys() - last.keys()), *decisions]
    return [path.name for path in left if '"committed":false' not in path.read_text()]


@pytest.mark.long
@pytest.mark.parametrize(("step", "nth"), STEPS, ids=IDS)
def test_after_a_kill_at_a_step_the_next_worker_delivers_the_rest_once(
    site: Path, start_child: Callable[..., int], step: str, nth: int
) -> None:
    assert start_child(site, step, nth) == -signal.SIGKILL, "the step was never reached"
    LineWorker(site, "second").run()
    assert delivered(site) == everything()
    assert leftovers(site) == []


@pytest.mark.parametrize(
    ("step", "nth", "reassigned"),
    in_turn(STEPS, {"first shard": (0,), "second shard": (1,), "both": (0, 1)}),
)
def test_a_worker_stalled_at_a_step_does_not_disturb_its_successor(
    site_of_many: Path, step: str, nth: int, reassigned: tuple[int, ...]
) -> None:
    """The first worker stalls at a step for so long that its shards are assigned to the second, which
    delivers them to their end. Then the first continues and finds that its session is over. A third worker
    delivers the shards that were not reassigned."""
    reached, go_on = threading.Event(), threading.Event()
    lost = threading.Event()
    count = 0

    def at_step(name: str) -> None:
        nonlocal count
        count += name == step
        if name == step and count == nth:
            reached.set()
            assert go_on.wait(GUARD_S)

    first = LineWorker(site_of_many, "first", at_step=at_step, may_commit=lambda: not lost.is_set())
    saved_by_first = first.save
    # The service refuses checkpoints of a consumer that does not hold the shard.
    first.save = lambda shard, position: None if lost.is_set() else saved_by_first(shard, position)  # type: ignore[method-assign]

    def run_first() -> None:
        try:
            first.run()
        except (SessionLostError, RangeTakenError):
            assert lost.is_set()

    thread = threading.Thread(target=run_first, daemon=True)
    thread.start()
    assert reached.wait(GUARD_S)
    lost.set()
    second = LineWorker(site_of_many, "second")
    second.assign(reassigned)
    while second.deliver():
        pass
    go_on.set()
    thread.join(GUARD_S)
    assert not thread.is_alive()
    LineWorker(site_of_many, "third").run()
    assert delivered(site_of_many) == everything()


def test_a_range_that_was_delivered_cannot_be_delivered_again(site: Path) -> None:
    first, second = LineWorker(site, "first"), LineWorker(site, "second")
    second.assign(SHARDS)
    first.assign(SHARDS)
    first.deliver(save=False)
    with pytest.raises(RangeTakenError):
        second.deliver()
    second.assign(SHARDS)
    assert second.positions == dict.fromkeys(SHARDS, BEGIN + GROUPS)


def test_checkpoint_moved_back_on_purpose_delivers_again(site: Path) -> None:
    worker = LineWorker(site, "first")
    worker.run()
    move(site, 0, BEGIN + 3)
    second = LineWorker(site, "second")
    second.assign((0,))
    assert second.positions == {0: BEGIN + 3}
    while second.deliver():
        pass
    counts = delivered(site)
    assert counts - everything() == everything() - delivered_before(BEGIN + 3)


def test_checkpoint_moved_to_the_begin_of_an_unsaved_batch_delivers_it_again(site: Path) -> None:
    """The one case in which the cursors alone look like a crash."""
    worker = LineWorker(site, "first")
    worker.assign((0,))
    worker.deliver(save=False)
    commit_log, incarnation = worker.commit_log, worker.incarnation(0)
    assert worker.resume(incarnation, BEGIN) == BEGIN + GROUPS
    assert worker.resume(incarnation, BEGIN, origin=CheckpointOrigin.MOVED) == BEGIN
    shard_range = Range(0, BEGIN, BEGIN + GROUPS)
    (commit_log.stage("again")).mkdir(parents=True)
    commit_log.publish("again", [(incarnation, shard_range)], may_commit=lambda: True)
    # It is committed again, and the next holder finds it committed.
    assert worker.resume(incarnation, BEGIN) == BEGIN + GROUPS


def delivered_before(cursor: int) -> Counter[str]:
    """Lines that the second delivery does not contain."""
    lines = Counter(f"0:{c}" for c in range(BEGIN, cursor))
    return lines + Counter(f"1:{c}" for c in range(BEGIN, END))


def test_checkpoint_moved_into_an_unsaved_range_delivers_again_from_there(site: Path) -> None:
    worker = LineWorker(site, "first")
    worker.assign((0,))
    worker.deliver(save=False)  # died before its checkpoint; then an operator moved it
    move(site, 0, BEGIN + 3, CheckpointOrigin.UNKNOWN)
    second = LineWorker(site, "second")
    second.assign((0,))
    assert second.positions == {0: BEGIN + 3}


def test_a_recreated_logstore_ignores_the_claims_of_the_old_one(site: Path) -> None:
    worker = LineWorker(site, "first")
    worker.assign((0,))
    worker.deliver(save=False)
    assert worker.resume(ShardIncarnation(shard=0, created=2), BEGIN) == BEGIN


def test_nothing_is_visible_if_the_session_ends_before_the_decision(site: Path) -> None:
    worker = LineWorker(site, "first")
    worker.assign(SHARDS)
    worker.may_commit = lambda: False
    with pytest.raises(SessionLostError):
        worker.deliver()
    assert delivered(site) == {}
    LineWorker(site, "second").run()
    assert delivered(site) == everything()


def test_prune_removes_only_old_aborts(site: Path) -> None:
    worker = LineWorker(site, "first")
    batches = site / "sink/_loghub/p/l/g/batches"
    worker.commit_log.abort("gone")
    worker.assign((0,))
    worker.deliver(save=False)
    for path in batches.iterdir():
        date_back(path, TOMBSTONE_S - 100)
    worker.commit_log.prune(owner="other")
    assert (batches / "gone.json").exists()
    for path in batches.iterdir():
        date_back(path, TOMBSTONE_S + 10)
    worker.commit_log.prune(owner="other")
    assert [path.name.startswith("first-") for path in batches.iterdir()] == [True]
    assert worker.resume(worker.incarnation(0), BEGIN) == BEGIN + GROUPS


def test_prune_removes_the_decision_of_a_worker_that_ended_after_it_removed_the_claims(site: Path) -> None:
    worker = LineWorker(site, "first")
    worker.assign((0,))
    worker.deliver(save=False)
    worker.deliver(save=False)
    first, last = sorted((site / "sink/_loghub/p/l/g/range-claims").iterdir(), key=lambda path: path.name)
    batches = site / "sink/_loghub/p/l/g/batches"
    for path in batches.iterdir():
        date_back(path, TOMBSTONE_S + 10)
    kept = f"{json.loads(last.read_bytes())['batch']}.json"
    first.unlink()
    LineWorker(site, "other").commit_log.prune(owner="other")
    assert [path.name for path in batches.iterdir()] == [kept]


def test_a_worker_whose_clock_is_ahead_takes_nothing_for_old(
    site: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The writer of an abort that was removed could still commit its batch, which is delivered already."""
    writer = LineWorker(site, "writer")
    writer.commit_log.abort("gone")
    settings, keys, path = None, NO_CREDENTIALS, str(site / "sink")
    if (site / BUCKET).exists():
        described = msgspec.json.decode((site / BUCKET).read_bytes(), type=BucketOfATest)
        settings = S3Settings(endpoint=described.endpoint, allow_http=True)
        keys, path = CredentialFiles(Path(described.credentials)), described.url
        described.open().create("_loghub/p/l/g/stage/writer-1/part-0.parquet", b"rows")
    else:
        writer.commit_log.stage("writer-1").mkdir()
    owner = SinkOwner(group_path=GROUP_PATH, consumer="other", scratch=site / "scratch")
    ahead = time.time() + 2 * TOMBSTONE_S
    with monkeypatch.context() as patch:
        patch.setattr(time, "time", lambda: ahead)
        make_files_sink(ParquetSink(path=path, s3=settings), keys, owner)
    records = site / "sink/_loghub/p/l/g"
    assert [path.name for path in (records / "batches").iterdir()] == ["gone.json"]
    assert [path.name for path in (records / "stage").iterdir()] == ["writer-1"]


def test_no_gap_between_two_unsaved_batches(site: Path) -> None:
    worker = LineWorker(site, "first")
    worker.assign(SHARDS)
    worker.deliver(save=False)
    worker.deliver(save=False)
    second = LineWorker(site, "second")
    second.assign(SHARDS)
    assert second.positions == dict.fromkeys(SHARDS, BEGIN + 2 * GROUPS)
    ranges = [(worker.incarnation(0), Range(0, BEGIN, BEGIN + 1))]
    second.commit_log.stage("x").mkdir()
    second.commit_log.publish(
        "x", ranges, may_commit=lambda: True
    )  # acknowledged, so the range may be claimed again


def test_prune_aborts_the_staged_batches_of_an_earlier_process_of_this_consumer(tmp_path: Path) -> None:
    commit_log = LineWorker(tmp_path, "first").commit_log
    for batch in ("w-1-aa", "w-10-bb"):
        commit_log.stage(batch).mkdir()
    commit_log.prune(owner="w-1")
    assert not commit_log.stage("w-1-aa").exists()
    assert commit_log.stage("w-10-bb").exists()
    ranges = [(ShardIncarnation(shard=0, created=1), Range(0, BEGIN, END))]
    commit_log.open_shard(ranges[0][0])
    with pytest.raises(RangeTakenError):
        commit_log.publish("w-1-aa", ranges, may_commit=lambda: True)


def test_the_staged_files_are_removed_if_the_disk_is_full_at_the_claim(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """Even if the decision cannot be written either. Once there is room, the range is delivered."""
    commit_log = LineWorker(tmp_path, "first").commit_log
    ranges = [(ShardIncarnation(shard=0, created=1), Range(0, BEGIN, END))]
    commit_log.open_shard(ranges[0][0])
    commit_log.stage("full").mkdir()
    (commit_log.stage("full") / "part").write_text("rows")

    def full(*_: object) -> None:
        raise OSError(28, "No space left on device")

    with monkeypatch.context() as patched:
        patched.setattr(os, "link", full)
        with pytest.raises(OSError, match="No space left"):
            commit_log.publish("full", ranges, may_commit=lambda: True)
    assert not commit_log.stage("full").exists()
    commit_log.stage("next").mkdir()
    commit_log.publish("next", ranges, may_commit=lambda: True)


def test_a_sink_that_is_away_when_files_are_moved_does_not_have_them(tmp_path: Path) -> None:
    """Their batch is committed, so the next worker that resumes the shard moves them."""
    sink, away = tmp_path / "sink", tmp_path / "away"
    steps = {"decided": lambda: sink.rename(away)}
    commit_log = CommitLog(storage_in(tmp_path, "first"), at_step=lambda step: steps.pop(step, int)())
    shard = ShardIncarnation(shard=0, created=1)
    commit_log.open_shard(shard)
    commit_log.stage("batch").mkdir()
    (commit_log.stage("batch") / "part").write_text("rows")
    with pytest.raises(OSError, match="bring it back"):
        commit_log.publish("batch", [(shard, Range(0, BEGIN, END))], may_commit=lambda: True)
    with pytest.raises(OSError, match="bring it back"):
        commit_log.open_shard(shard)
    assert not sink.exists()
    away.rename(sink)
    commit_log.open_shard(shard)
    assert commit_log.resume(shard, BEGIN, confirm=lambda: None) == END
    assert (sink / "part-batch").read_text() == "rows"


def commit_log_with(folder: Path, record: str, content: bytes) -> CommitLog:
    commit_log = CommitLog(FolderStorage(folder, group_path=("p", "l", "g")))
    (folder / "_loghub" / "p" / "l" / "g" / record).write_bytes(content)
    return commit_log


def resumed(commit_log: CommitLog, shard: int) -> int:
    incarnation = ShardIncarnation(shard=shard, created=5)
    commit_log.open_shard(incarnation)
    return commit_log.resume(incarnation, 7, confirm=lambda: None)


@pytest.mark.parametrize("content", [b"", b"x", bytes(100)])
def test_a_damaged_opening_is_replaced_by_the_next_one(tmp_path: Path, content: bytes) -> None:
    worker = LineWorker(tmp_path, "first")
    worker.assign((0,))
    (tmp_path / "sink/_loghub/p/l/g/openings/0-1").write_bytes(content)
    with pytest.raises(RangeTakenError):
        worker.deliver()
    worker.run()
    assert delivered(tmp_path) == everything()


@pytest.mark.parametrize("content", [b"", b'{"batch":"b"', b"\xff", b'{"batch":"b","ranges":[[1,5,7,9]]}'])
def test_a_damaged_claim_makes_the_sink_unavailable_for_its_own_shard_only(
    tmp_path: Path, content: bytes
) -> None:
    commit_log = commit_log_with(tmp_path, "range-claims/0-5-7-0", content)
    with pytest.raises(OSError, match="0-5-7-0"):
        resumed(commit_log, 0)
    assert resumed(commit_log, 1) == 7


@pytest.mark.parametrize("name", ["0-5-7-0.bak", "0-5-7-0~", "0-5-copy of 7-0", "0-5-7"])
def test_a_file_that_is_no_claim_is_no_obstacle(tmp_path: Path, name: str) -> None:
    assert resumed(commit_log_with(tmp_path, f"range-claims/{name}", b"anything"), 0) == 7


def test_a_damaged_decision_does_not_prevent_the_start(tmp_path: Path) -> None:
    commit_log = commit_log_with(tmp_path, "batches/w-1.json", b"")
    commit_log.stage("w-1").mkdir()
    commit_log.stage("w-2").mkdir()
    commit_log.prune(owner="w")
    assert commit_log.stage("w-1").exists(), "whether it was committed is not known"
    assert not commit_log.stage("w-2").exists()


def test_batches_that_fail_before_they_claim_anything_leave_nothing_behind(tmp_path: Path) -> None:
    """A pipeline may fail for months, and each worker reads all decisions when it starts."""
    commit_log = CommitLog(FolderStorage(tmp_path, group_path=("p", "l", "g")))
    sink = FilesSink(commit_log, JSON)
    for batch in ("w-0-1", "w-0-2"):
        commit_log.stage(batch).mkdir()
        sink.abort(batch)
    assert [path for path in tmp_path.rglob("*") if path.is_file()] == []
    assert list(commit_log.stage("w-0-1").parent.iterdir()) == []
