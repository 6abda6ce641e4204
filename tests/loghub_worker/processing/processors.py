"""The user's code of the tests, which runs in processes of a worker. It writes what it sees into a file.

The contents of a log may be a command: ``raise``, ``exit`` (of the process), ``all`` (of them end), ``hang``
(holding the interpreter's lock as C code may), or ``outage``; ``slow`` takes a while. A batch with
``unsaved`` is not saved.
"""

import asyncio
import ctypes
import os
import queue
import signal
import subprocess
import sys
import threading
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any

from loghub_consumer import (
    Listener,
    LogBatch,
    LogPlace,
    Processor,
    ReceivedLog,
    ReceivedLogGroup,
    ShardControl,
    Tracker,
    fan_out,
)

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
    """The same with ``async`` methods, but a task saves after they have returned."""

    async def process(self, logs: LogBatch, tracker: Tracker) -> None:  # type: ignore[override]
        self.write(*(f"log {self.shard} {log.get('id')}" for group in logs.groups for log in group.logs))
        self.task = asyncio.create_task(self.save_later(tracker))

    async def save_later(self, tracker: Tracker) -> None:
        await asyncio.sleep(0.01)
        tracker.save()


def _carry_out(name: str) -> None:
    match name.partition("-")[0]:
        case "raise":
            raise ValueError(f"cannot take {name}")
        case "outage":
            lost = ConnectionError("the database does not answer")
            raise ExceptionGroup("unhandled errors in a TaskGroup", [lost])
        case "exit":
            os._exit(3)
        case "all":  # processes end, as when the memory of a container runs out
            limit_s = time.monotonic() + 1.0  # for another one to be at work, unless none may be
            while not _slow().exists() and time.monotonic() < limit_s:
                time.sleep(0.01)
            _slow().unlink(missing_ok=True)
            for pid in _processes() - {os.getpid()}:
                os.kill(pid, signal.SIGKILL)
            os.kill(os.getpid(), signal.SIGKILL)
        case "slow":
            _slow().touch()
            time.sleep(0.3)
            _slow().unlink(missing_ok=True)
        case "hang":
            ctypes.PyDLL(None).sleep(1000)  # without giving up the interpreter's lock


def _slow() -> Path:
    """There is this file while something slow runs."""
    return Path(os.environ[OUTPUT]).with_name("slow")


def _processes() -> set[int]:
    """Those of the worker, this one included, and none that the tests keep."""
    children = Path(f"/proc/{os.getppid()}/task").glob("*/children")
    pids = {int(pid) for path in children for pid in path.read_text().split()}
    own = os.environ[OUTPUT].encode()
    pids = {pid for pid in pids if b"processes.child" in Path(f"/proc/{pid}/cmdline").read_bytes()}
    return {pid for pid in pids if own in Path(f"/proc/{pid}/environ").read_bytes()}


class TextlessError(Exception):
    """Nobody can read it."""

    def __str__(self) -> str:
        raise RuntimeError


class Odd(Recorder):
    """Does what the first word of a log says, and no processor should do."""

    def process(self, logs: LogBatch, tracker: Tracker) -> Any:
        word = str(next(iter(logs.groups[0].logs)).get("id")).partition("-")[0]
        odd: dict[str, Callable[[], Any]] = {
            "cancelled": lambda: self._raise(asyncio.CancelledError()),
            "interrupted": lambda: self._raise(KeyboardInterrupt()),
            "undecoded": lambda: self._raise(ValueError("\udcff")),
            "textless": lambda: self._raise(TextlessError()),
            "bytes": lambda: b"MTA=",
            "delay": lambda: tracker.nack(delay_s="5"),  # type: ignore[arg-type]
            "reason": lambda: tracker.nack(reason=None),  # type: ignore[arg-type]
            "place": lambda: tracker.ack(LogPlace(1.5)),  # type: ignore[arg-type]
        }
        if word in odd and len(logs.groups) == 1:
            return odd[word]()
        super().process(logs, tracker)
        return None

    @staticmethod
    def _raise(error: BaseException) -> None:
        raise error


class Unreachable(Recorder):
    """Does once, in one way or another, what takes the channel to the worker away."""

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        done = Path(os.environ[OUTPUT]).with_name("done")
        word = str(next(iter(logs.groups[0].logs)).get("id")).partition("-")[0]
        if not done.exists():
            done.touch()
            channel = int(sys.argv[1])
            if word == "close":
                os.close(channel)
            elif word == "write":
                os.write(channel, bytes([0, 0, 0, 1, 0, 0, 0, 0, 1]))  # a frame with a number
            elif word == "fork" and os.fork() == 0:
                return  # as if it were the process
        super().process(logs, tracker)


class Gathering(Recorder):
    """Writes and saves only at ``flush``."""

    def initialize(self, shard: int) -> None:
        super().initialize(shard)
        self.gathered: list[str] = []

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        self.gathered += [str(log.get("id")) for group in logs.groups for log in group.logs]
        self.write(*(f"gathered {self.shard} {name}" for name in self.gathered[-1:]))
        if "flush" in self.gathered:
            self.write(*(f"log {self.shard} {name}" for name in self.gathered))
            self.gathered = []
            tracker.save()


class Helped(Recorder):
    """Starts a process for each batch, which does not end by itself."""

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        helper = subprocess.Popen(["sleep", "1000"])
        self.write(f"helper {helper.pid}")
        super().process(logs, tracker)


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


class SavingAside(Recorder):
    """Saves its first batch in a thread, and returns meanwhile. The second waits for the file ``go``."""

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        self.write(f"began {logs.next_cursor}")
        if not hasattr(self, "saving"):
            self.saving = threading.Thread(target=tracker.save)
            self.saving.start()
            time.sleep(0.2)  # until it has been sent
            return
        while not (Path(os.environ[OUTPUT]).parent / "go").exists():
            time.sleep(0.01)


