"""The table that gets the rows: whether it can, and its columns; and the tables that a query needs."""

import psycopg
from psycopg import sql
from pyspark.sql.types import StructType

from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.postgresql import columns
from loghub_worker.sink.postgresql.columns import TableColumn
from loghub_worker.sink.postgresql.delivered_ranges import (
    Connection,
    lock_creation,
    missing_rights,
    table_identifier,
)

_ORDINARY, _PARTITIONED = "r", "p"  # of relkind
_PERMANENT = "p"  # of relpersistence


class Table:
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
        if found := columns.problems_of_names(schema):
            raise InvalidSinkError(f"the table {self} cannot be created: {'; '.join(found)}")
        new = (
            sql.SQL("{} {}").format(sql.Identifier(name), sql.SQL(kind))
            for name, kind in map(columns.new_column, schema.fields)
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
        found = connection.execute(
            "SELECT c.oid::regclass::text, c.relkind::text, c.relpersistence::text"
            " FROM pg_partition_tree(%s::oid) JOIN pg_class c ON c.oid = relid WHERE relid <> %s::oid",
            (identifier, identifier),
        )
        for name, kind, persistence in found:
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
        found = columns.problems(schema, self._columns(connection))
        if found:
            raise InvalidSinkError(f"the query does not fit the table {self}: {'; '.join(found)}")

    def check_again(self, connection: Connection, schema: StructType) -> None:
        """The same as both, if the table is not as it was. After a COPY in the same transaction, whose lock
        keeps it as it is: another type might have taken the rows and rounded them."""
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
        # A domain counts as the type that it is made of, through any number of others; its checks concern
        # single rows.
        identifier = table_identifier(connection, self._schema, self._name)
        found = connection.execute(
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
            for name, kind, precision, scale, required, generated in found
        ]
