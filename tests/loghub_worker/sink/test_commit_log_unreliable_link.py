"""Hard links whose outcome is not what the call says, as on NFS: a reply is lost and the repeated request
finds the link there (link(2), BUGS), a request is carried out later than its error, or a client reports an
existing file as success. Nothing is lost and nothing is delivered twice."""

import errno
import os
from collections.abc import Callable
from pathlib import Path

import pytest

from loghub_worker.batch_plan import Range
from loghub_worker.sink.commit_log import CommitLog, RangeTakenError, SessionLostError
from tests.loghub_worker.sink.commit_log_child import (
    BEGIN,
    END,
    GROUPS,
    LineWorker,
    delivered,
    everything,
    lines_of,
)
from tests.loghub_worker.sink.test_commit_log_takeover import DiedError, die_at

# Two claims and a decision for each of the three batches.
LINKS = range(1, 10)
REAL_LINK = os.link


class UnreliableLink:
    """`os.link`, whose `nth` call is not what it says; all calls if `nth` is 0."""

    def __init__(self, nth: int, lie: Callable[["UnreliableLink", Path, Path], None]) -> None:
        self.calls = 0
        self.delayed: list[tuple[Path, Path]] = []
        self.before: Callable[[], None] = lambda: None
        self._nth = nth
        self._lie = lie

    def __call__(self, source: Path, target: Path) -> None:
        self.calls += 1
        delayed, self.delayed = self.delayed, []
        for pair in delayed:
            link_if_absent(*pair)
        if self._nth in (0, self.calls):
            before, self.before = self.before, lambda: None
            before()
            self._lie(self, source, target)
        else:
            REAL_LINK(source, target)


def link_if_absent(source: Path, target: Path) -> None:
    if source.exists() and not target.exists():
        REAL_LINK(source, target)


def done_but_reported_as_existing(_: UnreliableLink, source: Path, target: Path) -> None:
    link_if_absent(source, target)
    raise FileExistsError(errno.EEXIST, os.strerror(errno.EEXIST), str(target))


def done_but_reported_as_failed(_: UnreliableLink, source: Path, target: Path) -> None:
    link_if_absent(source, target)
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))


def failed(_: UnreliableLink, source: Path, target: Path) -> None:
    raise OSError(errno.EIO, os.strerror(errno.EIO), str(target))


def done_later_than_reported_as_failed(link: UnreliableLink, source: Path, target: Path) -> None:
    # A link to a copy, since the caller removes its file after the error.
    copy = source.with_name(f"{source.name}.in-flight")
    copy.write_bytes(source.read_bytes())
    link.delayed.append((copy, target))
    raise OSError(errno.ETIMEDOUT, os.strerror(errno.ETIMEDOUT), str(target))


def existing_but_reported_as_done(_: UnreliableLink, source: Path, target: Path) -> None:
    link_if_absent(source, target)


def not_done_but_reported_as_done(_: UnreliableLink, source: Path, target: Path) -> None:
    """Do nothing."""


LIES = [
    done_but_reported_as_existing,
    done_but_reported_as_failed,
    done_later_than_reported_as_failed,
    failed,
    existing_but_reported_as_done,
    not_done_but_reported_as_done,
]
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
@pytest.mark.parametrize("nth", LINKS)
def test_the_worker_itself_goes_on(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, lie: object
) -> None:
    link = UnreliableLink(nth, lie)  # type: ignore[arg-type]
    monkeypatch.setattr(os, "link", link)
    run_with_retries(LineWorker(tmp_path, "first"))
    assert link.calls >= nth, "the call was never reached"
    LineWorker(tmp_path, "second").run()
    assert delivered(tmp_path) == everything()


@lies
@pytest.mark.parametrize("nth", LINKS)
@pytest.mark.parametrize("step", [None, "decided", "file moved"], ids=["error", "decided", "file moved"])
def test_the_worker_dies_and_the_next_holder_resumes(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, nth: int, lie: object, step: str | None
) -> None:
    """It dies with the error of the call if there is one, otherwise right after its next batch is decided,
    while it moves the files, or, without a step, at its end."""
    link = UnreliableLink(nth, lie)  # type: ignore[arg-type]
    monkeypatch.setattr(os, "link", link)

    def at_step(name: str) -> None:
        if name == step and link.calls >= nth:
            raise DiedError

    try:
        LineWorker(tmp_path, "first", at_step=at_step).run()
    except (OSError, RangeTakenError, DiedError):
        assert link.calls >= nth
    run_with_retries(LineWorker(tmp_path, "second"))
    assert delivered(tmp_path) == everything()


