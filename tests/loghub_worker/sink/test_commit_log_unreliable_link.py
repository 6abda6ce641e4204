"""Hard links and create-only PUTs whose outcome is not what the call says (`unreliable_create`): nothing is
lost and nothing is delivered twice."""

import errno
import os
from itertools import product
from pathlib import Path

import pytest

from loghub_consumer.batch_plan import Range
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.files.storage import FolderStorage
from tests.loghub_worker.sink.commit_log_child import (
    BEGIN,
    END,
    GROUPS,
    LineWorker,
    delivered,
    everything,
    lines_of,
)
from tests.loghub_worker.sink.in_turn import in_turn
from tests.loghub_worker.sink.test_commit_log_takeover import DiedError, die_at
from tests.loghub_worker.sink.unreliable_create import (
    LIES,
    Lie,
    done_but_reported_as_existing,
    done_but_reported_as_failed,
    failed,
    not_done_but_reported_as_done,
    unreliable,
)

# Two claims and a decision for each of the three batches.
CREATED = range(1, 10)
lies = pytest.mark.parametrize("lie", LIES, ids=[lie.__name__ for lie in LIES])


def run_with_retries(worker: LineWorker) -> None:
    """Run to the end. An error ends the batch, and the shards are resumed, as the query does."""
    for _ in range(20):
        try:
            worker.run()
        except (OSError, RangeTakenError):
            continue
        return
    raise AssertionError("the worker never got to the end")


@lies
@pytest.mark.parametrize("nth", CREATED)
def test_the_worker_itself_goes_on(
    site_of_many: Path, monkeypatch: pytest.MonkeyPatch, nth: int, lie: Lie
) -> None:
    link = unreliable(site_of_many, monkeypatch, nth, lie)
    run_with_retries(LineWorker(site_of_many, "first"))
    assert link.calls >= nth, "the call was never reached"
    LineWorker(site_of_many, "second").run()
    assert delivered(site_of_many) == everything()


@pytest.mark.parametrize(
    ("nth", "lie", "step"),
    in_turn(product(CREATED, LIES), {"error": None, "decided": "decided", "file moved": "file moved"}),
)
def test_the_worker_dies_and_the_next_holder_resumes(
    site_of_many: Path, monkeypatch: pytest.MonkeyPatch, nth: int, lie: Lie, step: str | None
) -> None:
    """It dies with the error of the call if there is one, otherwise right after its next batch is decided,
    while it moves the files, or, without a step, at its end."""
    link = unreliable(site_of_many, monkeypatch, nth, lie)

    def at_step(name: str) -> None:
        if name == step and link.calls >= nth:
            raise DiedError

    try:
        LineWorker(site_of_many, "first", at_step=at_step).run()
    except (OSError, RangeTakenError, DiedError):
        assert link.calls >= nth
    run_with_retries(LineWorker(site_of_many, "second"))
    assert delivered(site_of_many) == everything()


