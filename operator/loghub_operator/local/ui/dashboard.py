"""What `loghub up` and the demo show of a group: what is wrong, workers, events and shards.

A frame is computed from values of `loghub_operator.local.snapshot`; `loghub_operator.local.ui.live_view`
draws it on a terminal, and `plain` makes lines of it. Pure.
"""

from collections.abc import Iterable, Iterator, Sequence
from dataclasses import dataclass

from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedCursor
from loghub_operator.api import ShardStatus, Status
from loghub_operator.api.conditions import ConditionType
from loghub_operator.local.processes.supervisor import WorkerView
from loghub_operator.local.snapshot import GroupSnapshot
from loghub_operator.local.ui.rate_meter import Meter
from loghub_operator.model.observed import WorkerPhase

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
_IN_BETWEEN = ("transfer", "not_alloc", "unknown")
_PHASE_STYLES = {"running": "green", "starting": "yellow", "failed": "red", "stopping": "yellow"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Row:
    """A table row: the cells, and the style of the second cell. Where not all rows fit, those of greater
    ``urgency`` are shown."""

    cells: tuple[str, ...]
    style: str = ""
    urgency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Frame:
    """The content of the view. ``notes`` are sentences below the title, ``problems`` say what is wrong, and
    ``events`` end with the newest."""

    title: str
    notes: tuple[str, ...] = ()
    problems: tuple[str, ...] = ()
    workers: tuple[Row, ...] = ()
    events: tuple[str, ...] = ()
    shards: tuple[Row, ...] = ()


SHARD_HEADS = ("shard", "state", "consumer", "next", "checkpoint", "lag logs", "lag s", "rows/s")
WORKER_HEADS = ("worker", "phase", "process", "starts", "shards", "rows", "rows/s")


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
        failing = frozenset(
            one.shard for view in snapshot.workers if view.status for one in view.status.failing
        )
        return Frame(
            title=title,
            notes=tuple(notes),
            problems=tuple(_problems(snapshot.status, snapshot.workers)),
            shards=tuple(
                self._shard(shard, is_failing=shard.id in failing) for shard in snapshot.status.shards
            ),
            workers=tuple(self._worker(view) for view in snapshot.workers),
            events=tuple(self._events),
        )

    @property
    def events(self) -> tuple[str, ...]:
        return tuple(self._events)

    def rows(self) -> int:
        """The rows that all workers reported as written, over all their restarts."""
        return sum(self._workers.total(name) for name in self._workers.names())

    def _shard(self, shard: ShardStatus, *, is_failing: bool) -> Row:
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
        urgency = 3 if is_failing else 2 if shard.state in _IN_BETWEEN else 1 if shard.lag_logs else 0
        return Row(cells=cells, style=_STATE_STYLES.get(shard.state, ""), urgency=urgency)

    def _worker(self, view: WorkerView) -> Row:
        name, phase = view.observed.name, view.observed.phase.value
        held = sorted(shard.shard for shard in view.status.shards) if view.status else []
        cells = (
            name,
            phase,
            str(view.pid or "-"),
            str(view.starts),
            ranges(held),
            str(self._workers.total(name)),
            _rate(self._workers.rate(name)),
        )
        urgency = 2 if says(view) else int(view.observed.phase is not WorkerPhase.RUNNING)
        return Row(cells=cells, style=_PHASE_STYLES.get(phase, ""), urgency=urgency)


def says(view: WorkerView) -> str:
    """What is wrong in the worker's own words, on one line; "" if nothing is."""
    return one_line(": ".join(part for part in (view.observed.reason, view.observed.message) if part))


def _problems(status: Status, workers: Sequence[WorkerView]) -> Iterator[str]:
    """What the workers say, and what else is wrong by the conditions, whose words may be a worker's."""
    said = {f"{view.observed.name}: {says(view)}": view.observed.message for view in workers if says(view)}
    yield from said
    for one in status.conditions:
        is_wrong = one.type in (ConditionType.DEGRADED, ConditionType.STALLED) and one.status == "True"
        if is_wrong and not any(message in one.message for message in said.values()):
            yield one_line(f"{one.type} {one.reason}: {one.message}")


def ranges(numbers: Sequence[int]) -> str:
    """Ascending numbers as ``0-3,7``."""
    parts: list[list[int]] = []
    for number in numbers:
        if parts and parts[-1][-1] == number - 1:
            parts[-1] = [parts[-1][0], number]
        else:
            parts.append([number])
    return ",".join("-".join(map(str, part)) for part in parts) or "-"


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


def one_line(text: str) -> str:
    """Shortens a message to a line; the worker's log contains the complete text of an exception."""
    line = " ".join(text.split())
    return line if len(line) <= MAX_MESSAGE_CHARS else f"{line[: MAX_MESSAGE_CHARS - 1]}…"


def _number(value: int | None) -> str:
    return "-" if value is None else str(value)


def _rate(value: float | None) -> str:
    return "-" if value is None else f"{value:.0f}"


def plain(frame: Frame) -> Iterator[str]:
    """Renders the frame as lines for a log, without events, which are printed when they happen."""
    yield " | ".join((frame.title, *frame.notes))
    for problem in frame.problems:
        yield f"  {problem}"
    for row in frame.shards:
        number, state, holder, following, checkpoint, logs, seconds, rate = row.cells
        to = f" -> {following}" if following != "-" else ""
        details = f"checkpoint {checkpoint}, lag {logs} logs {seconds} s, {rate} rows/s"
        yield f"  shard {number} {state} {holder}{to}: {details}"
    for row in frame.workers:
        name, phase, process, _, shards, rows, rate = row.cells
        yield f"  {name} {phase}, process {process}, shards {shards}, {rows} rows, {rate} rows/s"
