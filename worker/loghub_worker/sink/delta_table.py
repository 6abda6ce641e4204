"""A Delta table, by delta-rs: its snapshots, its commits, and the errors of both.

A commit is one new file in the table's log, created only if no one else has created it (a hard link in a
folder, a create-only PUT in a bucket). If someone has, delta-rs reads what they committed, refuses on a
conflict, and tries the next number otherwise. `loghub_worker.sink.delta_positions` says which conflicts make
deliveries exclusive.

Whether a commit was made can be unknown to the one who made it: a reply may be lost, and a repeated request
then meets its own file. So each commit has the name of its batch, and after an error the log decides.
"""

import errno
import threading
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog
from deltalake import CommitProperties, DeltaTable, Field, Schema, Transaction
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError
from deltalake.transaction import AddAction

from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.bucket import ObjectStorageError, plainly
from loghub_worker.sink.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.delta_positions import (
    Move,
    TablePosition,
    position_name,
    transactions,
    turns_name,
)
from loghub_worker.sink.delta_schema import TableDescription
from loghub_worker.sink.exclusive_files import sync
from loghub_worker.sink.range_claims import ShardIncarnation

log = structlog.get_logger()

BATCH = "loghubBatch"  # in the commit's metadata
# The cost of a commit grows with the number of files in the log, which this bounds. A table's owner may set
# another time.
NEW_TABLE_PROPERTIES = {"delta.logRetentionDuration": "interval 1 days"}
MAX_COMMIT_RETRIES = 50  # commits of others, to other shards, that may come first


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A data file of the table. `path` is relative to the table; `stats` as in `AddAction`."""

    path: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    stats: str

    def action(self) -> AddAction:
        """As delta-rs takes it."""
        return AddAction(
            path=self.path,
            size=self.size,
            partition_values=self.partition_values,
            modification_time=self.modified_ms,
            data_change=True,
            stats=self.stats,
        )


def _ignore_step(_step: str) -> None:
    """The default of `Table.at_step`."""


class Table:
    """One table and the positions of one group in it. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        group_path: Sequence[str],
        options: Callable[[], dict[str, str]],
        read: Callable[[str], bytes | None],
    ) -> None:
        """`url` is a folder or an s3:// URL, `group_path` project, logstore, group. `options` are those of
        the object storage, read at each use, since keys may change. `read` returns the content of a file of
        the table, None if there is none."""
        self.url = url
        self._prefix = "/".join(("loghub", *group_path))
        self._options = options
        self._read = read
        # Called after each step with its name: tests end or hold the process there.
        self.at_step: Callable[[str], None] = _ignore_step
        # Between a snapshot's check and the commit onto it nobody else may refresh it.
        self._lock = threading.Lock()
        self._table: DeltaTable | None = None
        # The name and content of the snapshot's last commit, when it was loaded or refreshed last.
        self._last_commit: tuple[str, bytes | None] = ("", None)
        self._used_options: dict[str, str] = {}

    @property
    def folder(self) -> Path | None:
        """The table's folder, if it is in one."""
        return None if "://" in self.url else Path(self.url)

    # -- the table itself

    def exists(self) -> bool:
        """Whether there is a table. Raises `OSError`."""
        with self._translated():
            return DeltaTable.is_deltatable(self.url, self._options())

    def create(self, fields: Iterable[Mapping[str, Any]], partition_by: Sequence[str]) -> None:
        """Create the table unless it exists. Raises `OSError` and `InvalidSinkError`."""
        with self._translated():
            try:
                DeltaTable.create(
                    self.url,
                    Schema.from_json(_schema_json(fields)),
                    mode="ignore",  # another worker may be first
                    partition_by=list(partition_by),
                    configuration=dict(NEW_TABLE_PROPERTIES),
                    storage_options=self._options(),
                )
            except CommitFailedError:  # it was first after delta-rs had looked
                if not DeltaTable.is_deltatable(self.url, storage_options=self._options()):
                    raise

    def describe(self) -> TableDescription:
        """The table as it is now. Raises `OSError` and `InvalidSinkError`."""
        with self._lock, self._translated():
            return _description(self._refreshed())

    def add_columns(self, fields: Iterable[Mapping[str, Any]]) -> None:
        """Add nullable columns. Raises `OSError`: another worker may have added them."""
        with self._lock, self._translated():
            added = [Field.from_json(msgspec.json.encode(field).decode()) for field in fields]
            self._refreshed().alter.add_columns(added)

    # -- positions

    def position(self, shard: ShardIncarnation) -> TablePosition:
        """The shard's position now. Raises `OSError` and `InvalidSinkError`."""
        with self._lock, self._translated():
            return self._position(self._refreshed(), shard)

    def commit(
        self,
        batch: str,
        moves: Sequence[Move],
        files: Iterable[AddedFile] = (),
        *,
        may_commit: Callable[[], bool],
        check: Callable[[TableDescription], None] = lambda _: None,
    ) -> None:
        """Add the files and move the shards, all in one step, if each shard is where its move begins. `check`
        raises if the table does not fit the files any more.

        Raises `RangeTakenError` and `SessionLostError`, and what `check` raises; nothing is committed then.
        After an `OSError` it may not be known whether it is committed: who opens the shard next finds out.
        """
        with self._lock, self._translated():
            table = self._refreshed()
            self.at_step("refreshed")
            self._require(table, moves)
            check(_description(table))
            if not may_commit():
                raise SessionLostError
            self.at_step("session checked")
            before = table.version()
            try:
                self._commit(table, batch, moves, files)
            except CommitFailedError as error:
                self._settle(batch, moves, before, error)
            self.at_step("committed")
            self._make_durable(before)

    def _commit(
        self, table: DeltaTable, batch: str, moves: Iterable[Move], files: Iterable[AddedFile]
    ) -> None:
        numbers = [one for move in moves for one in transactions(self._prefix, move).items()]
        properties = CommitProperties(
            custom_metadata={BATCH: batch},
            max_commit_retries=MAX_COMMIT_RETRIES,
            app_transactions=[Transaction(name, number) for name, number in numbers],
        )
        table.create_write_transaction(
            [file.action() for file in files],
            mode="append",
            schema=table.schema(),
            partition_by=list(table.metadata().partition_columns),
            commit_properties=properties,
        )

    def _settle(self, batch: str, moves: Sequence[Move], before: int, error: CommitFailedError) -> None:
        """Find out what became of a refused commit. Raises unless it was made after all."""
        table = self._refreshed()
        later = table.version() - before
        if later and any(commit.get(BATCH) == batch for commit in table.history(later)):
            log.info("the commit that was reported as refused is in the table", batch=batch)
            return
        self._require(table, moves)
        # Another commit changed the table's columns or properties, or too many others came first.
        raise OSError(errno.EBUSY, f"the table was changed at the same time ({error})", self.url) from error

    def _require(self, table: DeltaTable, moves: Iterable[Move]) -> None:
        for move in moves:
            found = self._position(table, move.shard)
            if found != move.before:
                raise RangeTakenError(
                    f"the table has shard {move.shard.shard} up to cursor {found.end}, and not up to"
                    f" {move.before.end}: another worker has delivered it"
                )

    def _position(self, table: DeltaTable, shard: ShardIncarnation) -> TablePosition:
        return TablePosition(
            end=table.transaction_version(position_name(self._prefix, shard)),
            turns=table.transaction_version(turns_name(self._prefix, shard)) or 0,
        )

    # -- snapshots

    def _refreshed(self) -> DeltaTable:
        """The newest snapshot."""
        options = self._options()
        if self._table is None or options != self._used_options or not self._is_refreshed(self._table):
            self._table = None
            self._table = DeltaTable(self.url, storage_options=options)
            self._used_options = options
        last = _commit_name(self._table.version())
        if last != self._last_commit[0] or self._last_commit[1] is None:
            self._last_commit = (last, self._read(last))
        return self._table

    def _is_refreshed(self, table: DeltaTable) -> bool:
        """Read the commits since the snapshot. Returns False if it is not one of the table that is there now.

        The table may have been deleted and created again: later commits would be added to a snapshot with the
        columns and properties of the former one, and fewer of them would never be seen."""
        name, content = self._last_commit
        try:
            table.update_incremental()
            if content is not None and self._read(name) == content:
                return True
        except (DeltaError, OSError):  # such as a log whose next files are removed already
            pass
        self._last_commit = ("", None)
        return False

    def _make_durable(self, before: int) -> None:
        """Flush the commits after version `before` to disk: delta-rs does not."""
        folder = self.folder
        if folder is None:
            return
        logs = folder / "_delta_log"
        assert self._table is not None
        self._table.update_incremental()
        for version in range(before + 1, self._table.version() + 1):
            sync(folder / _commit_name(version))
        sync(logs)

    @contextmanager
    def _translated(self) -> Iterator[None]:
        try:
            yield
        except TableNotFoundError as error:
            raise self._error(errno.ENOENT, "is gone", error) from None
        except ObjectStorageError:
            raise
        except DeltaProtocolError as error:
            raise InvalidSinkError(f"the Delta table cannot be written: {error}") from error
        except DeltaError as error:
            raise self._error(errno.EIO, "cannot be used", error) from None
        except OSError as error:
            if error.errno is not None:
                raise
            raise self._error(errno.EIO, "cannot be used", error) from None

    def _error(self, number: int, what: str, error: Exception) -> OSError:
        """In plain words: what a storage says may quote the whole request."""
        why = str(error) if self.folder is not None else plainly(str(error))
        return OSError(number, f"the Delta table {what}: {why}", self.url)


def _commit_name(version: int) -> str:
    return f"_delta_log/{version:020}.json"


def _description(table: DeltaTable) -> TableDescription:
    metadata, protocol = table.metadata(), table.protocol()
    fields = msgspec.json.decode(table.schema().to_json())["fields"]
    return TableDescription(
        table_id=str(metadata.id),
        fields=tuple(fields),
        partition_columns=tuple(metadata.partition_columns),
        properties=dict(metadata.configuration),
        writer_version=protocol.min_writer_version,
        writer_features=frozenset(map(str, protocol.writer_features or ())),
    )


def _schema_json(fields: Iterable[Mapping[str, Any]]) -> str:
    return msgspec.json.encode({"type": "struct", "fields": list(fields)}).decode()
