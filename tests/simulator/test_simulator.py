"""Schedules of the service core with workers or consumers under faults, each chosen by a seed (`simulation`,
`library`, `consumer`, `subscriptions`).

`make test` runs 44 of them, always the same; `make check-deep` 125,000, new ones in each of its slices. A
failure names the command that replays its seed. With ``-s`` the number of faults of each kind is printed.
"""

import os
import secrets
from collections import Counter
from collections.abc import Callable, Mapping
from dataclasses import replace
from functools import cache
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loghub.domain import coordinator
from loghub_consumer import shard_runner
from loghub_consumer.batch_plan import Range
from loghub_consumer.held_shard import HeldShardState, Rebalance, rebalance
from loghub_consumer.membership.membership import MemberShard
from loghub_service import diagnosis, start
from loghub_service import start as survey
from loghub_service.storage import recovery
from loghub_service.storage.data_folder import remove_tree
from loghub_service.subscription_registry import RegisteredSubscription
from loghub_worker.sink.files.commit_log import ABORTED, BatchDecision, BatchDecisions
from tests.loghub_service.simdisk import SimFile
from tests.simulator.faults import Fault
from tests.simulator.run import run_schedule
from tests.simulator.worker import SimFilesSink, SimWorker
from tests.suite.seed import of_run

pytestmark = pytest.mark.long

OF_CONSUMERS = {Fault.CONSUMER_STOPPED, Fault.PROCESSOR_RAISED, Fault.ROLLED_BACK}
OF_SUBSCRIPTIONS = {Fault.CONNECTION_LOST, Fault.ACK_LATE, Fault.ACK_LOST, Fault.RECEIPTED}
OF_WORKERS = {Fault.WORKER_PAUSED, Fault.WORKER_CRASHED_IN_CALL, Fault.INTERLEAVED}
OF_SINKS = {Fault.WORKER_CRASHED_IN_COMMIT, Fault.LINK_LIED}
ABSENT = {
    "worker": OF_CONSUMERS | OF_SUBSCRIPTIONS,
    "library": OF_CONSUMERS | OF_SINKS | OF_SUBSCRIPTIONS | {Fault.WORKER_PAUSED, Fault.INTERLEAVED},
    "consumer": OF_SINKS | OF_SUBSCRIPTIONS,
    "subscription": OF_CONSUMERS | OF_SINKS | OF_WORKERS,
}
# Of `make test`: they have the seeds that find the planted faults below, but for 20 and 124.
SEEDS = {"worker": range(16), "library": range(6, 16), "consumer": range(8, 18), "subscription": range(8)}
counted = cache(run_schedule)


