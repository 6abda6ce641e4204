"""The picture of the demo in the README is what its live view draws.

After a change of the view, `python -m tests.loghub_cli.demo.test_picture` writes `docs/demo.svg`. Figures and
sentences were recorded from a run on two busy cores, without a few sentences between them: a worker was
added, another one was killed, and the shards have moved.
"""

import io
import re
from dataclasses import dataclass

from rich.console import Console

from loghub.contract.worker import ShardProgress, WorkerStatus
from loghub.wire.cursor import encode
from loghub_cli.up.live_view import WINDOW_S, LiveView, Watcher
from loghub_cli.up.snapshot import GroupSnapshot
from loghub_cli.up.supervisor import WorkerView
from loghub_operator.api import Phase, ShardStatus, Status
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import UNKNOWN
from tests.support import ROOT

PICTURE = ROOT / "docs" / "demo.svg"
WIDTH, HEIGHT = 100, 32  # the narrowest with whole names, and the lowest with nine events
# The exporter names web fonts; the picture is drawn with the monospace font of the reader's machine.
WEB_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)
AT_S = 148.0
SENT, IN_SINK = 58_000, 54_650
EVENTS = """\
  71.0 s  DEMO: adds a worker: replicas 2 -> 3 in cr.yaml
  71.3 s  ScaledUp: 2 -> 3 workers: spec.replicas is 3
  71.3 s  access-log-2 started, process 15126
 135.0 s  DEMO: kills access-log-0 (process 13559) with SIGKILL; it holds shard 0, 1
 136.1 s  access-log-0 started, process 19622 (again)
 142.3 s  access-log-2 is ready
 142.3 s  shard 3 is assigned to access-log-2 (was access-log-1)
 144.3 s  shard 0 is assigned to access-log-1 (was access-log-0)
 144.3 s  shard 1 is assigned to access-log-2 (was access-log-0)
"""


@dataclass(frozen=True, slots=True, kw_only=True)
class Worker:
    """``rows`` of all processes of the worker, and how many a second it writes at the end."""

    ordinal: int
    phase: WorkerPhase
    pid: int
    starts: int
    rows: int
    rate: int


@dataclass(frozen=True, slots=True, kw_only=True)
class Shard:
    """The last digits of its checkpoint, what it is behind, and how many logs a second its worker reads."""

    worker: int
    checkpoint: int
    lag_logs: int
    lag_s: int
    rate: int


WORKERS = (
    Worker(ordinal=0, phase=WorkerPhase.STARTING, pid=19622, starts=2, rows=24_550, rate=0),
    Worker(ordinal=1, phase=WorkerPhase.RUNNING, pid=13561, starts=1, rows=29_900, rate=286),
    Worker(ordinal=2, phase=WorkerPhase.RUNNING, pid=15126, starts=1, rows=0, rate=0),
)
SHARDS = (
    Shard(worker=1, checkpoint=755252, lag_logs=1350, lag_s=16, rate=196),
    Shard(worker=2, checkpoint=755243, lag_logs=1450, lag_s=15, rate=0),
    Shard(worker=1, checkpoint=755298, lag_logs=850, lag_s=7, rate=90),
    Shard(worker=2, checkpoint=755270, lag_logs=1200, lag_s=10, rate=0),
)


def view(worker: Worker, before_s: float) -> WorkerView:
    """The worker as it was so long before the end."""
    name, passed_s = f"access-log-{worker.ordinal}", WINDOW_S - before_s
    shards = [
        ShardProgress(
            shard=number, cursor=None, checkpoint=None, logs=round(shard.rate * passed_s), lag_s=None,
            draining=False,
        )
        for number, shard in enumerate(SHARDS)
        if shard.worker == worker.ordinal
    ]  # fmt: skip
    status = WorkerStatus(
        consumer=name, phase=worker.phase.value, reason="", message="", last_heartbeat_age_s=0.0,
        rows_written=round(worker.rows - worker.rate * before_s), shards=shards, written_at=0.0,
    )  # fmt: skip
    observed = WorkerObserved(
        name=name, ordinal=worker.ordinal, phase=worker.phase, ready=worker.phase is WorkerPhase.RUNNING,
        revision=UNKNOWN, drain_requested=False, reason="", message="",
    )  # fmt: skip
    return WorkerView(observed=observed, pid=worker.pid, starts=worker.starts, status=status)


def snapshot(before_s: float) -> GroupSnapshot:
    shards = tuple(
        ShardStatus.model_validate(
            {
                "id": number,
                "state": "already_alloc",
                "consumer": f"access-log-{shard.worker}",
                "checkpoint": encode(1_795_000_000_000_000_000 + shard.checkpoint),
                "lag_logs": shard.lag_logs,
                "lag_seconds": shard.lag_s,
            }
        )
        for number, shard in enumerate(SHARDS)
    )
    status = Status(phase=Phase.RUNNING, shards=shards)
    workers = tuple(view(worker, before_s) for worker in WORKERS)
    return GroupSnapshot(at_unix_s=AT_S - before_s, status=status, workers=workers)


def picture() -> str:
    """The live view at the end, as an SVG."""
    watcher = Watcher()
    for event in EVENTS.splitlines():
        watcher.say(event)
    title = f"LogHub demo  Running, workers 2/3, {AT_S:.0f} s"
    notes = (f"sent {SENT} lines of access.log (generated), pass 1; in the sink {IN_SINK}",)
    for before_s in (WINDOW_S, 0.0):
        frame = watcher.frame(snapshot(before_s), title=title, notes=notes, now=AT_S - before_s)
    console = Console(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        height=HEIGHT,
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(LiveView(frame))
    return WEB_FONT.sub("", console.export_svg(title="make demo", unique_id="demo")).rstrip() + "\n"


def test_the_picture_is_what_the_live_view_draws() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), (
        "run python -m tests.loghub_cli.demo.test_picture"
    )


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
