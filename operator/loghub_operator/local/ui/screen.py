"""Where a run is shown: a live picture on a terminal, plain lines elsewhere.

What for: `loghub up` and the demo tell it what happens. What it must not know: what is run.
Read next: `loghub_operator.local.ui.dashboard`.
"""

import sys
from collections.abc import Callable
from typing import IO

from rich.console import Console
from rich.live import Live

from loghub.clock import Clock
from loghub_operator.local.snapshot import GroupSnapshot
from loghub_operator.local.ui.dashboard import Frame, Watcher, plain, render

PLAIN_EVERY_S = 10.0
PER_SECOND = 4


class Screen:
    """An `Audience`. Use it as a context; `notes` are asked for at every picture."""

    def __init__(
        self,
        *,
        title: str,
        clock: Clock,
        notes: Callable[[], tuple[str, ...]],
        live: bool,
        out: IO[str] | None = None,
    ) -> None:
        self.watcher = Watcher()
        self.last: GroupSnapshot | None = None
        self._title = title
        self._clock = clock
        self._notes = notes
        self._out = out or sys.stdout
        self._began_s = clock.monotonic_s()
        self._plain_at_s = self._began_s
        self._live: Live | None = None
        if live:
            console = Console(file=self._out)
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
        """One sentence, when it happens."""
        line = f"{self.elapsed_s:6.1f} s  {text}"
        self.watcher.say(line)
        if self._live is None:
            self._print(line)
        else:
            self.refresh()

    def look(self, look: GroupSnapshot) -> None:
        """After every round."""
        self.last = look
        self.refresh()

    def refresh(self) -> None:
        """Draw anew; as plain lines only now and then."""
        if self.last is None:
            if self._live is not None:
                self._live.update(render(self._empty()))
            return
        now = self._clock.monotonic_s()
        frame = self.watcher.frame(self.last, title=self._heading(self.last), notes=self._notes(), now=now)
        if self._live is not None:
            self._live.update(render(frame))
        elif now >= self._plain_at_s:
            self._plain_at_s = now + PLAIN_EVERY_S
            for line in plain(frame):
                self._print(line)

    def _heading(self, look: GroupSnapshot) -> str:
        status = look.status
        phase = status.phase.value if status.phase else "-"
        return f"{self._title}  {phase}, workers {status.workers or '-'}, {self.elapsed_s:.0f} s"

    def _empty(self) -> Frame:
        title = f"{self._title}  {self.elapsed_s:.0f} s"
        return Frame(title=title, notes=self._notes(), shards=(), workers=(), events=self.watcher.events)

    def _print(self, line: str) -> None:
        print(line, file=self._out, flush=True)
