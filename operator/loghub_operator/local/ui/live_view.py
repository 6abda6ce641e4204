"""Draws a frame on a terminal, whatever its size (`loghub_operator.local.ui.fitted`)."""

from collections.abc import Iterator, Sequence
from dataclasses import dataclass

from rich.console import Console, ConsoleOptions, RenderableType
from rich.markup import escape
from rich.table import Table
from rich.text import Text

from loghub_operator.local.ui.dashboard import SHARD_HEADS, WORKER_HEADS, Frame, Row
from loghub_operator.local.ui.fitted import folded, heights

MOST_PROBLEMS, PROBLEM_LINES = 3, 2
LEAST_ROWS = 3  # of workers, events and shards, on a terminal of 24 lines with all problems
_NUMBERS = ("process", "starts", "rows", "checkpoint", "lag logs", "lag s", "rows/s")
_TEXTS = ("worker", "consumer", "next", "shards")  # these are cut where the terminal is narrow
_LOW, FEW_EVENTS = 32, 4  # where the shards need the lines more
_NARROW, _NAME_CHARS = 100, 12  # all columns of a narrow terminal fit next to names of this length


@dataclass(frozen=True, slots=True)
class LiveView:
    """A frame, cut to the size of the terminal."""

    frame: Frame

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
        given = heights(max(console.height - len(top), 0), wanted, [LEAST_ROWS + more for more in extra])
        rows = [max(lines - more, 0) for lines, more in zip(given, extra, strict=True)]
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
        yield from (Text(problem, style="red") for problem in problems[:MOST_PROBLEMS])
        if len(problems) > MOST_PROBLEMS:
            yield Text(f"and {len(problems) - MOST_PROBLEMS} more problems", style="red")


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
