"""``python -m loghub_cli.demo.producer``: write lines to a logstore at a fixed rate until stopped.

The producer is a process of its own, so that the live view does not slow it down, and it has a record of its
own.

SIGTERM ends it once the log group in flight has its outcome. Exit status: 0 stopped; 1 the log service
failed, with its message on standard error; 2 invalid input. The access key is in the folder that the
environment variable LOGHUB_CREDENTIALS_DIR names.
"""

import os
import signal
import sys
import threading
from collections.abc import Iterator, Sequence
from pathlib import Path
from typing import Any

import click
import msgspec

from loghub.atomic_file import replace_file
from loghub.client.http import HttpLogHub
from loghub.client.port import LogHub
from loghub.clock import Clock, SystemClock
from loghub.contract.worker import ENV_CREDENTIALS_DIR
from loghub.wire import loggroup
from loghub.wire.errors import EndpointUnreachable, LogHubException
from loghub_cli.commands import exit_status
from loghub_cli.demo.ground_truth import (
    BadLogsError,
    RecordWriter,
    SourceLine,
    check_file,
    generated,
    of_file,
)
from loghub_cli.up.credentials import read_folder
from loghub_operator.logservice.access import LogServiceUnavailable

# Enough for a view that moves, and few enough for a slow disk, which syncs two lines of the record for each.
GROUPS_PER_S = 8
GROUP_BYTES = 1 << 20
RETRY_S = 1.0  # between two attempts at a service that does not answer
MAX_UNREACHABLE = 60  # consecutive attempts; after that the service will not recover by itself


class ProducerProgress(msgspec.Struct, frozen=True, kw_only=True):
    """The progress of the producer; its file is replaced after every log group."""

    sent: int
    unsure: int
    turn: int
    replaced: int  # lines with bytes that are not UTF-8
    cut: int  # lines that were too long
    error: str


class Producer:
    """Sends one log group after the other. `stop` may be set from a signal handler."""

    def __init__(
        self, client: LogHub, logstore: str, record: RecordWriter, clock: Clock, progress: Path
    ) -> None:
        self._client = client
        self._logstore = logstore
        self._record = record
        self._clock = clock
        self._path = progress
        self._progress = ProducerProgress(sent=0, unsure=0, turn=0, replaced=0, cut=0, error="")
        self._groups = 0
        self.stop = threading.Event()

    def run(self, lines: Iterator[SourceLine], *, rate: float) -> None:
        """Send `rate` lines a second until `stop` is set. Raises `LogHubError`, `EndpointUnreachable`."""
        began, due = self._clock.monotonic_s(), 0.0
        size = max(1, round(rate / GROUPS_PER_S))
        carried: list[SourceLine] = []
        while not self.stop.is_set():
            group, carried = take(lines, carried, size)
            self._send(group)
            due += len(group) / rate
            # A late producer continues immediately, and does not catch up in a burst.
            late = self._clock.monotonic_s() - began - due
            if late > 1.0:
                due += late
            self.stop.wait(max(0.0, -late))

    def _send(self, group: list[SourceLine]) -> None:
        self._groups += 1
        body = encode(group, unix_s=int(self._clock.unix_s()))
        self._record.sending(self._groups, group)
        outcome = self._put(body)
        self._record.outcome(self._groups, "sent" if outcome else "unsure")
        count = len(group)
        self._update_progress(group, sent=count if outcome else 0, unsure=0 if outcome else count)

    def _put(self, body: bytes) -> bool:
        """Send a log group. Returns False if no answer came, in which case it must not be sent again, since
        it may have arrived; or if it was not sent and the producer must stop."""
        for _ in range(MAX_UNREACHABLE):
            try:
                self._client.put_logs(self._logstore, body)
            except EndpointUnreachable as error:
                if not error.definite or self.stop.is_set():
                    return False
                self._update_progress([], error=str(error))
                self.stop.wait(RETRY_S)
            else:
                return True
        raise EndpointUnreachable("the log service", "it stayed away", definite=True)

    def _update_progress(
        self, group: list[SourceLine], *, sent: int = 0, unsure: int = 0, error: str = ""
    ) -> None:
        before = self._progress
        self._progress = ProducerProgress(
            sent=before.sent + sent,
            unsure=before.unsure + unsure,
            turn=group[-1].turn if group else before.turn,
            replaced=before.replaced + sum(line.replaced for line in group),
            cut=before.cut + sum(line.cut for line in group),
            error=error,
        )
        replace_file(self._path, msgspec.json.encode(self._progress))


