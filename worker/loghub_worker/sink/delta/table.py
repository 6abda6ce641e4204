"""A Delta table, by delta-rs: its snapshots, its commits and their errors; which position it has of each
shard, and who may move it; and whether a query's columns fit it.

A commit is one new file in the table's log, created only if it does not exist yet (a hard link in a folder, a
create-only PUT in a bucket). If another writer has created it, delta-rs reads that commit, refuses on a
conflict, and otherwise tries the next number.

A writer may not know whether its commit was made: a reply may be lost, and a repeated request then meets its
own file. So each commit has the name of its batch, and after an error the log decides.

A table keeps two application transactions for each shard (`SetTransaction` of the Delta protocol, a number
under a name, of which a snapshot has the last value):

``loghub/<project>/<logstore>/<group>/<shard>/<created>``        the cursor up to which it has the shard
``loghub/<project>/<logstore>/<group>/<shard>/<created>/turns``  how often that was moved back on purpose

A commit with rows carries the first transaction for each shard of its batch, in the one file that makes the
rows visible. A worker remembers the position that it found when it opened a shard or has committed itself. It
may commit only if a snapshot still has that position, and only onto that snapshot: if another worker commits
with the same name in between, the Delta library refuses this commit, whatever it retries.

Why no interleaving doubles or loses a log: within one turn the cursor only rises, and each commit replaces
exactly the position that it was planned from. So the committed ranges follow one another without overlap,
whichever workers made them, and however long a worker was stopped. A worker that was stopped finds another
position and plans again from there. Without the turns, a position could come back after the cursor was moved
back, and a worker that slept through both changes could take it for the position that it knew.

Between two ranges lie only logs that need not be delivered: ranges without rows, which are not committed,
logs that had expired, and logs that the checkpoint was moved past.

NB: if two workers both believe to hold a shard, the worker that commits first wins, not the worker that
opened the shard later; the batch of the other worker is discarded and read again after it. Both deliver the
same logs, so the table is the same. If their settings differ, the replaced worker can deliver one last batch
with its old settings; the membership prevents that as long as its clock is right.

Schemas are JSON that Spark and Delta both write (`StructType.json`), decoded. The sink adds Parquet files
that Spark has written, so nothing checks a row against the table's constraints; a table that has constraints
is refused.
"""

import errno
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import msgspec
import structlog
from deltalake import CommitProperties, DeltaTable, Schema, Transaction
from deltalake import Field as DeltaField
from deltalake.exceptions import CommitFailedError, DeltaError, DeltaProtocolError, TableNotFoundError
from deltalake.transaction import AddAction

from loghub.atomic_file import sync
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation, continues_at
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.files.bucket import ObjectStorageError, plainly
from loghub_worker.sink.files.commit_log import RangeTakenError, SessionLostError
from loghub_worker.sink.files.formats import PARQUET_TYPES, partitioning

log = structlog.get_logger()


@dataclass(frozen=True, slots=True, kw_only=True)
class TablePosition:
    """A shard in a snapshot of a table. `end` is the cursor up to which the table has it; None: no rows."""

    end: int | None
    turns: int = 0


@dataclass(frozen=True, slots=True, kw_only=True)
class Move:
    """A change of a shard's position, which is valid only as long as the table has `before`."""

    shard: ShardIncarnation
    before: TablePosition
    after: TablePosition


@dataclass(frozen=True, slots=True, kw_only=True)
class Resumption:
    """Where a shard continues. With `after`, the table must be given that position first."""

    cursor: int
    after: TablePosition | None = None


def resumption(position: TablePosition, checkpoint: int, origin: CheckpointOrigin) -> Resumption:
    """Where a shard with this position in the table continues.

    A checkpoint that was moved back must be in the table before it is saved under a worker's name: from then
    on nothing else shows that to the next worker.
    """
    cursor = continues_at(position.end, checkpoint, origin)
    if position.end is None or position.end <= cursor:
        return Resumption(cursor=cursor)
    return Resumption(cursor=cursor, after=TablePosition(end=cursor, turns=position.turns + 1))


def delivered(before: TablePosition, *, begin: int, end: int) -> TablePosition | None:
    """The position after the range from `begin` to `end`; None if the table has some of it already."""
    if before.end is not None and begin < before.end:
        return None
    return TablePosition(end=end, turns=before.turns)


def transactions(prefix: str, move: Move) -> dict[str, int]:
    """The application transactions of a move. `prefix` names the group."""
    name = position_name(prefix, move.shard)
    assert move.after.end is not None  # a position is never removed
    numbers = {name: move.after.end}
    if move.after.turns != move.before.turns:
        numbers[turns_name(prefix, move.shard)] = move.after.turns
    return numbers


def position_name(prefix: str, shard: ShardIncarnation) -> str:
    """The application id of a shard's cursor."""
    return f"{prefix}/{shard.shard}/{shard.created}"


def turns_name(prefix: str, shard: ShardIncarnation) -> str:
    """The application id of the number of times that a shard was moved back."""
    return f"{position_name(prefix, shard)}/turns"


