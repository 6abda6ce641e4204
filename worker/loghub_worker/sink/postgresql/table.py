"""The table that gets the rows: whether it can, and its columns; the tables that a query needs; and how the
columns of a query fit the columns of a table, by their types and the texts that COPY reads.

PostgreSQL parses each value as the type of its column, so a text may also go to a column such as ``uuid``,
``inet`` or an enum. A column does not fit if values would lose something silently, or could not succeed for
any row.
"""

from collections.abc import Sequence
from dataclasses import dataclass

import psycopg
from psycopg import sql
from pyspark.sql import Column
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import (
    ArrayType,
    BinaryType,
    BooleanType,
    ByteType,
    DataType,
    DateType,
    DecimalType,
    DoubleType,
    FloatType,
    IntegerType,
    LongType,
    MapType,
    NullType,
    ShortType,
    StringType,
    StructField,
    StructType,
    TimestampNTZType,
    TimestampType,
)

from loghub_worker.sink.batch_sink import TIMES, InvalidSinkError
from loghub_worker.sink.postgresql.database import Connection, lock_creation, missing_rights, table_identifier

MAX_NAME_BYTES = 63  # PostgreSQL cuts off the rest
MAX_COLUMNS = 1600  # PostgreSQL's maximum for a table
ANY = "any"
_TEXTS = ("text", "varchar", "bpchar")
_SHORTENING = ("name", "char")  # types that cut a longer text off without a word
# Of every table, so no column can have such a name.
_SYSTEM_COLUMNS = frozenset({"tableoid", "xmin", "cmin", "xmax", "cmax", "ctid"})
_INTEGERS = ("int2", "int4", "int8")
_FLOATS = ("float4", "float8")
# The type of Spark -> the type of a new column, and the types of PostgreSQL that take every value of it
# besides texts.
_TYPES: dict[type[DataType], tuple[str, tuple[str, ...]]] = {
    StringType: ("text", (ANY,)),
    NullType: ("text", (ANY,)),
    BooleanType: ("boolean", ("bool",)),
    ByteType: ("smallint", (*_INTEGERS, *_FLOATS, "numeric")),
    ShortType: ("smallint", (*_INTEGERS, *_FLOATS, "numeric")),
    IntegerType: ("integer", ("int4", "int8", "float8", "numeric")),
    LongType: ("bigint", ("int8", "numeric")),
    FloatType: ("real", _FLOATS),
    DoubleType: ("double precision", ("float8",)),
    DecimalType: ("numeric", ("numeric",)),
    BinaryType: ("bytea", ("bytea",)),
    TimestampType: ("timestamptz", ("timestamptz",)),
    TimestampNTZType: ("timestamp", ("timestamp",)),
    DateType: ("date", ("date",)),
    MapType: ("jsonb", ("jsonb", "json")),
    ArrayType: ("jsonb", ("jsonb", "json")),
    StructType: ("jsonb", ("jsonb", "json")),
}

# Of every value of an integer.
_DIGITS: dict[type[DataType], int] = {ByteType: 3, ShortType: 5, IntegerType: 10, LongType: 19}


@dataclass(frozen=True, slots=True, kw_only=True)
class TableColumn:
    """A column of a table, as the catalog has it."""

    name: str
    type: str  # the internal name, such as int4
    precision: int | None = None  # of a numeric type with limits
    scale: int | None = None
    required: bool = False  # neither null nor a default is possible
    generated: bool = False


def problems(schema: StructType, table: Sequence[TableColumn]) -> list[str]:
    """Why the columns of a query do not fit a table, one sentence part for each column; empty if they do."""
    columns = {column.name: column for column in table}
    messages = problems_of_names(schema)
    for field in schema.fields:
        column = columns.get(field.name)
        if column is None:
            messages.append(f"the table has no column {field.name!r}")
        elif column.generated:
            messages.append(f"the table computes its column {field.name!r} itself")
        elif not _fits(field.dataType, column):
            messages.append(
                f"the column {field.name!r} is {field.dataType.simpleString()} in the query and"
                f" {_spelled(column)} in the table"
            )
    returned = set(schema.fieldNames())
    messages += [
        f"the query has no column {column.name!r}, which the table requires"
        for column in table
        if column.required and column.name not in returned
    ]
    return messages


