"""Two workers that both hold a shard, as they believe: the service takes the overtaken copy of a heartbeat
for a release, and gives the shard to another worker while the session of the first is still good."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from loghub_worker.sink.files.commit_log import RangeTakenError
from tests.loghub_worker.sink.commit_log_child import BEGIN, GROUPS, SHARDS, LineWorker, delivered, everything
from tests.loghub_worker.sink.in_turn import in_turn

GUARD_S = 120
# Each step of opening two shards and delivering their batches, and at which of its occurrences to stall.
STEPS = [
    *((step, nth) for step in ("opened", "claims read", "checkpoint read", "confirmed") for nth in (1, 2)),
    ("settled", 1),
    ("resumed", 2),
    ("sealed", 1),
    ("sealed", 2),
    ("range claimed", 1),
    ("range claimed", 4),
    ("all ranges claimed", 2),
    ("session checked", 2),
    ("openings checked", 2),
    ("decided", 1),
    ("file moved", 3),
    ("checkpoint saved", 3),
    ("acknowledged", 3),
    ("acknowledged", 4),
]


class Service:
    """The service: it takes checkpoints from the last worker that it gave the shards to."""

    def __init__(self, folder: Path) -> None:
        self._folder = folder
        self.holder = ""

    def worker(self, name: str, *, at_step: Callable[[str], None] = lambda step: None) -> LineWorker:
        worker = LineWorker(self._folder, name, at_step=at_step)
        save = worker.save
        worker.save = lambda shard, at: save(shard, at) if self.holder == name else None  # type: ignore[method-assign]
        return worker


@contextmanager
def stalled(service: Service, step: str, nth: int) -> Iterator[LineWorker]:
    """A worker that stalls at a step while the body runs, and never learns that it lost its shards."""
    reached, go_on, seen = threading.Event(), threading.Event(), []

    def at_step(name: str) -> None:
        seen.append(name)
        if name == step and seen.count(step) == nth:
            reached.set()
            assert go_on.wait(GUARD_S)

    def run() -> None:
        try:
            worker.run()
        except (RangeTakenError, OSError):  # the latter if claims are removed that it has read
            return

    worker = service.worker("first", at_step=at_step)
    service.holder = "first"
    thread = threading.Thread(target=run, daemon=True)
    thread.start()
    assert reached.wait(GUARD_S), "the step was never reached"
    try:
        yield worker
    finally:
        go_on.set()
        thread.join(GUARD_S)
        assert not thread.is_alive()


@pytest.mark.parametrize(("step", "nth", "batches"), in_turn(STEPS, {"none": 0, "one": 1, "all": 9}))
def test_no_line_is_delivered_twice(site_of_many: Path, step: str, nth: int, batches: int) -> None:
    """The second worker delivers so many batches, and the rest of them once the first has gone on."""
    service = Service(site_of_many)
    second = service.worker("second")
    with stalled(service, step, nth):
        service.holder = "second"
        second.assign(SHARDS)
        for _ in range(batches):
            second.deliver()
    try:
        while second.deliver():
            pass
    except RangeTakenError:  # the first has opened a shard after it
        second.run()
    assert delivered(site_of_many) == everything()


@pytest.mark.parametrize("step", ["checkpoint read", "confirmed"])
def test_a_shard_whose_claims_are_removed_while_it_is_opened_is_opened_again(site: Path, step: str) -> None:
    """The first worker commits after its checks and acknowledges, and so removes the claims and the decision
    of the batch before, while the second has read these claims and the checkpoint of before."""
    reached, go_on, failures = threading.Event(), threading.Event(), []

    def at_step(name: str) -> None:
        if name == step and not reached.is_set():
            reached.set()
            assert go_on.wait(GUARD_S)

    def open_shards() -> None:
        try:
            second.assign(SHARDS)
        except OSError as error:
            failures.append(str(error))
        else:
            second.deliver()

    def open_meanwhile(name: str) -> None:
        if name == "openings checked" and first.positions[0] > BEGIN and not reached.is_set():
            thread.start()
            assert reached.wait(GUARD_S)

    first = LineWorker(site, "first", at_step=open_meanwhile)
    second = LineWorker(site, "second", at_step=at_step)
    thread = threading.Thread(target=open_shards, daemon=True)
    first.assign(SHARDS)
    first.deliver(save=False)
    first.deliver()
    go_on.set()
    thread.join(GUARD_S)
    assert not thread.is_alive()
    (failure,) = failures
    assert "another worker saved a checkpoint of shard 0 while this one opened it" in failure
    second.run()
    assert delivered(site) == everything()


def test_the_worker_that_opened_a_shard_last_is_the_one_that_delivers_it(site: Path) -> None:
    service = Service(site)
    first, second = service.worker("first"), service.worker("second")
    first.assign(SHARDS)
    second.assign((0,))
    with pytest.raises(RangeTakenError, match="shard 0 was opened by another worker"):
        first.deliver()
    first.assign(SHARDS)
    with pytest.raises(RangeTakenError, match="shard 0 was opened by another worker"):
        second.deliver()
    first.deliver()
    assert delivered(site).total() > 0


def test_a_batch_from_before_its_shard_was_opened_again_is_not_delivered(site: Path) -> None:
    """While the batch stalls after the check of the session, its worker learns that it lost the shards, and
    gets them back: another thread of it opens them."""

    def at_step(name: str) -> None:
        if name == "session checked":
            for shard in SHARDS:
                first.commit_log.open_shard(first.incarnation(shard))

    service = Service(site)
    first, second = service.worker("first", at_step=at_step), service.worker("second")
    second.groups = lambda: (
        GROUPS // 2
    )  # so that its ranges begin where the first worker's do, and end elsewhere
    first.assign(SHARDS)
    service.holder = "second"
    second.assign(SHARDS)
    for _ in range(2):  # so that no claim is left from where the first worker's ranges begin
        second.deliver()
    with pytest.raises(RangeTakenError, match="was opened by another worker"):
        first.deliver()
    second.run()
    assert delivered(site) == everything()


def test_openings_that_were_deleted_do_not_come_again(site: Path) -> None:
    """The user deletes the records of the sink while a worker is paused."""
    service = Service(site)
    first, second = service.worker("first"), service.worker("second")
    second.groups = lambda: GROUPS // 2
    first.assign(SHARDS)
    for opening in first.storage.names("openings"):
        first.storage.remove([f"openings/{opening}"])
    service.holder = "second"
    second.assign(SHARDS)
    for _ in range(2):  # so that no claim is left from where the first worker's ranges begin
        second.deliver()
    with pytest.raises(RangeTakenError, match="was opened by another worker"):
        first.deliver()
    second.run()
    assert delivered(site) == everything()
