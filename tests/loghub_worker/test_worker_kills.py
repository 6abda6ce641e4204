"""Real workers are killed with SIGKILL while a Spark job runs, again and again, with everything that they
have started, or stopped with SIGSTOP for longer than their session. Another worker takes over each time, and
producers write all the time. At the end the input and the output are compared line by line.

`make test` has files; `make check-deep` has all sinks, at every moment and again and again.
`tests/loghub_worker/sink` has a kill and a pause at each single step of a sink, and writers that race,
without Spark; `tests/simulator` has workers that die between any two steps.
"""

from collections import Counter
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from itertools import cycle, islice
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.sinks import LogstoreSink
from loghub.contract.worker import SqlPipeline, WorkerConfig
from tests.loghub_worker.sink_targets import AT_MIN_ONCE, EXACTLY_ONCE, MakeTarget, Place, Target, folder
from tests.loghub_worker.sink_views import COPY, Copied, LogstoreView
from tests.loghub_worker.support import PROJECT, prepare, worker_config, worker_processes
from tests.loghub_worker.worker_kills import (
    KILLS,
    LOGS,
    MAX_LOG_GROUPS,
    PAUSES,
    SHARDS,
    TIMEOUT_S,
    Moment,
    Outcome,
    Scene,
    pause,
    run,
)
from tests.support import running_service

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]


def times(number: int, moments: Sequence[Moment], *, minutes: int) -> Any:
    """So many of these moments, as the parameter of a test that takes so long for each target."""
    marks = [pytest.mark.deep(minutes=minutes), pytest.mark.timeout(6 * 3600)]
    return pytest.param([*islice(cycle(moments), number)], id=str(number), marks=marks)


ALL_KILLS = [times(4, KILLS, minutes=6), times(100, KILLS, minutes=90)]
ALL_PAUSES = [times(2, PAUSES, minutes=5), times(30, PAUSES, minutes=45)]
COPY_SQL = """
SELECT contents['id'] AS id, __shard__ AS shard, __cursor__ AS cursor, {worker} AS worker FROM logs
"""


@contextmanager
def scene_of(make: MakeTarget, place: Path, request: Any) -> Iterator[tuple[Scene, Target]]:
    """A service, a target, and workers that write to it."""
    with running_service(place / "service") as service:
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        with (
            make(Place(folder=place, client=client, fixture=request.getfixturevalue)) as target,
            worker_processes(place / "workers", service, target.variables) as workers,
        ):
            config = worker_config(
                service.endpoint,
                target.settings,
                timeout_s=TIMEOUT_S,
                max_log_groups=MAX_LOG_GROUPS,
                # So that there are batches between the sink and a checkpoint at most times, for long
                # enough to stop all processes of a worker meanwhile.
                checkpoint_interval_s=5.0,
                **target.config,
            )
            scene = Scene(
                service=service, client=client, workers=workers, sink=target.view, config=lambda _: config
            )
            yield scene, target


def report(what: str, sent: Counter[str], rows: Counter[str]) -> int:
    """Print what came in and out; return how many rows are repetitions."""
    repeated = rows.total() - len(rows)
    print(f"\n{what}: {sent.total()} lines in, {rows.total()} lines out, {repeated} duplicates")
    return repeated


def test_files_have_every_line_once_after_a_kill_and_a_pause(tmp_path: Path, request: Any) -> None:
    """The second worker has the name of the first one, and is stopped for longer than its session once the
    files are there and the checkpoint is not."""
    with scene_of(folder, tmp_path, request) as (scene, target):
        sent = pause(scene, [Moment.SINK], first_kill=Moment.JOB).sent
        rows = target.ids()
        report("a kill and a pause", sent, rows)
        assert rows == sent


@pytest.mark.parametrize("make", EXACTLY_ONCE)
@pytest.mark.parametrize("kills", ALL_KILLS)
def test_every_line_is_there_once_after_kills(
    tmp_path: Path, request: Any, make: MakeTarget, kills: Sequence[Moment]
) -> None:
    with scene_of(make, tmp_path, request) as (scene, target):
        sent = run(scene, kills).sent
        rows = target.ids()
        report(f"{len(kills)} kills", sent, rows)
        assert rows == sent
        assert target.left_over() == []


