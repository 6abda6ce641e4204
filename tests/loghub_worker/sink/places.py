"""The sinks that deliver exactly once as places for lines, without Spark: opened by one worker after the
other, read, emptied, copied and restored."""

import shutil
from collections import Counter
from collections.abc import Iterator
from pathlib import Path
from typing import Any, Protocol

import pyarrow as pa
from deltalake import DeltaTable

from loghub_worker.sink.files.commit_log import CommitLog
from loghub_worker.sink.files.formats import JSON
from loghub_worker.sink.files.sink import FilesSink
from loghub_worker.sink.files.storage import FolderStorage
from loghub_worker.sink.postgresql.database import SinkDatabase
from loghub_worker.sink.postgresql.delivered_ranges import RANGES, SHARDS, DeliveredRanges
from loghub_worker.sink.postgresql.sink import Transactions
from loghub_worker.sink.postgresql.table import SinkTable
from loghub_worker.sink.sink_start import CredentialFiles
from tests.loghub_worker.sink.delta_tables import table_sink
from tests.loghub_worker.sink.postgresql.line_worker import sink_settings
from tests.postgresql_server import USER, PostgresqlServer


class Place(Protocol):
    """Where the rows of one test are. `open` makes the sink of a new worker's process."""

    def open(self, group_path: tuple[str, str, str], worker: str) -> Any: ...

    def write(self, sink: Any, batch: str, lines: list[str]) -> None: ...

    def lines(self) -> Counter[str]: ...

    def remove_rows(self) -> None:
        """But not what the sink records of them."""

    def remove_all(self) -> None: ...

    def copy(self) -> None: ...

    def restore(self) -> None: ...


class InFolder:
    """Files of lines."""

    def __init__(self, folder: Path) -> None:
        self.folder, self.backup = folder / "sink", folder / "backup"

    def open(self, group_path: tuple[str, str, str], worker: str) -> FilesSink:
        commit_log = CommitLog(FolderStorage(self.folder, group_path=group_path))
        commit_log.prune(owner=worker)
        return FilesSink(commit_log, JSON)

    def write(self, sink: FilesSink, batch: str, lines: list[str]) -> None:
        stage = sink._commit_log.stage(batch)
        stage.mkdir()
        (stage / "part-0.json").write_text("\n".join(lines))
        sink._written[batch] = ["part-0.json"]

    def lines(self) -> Counter[str]:
        return Counter(line for file in self.folder.glob("*.json") for line in file.read_text().split())

    def remove_rows(self) -> None:
        for file in self.folder.glob("*.json"):
            file.unlink()

    def remove_all(self) -> None:
        shutil.rmtree(self.folder)

    def copy(self) -> None:
        shutil.copytree(self.folder, self.backup)

    def restore(self) -> None:
        shutil.rmtree(self.folder)
        shutil.copytree(self.backup, self.folder)


class InDelta(InFolder):
    """A Delta table."""

    def open(self, group_path: tuple[str, str, str], worker: str) -> Any:
        scratch = self.folder.parent / "scratch"
        return table_sink(str(self.folder), scratch, name=worker, group_path=group_path)

    def write(self, sink: Any, batch: str, lines: list[str]) -> None:
        sink.write(pa.table({"id": lines}), batch)

    def lines(self) -> Counter[str]:
        return Counter(DeltaTable(str(self.folder)).to_pyarrow_table().column("id").to_pylist())

    def remove_rows(self) -> None:
        DeltaTable(str(self.folder)).delete()


class InPostgresql:
    """A table in a schema of its own, with the tables of records."""

    def __init__(self, server: PostgresqlServer, credentials: Path, schema: str) -> None:
        self._server = server
        self._schema = schema
        settings = sink_settings(server.port)
        keys = CredentialFiles(credentials)
        self._database = SinkDatabase(settings, keys, client="w", statement_timeout_s=60.0)
        self._sql(f"CREATE SCHEMA {schema}")
        self._sql(f"CREATE TABLE {schema}.lines (line text)")

    def _sql(self, text: str) -> None:
        self._server.execute(text, user=USER)

    def open(self, group_path: tuple[str, str, str], worker: str) -> Transactions:
        ranges = DeliveredRanges(self._schema, group_path)
        with self._database.transaction() as connection:
            ranges.create(connection)
        return Transactions(self._database, ranges)

    def write(self, sink: Transactions, batch: str, lines: list[str]) -> None:
        rows = (pa.RecordBatch.from_pydict({"line": part}) for part in (lines,))
        sink.copy(batch, SinkTable(self._schema, "lines").copy_statement(["line"]), rows)

    def lines(self) -> Counter[str]:
        return Counter(str(line) for (line,) in self._server.rows(f"SELECT line FROM {self._schema}.lines"))

    def _tables(self) -> Iterator[tuple[str, str]]:
        for name in ("lines", SHARDS, RANGES):
            yield f"{self._schema}.{name}", f"{self._schema}.{name}_copy"

    def remove_rows(self) -> None:
        self._sql(f"TRUNCATE {self._schema}.lines")

    def remove_all(self) -> None:
        for table, _ in self._tables():
            self._sql(f"TRUNCATE {table}")

    def copy(self) -> None:
        for table, copy in self._tables():
            self._sql(f"CREATE TABLE {copy} AS TABLE {table}")

    def restore(self) -> None:
        self.remove_all()
        for table, copy in self._tables():
            self._sql(f"INSERT INTO {table} TABLE {copy}")
