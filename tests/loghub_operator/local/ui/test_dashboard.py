"""What a user of `loghub up` sees: messages for changes, rates across restarts, the dashboard and plain
lines.
"""

import io

from rich.console import Console

from loghub.wire.cursor import encode
from loghub.worker_contract import ShardProgress, WorkerStatus
from loghub_operator.api import Phase, ShardStatus, Status
from loghub_operator.api.status import Condition
from loghub_operator.local.change_messages import changes
from loghub_operator.local.processes.supervisor import WorkerView
from loghub_operator.local.snapshot import GroupSnapshot
from loghub_operator.local.ui.dashboard import Watcher, plain, position, render
from loghub_operator.local.ui.rate_meter import Meter
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import UNKNOWN


def shard(number: int, state: str, holder: str | None = None, **more: object) -> ShardStatus:
    given = {"id": number, "state": state, "consumer": holder, **more}
    return ShardStatus.model_validate(given)


def worker(
    ordinal: int,
    phase: WorkerPhase,
    *,
    pid: int | None = 7,
    starts: int = 1,
    failure: tuple[str, str] = ("", ""),
    rows: int = 0,
    logs: int = 0,
) -> WorkerView:
    name = f"w-{ordinal}"
    progress = ShardProgress(
        shard=ordinal, cursor=None, checkpoint=None, logs=logs, lag_s=None, draining=False
    )
    status = WorkerStatus(
        consumer=name,
        phase="running",
        reason="",
        message="",
        rows_written=rows,
        last_heartbeat_age_s=0.0,
        shards=[progress],
        written_at=0.0,
    )
    observed = WorkerObserved(
        name=name,
        ordinal=ordinal,
        phase=phase,
        ready=phase is WorkerPhase.RUNNING,
        revision=UNKNOWN,
        drain_requested=False,
        reason=failure[0],
        message=failure[1],
    )
    return WorkerView(observed=observed, pid=pid, starts=starts, status=status if pid else None)


def printed(
    before: Status, after: Status, was: tuple[WorkerView, ...] = (), now: tuple[WorkerView, ...] = ()
) -> list[str]:
    return list(changes(before, after, was, now))


def test_without_a_change_nothing_is_printed() -> None:
    status = Status(shards=(shard(0, "already_alloc", "w-0"),))
    workers = (worker(0, WorkerPhase.RUNNING),)
    assert printed(status, status, workers, workers) == []


def test_a_shard_in_transfer_is_printed() -> None:
    held = Status(shards=(shard(0, "already_alloc", "w-0"),))
    moving = Status(shards=(shard(0, "transfer", "w-0", next_consumer="w-1"),))
    moved = Status(shards=(shard(0, "already_alloc", "w-1"),))
    free = Status(shards=(shard(0, "not_alloc"),))
    assert printed(held, moving) == ["shard 0 is being handed over from w-0 to w-1"]
    unknown = Status(shards=(shard(0, "transfer", "w-0"),))
    assert printed(held, unknown) == ["shard 0 is being handed over from w-0"]
    assert printed(moving, moved) == ["shard 0 is assigned to w-1 (was w-0)"]
    assert printed(held, free) == ["shard 0 is free (was w-0)"]


def test_each_state_of_a_worker_is_printed() -> None:
    starting, ready = worker(0, WorkerPhase.STARTING), worker(0, WorkerPhase.RUNNING)
    dead = worker(0, WorkerPhase.FAILED, pid=None, failure=("", "killed by SIGKILL"))
    again = worker(0, WorkerPhase.STARTING, pid=8, starts=2)
    none = Status()
    assert printed(none, none, (), (starting,)) == ["w-0 started, process 7"]
    assert printed(none, none, (starting,), (ready,)) == ["w-0 is ready"]
    assert printed(none, none, (ready,), (dead,)) == ["w-0 ended: killed by SIGKILL"]
    assert printed(none, none, (dead,), (again,)) == ["w-0 started, process 8 (again)"]
    assert printed(none, none, (ready,), ()) == ["w-0 is gone"]


def test_a_condition_without_another_line_is_printed() -> None:
    def with_reason(reason: str) -> Status:
        condition = Condition(
            type="ScalingLimited",
            status="True",
            reason=reason,
            message="m",
            last_transition_time="2026-01-01T00:00:00Z",
        )
        return Status(conditions=(condition,))

    assert printed(with_reason("DesiredWithinRange"), with_reason("TooFewShards")) == ["TooFewShards: m"]
    assert printed(with_reason("TooFewShards"), with_reason("TooFewShards")) == []


def test_a_counter_that_was_reset_is_added_up() -> None:
    meter = Meter()
    meter.update({"w": (1, 100)}, now=0.0)
    assert meter.rate("w") is None
    meter.update({"w": (1, 200)}, now=2.0)
    assert (meter.total("w"), meter.rate("w")) == (200, 50.0)
    meter.update({"w": (2, 30)}, now=4.0)
    assert (meter.total("w"), meter.rate("w")) == (230, 32.5)
    for second in range(5, 30):
        meter.update({"w": (2, 30)}, now=float(second))
    assert meter.rate("w") == 0.0


def test_the_dashboard_shows_what_is_known() -> None:
    watcher = Watcher()
    watcher.say("1.0 s  something [happened]")
    status = Status(
        phase=Phase.RUNNING,
        shards=(
            shard(
                0, "transfer", "w-0", next_consumer="w-1", checkpoint=encode(123), lag_logs=5, lag_seconds=2
            ),
            shard(1, "not_alloc"),
        ),
    )
    snapshot = GroupSnapshot(
        at_unix_s=0.0, status=status, workers=(worker(0, WorkerPhase.RUNNING, rows=40, logs=40),)
    )
    watcher.frame(snapshot, title="demo", notes=["sent 45"], now=0.0)
    later = GroupSnapshot(
        at_unix_s=2.0, status=status, workers=(worker(0, WorkerPhase.RUNNING, rows=60, logs=60),)
    )
    frame = watcher.frame(later, title="demo", notes=["sent 45"], now=2.0)
    assert list(plain(frame)) == [
        "demo | sent 45",
        "  shard 0 transfer w-0 -> w-1: checkpoint 123, lag 5 logs 2 s, 10 rows/s",
        "  shard 1 not_alloc -: checkpoint -, lag ? logs ? s, 0 rows/s",
        "  w-0 running, process 7, shards 0, 60 rows, 10 rows/s",
    ]
    out = io.StringIO()
    Console(file=out, width=120).print(render(frame))
    picture = out.getvalue()
    for failure in ("transfer", "w-1", "something [happened]", "sent 45", "running"):
        assert failure in picture


def test_an_exception_with_many_lines_is_shown_in_one() -> None:
    watcher = Watcher()
    failing = worker(0, WorkerPhase.RUNNING, failure=("PipelineFailed", "first\n  second\n" + "x" * 500))
    snapshot = GroupSnapshot(at_unix_s=0.0, status=Status(), workers=(failing,))
    _, line = plain(watcher.frame(snapshot, title="t", notes=(), now=0.0))
    assert "PipelineFailed: first second xxx" in line
    assert line.endswith("x…")
    assert len(line) < 300


def test_a_long_cursor_is_shortened_to_its_last_digits() -> None:
    assert position(encode(1795256469453039252)) == "…039252"
    assert position(None) == "-"
    assert position("not a cursor") == "not a cursor"
