"""Runs several commands at the same time and shows the output of each in one piece.

``python -m tests.side_by_side FOLDER NAME=COMMAND...``

The output of the first command is shown at once. That of each other one goes to ``FOLDER/NAME.log``, and is
shown from its beginning when the first one has ended. All run to their end, also if one fails; the exit
status is 0 only if that of every command is.

SIGINT, SIGTERM and SIGHUP interrupt every command once, like Ctrl-C in a terminal, so that pytest runs its
cleanup; each command has a process group of its own for this, or a terminal would interrupt it a second time.
So does an output that can no longer be written, or commands would outlive ``make test | head``.
"""

import argparse
import contextlib
import os
import shlex
import signal
import subprocess
import sys
from pathlib import Path
from types import FrameType
from typing import IO

SHOW_EVERY_S = 0.5


class Commands:
    """Commands that run at the same time."""

    def __init__(self) -> None:
        self._children: list[subprocess.Popen[bytes]] = []
        self._interrupted = False

    def start(self, command: str, output: IO[bytes] | None) -> "subprocess.Popen[bytes] | None":
        """None after an interrupt. The command may begin with settings such as ``NAME=value``."""
        if self._interrupted:
            return None
        child = subprocess.Popen(
            ["env", *shlex.split(command)],
            stdin=subprocess.DEVNULL,
            stdout=output,
            stderr=None if output is None else subprocess.STDOUT,
            process_group=0,
        )
        self._children.append(child)
        return child

    def interrupt(self, _number: int = signal.SIGINT, _frame: FrameType | None = None) -> None:
        """Interrupts every command; also the handler of a signal."""
        self._interrupted = True
        for child in self._children:
            if child.returncode is None:
                with contextlib.suppress(ProcessLookupError):
                    os.killpg(child.pid, signal.SIGINT)

    def status(self) -> int:
        """0, or the exit status of a command that failed; waits for all of them."""
        statuses = [child.wait() for child in self._children]
        return next((abs(status) for status in statuses if status != 0), int(self._interrupted))


def follow(child: "subprocess.Popen[bytes]", log: Path) -> None:
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


def run(folder: Path, named: list[tuple[str, str]]) -> int:
    """``named``: names and commands."""
    folder.mkdir(parents=True, exist_ok=True)
    commands = Commands()
    for number in (signal.SIGINT, signal.SIGTERM, signal.SIGHUP):
        signal.signal(number, commands.interrupt)
    try:
        _run_all(commands, folder, named)
    except OSError:
        commands.interrupt()
        commands.status()
        raise
    return commands.status()


def _run_all(commands: Commands, folder: Path, named: list[tuple[str, str]]) -> None:
    (_, first), *others = named
    followed = []
    for name, command in others:
        log = folder / f"{name}.log"
        print(f"[{name}] runs at the same time; shown later, now in {log}", flush=True)
        with log.open("wb") as output:
            if child := commands.start(command, output):
                followed.append((child, log))
    shown = commands.start(first, None)
    if shown is not None:
        shown.wait()
    for child, log in followed:
        follow(child, log)


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.side_by_side")
    parser.add_argument("folder", type=Path)
    parser.add_argument("commands", nargs="+", metavar="NAME=COMMAND")
    options = parser.parse_args()
    parts = [text.partition("=") for text in options.commands]
    return run(options.folder, [(name, command) for name, _, command in parts])


if __name__ == "__main__":
    sys.exit(main())