@lies
def test_a_batch_that_was_aborted_stays_aborted(
    site: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    """The writer's session ends before the decision, and the abort's link is unreliable."""
    worker = LineWorker(site, "first")
    worker.assign((0,))
    worker.may_commit = lambda: False
    unreliable(site, monkeypatch, 2, lie)
    with pytest.raises(SessionLostError):
        worker.deliver()
    assert delivered(site) == {}
    run_with_retries(LineWorker(site, "second"))
    assert delivered(site) == everything()


@lies
def test_the_next_holder_aborts_an_undecided_batch(
    site: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    """The first link of the next holder is the decision on the batch that the first worker left undecided."""
    worker = LineWorker(site, "first", at_step=die_at("session checked"))
    worker.assign((0, 1))
    with pytest.raises(DiedError):
        worker.deliver()
    unreliable(site, monkeypatch, 1, lie)
    run_with_retries(LineWorker(site, "second"))
    assert delivered(site) == everything()


@lies
def test_a_range_that_another_batch_claimed_in_the_meantime_has_one_owner(
    site: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    """A worker that lost the shard claims the range just before its holder does, and dies. The holder is
    given any answer; it commits, and dies before its checkpoint."""
    stale = LineWorker(site, "stale", at_step=die_at("range claimed"))
    stale.assign((0,))
    holder = LineWorker(site, "holder")
    holder.assign((0,))
    link = unreliable(site, monkeypatch, 1, lie)

    def claim_as_stale() -> None:
        link.calls = 1
        with pytest.raises(DiedError):
            stale.deliver()

    link.before = claim_as_stale
    for _ in range(20):
        try:
            holder.deliver(save=False)
            break
        except (OSError, RangeTakenError):
            holder.assign((0,))
    last = LineWorker(site, "last")
    last.assign((0,))
    assert last.positions == {0: BEGIN + GROUPS}
    while last.deliver():
        pass
    assert delivered(site) == lines_of(0, BEGIN, END)


@lies
def test_a_commit_after_another_holder_aborted_the_batch_is_refused(
    site: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    """The session check succeeds, the process stalls, the next holder aborts the batch and delivers the
    range; then the writer tries to commit, and is given any answer."""
    writer = LineWorker(site, "writer")
    writer.assign((0,))
    link = unreliable(site, monkeypatch, 2, lie)

    def deliver_as_next_holder() -> None:
        link.calls = 1000
        LineWorker(site, "next").run()

    link.before = deliver_as_next_holder
    with pytest.raises((RangeTakenError, OSError)):
        writer.deliver()
    assert delivered(site) == everything()


@lies
def test_a_batch_that_failed_before_it_was_published_is_aborted(
    site: Path, monkeypatch: pytest.MonkeyPatch, lie: Lie
) -> None:
    """Whatever the link of the abort says, the error that ended the batch is not replaced by another one."""
    worker = LineWorker(site, "first")
    commit_log = worker.commit_log
    commit_log.stage("failed").mkdir()
    (commit_log.stage("failed") / "part-0.parquet").write_text("rows")
    unreliable(site, monkeypatch, 1, lie)
    commit_log.abort("failed")
    assert not commit_log.stage("failed").exists()
    assert delivered(site) == {}


def test_a_folder_that_accepts_links_is_usable_whatever_the_calls_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    storage = FolderStorage(tmp_path / "sink", group_path=("p", "l", "g"))
    unreliable(tmp_path, monkeypatch, 0, done_but_reported_as_existing)
    storage.try_out()
    for lie in (failed, not_done_but_reported_as_done):
        unreliable(tmp_path, monkeypatch, 0, lie)
        with pytest.raises(OSError, match=r"."):
            storage.try_out()


def test_a_decision_that_cannot_be_read_keeps_the_staged_files(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The link of the commit is made, its reply is lost, and the folder cannot be read for a moment: nobody
    knows yet that the batch is committed, so its files must stay."""
    worker = LineWorker(tmp_path, "first")
    worker.assign((0,))
    commit_log, shard = worker.commit_log, worker.incarnation(0)
    commit_log.stage("b").mkdir()
    (commit_log.stage("b") / "part-0.parquet").write_text("0:100")
    unreliable(tmp_path, monkeypatch, 2, done_but_reported_as_failed)
    real_read = Path.read_bytes

    def unreadable(path: Path) -> bytes:
        if path.name == "b.json":
            raise OSError(errno.EIO, os.strerror(errno.EIO), str(path))
        return real_read(path)

    with monkeypatch.context() as patched:
        patched.setattr(Path, "read_bytes", unreadable)
        with pytest.raises(OSError, match="Input/output error"):
            commit_log.publish("b", [(shard, Range(0, BEGIN, BEGIN + 1))], may_commit=lambda: True)
    commit_log.open_shard(shard)
    assert commit_log.resume(shard, BEGIN, confirm=lambda: None) == BEGIN + 1
    assert delivered(tmp_path) == lines_of(0, BEGIN, BEGIN + 1)
