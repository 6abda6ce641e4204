"""A worker that stalls while it takes a shard, and wakes when others went on with it: it harms nothing."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loghub_worker.sink.commit_log import LeaseLostError, RangeTakenError
from tests.loghub_worker.sink.commit_log_child import BEGIN, END, GROUPS, LineWorker, delivered, lines_of

# Every step of taking a shard.
STEPS = ["checkpoint read", "claims seen", "confirmed", "settled", "resumed"]
GUARD_S = 60


class DiedError(Exception):
    """The end of a worker's process, as far as the ledger can see."""


def die_at(step: str) -> Callable[[str], None]:
    def at_step(name: str) -> None:
        if name == step:
            raise DiedError

    return at_step


@contextmanager
def stalled_taker(folder: Path, step: str) -> Iterator[None]:
    """A worker that takes shard 0 and is held at `step` while the body runs; it has lost the shard
    by then, and the service takes no checkpoint of it any more."""
    reached, go_on, lost = threading.Event(), threading.Event(), threading.Event()

    def at_step(name: str) -> None:
        if name == step and not lost.is_set():
            reached.set()
            assert go_on.wait(GUARD_S)

    def take() -> None:
        try:
            worker.take((0,))
        except (LeaseLostError, RangeTakenError):
            assert lost.is_set()

    def save(shard: int, position: int) -> None:
        if not lost.is_set():
            save_as_holder(shard, position)
        elif position == BEGIN:  # the checkpoint already: nothing to send that could be refused
            worker.ledger.acknowledge(worker.incarnation(shard), position)

    worker = LineWorker(folder, "stalled", at_step=at_step, may_commit=lambda: not lost.is_set())
    save_as_holder = worker.save
    worker.save = save  # type: ignore[method-assign]
    thread = threading.Thread(target=take, daemon=True)
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
    worker = LineWorker(folder, "undecided", at_step=die_at("lease checked"))
    worker.take((0,))
    with pytest.raises(DiedError):
        worker.deliver()


def run_to_the_end(folder: Path, shard: int) -> LineWorker:
    worker = LineWorker(folder, "last")
    worker.take((shard,))
    while worker.deliver():
        pass
    return worker


@pytest.mark.parametrize("step", STEPS)
def test_next_holder_commits_and_dies_before_its_checkpoint(tmp_path: Path, step: str) -> None:
    die_undecided(tmp_path)
    with stalled_taker(tmp_path, step):
        holder = LineWorker(tmp_path, "holder")
        holder.take((0,))
        holder.deliver(save=False)
    run_to_the_end(tmp_path, 0)
    assert delivered(tmp_path) == lines_of(0, BEGIN, END)


@pytest.mark.parametrize("step", STEPS)
def test_next_holder_goes_on_past_the_checkpoint_that_the_stalled_one_read(tmp_path: Path, step: str) -> None:
    die_undecided(tmp_path)
    with stalled_taker(tmp_path, step):
        holder = LineWorker(tmp_path, "holder")
        holder.take((0,))
        holder.deliver()
        holder.deliver(save=False)
    run_to_the_end(tmp_path, 0)
    assert delivered(tmp_path) == lines_of(0, BEGIN, END)


@pytest.mark.parametrize("step", STEPS)
def test_next_holder_delivers_anew_what_a_moved_checkpoint_asks_for(tmp_path: Path, step: str) -> None:
    before = LineWorker(tmp_path, "before")
    before.take((0,))
    before.deliver()
    before.deliver(save=False)  # a committed claim at the second batch's begin
    (tmp_path / "checkpoints" / "0").write_text(str(BEGIN))
    with stalled_taker(tmp_path, step):
        holder = LineWorker(tmp_path, "holder")
        holder.take((0,))
        assert holder.positions == {0: BEGIN}
        holder.deliver()
        holder.deliver(save=False)  # from the same cursor as that claim
    run_to_the_end(tmp_path, 0)
    assert delivered(tmp_path) == lines_of(0, BEGIN, END) + lines_of(0, BEGIN, BEGIN + 2 * GROUPS)


def test_claims_of_a_cursor_are_removed_once_the_checkpoint_is_past_it(tmp_path: Path) -> None:
    die_undecided(tmp_path)
    die_undecided(tmp_path)
    claims = tmp_path / "sink/_loghub/p/l/g/claims"
    assert len(list(claims.iterdir())) == 2, "an aborted claim stands until then"
    run_to_the_end(tmp_path, 0)
    assert list(claims.iterdir()) == []


def test_any_number_of_aborted_batches_at_a_cursor_bars_nobody(tmp_path: Path) -> None:
    refused = LineWorker(tmp_path, "refused")
    refused.take((0,))
    refused.may_commit = lambda: False
    for _ in range(120):
        with pytest.raises(LeaseLostError):
            refused.deliver()
    run_to_the_end(tmp_path, 0)
    assert delivered(tmp_path) == lines_of(0, BEGIN, END)