Field = Mapping[str, Any]

# Delta has no other types without a table feature, and Parquet files of Spark store these in the same way.
_TYPES = PARQUET_TYPES - {"timestamp_ntz"}
_FORBIDDEN_IN_NAMES = frozenset(" ,;{}()\n\t=")
# Table features that require nothing of a writer that only adds files, and features that require something
# only if a column or property uses them: `_demands` finds the use.
_FEATURES = frozenset(
    {
        "appendOnly", "invariants", "checkConstraints", "generatedColumns", "identityColumns",
        "changeDataFeed", "columnMapping", "deletionVectors", "timestampNtz", "v2Checkpoint",
        "vacuumProtocolCheck", "domainMetadata", "clustering", "allowColumnDefaults", "typeWidening",
        "typeWidening-preview",        "checkpointProtection",
    }
)  # fmt: skip
LEGACY_WRITER_VERSION, FEATURES_WRITER_VERSION = 6, 7  # up to 6 a version stands for fixed features
# Values that a writer must compute or check, in a column's metadata.
_COLUMN_RULES = ("delta.generation", "delta.identity", "delta.invariants")
_TRANSACTION_RETENTION = "delta.setTransactionRetentionDuration"


@dataclass(frozen=True, slots=True, kw_only=True)
class TableDescription:
    """The requirements of a table to its writers."""

    table_id: str
    fields: tuple[Field, ...]
    partition_columns: tuple[str, ...]
    properties: Mapping[str, str]
    writer_version: int
    writer_features: frozenset[str]  # for version 7 only


def query_fields(schema: Mapping[str, Any]) -> tuple[Field, ...]:
    """The columns of a new table for a query's schema: nullable throughout, so that a later query may differ.
    Raises `InvalidSinkError` if a Delta table cannot have them."""
    fields: Sequence[Field] = schema["fields"]
    problems = [problem for field in fields for problem in _column_problems(field)]
    problems += [f"{name!r} occurs more than once" for name in _repeated(fields)]
    if problems:
        raise InvalidSinkError(f"a Delta table cannot have these columns: {'; '.join(problems)}")
    return tuple(
        {"name": f["name"], "type": _nullable(f["type"]), "nullable": True, "metadata": {}} for f in fields
    )


def missing_columns(
    table: TableDescription,
    fields: Sequence[Field],
    partition_by: Sequence[str],
    *,
    nullable: Mapping[str, bool],
) -> tuple[Field, ...]:
    """The columns of the query that the table lacks. `nullable` says which columns of the query may be null.
    Raises `InvalidSinkError` with every other reason why the query cannot be written to the table."""
    problems = list(_demands(table))
    if partition_by and tuple(partition_by) != table.partition_columns:
        problems.append(
            f"the table is partitioned by {_names(table.partition_columns)}, not by {_names(partition_by)}"
        )
    by_name = {str(field["name"]): field for field in fields}
    for column in table.fields:
        name = str(column["name"])
        returned = by_name.pop(name, None)
        if returned is None:
            if not column["nullable"]:
                problems.append(
                    f"the table's column {name!r} must not be null, and the query does not return it"
                )
            elif name in table.partition_columns:
                problems.append(f"the query does not return the partition column {name!r}")
            continue
        if returned["type"] != _nullable(column["type"]):
            types = f"{_text(returned['type'])} in the query and {_text(column['type'])} in the table"
            problems.append(f"column {name!r} is {types}")
        if not column["nullable"] and nullable.get(name, True):
            problems.append(f"column {name!r} must not be null in the table, and may be in the query")
    if not problems:
        partitioning(fields, table.partition_columns)
    existing = {str(column["name"]).lower(): column["name"] for column in table.fields}
    problems += [
        f"the query's column {name!r} is {existing[name.lower()]!r} in the table"
        for name in by_name
        if name.lower() in existing
    ]
    if problems:
        raise InvalidSinkError(f"the query does not fit the table: {'; '.join(problems)}")
    return tuple(by_name.values())


def _repeated(fields: Sequence[Field]) -> list[str]:
    """Names that a reader that ignores case could not tell apart."""
    counted = Counter(str(field["name"]).lower() for field in fields)
    return [name for name, count in counted.items() if count > 1]


def _column_problems(field: Field) -> Iterator[str]:
    name = str(field["name"])
    if repeated := next(_repeated_inside(field["type"]), None):
        yield f"{name!r} has more than one field {repeated!r}"
    if forbidden := sorted(_FORBIDDEN_IN_NAMES & set(name)):
        yield f"the name {name!r} has {', '.join(map(repr, forbidden))}; give it another one with AS"
    if bad := next(_unsupported(field["type"]), None):
        yield f"{name!r} has the type {bad}; use CAST"