@lies
def test_a_batch_that_was_aborted_stays_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: object
) -> None:
    """The writer's session ends before the decision, and the abort's link is unreliable."""
    worker = LineWorker(tmp_path, "first")
    worker.assign((0,))
    worker.may_commit = lambda: False
    monkeypatch.setattr(os, "link", UnreliableLink(2, lie))  # type: ignore[arg-type]
    with pytest.raises(SessionLostError):
        worker.deliver()
    assert delivered(tmp_path) == {}
    run_with_retries(LineWorker(tmp_path, "second"))
    assert delivered(tmp_path) == everything()


@lies
def test_the_next_holder_aborts_an_undecided_batch(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: object
) -> None:
    """The first link of the next holder is the decision on the batch that the first worker left undecided."""
    worker = LineWorker(tmp_path, "first", at_step=die_at("session checked"))
    worker.assign((0, 1))
    with pytest.raises(DiedError):
        worker.deliver()
    monkeypatch.setattr(os, "link", UnreliableLink(1, lie))  # type: ignore[arg-type]
    run_with_retries(LineWorker(tmp_path, "second"))
    assert delivered(tmp_path) == everything()


@lies
def test_a_range_that_another_batch_claimed_in_the_meantime_has_one_owner(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: object
) -> None:
    """A worker that lost the shard claims the range just before its holder does, and dies. The holder is
    given any answer; it commits, and dies before its checkpoint."""
    stale = LineWorker(tmp_path, "stale", at_step=die_at("range claimed"))
    stale.assign((0,))
    holder = LineWorker(tmp_path, "holder")
    holder.assign((0,))
    link = UnreliableLink(1, lie)  # type: ignore[arg-type]

    def claim_as_stale() -> None:
        link.calls = 1
        with pytest.raises(DiedError):
            stale.deliver()

    link.before = claim_as_stale
    monkeypatch.setattr(os, "link", link)
    for _ in range(20):
        try:
            holder.deliver(save=False)
            break
        except (OSError, RangeTakenError):
            holder.assign((0,))
    last = LineWorker(tmp_path, "last")
    last.assign((0,))
    assert last.positions == {0: BEGIN + GROUPS}
    while last.deliver():
        pass
    assert delivered(tmp_path) == lines_of(0, BEGIN, END)


@lies
def test_a_commit_after_another_holder_aborted_the_batch_is_refused(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: object
) -> None:
    """The session check succeeds, the process stalls, the next holder aborts the batch and delivers the
    range; then the writer tries to commit, and is given any answer."""
    writer = LineWorker(tmp_path, "writer")
    writer.assign((0,))
    link = UnreliableLink(2, lie)  # type: ignore[arg-type]

    def deliver_as_next_holder() -> None:
        link.calls = 1000
        LineWorker(tmp_path, "next").run()

    link.before = deliver_as_next_holder
    monkeypatch.setattr(os, "link", link)
    with pytest.raises((RangeTakenError, OSError)):
        writer.deliver()
    assert delivered(tmp_path) == everything()


@lies
def test_a_batch_that_failed_before_it_was_published_is_aborted(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, lie: object
) -> None:
    """Whatever the link of the abort says, the error that ended the batch is not replaced by another one."""
    worker = LineWorker(tmp_path, "first")
    commit_log = worker.commit_log
    commit_log.stage("failed").mkdir()
    (commit_log.stage("failed") / "part-0.parquet").write_text("rows")
    monkeypatch.setattr(os, "link", UnreliableLink(1, lie))  # type: ignore[arg-type]
    commit_log.abort("failed")
    assert not commit_log.stage("failed").exists()
    assert delivered(tmp_path) == {}


def test_a_folder_that_accepts_links_is_usable_whatever_the_calls_say(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    commit_log = CommitLog(tmp_path / "sink", group_path=("p", "l", "g"))
    monkeypatch.setattr(os, "link", UnreliableLink(0, done_but_reported_as_existing))
    commit_log.check_folder()
    for lie in (failed, not_done_but_reported_as_done):
        monkeypatch.setattr(os, "link", UnreliableLink(0, lie))
        with pytest.raises(OSError, match=r"."):
            commit_log.check_folder()


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
    monkeypatch.setattr(os, "link", UnreliableLink(2, done_but_reported_as_failed))
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
