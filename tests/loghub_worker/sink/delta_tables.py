"""Delta tables for the tests: a sink without Spark, and two readers that share no code with the sink.

The sink is the production one, except that pyarrow writes its Parquet files. DuckDB reads a table with its
own extension, and `by_protocol` follows the published protocol with no Delta library at all
(https://github.com/delta-io/delta/blob/master/PROTOCOL.md).
"""

import json
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from functools import partial
from pathlib import Path
from typing import Any
from urllib.parse import unquote

import duckdb
import duckdb_extension_delta
import pyarrow as pa
import pyarrow.parquet as pq

from loghub.contract.sinks import DeltaSink as DeltaSettings
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation
from loghub_worker.sink.batch_sink import SinkOwner
from loghub_worker.sink.delta.sink import DeltaTableSink, make_delta_sink
from loghub_worker.sink.sink_start import CredentialFiles

GROUP_PATH = ("p", "l", "g")
SHARD = ShardIncarnation(shard=0, created=1)


class EmptyResult:
    """Stands for an empty DataFrame of these columns."""

    def __init__(self, *fields: dict[str, Any]) -> None:
        self.schema = self
        self._fields = fields

    def json(self) -> str:
        return json.dumps({"type": "struct", "fields": self._fields})


def column(name: str, kind: Any = "string", *, nullable: bool = True) -> dict[str, Any]:
    return {"name": name, "type": kind, "nullable": nullable, "metadata": {}}


def table_sink(
    path: str,
    scratch: Path,
    *,
    name: str = "w-0",
    at_step: Callable[[str], None] = lambda step: None,
    keys: Path | None = None,
    empty: EmptyResult | None = None,
    group_path: tuple[str, str, str] = GROUP_PATH,
    **settings: Any,
) -> Any:
    """A sink that takes pyarrow tables, checked for the column ``id``."""
    sink: Any = make_delta_sink(
        DeltaSettings(path=path, **settings),
        CredentialFiles(keys),
        SinkOwner(group_path=group_path, consumer=name, scratch=scratch),
    )
    sink._write = partial(_write, sink)
    sink._table.at_step = at_step
    sink.check(empty or EmptyResult(column("id")))
    return sink


def _write(sink: DeltaTableSink, rows: Any, batch: str) -> None:
    stage = sink._files.stage(batch)
    stage.mkdir(parents=True)
    if isinstance(rows, pa.Table):
        pq.write_table(rows, stage / "part-0.parquet")


def ids(shard: int, begin: int, end: int) -> list[str]:
    """The row of each log group of a range."""
    return [f"{shard}:{cursor}" for cursor in range(begin, end)]


def rows(shard: int, begin: int, end: int) -> pa.Table:
    return pa.table({"id": ids(shard, begin, end)})


def opened(
    sink: Any,
    checkpoint: int,
    *,
    origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    shard: ShardIncarnation = SHARD,
) -> int:
    """Open a shard; where it continues."""
    sink.open_shard(shard)
    position: int = sink.resume(shard, checkpoint, confirm=lambda: None, origin=origin)
    return position


# -- readers


def by_duckdb(
    folder: Path | str, columns: str = "*", *, where: str = "true", secret: str = ""
) -> list[tuple[Any, ...]]:
    """The rows of a table, read by DuckDB. `secret` is a statement that creates one, for a bucket."""
    (extension,) = Path(duckdb_extension_delta.__file__).parent.rglob("*.duckdb_extension")
    with duckdb.connect() as connection:
        connection.execute(f"LOAD '{extension}'")
        if secret:
            connection.execute(secret)
        return connection.execute(f"SELECT {columns} FROM delta_scan('{folder}') WHERE {where}").fetchall()


def by_protocol(folder: Path) -> list[dict[str, Any]]:
    """The rows of a table: those of the files that its log adds and does not remove."""
    return [row for add in active_files(folder) for row in _rows_of(folder, add)]


def active_files(folder: Path) -> list[dict[str, Any]]:
    """The add actions in effect."""
    files: dict[str, dict[str, Any]] = {}
    for action in actions(folder):
        if action.get("add"):
            files[action["add"]["path"]] = action["add"]
        if action.get("remove"):
            files.pop(action["remove"]["path"], None)
    return list(files.values())


def actions(folder: Path) -> Iterator[dict[str, Any]]:
    """The actions of the newest checkpoint, then those of the commits after it."""
    log = folder / "_delta_log"
    checkpoints = sorted(log.glob("*.checkpoint.parquet"))
    newest = int(checkpoints[-1].name[:20]) if checkpoints else -1
    if checkpoints:
        yield from pq.read_table(checkpoints[-1]).to_pylist()
    for commit in sorted(log.glob("*.json")):
        if int(commit.name[:20]) > newest:
            yield from map(json.loads, commit.read_text().splitlines())


def _rows_of(folder: Path, add: dict[str, Any]) -> Iterator[dict[str, Any]]:
    path = folder / unquote(add["path"])
    assert path.stat().st_size == add["size"]
    found = pq.read_table(path, partitioning=None).to_pylist()
    assert json.loads(add["stats"])["numRecords"] == len(found)
    # A checkpoint has a map as pairs, a commit as an object.
    for row in found:
        yield row | dict(add["partitionValues"] or {})


def delivered(folder: Path) -> Counter[str]:
    """Every id in the table. Both readers must find the same."""
    found = Counter(row["id"] for row in by_protocol(folder))
    assert found == Counter(row[0] for row in by_duckdb(folder, "id"))
    return found


class DeltaView:
    """A Delta table that production workers write, for the tests that kill them."""

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._begins: dict[int, int] = {}
        self._read = 0  # commits

    def rows(self) -> Counter[str]:
        """The ids that two readers find."""
        return delivered(self.folder)

    def last_begins(self) -> Mapping[int, int]:
        # A commit says where its ranges end; the last log group of each of them is enough here.
        for commit in sorted(self.folder.glob("_delta_log/*.json"))[self._read :]:
            for line in commit.read_text().splitlines():
                if transaction := json.loads(line).get("txn"):
                    shard = int(transaction["appId"].split("/")[4])
                    self._begins[shard] = transaction["version"] - 1
            self._read += 1
        return dict(self._begins)  # as of now