def problems_of_names(schema: StructType) -> list[str]:
    """Why columns of a query cannot be in any table, by their names and types alone, one sentence part for
    each column."""
    names = schema.fieldNames()
    repeated = sorted({name for name in names if names.count(name) > 1})
    messages = [f"the query has two columns {name!r}" for name in repeated]
    messages += [
        f"the name of the column {name!r} is one that no table can have"
        for name in names
        if not name or name in _SYSTEM_COLUMNS
    ]
    messages += [
        f"the name of the column {name!r} is longer than {MAX_NAME_BYTES} bytes"
        for name in names
        if len(name.encode()) > MAX_NAME_BYTES
    ]
    messages += [
        f"the column {field.name!r} is {field.dataType.simpleString()}, for which PostgreSQL has no type"
        for field in schema.fields
        if type(field.dataType) not in _TYPES
    ]
    if not 0 < len(names) <= MAX_COLUMNS:
        messages.append(f"the query has {len(names)} columns; a table has 1 to {MAX_COLUMNS}")
    return messages


def new_column(field: StructField) -> tuple[str, str]:
    """Name and type, as in CREATE TABLE, of the column for a field."""
    kind = field.dataType
    if isinstance(kind, DecimalType):
        return field.name, f"numeric({kind.precision}, {kind.scale})"
    return field.name, _TYPES[type(kind)][0]


def copied(field: StructField) -> Column:
    """The column with values that Arrow can write as CSV and that PostgreSQL reads as the field's."""
    name, kind = field.name, field.dataType
    column = F.col(f"`{name.replace('`', '``')}`")
    if isinstance(kind, BinaryType):
        column = F.concat(F.lit("\\x"), F.hex(column))
    elif isinstance(kind, MapType | ArrayType | StructType):
        column = F.to_json(column, {"ignoreNullFields": "false", **TIMES})
    elif isinstance(kind, DecimalType | NullType):
        column = column.cast("string")
    return column.alias(name)


def _fits(kind: DataType, column: TableColumn) -> bool:
    if type(kind) not in _TYPES:
        return True  # reported already
    accepted = _TYPES[type(kind)][1]
    if isinstance(kind, BinaryType):
        return column.type in accepted
    if ANY in accepted or column.type in _TEXTS:
        return column.type not in _SHORTENING
    if column.type not in accepted:
        return False
    if column.type != "numeric" or column.precision is None or column.scale is None:
        return True
    digits, scale = _digits(kind)
    # PostgreSQL rounds to the scale without a word.
    return scale <= column.scale and digits - scale <= column.precision - column.scale


def _digits(kind: DataType) -> tuple[int, int]:
    """Precision and scale that all values of a type need."""
    if isinstance(kind, DecimalType):
        return kind.precision, kind.scale
    return _DIGITS[type(kind)], 0


def _spelled(column: TableColumn) -> str:
    limits = "" if column.precision is None else f"({column.precision}, {column.scale})"
    return f"{column.type}{limits}"


_ORDINARY, _PARTITIONED = "r", "p"  # of relkind
_PERMANENT = "p"  # of relpersistence


