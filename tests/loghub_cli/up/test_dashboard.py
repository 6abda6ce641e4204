"""What a user of `loghub up` sees: messages for changes, rates across restarts, the dashboard and plain
lines.
"""

import io

import pytest
from rich.cells import cell_len
from rich.console import Console

from loghub.contract.worker import ShardProgress, WorkerStatus
from loghub.wire.cursor import encode
from loghub_cli.up.live_view import LiveView, Meter, ScreenFrame, Watcher, plain, position, ranges
from loghub_cli.up.snapshot import GroupSnapshot, changes
from loghub_cli.up.supervisor import WorkerView
from loghub_operator.api import Phase, ShardStatus, Status
from loghub_operator.api.status import Condition
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
        "  shard 1 not_alloc -: checkpoint -, lag - logs - s, 0 rows/s",
        "  w-0 running, process 7, shards 0, 60 rows, 10 rows/s",
    ]
    picture = "\n".join(drawn(frame, width=120))
    for failure in ("transfer", "w-1", "something [happened]", "sent 45", "running"):
        assert failure in picture


def test_an_exception_with_many_lines_is_shown_in_one() -> None:
    watcher = Watcher()
    failing = worker(0, WorkerPhase.RUNNING, failure=("PipelineFailed", "first\n  second\n" + "x" * 500))
    snapshot = GroupSnapshot(at_unix_s=0.0, status=Status(), workers=(failing,))
    _, line, _ = plain(watcher.frame(snapshot, title="t", notes=(), now=0.0))
    assert "w-0: PipelineFailed: first second xxx" in line
    assert line.endswith("x…")
    assert len(line) < 300


def test_a_long_cursor_is_shortened_to_its_last_digits() -> None:
    assert position(encode(1795256469453039252)) == "…039252"
    assert position(None) == "-"
    assert position("not a cursor") == "not a cursor"


def test_numbers_are_shown_as_ranges() -> None:
    assert [ranges(each) for each in ([], [3], [0, 1, 2, 5, 7, 8])] == ["-", "3", "0-2,5,7-8"]


# --- a terminal that is too small ------------------------------------------------------------------

WIDTH, HEIGHT = 80, 24
CAST = (
    "PipelineFailed",
    "shard 9 at cursor MTc5NTQyNTU3MzUwODIwOTAwMA==, retrying after 4 attempts: [CAST_INVALID_INPUT] The"
    " value 'abc' of the type STRING cannot be cast to INT because it is malformed",
)


def drawn(frame: ScreenFrame, *, width: int = WIDTH, height: int = HEIGHT) -> list[str]:
    out = io.StringIO()
    Console(file=out, width=width, height=height).print(LiveView(frame))
    return out.getvalue().splitlines()


def frame_of(shards: int, workers: int, *, failing: int = 0, events: int = 9, name: str = "w") -> ScreenFrame:
    """Worker n holds the shards that leave n; the first ones fail, and the last shard is in transfer."""
    watcher = Watcher()
    for number in range(events):
        watcher.say(f"{number:6.1f} s  event {number} " + "x" * WIDTH)
    held = [
        shard(number, "already_alloc", f"{name}-{number % workers}", checkpoint=encode(179 << 53), lag_logs=1)
        for number in range(shards - 1)
    ]
    last = shard(shards - 1, "transfer", f"{name}-0", next_consumer=f"{name}-1", lag_logs=10**9)
    snapshot = GroupSnapshot(
        at_unix_s=0.0,
        status=Status(phase=Phase.RUNNING, shards=(*held, last)),
        workers=tuple(
            worker(number, WorkerPhase.RUNNING, failure=CAST if number < failing else ("", ""))
            for number in range(workers)
        ),
    )
    return watcher.frame(snapshot, title="access  Running", notes=("Kafka at 127.0.0.1:9092",), now=0.0)


@pytest.mark.parametrize("failing", [0, 1, 4])
@pytest.mark.parametrize(("shards", "workers"), [(4, 2), (32, 2), (256, 2), (256, 64)])
def test_title_failures_workers_events_and_shards_fit_the_terminal_in_this_order(
    shards: int, workers: int, failing: int
) -> None:
    failing = min(failing, workers)
    lines = drawn(frame_of(shards, workers, failing=failing))
    assert len(lines) <= HEIGHT
    assert all(cell_len(line) <= WIDTH for line in lines)
    at = [
        next(n for n, line in enumerate(lines) if text in line)
        for text in ORDER
        if failing or "CAST" not in text
    ]
    assert at == sorted(at)
    assert "event 8" in "".join(lines), "the newest one"
    assert sum("CAST_INVALID_INPUT" in line for line in lines) == min(failing, 3)
    if shards > 4:
        (more,) = (line for line in lines if line.endswith("more shards"))
        shown = sum(
            line.lstrip().split(" ")[0].isdigit() for line in lines if "_alloc" in line or "transfer" in line
        )
        assert more == f"and {shards - shown} more shards"
        assert any(line.startswith(f"{shards - 1} ") for line in lines), "the one in transfer"


ORDER = ("access  Running", "Kafka at", "[CAST_INVALID_INPUT]", "worker phase", "event", "shard state")


def test_every_problem_is_counted_and_the_first_ones_are_shown() -> None:
    lines = drawn(frame_of(4, 8, failing=8))
    assert [line.split(":")[0] for line in lines if "PipelineFailed" in line] == ["w-0", "w-1", "w-2"]
    assert "and 5 more problems" in lines


@pytest.mark.parametrize("height", [1, 5, 12])
def test_a_terminal_of_a_few_lines_has_the_title_and_what_is_wrong(height: int) -> None:
    lines = drawn(frame_of(32, 2, failing=1), height=height)
    assert lines[0] == "access  Running"
    assert height < 4 or (len(lines) <= height and any("CAST_INVALID_INPUT" in line for line in lines))


def test_of_a_long_name_the_end_is_shown() -> None:
    assert any(
        "…p-of-mine-1" in line for line in drawn(frame_of(4, 2, name="a-long-name-of-a-group-of-mine"))
    )


def test_what_is_wrong_by_the_conditions_is_shown_unless_a_worker_has_said_it() -> None:
    def problems(message: str, *workers: WorkerView) -> tuple[str, ...]:
        condition = Condition(
            type="Degraded",
            status="True",
            reason="WorkerFailing",
            message=message,
            last_transition_time="2026-01-01T00:00:00Z",
        )
        snapshot = GroupSnapshot(at_unix_s=0.0, status=Status(conditions=(condition,)), workers=workers)
        return Watcher().frame(snapshot, title="", notes=(), now=0.0).problems

    failing = worker(0, WorkerPhase.FAILED, failure=("InvalidPipeline", "no table"))
    assert problems("the shard waits") == ("Degraded WorkerFailing: the shard waits",)
    assert problems("w-0: no table", failing) == ("w-0: InvalidPipeline: no table",)
