"""What `loghub up` and the demo show of a group: what is wrong, workers, events and shards.

A frame is computed from values of `loghub_cli.up.snapshot`, purely; `LiveView` draws it on a terminal of any
size, and `plain` makes lines of it elsewhere. Where a terminal is too small for all parts, failures, workers
and events come before shards: there may be hundreds of shards, and one line says what is wrong with them.
Rates come from counters that restart at zero with their process, such as the rows of a worker.
"""

from collections import deque
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from dataclasses import dataclass
from typing import Protocol, TypeVar

from rich.console import Console, ConsoleOptions, RenderableType
from rich.live import Live
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from loghub.clock import Clock
from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import MalformedCursor
from loghub_cli.up.snapshot import GroupSnapshot
from loghub_cli.up.supervisor import WorkerView
from loghub_operator.api import ShardStatus, Status
from loghub_operator.api.conditions import ConditionType
from loghub_operator.model.observed import WorkerPhase


class _HasUrgency(Protocol):
    @property
    def urgency(self) -> int: ...


T = TypeVar("T", bound=_HasUrgency)


def heights(room: int, wanted: Sequence[int], minimum: Sequence[int]) -> tuple[int, ...]:
    """The lines of each part, in the order of importance: each one gets its least first, then what is left
    goes to the first ones that want more."""
    lines = [0] * len(wanted)
    for bounds in (map(min, wanted, minimum), wanted):
        for part, maximum in enumerate(bounds):
            more = min(maximum - lines[part], room)
            lines[part] += more
            room -= more
    return tuple(lines)


def folded(rows: Sequence[T], lines: int) -> tuple[tuple[T, ...], int]:
    """As many rows as fit, and how many do not, for which one line is kept. The most urgent ones are shown,
    in the order that they had."""
    if len(rows) <= lines:
        return tuple(rows), 0
    shown = max(lines - 1, 0)
    chosen = sorted(range(len(rows)), key=lambda number: -rows[number].urgency)[:shown]
    return tuple(rows[number] for number in sorted(chosen)), len(rows) - shown


WINDOW_S = 5.0  # the operator's numbers change each second: a shorter window makes the rate jump


class Meter:
    """Total and rate per name. A counter's ``life`` changes when the counter restarts at zero."""

    def __init__(self) -> None:
        self._last: dict[str, tuple[object, int]] = {}
        self._totals: dict[str, int] = {}
        self._samples: deque[tuple[float, dict[str, int]]] = deque()

    def update(self, counters: Mapping[str, tuple[object, int]], *, now: float) -> None:
        """Adds a sample of the counters: name -> (life, count); ``now`` is in monotonic seconds."""
        for name, (life, count) in counters.items():
            before_life, before = self._last.get(name, (None, 0))
            base = before if before_life == life else 0
            self._totals[name] = self._totals.get(name, 0) + max(0, count - base)
            self._last[name] = (life, count)
        self._samples.append((now, dict(self._totals)))
        while len(self._samples) > 2 and now - self._samples[1][0] >= WINDOW_S:
            self._samples.popleft()

    def names(self) -> tuple[str, ...]:
        """Every name that was ever sampled."""
        return tuple(self._totals)

    def total(self, name: str) -> int:
        """The total over all restarts of the counter."""
        return self._totals.get(name, 0)

    def rate(self, name: str) -> float | None:
        """The rate per second over the last `WINDOW_S`; None before there are two samples."""
        if len(self._samples) < 2:
            return None
        (since, before), (until, after) = self._samples[0], self._samples[-1]
        if until <= since:
            return None
        return (after.get(name, 0) - before.get(name, 0)) / (until - since)


