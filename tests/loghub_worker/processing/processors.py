"""The user's code of the tests, which runs in processes of a worker. It writes what it sees into a file.

The contents of a log may be a command: ``raise``, ``exit`` (of the process), ``hang`` (holding the
interpreter's lock as C code may), or ``outage``. What follows ``unsaved`` in its batch is not saved.
"""

import ctypes
import os
import sys
import time
from pathlib import Path

from loghub_worker.api import LogBatch, Processor, Tracker

OUTPUT = "PROCESSED"  # the variable with the path of the file
JVM_OR_SPARK = ("pyspark", "py4j", "pandas")


class Recorder(Processor):
    """Appends a line for each log, after the commands of the batch, then saves."""

    def initialize(self, shard: int) -> None:
        self.shard = shard
        self.write(f"initialize {shard}")

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        ids = [str(log.get("id")) for group in logs.groups for log in group.logs]
        for name in ids:
            _carry_out(name)
        self.write(*(f"log {self.shard} {name}" for name in ids))
        if "unsaved" not in ids:
            tracker.save(persist=False)

    def shutdown(self, tracker: Tracker) -> None:
        self.write(f"shutdown {self.shard} {tracker.get()}")

    def write(self, *lines: str) -> None:
        spark = ",".join(name for name in JVM_OR_SPARK if name in sys.modules)
        with Path(os.environ[OUTPUT]).open("a") as file:
            file.write("".join(f"{os.getpid()} {spark or '-'} {line}\n" for line in lines))


class Asynchronous(Recorder):
    """The same with ``async`` methods."""

    async def process(self, logs: LogBatch, tracker: Tracker) -> None:  # type: ignore[override]
        super().process(logs, tracker)


def _carry_out(name: str) -> None:
    match name.partition("-")[0]:
        case "raise":
            raise ValueError(f"cannot take {name}")
        case "outage":
            raise ConnectionError("the database does not answer")
        case "exit":
            os._exit(3)
        case "hang":
            ctypes.PyDLL(None).sleep(1000)  # without giving up the interpreter's lock


class Late(Recorder):
    """Saves once the file ``go`` exists next to the output."""

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        self.write("began")
        while not (Path(os.environ[OUTPUT]).parent / "go").exists():
            time.sleep(0.01)
        try:
            tracker.save()
        except Exception as error:
            self.write(f"raised {type(error).__name__} {error}")
            raise


class NotDerived:
    """Not a processor."""


class Unfinished(Processor):
    """Without `process`."""


class WithArguments(Recorder):
    def __init__(self, needed: int) -> None:
        self.needed = needed


def not_a_processor() -> object:
    return object()


number = 7
