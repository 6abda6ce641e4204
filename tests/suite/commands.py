"""Runs several commands at the same time and shows the output of each in one piece.

The output of the first command is shown at once. That of each other one goes to ``FOLDER/NAME.log``, and is
shown from its beginning when the first one has ended. All run to their end, also if one fails.

SIGINT, SIGTERM and SIGHUP interrupt every command once, like Ctrl-C in a terminal, so that pytest runs its
cleanup; each command has a process group of its own for this, or a terminal would interrupt it a second time.
So does an output that can no longer be written, or commands would outlive ``make test | head``.
"""

import contextlib
import os
import signal
import subprocess
import sys
import threading
import time
from dataclasses import dataclass
from pathlib import Path
from types import FrameType
from typing import IO

SHOW_EVERY_S = 0.5


@dataclass(frozen=True, slots=True, kw_only=True)
class Ended:
    """How a command ended; ``status`` is None if it was never started, because of an interrupt."""

    status: int | None
    wall_s: float


class Commands:
    """Commands that are run one group after the other, from one thread, which has the handlers of signals."""

    def __init__(self, folder: Path, *, cwd: Path) -> None:
        self._folder = folder
        self._cwd = cwd
        self._children: list[subprocess.Popen[bytes]] = []
        self.interrupted = False
        for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
            signal.signal(number, self.interrupt)

    def run(self, named: dict[str, list[str]]) -> dict[str, Ended]:
        """Run the commands at the same time, by name, and wait for all of them."""
        started_s = time.monotonic()
        (first, shown), *others = named.items()
        waits = {}
        followed = []
        try:
            for name, command in others:
                log = self._folder / f"{name}.log"
                print(f"[{name}] runs at the same time; shown later, now in {log}", flush=True)
                with log.open("wb") as output:
                    if child := self._start(command, output):
                        followed.append((child, log))
                        waits[name] = _Wait(child, started_s)
            if child := self._start(shown, None):
                waits[first] = _Wait(child, started_s)
                child.wait()
            for child, log in followed:
                _follow(child, log)
        except OSError:
            self.interrupt()
            raise
        finally:
            ended = {name: wait.ended() for name, wait in waits.items()}
            self._children.clear()
        return {name: ended.get(name, Ended(status=None, wall_s=0.0)) for name in named}

    def interrupt(self, _number: int = signal.SIGINT, _frame: FrameType | None = None) -> None:
        """Interrupts every command; also the handler of a signal."""
        self.interrupted = True
        for child in self._children:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGINT)

    def _start(self, command: list[str], output: IO[bytes] | None) -> "subprocess.Popen[bytes] | None":
        """None after an interrupt."""
        if self.interrupted:
            return None
        child = subprocess.Popen(
            command,
            cwd=self._cwd,
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            process_group=0,
        )
        self._children.append(child)
        return child


class _Wait:
    """Notes when a command ends, also while another one is shown."""

    def __init__(self, child: "subprocess.Popen[bytes]", started_s: float) -> None:
        self._child = child
        self._started_s = started_s
        self._wall_s = 0.0
        self._thread = threading.Thread(target=self._wait, daemon=True)
        self._thread.start()

    def _wait(self) -> None:
        self._child.wait()
        self._wall_s = time.monotonic() - self._started_s

    def ended(self) -> Ended:
        self._thread.join()
        return Ended(status=self._child.returncode, wall_s=self._wall_s)


def _follow(child: "subprocess.Popen[bytes]", log: Path) -> None:
    """Copy the log to the standard output until the command has ended."""
    with log.open("rb") as written:
        ended = False
        while not ended:
            try:
                ended = child.wait(SHOW_EVERY_S) is not None
            except subprocess.TimeoutExpired:
                ended = False
            sys.stdout.buffer.write(written.read())
            sys.stdout.buffer.flush()