@pytest.mark.parametrize("make", EXACTLY_ONCE)
@pytest.mark.parametrize("pauses", ALL_PAUSES)
def test_every_line_is_there_once_although_two_workers_believe_to_hold_a_shard(
    tmp_path: Path, request: Any, make: MakeTarget, pauses: Sequence[Moment]
) -> None:
    """One of them was stopped for longer than its session, in a batch, and goes on."""
    with scene_of(make, tmp_path, request) as (scene, target):
        sent = pause(scene, pauses).sent
        rows = target.ids()
        report(f"{len(pauses)} pauses", sent, rows)
        # A claim that the paused worker has made too late stays until its shard is opened again.
        assert rows == sent


@pytest.mark.parametrize("make", AT_MIN_ONCE)
@pytest.mark.parametrize("kills", ALL_KILLS)
def test_no_line_is_missing_after_kills_and_few_are_repeated(
    tmp_path: Path, request: Any, make: MakeTarget, kills: Sequence[Moment]
) -> None:
    with scene_of(make, tmp_path, request) as (scene, target):
        outcome = run(scene, kills)
        assert_repeats_what_was_not_saved(f"{len(kills)} kills", target, outcome)


@pytest.mark.parametrize("make", AT_MIN_ONCE)
@pytest.mark.parametrize("pauses", [times(10, PAUSES, minutes=15)])
def test_no_line_is_missing_although_two_workers_believe_to_hold_a_shard(
    tmp_path: Path, request: Any, make: MakeTarget, pauses: Sequence[Moment]
) -> None:
    with scene_of(make, tmp_path, request) as (scene, target):
        outcome = pause(scene, pauses)
        assert_repeats_what_was_not_saved(f"{len(pauses)} pauses", target, outcome)


def assert_repeats_what_was_not_saved(what: str, target: Target, outcome: Outcome) -> None:
    """The sink has each line, and no more lines again than were unsaved when a worker was ended or paused."""
    rows = target.ids()
    repeated = report(what, outcome.sent, rows)
    assert rows.keys() == outcome.sent.keys()
    assert target.by_place is None or target.by_place() == outcome.sent
    print(f"{outcome.unsaved * LOGS} were unsaved")
    assert repeated <= outcome.unsaved * LOGS


@pytest.mark.parametrize("kills", ALL_KILLS)
def test_a_logstore_has_every_line_and_repeats_at_most_one_batch_for_each_kill(
    tmp_path: Path, kills: Sequence[Moment]
) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        client.create_logstore(COPY, shards=1)
        sink = LogstoreView(client)

        def config(number: int) -> WorkerConfig:
            return worker_config(
                service.endpoint,
                LogstoreSink(project=PROJECT, logstore=COPY),
                timeout_s=TIMEOUT_S,
                max_log_groups=MAX_LOG_GROUPS,
                pipeline=SqlPipeline(text=COPY_SQL.format(worker=number)),
            )

        outcome = run(Scene(service=service, client=client, workers=workers, sink=sink, config=config), kills)
        rows = sink.rows()
    ids = {row.id for row in rows}
    in_flight = [written_after(saved, rows, by=number) for number, saved in enumerate(outcome.checkpoints)]
    duplicates = len(rows) - len(ids)
    print(
        f"\n{len(kills)} kills: {outcome.sent.total()} lines in, {len(rows)} lines out,"
        f" {duplicates} duplicates; {sum(map(len, in_flight))} lines were in flight"
    )
    assert ids == outcome.sent.keys()
    for number, saved in enumerate(outcome.checkpoints):
        batch = {shard: range(begin, begin + MAX_LOG_GROUPS) for shard, begin in saved.items()}
        assert [row for row in in_flight[number].values() if row.cursor not in batch[row.shard]] == []
        assert [row for row in rows if row.worker > number and row.cursor < saved[row.shard]] == []
    assert duplicates <= sum(map(len, in_flight))


def written_after(saved: Mapping[int, int], rows: Sequence[Copied], *, by: int) -> dict[str, Copied]:
    """The rows that the workers up to this one wrote of logs after these checkpoints, by id."""
    return {row.id: row for row in rows if row.worker <= by and row.cursor >= saved[row.shard]}
