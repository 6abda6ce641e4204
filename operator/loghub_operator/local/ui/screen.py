"""Shows a run of `loghub up` or the demo: as a live view on a terminal, as plain lines elsewhere."""

from collections.abc import Callable

from rich.console import Console
from rich.live import Live

from loghub.clock import Clock
from loghub_operator.local.snapshot import GroupSnapshot
from loghub_operator.local.ui.dashboard import Frame, Watcher, plain
from loghub_operator.local.ui.live_view import LiveView

PLAIN_EVERY_S = 10.0
PER_SECOND = 4


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

    def _empty(self) -> Frame:
        title = f"{self._title}  {self.elapsed_s:.0f} s"
        return Frame(title=title, notes=self._notes(), events=self.watcher.events)

    def _print(self, line: str) -> None:
        print(line, flush=True)  # noqa: T201 - the command's output
