"""A worker that stalls while it resumes a shard, and continues when other workers have delivered more of
it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from tests.loghub_worker.sink.commit_log_child import (
    BEGIN,
    END,
    GROUPS,
    LineWorker,
    delivered,
    lines_of,
    move,
)

# Every step of resuming a shard.
STEPS = ["opened", "checkpoint read", "claims read", "confirmed", "settled", "resumed"]
GUARD_S = 120


class DiedError(Exception):
    """Stands for the end of a worker's process."""


def die_at(step: str) -> Callable[[str], None]:
    def at_step(name: str) -> None:
        if name == step:
            raise DiedError

    return at_step


@contextmanager
def stalled_worker(folder: Path, step: str) -> Iterator[None]:
    """A worker that resumes shard 0 and stalls at `step` while the body runs. It has lost the shard by then,
    and the service refuses its checkpoints."""
    reached, go_on, lost = threading.Event(), threading.Event(), threading.Event()

    def at_step(name: str) -> None:
        if name == step and not lost.is_set():
            reached.set()
            assert go_on.wait(GUARD_S)

    def assign() -> None:
        try:
            worker.assign((0,))
        except (SessionLostError, RangeTakenError, OSError):
            assert lost.is_set()

    def save(shard: int, position: int) -> None:
        if not lost.is_set():
            save_as_holder(shard, position)
        elif position == BEGIN:  # this is the checkpoint already, so no request can be refused
            worker.commit_log.acknowledge(worker.incarnation(shard), position)

    worker = LineWorker(folder, "stalled", at_step=at_step, may_commit=lambda: not lost.is_set())
    save_as_holder = worker.save
    worker.save = save  # type: ignore[method-assign]
    thread = threading.Thread(target=assign, daemon=True)
    thread.start()
    try:
        assert reached.wait(GUARD_S), "the step was never reached"
        lost.set()
        yield
    finally:
        go_on.set()
        thread.join(GUARD_S)
    assert not thread.is_alive()


def die_undecided(folder: Path) -> None:
    """Leave a claim at the checkpoint, of a batch that is neither committed nor aborted."""
    worker = LineWorker(folder, "undecided", at_step=die_at("session checked"))
    worker.assign((0,))
    with pytest.raises(DiedError):
        worker.deliver()


def run_to_the_end(folder: Path, shard: int) -> LineWorker:
    worker = LineWorker(folder, "last")
    worker.assign((shard,))
    while worker.deliver():
        pass
    return worker


@pytest.mark.parametrize("step", STEPS)
def test_the_next_holder_commits_and_dies_before_its_checkpoint(site: Path, step: str) -> None:
    die_undecided(site)
    with stalled_worker(site, step):
        holder = LineWorker(site, "holder")
        holder.assign((0,))
        holder.deliver(save=False)
    run_to_the_end(site, 0)
    assert delivered(site) == lines_of(0, BEGIN, END)


@pytest.mark.parametrize("step", STEPS)
def test_the_next_holder_continues_past_the_checkpoint_that_the_stalled_worker_read(
    site: Path, step: str
) -> None:
    die_undecided(site)
    with stalled_worker(site, step):
        holder = LineWorker(site, "holder")
        holder.assign((0,))
        holder.deliver()
        holder.deliver(save=False)
    run_to_the_end(site, 0)
    assert delivered(site) == lines_of(0, BEGIN, END)


@pytest.mark.parametrize("step", STEPS)
def test_the_next_holder_delivers_again_after_the_checkpoint_was_moved_back(site: Path, step: str) -> None:
    before = LineWorker(site, "before")
    before.assign((0,))
    before.deliver()
    before.deliver(save=False)  # a committed claim at the second batch's begin
    move(site, 0, BEGIN)
    with stalled_worker(site, step):
        holder = LineWorker(site, "holder")
        holder.assign((0,))
        assert holder.positions == {0: BEGIN}
        holder.deliver()
        holder.deliver(save=False)  # from the same cursor as that claim
    run_to_the_end(site, 0)
    assert delivered(site) == lines_of(0, BEGIN, END) + lines_of(0, BEGIN, BEGIN + 2 * GROUPS)


def test_claims_of_a_cursor_are_removed_once_the_checkpoint_is_past_it(site: Path) -> None:
    die_undecided(site)
    die_undecided(site)
    claims = site / "sink/_loghub/p/l/g/range-claims"
    assert len(list(claims.iterdir())) == 2, "an aborted claim remains until then"
    run_to_the_end(site, 0)
    assert [path.name for path in claims.iterdir()] == [f"0-1-{END - GROUPS}-0"], "the last one stays"


@pytest.mark.long
def test_any_number_of_aborted_batches_at_a_cursor_blocks_no_worker(site: Path) -> None:
    refused = LineWorker(site, "refused")
    refused.assign((0,))
    refused.may_commit = lambda: False
    for _ in range(120):
        with pytest.raises(SessionLostError):
            refused.deliver()
    run_to_the_end(site, 0)
    assert delivered(site) == lines_of(0, BEGIN, END)
