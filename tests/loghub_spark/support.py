"""Helpers of the data source's tests: logs that are distinguished, and a stream without a JVM."""

import json
import os
import pickle
import signal
from collections import Counter
from collections.abc import Mapping
from contextlib import suppress
from pathlib import Path
from typing import Any

from pyspark.sql import DataFrame
from pyspark.sql.streaming.datasource import ReadLimit
from pyspark.sql.streaming.query import StreamingQuery
from pyspark.sql.types import StructType

from loghub.client.http import HttpLogHub
from loghub.client.port import LogHub
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_spark.columns import VIEW
from loghub_spark.reader import LogHubStreamReader
from tests.support import ServiceProcess, wait_until

PROJECT, LOGSTORE, COPY = "demo", "access", "copied"
LOWER, UPPER = "1" * 32, "f" * 31 + "0"  # hash keys of the first and of the last shard


def client_of(service: ServiceProcess) -> HttpLogHub:
    return HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)


def options_of(service: ServiceProcess, **more: Any) -> dict[str, str]:
    """The options of a reader or writer of `LOGSTORE`, by the key's folder."""
    given = {
        "endpoint": service.endpoint,
        "project": PROJECT,
        "logstore": LOGSTORE,
        "credentialsDir": str(service.credentials_dir),
    }
    return given | {name: str(value) for name, value in more.items()}


class Writes:
    """Writes numbered logs, and remembers the number of each."""

    def __init__(self, client: LogHub, logstore: str = LOGSTORE) -> None:
        self._client = client
        self._logstore = logstore
        self.sent: Counter[str] = Counter()

    def put(self, groups: int, *, logs: int = 2, hash_key: str | None = None, size: int = 0) -> list[str]:
        """Write log groups; return the ids of their logs, in order."""
        written = []
        for _ in range(groups):
            ids = [str(self.sent.total() + number) for number in range(logs)]
            made = tuple(
                Log(time=1_700_000_000, contents=(("id", one), ("pad", "x" * size), ("odd", "a")))
                for one in ids
            )
            self._client.put_logs(self._logstore, encode(LogGroup(logs=made)), hash_key=hash_key)
            self.sent.update(ids)
            written += ids
        return written


class Stream:
    """Does with a reader what Spark does: each call gets offsets as text, as from its checkpoint, and `read`
    runs on a copy of the reader. A new one over the same `checkpoint` is a restarted query."""

    def __init__(
        self,
        options: Mapping[str, str],
        checkpoint: list[str] | None = None,
        *,
        available_now: bool = False,
        schema: StructType = VIEW,
    ) -> None:
        self.reader = LogHubStreamReader(options, schema)
        self._copy = pickle.dumps(LogHubStreamReader(options, schema))
        self.checkpoint = [] if checkpoint is None else checkpoint
        if available_now:
            self.reader.prepareForTriggerAvailableNow()
        self._limit = self.reader.getDefaultReadLimit()
        if not self.checkpoint:
            self.checkpoint.append(json.dumps(self.reader.initialOffset()))

    def plan(self, limit: ReadLimit | None = None) -> bool:
        """Plan a batch and note its end, as before Spark runs it. False if nothing is new."""
        end = json.dumps(self.reader.latestOffset(json.loads(self.checkpoint[-1]), limit or self._limit))
        if end == self.checkpoint[-1]:
            return False
        self.checkpoint.append(end)
        return True

    def run(self) -> list[dict[str, Any]]:
        """The rows of the batch that was planned last."""
        start, end = (json.loads(text) for text in self.checkpoint[-2:])
        copy = pickle.loads(self._copy)
        return [
            row
            for partition in self.reader.partitions(start, end)
            for batch in copy.read(pickle.loads(pickle.dumps(partition)))
            for row in batch.to_pylist()
        ]

    def batch(self, limit: ReadLimit | None = None) -> list[str]:
        """The ids of the next batch; none if nothing is new."""
        return [id_of(row) for row in self.run()] if self.plan(limit) else []

    def batches(self, maximum: int = 1000) -> list[list[str]]:
        """The ids of each batch until nothing is new."""
        found = []
        for _ in range(maximum):
            if not self.plan():
                return found
            found.append([id_of(row) for row in self.run()])
        raise AssertionError(f"the stream did not end after {maximum} batches")


def id_of(row: Mapping[str, Any]) -> str:
    return str(row["id"] if "id" in row else dict(row["contents"])["id"])


def flat(batches: list[list[str]]) -> Counter[str]:
    return Counter(one for batch in batches for one in batch)


IDS = "id STRING, n INT, `__shard__` INT, `__cursor__` BIGINT"


def start_copy(rows: DataFrame, folder: Path, *, available_now: bool = False) -> StreamingQuery:
    """Copy a stream to Parquet files in a folder, whose query Spark can take up again from there."""
    writer = rows.writeStream.format("parquet").option("checkpointLocation", (folder / "checkpoint").as_uri())
    writer = (
        writer.trigger(availableNow=True) if available_now else writer.trigger(processingTime="0 seconds")
    )
    return writer.start((folder / "rows").as_uri())


def kill_all(variable: str) -> None:
    """Kill every process that has this in its environment (``NAME=value``), until none is left."""
    wait_until(lambda: not _killed(variable), "the processes to end")


def _killed(variable: str) -> int:
    count = 0
    for process in Path("/proc").glob("[0-9]*"):
        with suppress(OSError):
            if f"{variable}\0".encode() in (process / "environ").read_bytes():
                os.kill(int(process.name), signal.SIGKILL)
                count += 1
    return count