def take(
    lines: Iterator[SourceLine], carried: list[SourceLine], size: int
) -> tuple[list[SourceLine], list[SourceLine]]:
    """The next group, of at most `size` lines and `GROUP_BYTES`, and the lines that no longer fit."""
    group, weight = list(carried), sum(map(_max_bytes, carried))
    while len(group) < size:
        line = next(lines)
        weight += _max_bytes(line)
        if group and weight > GROUP_BYTES:
            return group, [line]
        group.append(line)
    return group, []


def _max_bytes(line: SourceLine) -> int:
    return 4 * len(line.text)  # a character has at most four bytes in UTF-8


def encode(group: Sequence[SourceLine], *, unix_s: int) -> bytes:
    """The log group: one log per line, with the contents line, file, pass and number."""
    logs = tuple(
        loggroup.Log(
            time=unix_s,
            contents=(
                ("line", line.text),
                ("file", line.file),
                ("pass", str(line.turn)),
                ("number", str(line.number)),
            ),
        )
        for line in group
    )
    return loggroup.encode(loggroup.LogGroup(logs=logs, topic="demo", source="127.0.0.1"))


def main(arguments: Sequence[str] | None = None) -> int:
    """Run the producer and return the exit status; the module's docstring lists the values."""
    return exit_status(command, arguments, "python -m loghub_cli.demo.producer")


_PATH = click.Path(path_type=Path)


@click.command()
@click.option("--endpoint", required=True)
@click.option("--project", required=True)
@click.option("--logstore", required=True)
@click.option("--record", type=_PATH, required=True, help="Gets what was written.")
@click.option("--progress", type=_PATH, required=True, help="Replaced with how far the producer is.")
@click.option("--logs", type=_PATH, help="A text file; default: a generated web access log.")
@click.option("--rate", type=float, default=400.0, show_default=True, help="Lines per second.")
@click.option("--seed", type=int, default=1, show_default=True, help="Seed of the generated log.")
def command(*, logs: Path | None, rate: float, seed: int, **target: Any) -> int:
    """Write lines to a logstore at a fixed rate until SIGTERM or SIGINT."""
    clock = SystemClock()
    try:
        credentials = read_folder(Path(os.environ.get(ENV_CREDENTIALS_DIR, "")))
    except LogServiceUnavailable as error:
        return _complain(str(error), 2)
    try:
        if logs is not None:
            check_file(logs)
        lines = generated(seed, clock.unix_s) if logs is None else of_file(logs)
        endpoint, project, logstore = target["endpoint"], target["project"], target["logstore"]
        client = HttpLogHub(endpoint, project, credentials=credentials, agent="demo-producer")
        with target["record"].open("ab") as file:
            record, progress = RecordWriter(file), target["progress"]
            producer = Producer(client, logstore, record=record, clock=clock, progress=progress)
            for number in (signal.SIGTERM, signal.SIGINT):
                signal.signal(number, lambda *_: producer.stop.set())
            producer.run(lines, rate=rate)
    except BadLogsError as error:
        return _complain(str(error), 2)
    except LogHubException as error:
        return _complain(str(error), 1)
    return 0


def _complain(text: str, status: int) -> int:
    click.echo(f"producer: {text}", err=True)
    return status


if __name__ == "__main__":
    sys.exit(main())
