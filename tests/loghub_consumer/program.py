"""A consumer in a process of its own, as a user would write one: each event is a line of JSON on its output.

``python -m tests.loghub_consumer.program CREDENTIALS_DIR SETTINGS`` consumes until SIGTERM.
``SETTINGS`` is JSON: settings of the consumer, and how it processes: ``read`` (``nothing``, ``arrow``,
``groups``, ``ack``, which acknowledges each log by itself and refuses some, or ``fan out`` by key),
``save_every`` batches, ``database`` (that of positions and ids, see `databases`), ``hang_on_shard`` and
``quiet`` (counts only, printed at the end).
"""

import json
import resource
import signal
import sys
import threading
import time
import zlib
from functools import partial
from pathlib import Path
from typing import Any

from loghub_consumer import (
    Consumer,
    ConsumerSettings,
    LogBatch,
    Processor,
    ReceivedLog,
    ReceivedLogGroup,
    Tracker,
    fan_out,
    read_key,
)
from tests.loghub_consumer.databases import store_of, write_ids

OWN = {"read": "groups", "save_every": 1, "hang_on_shard": None, "quiet": False, "database": None}
_LOCK = threading.Lock()


def emit(**event: Any) -> None:
    with _LOCK:
        sys.stdout.write(json.dumps(event) + "\n")
        sys.stdout.flush()


class Recorder(Processor):
    """Prints the ids of each batch, then saves."""

    def __init__(self, how: dict[str, Any]) -> None:
        self._how = how
        self._batches = 0
        self.logs = 0

    def initialize(self, shard: int) -> None:
        self._shard = shard
        emit(event="initialize", shard=shard)

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        if not self._how["quiet"] or not self._batches:
            emit(event="process", shard=self._shard, ids=self._ids(logs), after_s=_age_s(), **_used())
        if self._how["hang_on_shard"] == self._shard:
            threading.Event().wait()
        if self._how["quiet"] and self._how["read"] == "arrow":
            self.logs += logs.arrow.num_rows
        elif self._how["quiet"] and self._how["read"] == "groups":
            self.logs += sum(bool(log.contents) for group in logs.groups for log in group.logs)
        self._batches += 1
        if self._how["database"] is not None:
            write_ids(logs, tracker)
            emit(event="committed", shard=self._shard)
            return
        if self._how["read"] == "ack":
            self._acknowledge(logs, tracker)
            return
        if self._batches % self._how["save_every"] == 0:
            tracker.save(persist=not self._how["quiet"])
            if not self._how["quiet"]:
                emit(event="saved", shard=self._shard, end=logs.end)

    def _acknowledge(self, logs: LogBatch, tracker: Tracker) -> None:
        """Refuse a third of the logs, which a hash chooses, the first two times."""
        for group in reversed(logs.groups):
            for log in group.logs:
                name = str(log.get("id"))
                if zlib.crc32(name.encode()) % 3 == 0 and logs.delivery < 3:
                    tracker.nack(log)
                else:
                    emit(event="acked", id=name)
                    tracker.ack(log)

    def _ids(self, logs: LogBatch) -> list[str]:
        if self._how["quiet"]:
            return []
        return [str(log.get("id")) for group in logs.groups for log in group.logs]

    def shutdown(self, tracker: Tracker) -> None:
        emit(event="shutdown", shard=self._shard, logs=self.logs)


def _age_s() -> float:
    """Seconds since this process was started, its interpreter included."""
    started = int(Path("/proc/self/stat").read_text().rpartition(")")[2].split()[19])
    return time.clock_gettime(time.CLOCK_BOOTTIME) - started / 100


def _used() -> dict[str, float]:
    used = resource.getrusage(resource.RUSAGE_SELF)
    # Not `ru_maxrss`, which begins with that of the process that started this one.
    lines = Path("/proc/self/status").read_text().splitlines()
    peak_kib = next(int(line.split()[1]) for line in lines if line.startswith("VmHWM:"))
    return {"cpu_s": used.ru_utime + used.ru_stime, "peak_mb": peak_kib / 1024}


def last_digit(log: ReceivedLog, _: ReceivedLogGroup) -> str:
    return str(int(str(log.get("id"))[-1]) % 5)


def handle(log: ReceivedLog, _: ReceivedLogGroup) -> None:
    emit(event="handled", id=log.get("id"))


def main(credentials_dir: str, text: str) -> None:
    settings = json.loads(text)
    how = {name: settings.pop(name, default) for name, default in OWN.items()}
    if how["database"] is not None:
        settings["checkpoint_store"] = store_of(how["database"])
    factory = (
        fan_out(handle, key=last_digit, threads=3) if how["read"] == "fan out" else lambda: Recorder(how)
    )
    consumer = Consumer(
        ConsumerSettings(credentials=partial(read_key, Path(credentials_dir)), **settings), factory
    )
    signal.signal(signal.SIGTERM, lambda *_: consumer.wakeup())
    consumer.run()
    modules = {name.partition(".")[0] for name in sys.modules}
    emit(event="ended", modules=sorted({"pyspark", "py4j"} & modules), **_used())


if __name__ == "__main__":
    main(*sys.argv[1:])
