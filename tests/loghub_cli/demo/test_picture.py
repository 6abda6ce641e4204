"""The picture of the demo in the README is what its live view draws.

After a change of the view, `python -m tests.loghub_cli.demo.test_picture` writes `docs/demo.svg`. The view
shows a recording: the demo has added a worker and killed another one, whose shard has moved.
"""

import io
import re
from dataclasses import dataclass

from rich.console import Console

from loghub.contract.worker import ShardProgress, WorkerStatus
from loghub.wire.cursor import encode
from loghub_cli.up.live_view import LiveView, Watcher
from loghub_cli.up.snapshot import GroupSnapshot, changes
from loghub_cli.up.supervisor import WorkerView
from loghub_operator.api import Phase, ShardStatus, Status
from loghub_operator.model.observed import WorkerObserved, WorkerPhase
from loghub_operator.model.revision import UNKNOWN
from tests.support import ROOT

PICTURE = ROOT / "docs" / "demo.svg"
WIDTH, HEIGHT = 108, 32
NAME = "access-log"
BEGIN = 1795256469453039252  # a cursor of the recording
# Web fonts that the exporter names: the picture is drawn with the monospace font of the reader's machine.
WEB_FONT = re.compile(r"\s*@font-face \{.*?\}", re.DOTALL)


@dataclass(frozen=True, slots=True, kw_only=True)
class Seen:
    """What a worker was seen to do. ``rows`` counts from the start of its process, evenly over its shards."""

    ordinal: int
    phase: WorkerPhase
    pid: int | None
    starts: int = 1
    shards: tuple[int, ...] = ()
    rows: int = 0


def worker(seen: Seen) -> WorkerView:
    name, running = f"{NAME}-{seen.ordinal}", seen.phase is WorkerPhase.RUNNING
    shards = [
        ShardProgress(
            shard=number,
            cursor=None,
            checkpoint=None,
            logs=seen.rows // len(seen.shards),
            lag_s=None,
            draining=False,
        )
        for number in seen.shards
    ]
    status = WorkerStatus(
        consumer=name, phase=seen.phase.value, reason="", message="", rows_written=seen.rows,
        last_heartbeat_age_s=0.0, shards=shards, written_at=0.0,
    )  # fmt: skip
    observed = WorkerObserved(
        name=name, ordinal=seen.ordinal, phase=seen.phase, ready=running, revision=UNKNOWN,
        drain_requested=False, reason="", message="" if seen.pid else "killed by SIGKILL",
    )  # fmt: skip
    return WorkerView(
        observed=observed, pid=seen.pid, starts=seen.starts, status=status if seen.pid else None
    )


def snapshot(at_s: float, phase: Phase, workers: tuple[Seen, ...], lags: tuple[int, ...]) -> GroupSnapshot:
    """A shard that no worker has is free."""
    holders = {number: f"{NAME}-{seen.ordinal}" for seen in reversed(workers) for number in seen.shards}
    shards = tuple(
        ShardStatus.model_validate(
            {
                "id": number,
                "state": "already_alloc" if number in holders else "not_alloc",
                "consumer": holders.get(number),
                "checkpoint": encode(BEGIN + number * 1009 + round(at_s) * 211),
                "lag_logs": lag,
                "lag_seconds": lag // 100,
            }
        )
        for number, lag in enumerate(lags)
    )
    ready = sum(seen.phase is WorkerPhase.RUNNING for seen in workers)
    status = Status(phase=phase, workers=f"{ready}/{len(workers)}", shards=shards)
    return GroupSnapshot(at_unix_s=at_s, status=status, workers=tuple(map(worker, workers)))


