"""Programs of a test cluster as processes that can be found and ended again.

Each started program leaves a record (process id and start time) in the run's folder, so that the run itself,
or a later one that finds its leftovers, ends exactly these processes and no others.
"""

import json
import os
import select
import signal
import subprocess
import time
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path

STOP_GUARD_S = 20.0
# Variables of programs in Go, memory for time. One that lasts needs a fifth less CPU with a heap that may
# grow to five times what lives; one that ends in a second, such as helm, two fifths less if it has one thread
# and never collects.
LASTING = {"GOGC": "400"}
BRIEF = {"GOGC": "off", "GOMAXPROCS": "1"}


@dataclass(frozen=True, slots=True, kw_only=True)
class Record:
    """A process that we started; the start time distinguishes it from a later one with the same id."""

    name: str
    pid: int
    start_ticks: int


def start_ticks(pid: int) -> int | None:
    """Start time of a live process in clock ticks since boot; None if it has ended or is a zombie."""
    try:
        fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    except OSError:
        return None
    return None if fields[0] in "ZX" else int(fields[19])


class Processes:
    """The processes of one run, recorded under ``<folder>/pids``, logging to ``<folder>/logs``."""

    def __init__(self, folder: Path) -> None:
        self.records = folder / "pids"
        self.logs = folder / "logs"
        self._children: dict[str, subprocess.Popen[bytes]] = {}

    def start(self, name: str, command: list[str]) -> None:
        self.records.mkdir(parents=True, exist_ok=True)
        self.logs.mkdir(parents=True, exist_ok=True)
        with self.log(name).open("ab") as log:
            child = subprocess.Popen(
                command,
                stdin=subprocess.DEVNULL,
                stdout=log,
                stderr=log,
                start_new_session=True,
                env=os.environ | LASTING,
            )
        self._children[name] = child
        record = {"pid": child.pid, "start_ticks": start_ticks(child.pid)}
        (self.records / f"{name}.json").write_text(json.dumps(record))

    def log(self, name: str) -> Path:
        return self.logs / f"{name}.log"

    def tail(self, name: str, lines: int = 15) -> str:
        try:
            return "\n".join(self.log(name).read_text(errors="replace").splitlines()[-lines:])
        except OSError:
            return ""

    def alive(self, name: str) -> bool:
        return any(record.name == name for record in self._live())

    def _live(self) -> list[Record]:
        for child in self._children.values():
            child.poll()  # reaps it, if it has ended
        return [r for r in read_records(self.records) if start_ticks(r.pid) == r.start_ticks]

    def stop(self, name: str = "") -> None:
        """End one, or all: the last started first, so that each still has what it needs to stop well."""
        chosen = [record for record in self._live() if name in ("", record.name)]
        for record in sorted(chosen, key=lambda record: record.start_ticks, reverse=True):
            self._end(record)
        for path in self.records.glob(f"{name or '*'}.json"):
            path.unlink()

    def kill(self, name: str) -> None:
        """End one as a crash would."""
        for record in self._live():
            if record.name == name:
                self._end(record, signal.SIGKILL)

    def _end(self, record: Record, *numbers: signal.Signals) -> None:
        """By these signals, one after the other as needed; by default it is asked first and then forced."""
        handle = _open(record)
        if handle is None:
            return
        try:
            for number in numbers or (signal.SIGTERM, signal.SIGKILL):
                _send(handle, number)
                if _has_ended(handle):
                    break
        finally:
            os.close(handle)
        self._live()


def read_records(folder: Path) -> list[Record]:
    result = []
    for path in sorted(folder.glob("*.json")):
        try:
            value = json.loads(path.read_text())
            result.append(Record(name=path.stem, pid=value["pid"], start_ticks=value["start_ticks"] or -1))
        except (OSError, ValueError, KeyError):
            continue  # half written by a run that died: it names no process we could end safely
    return result


def _open(record: Record) -> int | None:
    """A handle on exactly this process, or None if it has ended."""
    try:
        handle = os.pidfd_open(record.pid)
    except OSError:
        return None
    if start_ticks(record.pid) == record.start_ticks:
        return handle
    os.close(handle)
    return None


def _send(handle: int, number: signal.Signals) -> None:
    try:
        signal.pidfd_send_signal(handle, number)
    except ProcessLookupError:
        return


def _has_ended(handle: int) -> bool:
    """Wait until the process has ended or the guard is over."""
    poll = select.poll()
    poll.register(handle, select.POLLIN)
    return bool(poll.poll(STOP_GUARD_S * 1000))


def wait_until(condition: Callable[[], bool], *, what: str, guard_s: float, pause_s: float = 0.1) -> None:
    """Ask again until ``condition`` holds; after ``guard_s`` seconds this is an error."""
    deadline = time.monotonic() + guard_s
    while not condition():
        if time.monotonic() > deadline:
            raise TimeoutError(f"waited {guard_s:.0f} s in vain: {what}")
        time.sleep(pause_s)