def _unsupported(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        if kind not in _TYPES and not kind.startswith("decimal("):
            yield kind
        return
    for inner in _inner_types(kind):
        yield from _unsupported(inner)


def _repeated_inside(kind: Any) -> Iterator[str]:
    if isinstance(kind, str):
        return
    yield from _repeated(kind.get("fields", ()))
    for inner in _inner_types(kind):
        yield from _repeated_inside(inner)


def _inner_types(kind: Mapping[str, Any]) -> list[Any]:
    if kind["type"] == "struct":
        return [field["type"] for field in kind["fields"]]
    if kind["type"] == "map":
        return [kind["keyType"], kind["valueType"]]
    return [kind["elementType"]] if kind["type"] == "array" else [str(kind["type"])]


def _nullable(kind: Any) -> Any:
    """The type without what does not change how values are stored: nullability and comments."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        return {"type": "struct", "fields": [_column(field) for field in kind["fields"]]}
    if kind["type"] == "map":
        key, value = _nullable(kind["keyType"]), _nullable(kind["valueType"])
        return {"type": "map", "keyType": key, "valueType": value, "valueContainsNull": True}
    return {"type": "array", "elementType": _nullable(kind["elementType"]), "containsNull": True}


def _column(field: Field) -> Field:
    return {"name": field["name"], "type": _nullable(field["type"]), "nullable": True, "metadata": {}}


def _demands(table: TableDescription) -> Iterator[str]:
    """The requirements of the table that this sink does not meet."""
    if table.writer_version > FEATURES_WRITER_VERSION:
        yield f"the table needs a writer of version {table.writer_version}"
    for feature in sorted(table.writer_features - _FEATURES):
        yield f"the table uses the feature {feature!r}, which this sink does not write"
    for name, value in sorted(table.properties.items()):
        if name.startswith("delta.constraints."):
            constraint = name.removeprefix("delta.constraints.")
            yield f"the table has the constraint {constraint!r}, which nothing would check"
        if name == "delta.columnMapping.mode" and value != "none":
            yield f"the table maps columns by {value}"
        if name == _TRANSACTION_RETENTION:
            yield f"the table forgets how far it has each shard: remove its property {name}"
    for column in table.fields:
        used = [key for key in column.get("metadata", {}) if key.startswith(_COLUMN_RULES)]
        if used:
            yield f"column {column['name']!r} has {', '.join(sorted(used))}"


def _names(columns: Sequence[str]) -> str:
    return ", ".join(columns) or "nothing"


def _text(kind: Any) -> str:
    """A type as in SQL."""
    if isinstance(kind, str):
        return kind
    if kind["type"] == "struct":
        columns = (f"{field['name']}: {_text(field['type'])}" for field in kind["fields"])
        return f"struct<{', '.join(columns)}>"
    return f"{kind['type']}<{', '.join(_text(inner) for inner in _inner_types(kind))}>"


BATCH = "loghubBatch"  # in the commit's metadata
# The cost of a commit grows with the number of files in the log, which this bounds. A table's owner may set
# another time.
NEW_TABLE_PROPERTIES = {"delta.logRetentionDuration": "interval 1 days"}
MAX_COMMIT_RETRIES = 50  # commits to other shards that may come first


@dataclass(frozen=True, slots=True, kw_only=True)
class AddedFile:
    """A data file of the table. `path` is relative to the table; `stats` as in `AddAction`."""

    path: str
    size: int
    modified_ms: int
    partition_values: Mapping[str, str | None]
    stats: str

    def action(self) -> AddAction:
        """The file in the form that delta-rs takes."""
        return AddAction(
            path=self.path,
            size=self.size,
            partition_values=self.partition_values,
            modification_time=self.modified_ms,
            data_change=True,
            stats=self.stats,
        )


def _ignore_step(_step: str) -> None:
    """The default of `DeltaGroupTable.at_step`."""


class DeltaGroupTable:
    """One table and the positions of one group in it. Thread-safe."""

    def __init__(
        self,
        url: str,
        *,
        group_path: Sequence[str],
        options: Callable[[], dict[str, str]],
        read: Callable[[str], bytes | None],
    ) -> None:
        """`url` is a folder or an s3:// URL, `group_path` project, logstore, group. `options` are the options
        of the object storage, read at each use, since keys may change. `read` returns the content of a file
        of the table, None if there is none."""
        self.url = url
        self._prefix = "/".join(("loghub", *group_path))
        self._options = options
        self._read = read
        # Called after each step with its name: tests end or hold the process there.
        self.at_step: Callable[[str], None] = _ignore_step
        # Between a snapshot's check and the commit onto it no other thread may refresh it.
        self._lock = threading.Lock()
        self._table: DeltaTable | None = None
        # The name and content of the snapshot's last commit, at its last load or refresh.
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
            added = [DeltaField.from_json(msgspec.json.encode(field).decode()) for field in fields]
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

        Raises `RangeTakenError` and `SessionLostError`, and the errors of `check`; nothing is committed then.
        After an `OSError` it may be unknown whether it is committed: the next opening of the shard finds out.
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
        """Find out whether a refused commit was made after all. Raises unless it was."""
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
            position = self._position(table, move.shard)
            if position != move.before:
                raise RangeTakenError(
                    f"the table has shard {move.shard.shard} up to cursor {position.end}, and not up to"
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
        """The error in plain words, because a message of the storage may quote the whole request."""
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