UP, BEGUN, DEAD = WorkerPhase.RUNNING, WorkerPhase.STARTING, WorkerPhase.FAILED
FIRST, SECOND, THIRD = 41207, 41209, 41655  # process IDs of the recording
# The sentences of the demo, and between them what was observed.
RECORDING: tuple[tuple[float, str | GroupSnapshot], ...] = (
    (17.9, "DEMO: adds a worker: replicas 2 -> 3 in cr.yaml"),
    (18.4, snapshot(18.4, Phase.RUNNING, (
        Seen(ordinal=0, phase=UP, pid=FIRST, shards=(0, 1), rows=1610),
        Seen(ordinal=1, phase=UP, pid=SECOND, shards=(2, 3), rows=1590),
    ), (40, 60, 40, 60))),
    (18.6, snapshot(18.6, Phase.REBALANCING, (
        Seen(ordinal=0, phase=UP, pid=FIRST, shards=(0, 1), rows=1650),
        Seen(ordinal=1, phase=UP, pid=SECOND, shards=(2, 3), rows=1630),
        Seen(ordinal=2, phase=BEGUN, pid=THIRD),
    ), (40, 60, 40, 60))),
    (28.2, snapshot(28.2, Phase.RUNNING, (
        Seen(ordinal=0, phase=UP, pid=FIRST, shards=(0,), rows=3540),
        Seen(ordinal=1, phase=UP, pid=SECOND, shards=(2, 3), rows=3490),
        Seen(ordinal=2, phase=UP, pid=THIRD, shards=(1,), rows=20),
    ), (20, 80, 40, 40))),
    (33.4, f"DEMO: kills {NAME}-0 (process {FIRST}) with SIGKILL; it holds shard 0"),
    (33.5, snapshot(33.5, Phase.RUNNING, (
        Seen(ordinal=0, phase=DEAD, pid=None),
        Seen(ordinal=1, phase=UP, pid=SECOND, shards=(2, 3), rows=4590),
        Seen(ordinal=2, phase=UP, pid=THIRD, shards=(1,), rows=580),
    ), (60, 40, 60, 40))),
    (34.0, snapshot(34.0, Phase.RUNNING, (
        Seen(ordinal=0, phase=BEGUN, pid=42018, starts=2),
        Seen(ordinal=1, phase=UP, pid=SECOND, shards=(2, 3), rows=4650),
        Seen(ordinal=2, phase=UP, pid=THIRD, shards=(1,), rows=610),
    ), (120, 40, 60, 40))),
    (46.2, snapshot(46.2, Phase.RUNNING, (
        Seen(ordinal=0, phase=BEGUN, pid=42018, starts=2),
        Seen(ordinal=1, phase=UP, pid=SECOND, shards=(2, 3), rows=5290),
        Seen(ordinal=2, phase=UP, pid=THIRD, shards=(0, 1), rows=1040),
    ), (460, 40, 40, 60))),
)  # fmt: skip


def picture() -> str:
    """The live view after the recording, as an SVG."""
    watcher, last = Watcher(), None
    for at_s, content in RECORDING:
        if isinstance(content, str):
            watcher.say(f"{at_s:6.1f} s  {content}")
            continue
        if last is not None:
            for sentence in changes(last.status, content.status, last.workers, content.workers):
                watcher.say(f"{at_s:6.1f} s  {sentence}")
        last = content
        title = f"LogHub demo  {content.status.phase}, workers {content.status.workers}, {at_s:.0f} s"
        notes = ("sent 10470 lines of access.log (generated), pass 1; in the sink 9870",)
        frame = watcher.frame(content, title=title, notes=notes, now=at_s)
    console = Console(
        file=io.StringIO(),
        record=True,
        width=WIDTH,
        height=HEIGHT,
        force_terminal=True,
        color_system="truecolor",
    )
    console.print(LiveView(frame))
    svg = console.export_svg(title="make demo", unique_id="demo")
    return WEB_FONT.sub("", svg).rstrip() + "\n"


def test_the_picture_is_what_the_live_view_draws() -> None:
    assert PICTURE.read_text(encoding="utf-8") == picture(), f"run python -m {__spec__.name}"


if __name__ == "__main__":
    PICTURE.write_text(picture(), encoding="utf-8")