def check_schedules(kind: str, seeds: range) -> None:
    """Each kind of fault must have happened in them, at least once in two schedules."""
    counts: Counter[Fault] = Counter()
    for seed in seeds:
        counts += counted(kind, seed)
    for fault, count in sorted(counts.items()):
        print(f"{count:8} {fault}")
    expected = set(Fault) - ABSENT[kind]
    assert {fault for fault in expected if counts[fault] < len(seeds) // 2} == set()


def new_seeds(begin: int, count: int) -> range:
    begin += of_run() * 1_000_000
    return range(begin, begin + count)


def test_every_log_group_is_delivered_exactly_once() -> None:
    check_schedules("worker", SEEDS["worker"])


def test_consumers_that_do_not_fence_share_no_shard_unless_they_were_silent() -> None:
    check_schedules("library", SEEDS["library"])


def test_consumers_process_every_log_group_and_give_up_what_they_are_asked_to() -> None:
    check_schedules("consumer", SEEDS["consumer"])


def test_a_receipted_log_is_never_delivered_again_and_every_other_one_is() -> None:
    check_schedules("subscription", SEEDS["subscription"])


@pytest.mark.deep(minutes=30)
@pytest.mark.timeout(3600)  # a long search needs a longer hang guard
@pytest.mark.parametrize("begin", range(0, 80_000, 2000))
def test_every_log_group_is_delivered_exactly_once_deep(begin: int) -> None:
    check_schedules("worker", new_seeds(begin, 2000))


@pytest.mark.deep(minutes=20)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("begin", range(0, 20_000, 2000))
def test_consumers_that_do_not_fence_share_no_shard_unless_they_were_silent_deep(begin: int) -> None:
    check_schedules("library", new_seeds(begin, 2000))


@pytest.mark.deep(minutes=20)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("begin", range(0, 5000, 1000))
def test_consumers_process_every_log_group_and_give_up_what_they_are_asked_to_deep(begin: int) -> None:
    check_schedules("consumer", new_seeds(begin, 1000))


@pytest.mark.deep(minutes=20)
@pytest.mark.timeout(3600)
@pytest.mark.parametrize("begin", range(0, 20_000, 2000))
def test_a_receipted_log_is_never_delivered_again_and_every_other_one_is_deep(begin: int) -> None:
    check_schedules("subscription", new_seeds(begin, 2000))


@pytest.mark.parametrize("kind", SEEDS)
def test_a_schedule_is_the_same_every_time(kind: str) -> None:
    assert run_schedule(kind, SEEDS[kind][0]) == counted(kind, SEEDS[kind][0])


# --- the simulator finds what it is there for ----------------------------------------------------


def found_by(seed: int) -> pytest.MarkDecorator:
    """In `make test`, this seed, the first that finds the fault. Other rules or another simulator may make it
    another one: then the deep test, which looks for it from 0 on, prints it."""
    first = pytest.param(range(seed, seed + 1), id=f"seed {seed}")
    search = pytest.param(range(100), id="search", marks=pytest.mark.deep(minutes=5))
    return pytest.mark.parametrize("seeds", [first, search])


def is_found(kind: str, message: str, seeds: range) -> bool:
    """Whether a schedule fails with this message; a fault may show in several ways."""
    for seed in seeds:
        try:
            run_schedule(kind, seed)
        except AssertionError as error:
            print(error)
            if message in str(error):
                return True
    return False


@found_by(15)
def test_a_commit_log_that_believes_what_link_returns_is_found(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """It takes its own decision for that of another, and removes the staged files of a committed batch."""

    def make(
        self: BatchDecisions, batch: str, decision: BatchDecision, *, names_in: str | None = None
    ) -> BatchDecision:
        part = Path(self._storage.describe(f"parts/{batch}-{secrets.token_hex(8)}"))
        part.write_bytes(msgspec.json.encode(decision))
        try:
            os.link(part, self._storage.describe(f"batches/{batch}.json"))
        except FileExistsError:
            return ABORTED
        finally:
            part.unlink()
        return decision

    monkeypatch.setattr(BatchDecisions, "make", make)
    assert is_found("worker", "beyond the sink", seeds)


@found_by(0)
def test_a_start_that_removes_what_the_metadata_does_not_know_is_found(
    seeds: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    def remove_unknown(self: Any) -> None:
        for folder in self._survey.folders.shards:
            if (folder.logstore, folder.shard) not in self._survey.catalog.shards:
                remove_tree(self._disk, folder.path)

    monkeypatch.setattr(survey, "diagnose_catalog", lambda *_: [])
    monkeypatch.setattr(start._Start, "_remove_empty_folders", remove_unknown)
    assert is_found("worker", "a start removed log data", seeds)


@found_by(0)
def test_a_log_that_gives_cursors_again_after_its_last_record_was_damaged_is_found(
    seeds: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """Whatever is wrong at the end of a log is cut as a torn tail."""
    monkeypatch.setattr(recovery, "_was_written_completely", lambda *_: False)
    monkeypatch.setattr(diagnosis, "_lost_tail", lambda _: ())
    assert is_found("worker", "ends before cursors that were given already", seeds)


@found_by(124)
def test_a_start_that_takes_the_cache_for_the_disk_is_found(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """What a failed sync has left in the cache is served, and gone after the next crash of the machine."""
    monkeypatch.setattr(SimFile, "drop_cached", lambda _: None)
    assert is_found("worker", "ends before cursors that were given already", seeds)


@found_by(13)
def test_a_service_that_counts_its_pauses_as_silence_is_found(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setattr(coordinator, "_extend_sessions", lambda *_: None)
    assert is_found("library", "both work on shard", seeds)


@found_by(0)
def test_a_checkpoint_saved_before_the_sink_has_the_batch_is_found(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    """The positions move and the checkpoints are saved, and only then is the batch published."""
    workers: list[SimWorker] = []
    start, publish = SimWorker.__init__, SimFilesSink.publish

    def remember(self: SimWorker, *args: Any, **kwargs: Any) -> None:
        start(self, *args, **kwargs)
        workers.append(self)

    def save_first(
        self: SimFilesSink, batch: str, ranges: tuple[Range, ...], may_commit: Callable[[], bool]
    ) -> None:
        (worker,) = (each for each in workers if each.query._sink is self)
        with worker.shared_state.use() as (membership, _):
            membership.committed(ranges, logs={}, read_bytes={})
        worker.manager._checkpoint_interval_s = 0.0
        if worker.may_act("manager"):
            worker.manager.save_all()
        publish(self, batch, ranges, lambda: True)

    monkeypatch.setattr(SimWorker, "__init__", remember)
    monkeypatch.setattr(SimFilesSink, "publish", save_first)
    assert is_found("worker", "beyond the sink", seeds)


@found_by(20)
def test_a_shard_that_is_taken_before_it_began_and_never_released_is_found(
    seeds: range,
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    """The membership reports it forever, so that nobody else gets it."""

    def without_unbegun(*args: Any) -> Rebalance:
        return replace(rebalance(*args), unbegun=())

    monkeypatch.setattr(shard_runner, "rebalance", without_unbegun)
    assert is_found("consumer", "stored and never processed", seeds)


@found_by(15)
def test_a_shard_that_is_released_while_it_is_processed_is_found(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    def release_at_once(states: Mapping[int, HeldShardState], held: tuple[MemberShard, ...]) -> Rebalance:
        plan = rebalance(states, held)
        return replace(plan, unbegun=tuple(one for one in held if one.shard in plan.revoked))

    monkeypatch.setattr(shard_runner, "rebalance", release_at_once)
    assert is_found("consumer", "both work on shard", seeds)


@found_by(2)
def test_a_receipt_that_does_not_wait_for_its_commit_is_found(
    seeds: range, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def at_once(_: RegisteredSubscription) -> None:
        """The acknowledgments are saved when their time has come."""

    monkeypatch.setattr(RegisteredSubscription, "durable", at_once)
    assert is_found("subscription", "acknowledged with a receipt, and delivered again", seeds)