class SinkTable:
    """One table of a database."""

    def __init__(self, schema: str, name: str) -> None:
        self._schema = schema
        self._name = name
        self._identifier = sql.Identifier(schema, name)
        self._fitting: tuple[object, ...] | None = None  # the definition that was compared last

    def __str__(self) -> str:
        return f"{self._schema}.{self._name}"

    def create(self, connection: Connection, schema: StructType) -> None:
        """Create it with the columns of a query, unless it exists. Raises `InvalidSinkError`."""
        if table_identifier(connection, self._schema, self._name) is not None:
            return
        if messages := problems_of_names(schema):
            raise InvalidSinkError(f"the table {self} cannot be created: {'; '.join(messages)}")
        new = (
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in map(new_column, schema.fields)
        )
        lock_creation(connection)
        try:
            connection.execute(
                sql.SQL("CREATE TABLE IF NOT EXISTS {} ({})").format(
                    self._identifier, sql.SQL(", ").join(new)
                )
            )
        except (psycopg.errors.InsufficientPrivilege, psycopg.errors.InvalidSchemaName) as error:
            raise InvalidSinkError(
                f"the table {self} does not exist and cannot be created: {error.diag.message_primary}"
            ) from error

    def check(self, connection: Connection) -> None:
        """Raises `InvalidSinkError` if the table does not exist or cannot be the target of a sink."""
        identifier = table_identifier(connection, self._schema, self._name)
        if identifier is None:
            raise InvalidSinkError(f"there is no table {self}: create it, or set sink.postgresql.createTable")
        kind, persistence, has_policies = connection.execute(
            "SELECT relkind::text, relpersistence::text, row_security_active(oid)"
            " FROM pg_class WHERE oid = %s",
            (identifier,),
        ).fetchone() or ("", "", False)
        if kind not in (_ORDINARY, _PARTITIONED):
            raise InvalidSinkError(f"{self} is no table: rows can only be copied into a table")
        if persistence != _PERMANENT:
            raise InvalidSinkError(
                f"the table {self} is unlogged, so a crash of the server would lose its rows:"
                " ALTER TABLE .. SET LOGGED"
            )
        self._check_partitions(connection, identifier)
        if has_policies:
            raise InvalidSinkError(
                f"row-level security applies to this user on the table {self}, and then PostgreSQL refuses"
                " COPY: let the user own the table, or give it BYPASSRLS"
            )
        if missing_rights(connection, identifier, ("INSERT",)):
            raise InvalidSinkError(f"the user may not INSERT into {self}")

    def _check_partitions(self, connection: Connection, identifier: int) -> None:
        rows = connection.execute(
            "SELECT c.oid::regclass::text, c.relkind::text, c.relpersistence::text"
            " FROM pg_partition_tree(%s::oid) JOIN pg_class c ON c.oid = relid WHERE relid <> %s::oid",
            (identifier, identifier),
        )
        for name, kind, persistence in rows:
            if kind not in (_ORDINARY, _PARTITIONED):
                raise InvalidSinkError(
                    f"the partition {name} of {self} is a foreign table, whose server commits by itself, so"
                    " its rows could come twice: detach it, and move rows there yourself"
                )
            if persistence != _PERMANENT:
                raise InvalidSinkError(
                    f"the partition {name} of {self} is unlogged, so a crash of the server would lose its"
                    " rows: ALTER TABLE .. SET LOGGED"
                )

    def check_columns(self, connection: Connection, schema: StructType) -> None:
        """Raises `InvalidSinkError` with every column of a query that does not fit."""
        messages = problems(schema, self._columns(connection))
        if messages:
            raise InvalidSinkError(f"the query does not fit the table {self}: {'; '.join(messages)}")

    def check_again(self, connection: Connection, schema: StructType) -> None:
        """Raises `InvalidSinkError` if the table has changed and fails `check` or `check_columns` now. Called
        after a COPY in the same transaction, whose lock prevents further changes: another type might have
        taken the rows and rounded them."""
        definition = connection.execute(
            "SELECT c.oid, c.relkind::text, c.relpersistence::text,"
            " (SELECT array_agg((attname, atttypid, atttypmod)::text ORDER BY attnum) FROM pg_attribute"
            "  WHERE attrelid = c.oid AND attnum > 0 AND NOT attisdropped)"
            " FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
            " WHERE (n.nspname, c.relname) = (%s, %s)",
            (self._schema, self._name),
        ).fetchone()
        if definition != self._fitting:
            self.check(connection)
            self.check_columns(connection, schema)
            self._fitting = definition

    def copy_statement(self, names: list[str]) -> sql.Composed:
        """Reads CSV, in which a null is empty and an empty text is in quotes."""
        return sql.SQL("COPY {} ({}) FROM STDIN (FORMAT csv)").format(
            self._identifier, sql.SQL(", ").join(map(sql.Identifier, names))
        )

    def _columns(self, connection: Connection) -> list[TableColumn]:
        # A domain counts as its base type, through any number of other domains; its checks concern single
        # rows.
        identifier = table_identifier(connection, self._schema, self._name)
        rows = connection.execute(
            "WITH RECURSIVE made_of AS ("
            "  SELECT attnum, atttypid AS type, atttypmod AS modifier, attnotnull AS required"
            "  FROM pg_attribute WHERE attrelid = %s AND attnum > 0 AND NOT attisdropped"
            " UNION ALL"
            "  SELECT attnum, typbasetype, typtypmod, required OR typnotnull"
            "  FROM made_of JOIN pg_type ON oid = type AND typtype = 'd')"
            " SELECT a.attname, b.typname, information_schema._pg_numeric_precision(b.oid, modifier),"
            " information_schema._pg_numeric_scale(b.oid, modifier),"
            " required AND NOT a.atthasdef AND a.attidentity = '' AND t.typdefault IS NULL,"
            " a.attgenerated <> '' OR a.attidentity = 'a'"
            " FROM made_of m JOIN pg_type b ON b.oid = m.type AND b.typtype <> 'd'"
            " JOIN pg_attribute a ON a.attrelid = %s AND a.attnum = m.attnum"
            " JOIN pg_type t ON t.oid = a.atttypid ORDER BY a.attnum",
            (identifier, identifier),
        )
        return [
            TableColumn(
                name=name,
                type=kind,
                precision=precision if kind == "numeric" else None,
                scale=scale if kind == "numeric" else None,
                required=required,
                generated=generated,
            )
            for name, kind, precision, scale, required, generated in rows
        ]
