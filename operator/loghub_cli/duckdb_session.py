"""SQL over one table of logs, by DuckDB in this process, with nothing else in its reach.

SQL that a user pastes must not read a file, write one, or open a connection. So external access and
extensions are off, Python's own variables are not tables, and the configuration is locked before the first
statement of a user. What a query may use is bounded: memory, which is never extended by files, and time.

DuckDB runs in a thread of its own. In the main thread it notices Ctrl-C, but then its connection cannot be
used any more; from here it is interrupted, and is ready for the next query.
"""

import contextlib
import json
import os
from collections.abc import Callable, Iterator
from concurrent.futures import ThreadPoolExecutor
from dataclasses import dataclass
from types import TracebackType
from typing import TypeVar

import duckdb
import pyarrow as pa

from loghub_cli.output import Failed, InvalidInput, on_one_line

T = TypeVar("T")
VIEW = "logs"
BATCH_ROWS = 1_000  # of a result, of which rows are written while the next ones are computed
MAX_THREADS = 4  # more of them help little with this much data, and each needs memory
_CONFIGURATION = {
    "enable_external_access": "false",  # no files, no network
    "autoinstall_known_extensions": "false",
    "autoload_known_extensions": "false",
    "allow_community_extensions": "false",
    "python_enable_replacements": "false",
    "temp_directory": "",  # otherwise large queries write into the working directory
}
MIN_MEMORY_MIB, MEMORY_FACTOR = 512, 4  # a sort of all logs needs twice their size, and as much of the rest


class BadQuery(InvalidInput):
    """SQL that cannot be run."""


@dataclass(frozen=True, slots=True, kw_only=True)
class QueryResult:
    """The columns, and the rows as they are computed. The iteration raises `Failed`."""

    schema: pa.Schema
    batches: Iterator[pa.RecordBatch]


class DuckDbSession:
    """A database in memory with the view `logs`; use it in a ``with`` statement. ``limit_mib`` is the limit
    of the logs, from which the memory for queries follows."""

    def __init__(self, logs: pa.Table, *, limit_mib: int, timeout_s: float) -> None:
        self._timeout_s = timeout_s
        self._memory_mib = max(MIN_MEMORY_MIB, MEMORY_FACTOR * limit_mib)
        self._thread = ThreadPoolExecutor(1, thread_name_prefix="duckdb")
        threads = str(min(MAX_THREADS, len(os.sched_getaffinity(0))))
        config = {**_CONFIGURATION, "memory_limit": f"{self._memory_mib}MiB", "threads": threads}
        self._connection = duckdb.connect(":memory:", config=config)  # type: ignore[arg-type]
        self._connection.execute("SET TimeZone = 'UTC'")  # as workers have it
        self._connection.register(VIEW, logs)
        self._connection.execute("SET lock_configuration = true")

    def __enter__(self) -> "DuckDbSession":
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._thread.shutdown()
        self._connection.close()

    def run(self, sql: str) -> QueryResult:
        """Runs one statement. Raises `BadQuery`, and `Failed` for one that fails on the logs."""
        reader = self._call(lambda: self._started(sql))
        return QueryResult(schema=reader.schema, batches=self._batches(reader))

    def _started(self, sql: str) -> pa.RecordBatchReader:
        statements = self._connection.extract_statements(sql)
        if len(statements) != 1:
            raise BadQuery(f"loghub: give one statement, not {len(statements)}")
        return self._connection.execute(statements[0]).to_arrow_reader(BATCH_ROWS)

    def _batches(self, reader: pa.RecordBatchReader) -> Iterator[pa.RecordBatch]:
        while (batch := self._call(lambda: next(reader, None))) is not None:
            yield batch

    def _call(self, function: Callable[[], T]) -> T:
        running = self._thread.submit(function)
        try:
            return running.result(self._timeout_s)
        except TimeoutError:
            self._interrupt()
            running.exception()
            raise Failed(f"loghub: the query took more than {self._timeout_s:g} s: see --timeout") from None
        except KeyboardInterrupt:
            self._interrupt()
            running.exception()
            raise
        except (duckdb.Error, RuntimeError, OSError) as error:  # Arrow's reader of the rows raises OSError
            raise self._failure(*_described(error)) from None

    def _failure(self, kind: str, message: str) -> Exception:
        """What the user is shown for an error of DuckDB."""
        shown = _shown(message or kind)
        if kind in ("Parser", "Binder", "Catalog"):
            return BadQuery(f"{shown}\n{self._columns()}")
        if kind == "Permission":
            return BadQuery(f"{shown}\na query reads the view {VIEW} only, neither files nor the network")
        if kind == "OutOfMemory":
            return Failed(
                f"loghub: the query needs more than {self._memory_mib} MiB: let it sort or group less, or"
                " read less with --from and --limit-mib"
            )
        return Failed(shown)

    def _interrupt(self) -> None:
        self._connection.interrupt()

    def _columns(self) -> str:
        described = self._connection.execute(f"DESCRIBE {VIEW}").fetchall()
        columns = ", ".join(f"{name} {kind}" for name, kind, *_ in described)
        return f"The view {VIEW} has the columns {columns}; a field of a log is contents['NAME']."


def _described(error: Exception) -> tuple[str, str]:
    """The kind of an error, such as Parser, and its message. Where another extension module of the process
    translates the exceptions of C++, DuckDB's are a RuntimeError with both as JSON."""
    if isinstance(error, RuntimeError):
        with contextlib.suppress(ValueError, KeyError, TypeError):
            described = json.loads(str(error))
            return described["exception_type"].title().replace(" ", ""), described["exception_message"]
    return type(error).__name__.removesuffix("Exception"), str(error)


def _shown(message: str) -> str:
    """The message, in which texts of logs do not control the terminal."""
    lines = [on_one_line(line) for line in message.splitlines()]
    return "\n".join(["loghub: " + lines[0], *lines[1:]])
