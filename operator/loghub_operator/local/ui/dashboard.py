"""The live view of `loghub up` and the demo: shards, workers and events, on a terminal or as plain lines.

The view is computed from values of `loghub_operator.local.snapshot`.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from rich import box
from rich.console import Group, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedCursor
from loghub_operator.api import ShardStatus
from loghub_operator.local.processes.supervisor import WorkerView
from loghub_operator.local.snapshot import GroupSnapshot
from loghub_operator.local.ui.rate_meter import Meter

MAX_EVENTS = 9
POSITION_DIGITS = 6
MAX_MESSAGE_CHARS = 160
_STATE_STYLES = {
    "already_alloc": "green",
    "transfer": "yellow",
    "not_alloc": "red",
    "wait": "cyan",
    "over": "dim",
}
_PHASE_STYLES = {"running": "green", "starting": "yellow", "failed": "red", "stopping": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A table row: the cells, and the style of the second cell."""

    cells: tuple[str, ...]
    style: str = ""


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The content of the view. ``notes`` are sentences above the tables, ``events`` end with the newest."""

    title: str
    notes: tuple[str, ...]
    shards: tuple[Row, ...]
    workers: tuple[Row, ...]
    events: tuple[str, ...]


SHARD_HEADS = ("shard", "state", "holder", "next", "checkpoint", "lag logs", "lag s", "rows/s")
WORKER_HEADS = ("worker", "phase", "process", "starts", "shards", "rows", "rows/s", "says")


class Watcher:
    """Turns snapshots into frames; keeps the counters for the rates, and the latest events."""

    def __init__(self) -> None:
        self._workers = Meter()
        self._shards = Meter()
        self._events: list[str] = []

    def say(self, text: str) -> None:
        """Adds an event, which starts with its time."""
        self._events = [*self._events, text][-MAX_EVENTS:]

    def frame(self, snapshot: GroupSnapshot, *, title: str, notes: Iterable[str], now: float) -> Frame:
        """The frame of a snapshot; ``now`` is in monotonic seconds."""
        self._workers.update(_rows(snapshot.workers), now=now)
        self._shards.update(_logs(snapshot.workers), now=now)
        return Frame(
            title=title,
            notes=tuple(notes),
            shards=tuple(self._shard(shard) for shard in snapshot.status.shards),
            workers=tuple(self._worker(view) for view in snapshot.workers),
            events=tuple(self._events),
        )

    @property
    def events(self) -> tuple[str, ...]:
        return tuple(self._events)

    def rows(self) -> int:
        """The rows that all workers reported as written, over all their restarts."""
        return sum(self._workers.total(name) for name in self._workers.names())

    def _shard(self, shard: ShardStatus) -> Row:
        cells = (
            str(shard.id),
            shard.state,
            shard.consumer or "-",
            shard.next_consumer or "-",
            position(shard.checkpoint),
            _number(shard.lag_logs),
            _number(shard.lag_seconds),
            _rate(self._shards.rate(str(shard.id))),
        )
        return Row(cells=cells, style=_STATE_STYLES.get(shard.state, ""))

    def _worker(self, view: WorkerView) -> Row:
        name, phase = view.observed.name, view.observed.phase.value
        held = sorted(shard.shard for shard in view.status.shards) if view.status else []
        cells = (
            name,
            phase,
            str(view.pid or "-"),
            str(view.starts),
            " ".join(map(str, held)) or "-",
            str(self._workers.total(name)),
            _rate(self._workers.rate(name)),
            _one_line(": ".join(part for part in (view.observed.reason, view.observed.message) if part)),
        )
        return Row(cells=cells, style=_PHASE_STYLES.get(phase, ""))


def _rows(workers: Sequence[WorkerView]) -> dict[str, tuple[object, int]]:
    return {view.observed.name: (view.starts, view.status.rows_written) for view in workers if view.status}


def _logs(workers: Sequence[WorkerView]) -> dict[str, tuple[object, int]]:
    """Logs by shard; another consumer, or a restarted process, counts from zero."""
    return {
        str(shard.shard): ((view.observed.name, view.starts), shard.logs)
        for view in workers
        if view.status
        for shard in view.status.shards
    }


def position(cursor: str | None) -> str:
    """The last digits, which change, of a checkpoint as a number. A malformed cursor is shown unchanged."""
    if not cursor:
        return "-"
    try:
        digits = str(wire_cursor.decode(cursor))
    except MalformedCursor:
        return cursor
    return digits if len(digits) <= POSITION_DIGITS else f"…{digits[-POSITION_DIGITS:]}"


def _one_line(text: str) -> str:
    """Shortens a message to a line; the worker's log contains the complete text of an exception."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[: MAX_MESSAGE_CHARS - 1]}…"


def _number(value: int | None) -> str:
    return "?" if value is None else str(value)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def render(frame: Frame) -> RenderableType:
    """Renders the frame for a terminal."""
    notes = [Text(note) for note in frame.notes]
    return Group(
        Text(frame.title, style="bold"),
        *notes,
        _table(SHARD_HEADS, frame.shards),
        _table(WORKER_HEADS, frame.workers),
        *(Text(event, style="dim", no_wrap=True, overflow="ellipsis") for event in frame.events),
    )


def _table(heads: Sequence[str], rows: Iterable[Row]) -> Table:
    table = Table(box=box.SIMPLE_HEAD, pad_edge=False)
    for head in heads:
        numeric = head in ("lag logs", "lag s", "rows/s", "rows", "starts", "process", "checkpoint")
        table.add_column(head, justify="right" if numeric else "left", overflow="fold")
    for row in rows:
        first, second, *others = (escape(cell) for cell in row.cells)
        styled = f"[{row.style}]{second}[/]" if row.style else second
        table.add_row(first, styled, *others)
    return table


def plain(frame: Frame) -> Iterator[str]:
    """Renders the frame as lines for a log, without events, which are printed when they happen."""
    yield " | ".join((frame.title, *frame.notes))
    for row in frame.shards:
        number, state, holder, following, checkpoint, logs, seconds, rate = row.cells
        to = f" -> {following}" if following != "-" else ""
        details = f"checkpoint {checkpoint}, lag {logs} logs {seconds} s, {rate} rows/s"
        yield f"  shard {number} {state} {holder}{to}: {details}"
    for row in frame.workers:
        name, phase, process, _, shards, rows, rate, message = row.cells
        counted = f"shards {shards}, {rows} rows, {rate} rows/s"
        yield f"  {name} {phase}, process {process}, {counted} {message}".rstrip()