class Refusing(Recorder):
    """Refuses ``refuse-2-..`` in its first two deliveries, rejects ``reject-..``, and refuses all up to
    ``upto-..``."""

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                name = str(log.get("id"))
                self.write(f"log {self.shard} {name} {logs.delivery}")
                command, _, rest = name.partition("-")
                if command == "refuse" and logs.delivery <= int(rest[0]):
                    tracker.nack(log, reason=f"time {logs.delivery}")
                elif command == "reject":
                    tracker.reject(log, reason="never")
                elif command == "upto" and logs.delivery == 1:
                    tracker.nack_up_to(log)
                elif command == "exit" and logs.delivery == 1:
                    tracker.nack(log)
                else:
                    _carry_out(name)
        tracker.save(persist=False)


class TooLate(Recorder):
    """Refuses what was acknowledged before, and acknowledges no batch."""

    def initialize(self, shard: int) -> None:
        super().initialize(shard)
        self.before: LogBatch | None = None

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        if self.before is not None:
            self.attempt(lambda: tracker.nack(self.before))  # type: ignore[arg-type]
            self.attempt(lambda: tracker.nack(delay_s=-1.0))
            self.attempt(lambda: tracker.transaction(logs))
        self.before = logs
        self.write(f"delivery {logs.delivery} {logs.begin_cursor} {tracker.get()}")
        tracker.save()

    def shutdown(self, tracker: Tracker) -> None:
        self.attempt(tracker.ack)

    def attempt(self, call: Callable[[], object]) -> None:
        try:
            call()
        except Exception as error:  # noqa: BLE001 - the test looks at it
            self.write(f"raised {type(error).__name__} {error}")


class Acknowledging(Recorder):
    """Acknowledges each log in a thread of its own, the last one first; ``silent-..`` the second time only.
    ``exit-..`` ends the process after `process` has returned, unless one has ended before."""

    def initialize(self, shard: int) -> None:
        super().initialize(shard)
        self.batches: queue.SimpleQueue[tuple[LogBatch, Tracker]] = queue.SimpleQueue()
        threading.Thread(target=self.acknowledge, daemon=True).start()

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        self.batches.put((logs, tracker))

    def acknowledge(self) -> None:
        while True:
            logs, tracker = self.batches.get()
            for group in reversed(logs.groups):
                for log in group.logs:
                    name = str(log.get("id"))
                    self.write(f"log {self.shard} {name} {logs.delivery}")
                    ended = Path(os.environ[OUTPUT]).with_name(name)
                    if name.startswith("exit") and not ended.exists():
                        ended.touch()
                        os._exit(3)
                    if not name.startswith("silent") or logs.delivery > 1:
                        tracker.ack(log)

    def shutdown(self, tracker: Tracker) -> None:
        """What was acknowledged is."""


class Pausing(Recorder):
    """After ``pause`` its shard is paused until the file ``go`` exists next to the output. ``seek`` continues
    at the begin, once."""

    def initialize(self, shard: int) -> None:
        super().initialize(shard)
        self.has_sought = False

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        super().process(logs, tracker)
        ids = [log.get("id") for group in logs.groups for log in group.logs]
        if "pause" in ids:
            tracker.pause()
            threading.Thread(target=self.resume, args=(tracker,), daemon=True).start()
        if "seek" in ids and not self.has_sought:
            self.has_sought = True
            tracker.seek("begin")

    def resume(self, tracker: Tracker) -> None:
        while not (Path(os.environ[OUTPUT]).parent / "go").exists():
            time.sleep(0.01)
        tracker.resume()


class NeverReady(Recorder):
    """Its shards cannot be initialized."""

    def initialize(self, shard: int) -> None:
        raise ConnectionError(f"nothing answers for shard {shard}")


class FromTheBegin(Listener):
    """Writes what it learns, and lets new shards begin at their first log."""

    def __init__(self, shards: ShardControl) -> None:
        self.shards = shards

    def on_assigned(self, shards: tuple[int, ...]) -> None:
        self.write("assigned", shards)
        for shard in shards:
            self.shards.seek(shard, "begin")

    def on_revoked(self, shards: tuple[int, ...]) -> None:
        self.write("revoked", shards)

    def on_lost(self, shards: tuple[int, ...]) -> None:
        self.write("lost", shards)

    def write(self, what: str, shards: tuple[int, ...]) -> None:
        held = ",".join(map(str, self.shards.assignment()))
        with Path(os.environ[OUTPUT]).open("a") as file:
            file.writelines(f"{os.getpid()} - {what} {shard} {held}\n" for shard in shards)


class StandbyToo(Listener):
    """Writes in which shards another consumer is active, and fails each time."""

    def __init__(self, shards: ShardControl) -> None:
        self.shards = shards

    def on_assigned(self, shards: tuple[int, ...]) -> None:
        self.write(f"assigned {shards[0]}")

    def on_standby(self, shards: tuple[int, ...]) -> None:
        self.write(f"standby {','.join(map(str, shards)) or '-'}")
        raise ValueError("the process goes on")

    def write(self, line: str) -> None:
        with Path(os.environ[OUTPUT]).open("a") as file:
            file.write(f"{os.getpid()} - {line}\n")


def not_a_listener(_: ShardControl) -> object:
    return object()


def _handle(log: ReceivedLog, _: ReceivedLogGroup) -> None:
    name = str(log.get("id"))
    with Path(os.environ[OUTPUT]).open("a") as file:
        file.write(f"{os.getpid()} - log {threading.current_thread().name} {name}\n")
    _carry_out(name)


fanned = fan_out(_handle, key=lambda log, _: str(log.get("id"))[0], threads=3, max_attempts=2)


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