MAX_EVENTS = 9  # more would leave a terminal of 24 lines no room for workers and shards
POSITION_DIGITS = 6  # the last digits of a cursor, which are the ones that change
MAX_MESSAGE_CHARS = 160  # two lines of a terminal of 80 columns
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
    """A table row: the cells, and the style of the second cell. Where not all rows fit, the rows of greater
    ``urgency`` are shown."""

    cells: tuple[str, ...]
    style: str = ""
    urgency: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class ScreenFrame:
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

    def frame(self, snapshot: GroupSnapshot, *, title: str, notes: Iterable[str], now: float) -> ScreenFrame:
        """The frame of a snapshot; ``now`` is in monotonic seconds."""
        self._workers.update(_rows(snapshot.workers), now=now)
        self._shards.update(_logs(snapshot.workers), now=now)
        failing = frozenset(
            shard.shard for view in snapshot.workers if view.status for shard in view.status.failing
        )
        return ScreenFrame(
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
    for condition in status.conditions:
        is_wrong = (
            condition.type in (ConditionType.DEGRADED, ConditionType.STALLED) and condition.status == "True"
        )
        if is_wrong and not any(message in condition.message for message in said.values()):
            yield one_line(f"{condition.type} {condition.reason}: {condition.message}")


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


def plain(frame: ScreenFrame) -> Iterator[str]:
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


MAX_PROBLEMS, PROBLEM_LINES = 3, 2
MIN_ROWS = 3  # of workers, events and shards, on a terminal of 24 lines with all problems
_NUMBERS = ("process", "starts", "rows", "checkpoint", "lag logs", "lag s", "rows/s")
_TEXTS = ("worker", "consumer", "next", "shards")  # these are cut where the terminal is narrow
_LOW, FEW_EVENTS = 32, 4  # where the shards need the lines more
_NARROW, _NAME_CHARS = 100, 12  # all columns of a narrow terminal fit next to names of this length


@dataclass(frozen=True, slots=True)
class LiveView:
    """A frame, cut to the size of the terminal."""

    frame: ScreenFrame

    def __rich_console__(self, console: Console, options: ConsoleOptions) -> Iterator[RenderableType]:
        width = options.max_width
        top = [
            *(line for text in self._notes() for line in text.wrap(console, width)),
            *(line for text in self._problems() for line in _cut(text, console, width)),
        ]
        yield from top
        events = self.frame.events[-FEW_EVENTS:] if console.height < _LOW else self.frame.events
        parts = (self.frame.workers, events, self.frame.shards)
        # A part has a blank line before it, and a table has a line of headings.
        extra = (2, 1, 2)
        wanted = [len(part) + more if part else 0 for part, more in zip(parts, extra, strict=True)]
        room = heights(max(console.height - len(top), 0), wanted, [MIN_ROWS + more for more in extra])
        rows = [max(lines - more, 0) for lines, more in zip(room, extra, strict=True)]
        yield from _table("worker", WORKER_HEADS, self.frame.workers, rows[0], width)
        if rows[1]:
            yield Text()
            for event in events[-rows[1] :]:
                yield Text(event, style="dim", no_wrap=True, overflow="ellipsis")
        yield from _table("shard", SHARD_HEADS, self.frame.shards, rows[2], width)

    def _notes(self) -> Iterator[Text]:
        """Whole, however long: one of them is how to log in."""
        yield Text(self.frame.title, style="bold")
        yield from map(Text, self.frame.notes)

    def _problems(self) -> Iterator[Text]:
        problems = self.frame.problems
        yield from (Text(problem, style="red") for problem in problems[:MAX_PROBLEMS])
        if len(problems) > MAX_PROBLEMS:
            yield Text(f"and {len(problems) - MAX_PROBLEMS} more problems", style="red")


def _cut(text: Text, console: Console, width: int) -> list[Text]:
    lines = list(text.wrap(console, width))
    if len(lines) > PROBLEM_LINES:
        last = lines[PROBLEM_LINES - 1]
        last.truncate(width - 1)
        last.rstrip()
        last.append("…")
    return lines[:PROBLEM_LINES]


def _table(
    noun: str, heads: Sequence[str], all_rows: Sequence[Row], lines: int, width: int
) -> Iterator[RenderableType]:
    """Nothing if not even one row fits."""
    if not lines:
        return
    rows, more = folded(all_rows, lines)
    is_narrow = width < _NARROW
    table = Table(
        box=None, padding=(0, 1 if is_narrow else 2, 0, 0), pad_edge=False, header_style="underline"
    )
    for head in heads:
        table.add_column(
            head,
            justify="right" if head in _NUMBERS else "left",
            no_wrap=head not in _TEXTS,
            overflow="ellipsis",
        )
    for row in rows:
        cells = [
            _end(cell) if is_narrow and head in _TEXTS and head != "shards" else cell
            for head, cell in zip(heads, row.cells, strict=True)
        ]
        first, second, *others = map(escape, cells)
        table.add_row(first, f"[{row.style}]{second}[/]" if row.style else second, *others)
    yield Text()
    yield table
    if more:
        yield Text(f"and {more} more {noun}s", style="dim")


def _end(name: str) -> str:
    """Workers of a group differ in the end of their names."""
    return name if len(name) <= _NAME_CHARS else f"…{name[-(_NAME_CHARS - 1) :]}"


PLAIN_EVERY_S = 10.0  # a line of progress where nothing is redrawn, such as a log of a CI
PER_SECOND = 4  # redraws: smooth enough, and cheap over ssh


class Screen:
    """A `RunObserver` that prints. Use it as a context manager; ``notes`` is called for every frame."""

    def __init__(
        self,
        *,
        title: str,
        clock: Clock,
        notes: Callable[[], tuple[str, ...]],
        live: bool,
    ) -> None:
        self.watcher = Watcher()
        self.last: GroupSnapshot | None = None
        self._title = title
        self._clock = clock
        self._notes = notes
        self._began_s = clock.monotonic_s()
        self._plain_at_s = self._began_s
        self._live: Live | None = None
        if live:
            console = Console()
            self._live = Live(console=console, refresh_per_second=PER_SECOND, transient=False)

    def __enter__(self) -> "Screen":
        if self._live is not None:
            self._live.start()
        return self

    def __exit__(self, *_: object) -> None:
        if self._live is not None:
            self.refresh()
            self._live.stop()
            self._live = None

    @property
    def elapsed_s(self) -> float:
        return self._clock.monotonic_s() - self._began_s

    def say(self, text: str) -> None:
        """Shows an event."""
        line = f"{self.elapsed_s:6.1f} s  {text}"
        self.watcher.say(line)
        if self._live is None:
            self._print(line)
        else:
            self.refresh()

    def show(self, snapshot: GroupSnapshot) -> None:
        """Shows the state after a reconcile."""
        self.last = snapshot
        self.refresh()

    def refresh(self) -> None:
        """Draws the current frame; prints plain lines only every `PLAIN_EVERY_S`."""
        if self.last is None:
            if self._live is not None:
                self._live.update(LiveView(self._empty()))
            return
        now = self._clock.monotonic_s()
        frame = self.watcher.frame(self.last, title=self._heading(self.last), notes=self._notes(), now=now)
        if self._live is not None:
            self._live.update(LiveView(frame))
        elif now >= self._plain_at_s:
            self._plain_at_s = now + PLAIN_EVERY_S
            for line in plain(frame):
                self._print(line)

    def _heading(self, snapshot: GroupSnapshot) -> str:
        status = snapshot.status
        phase = status.phase.value if status.phase else "-"
        return f"{self._title}  {phase}, workers {status.workers or '-'}, {self.elapsed_s:.0f} s"

    def _empty(self) -> ScreenFrame:
        title = f"{self._title}  {self.elapsed_s:.0f} s"
        return ScreenFrame(title=title, notes=self._notes(), events=self.watcher.events)

    def _print(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output
