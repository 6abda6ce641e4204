"""The database of a sink: connections, transactions, the meaning of its errors, and the records of a group.

An error's code (SQLSTATE, "PostgreSQL Error Codes" in its manual) decides whether a batch was refused because
of its rows or because of the state of the database: only the former leads to the failure policy. Outages are
a closed list, because no list has what a trigger may raise: PL/pgSQL takes any code.

The records are in the schema of the table; they say which ranges it has, and which worker delivers a shard.

``loghub_shards`` has one row for each shard: the token of the worker that opened it last.
``loghub_ranges`` has one row for each range that a batch delivered and no checkpoint is known to be past.

The rows of a batch and of its ranges are written in one transaction. Just before its end, the transaction
locks the rows of its shards and compares their tokens. What follows from that:

- A worker that opens a shard replaces the token and reads the ranges in one transaction, which waits for the
  lock. Either the batch was committed before, and the opener finds its range; or it was not, and the batch
  finds another token and is rolled back. So only the last opener of a shard delivers it, however long any
  process pauses between any two of its steps.
- The opener reads the ranges *before* it requests the checkpoint. A range that it no longer finds was
  removed because a checkpoint past it had been saved, so the checkpoint that it gets is past it too.
- Rows are removed only under the lock and by the last opener: those before a checkpoint that the service has
  accepted, and those at or after a checkpoint that was moved back on purpose.
- If the reply to COMMIT is lost, a worker that then takes the lock waits for the end of that transaction,
  and the row of the range says whether it was committed.
- The key of ``loghub_ranges`` admits one range for each begin. It refuses what the token should have refused
  before, for example after ``loghub_shards`` was edited.
"""

import ssl
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from loghub.contract.sinks import PostgresqlSink
from loghub_consumer.batch_plan import Range
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError, SinkUnreachableError
from loghub_worker.sink.error_blame import CANCELLED, OUTAGE_STATES
from loghub_worker.sink.files.commit_log import RangeTakenError
from loghub_worker.sink.sink_start import CredentialFiles

SHARDS, RANGES = "loghub_shards", "loghub_ranges"
# Any number will do that no other program locks.
_CREATION_LOCK = 0x6C6F676875620000
_GROUP = "project, logstore, consumer_group"
_CREATE = """
CREATE TABLE IF NOT EXISTS {shards} (
    project text, logstore text, consumer_group text, shard integer, created bigint, token text NOT NULL,
    PRIMARY KEY (project, logstore, consumer_group, shard, created));
CREATE TABLE IF NOT EXISTS {ranges} (
    project text, logstore text, consumer_group text, shard integer, created bigint,
    begins bigint, ends bigint NOT NULL, batch text NOT NULL,
    PRIMARY KEY (project, logstore, consumer_group, shard, created, begins))
"""
_RIGHTS = ("SELECT", "INSERT", "UPDATE", "DELETE")

Connection = psycopg.Connection[tuple[Any, ...]]


class DeliveredRanges:
    """The statements on both tables, for one group. Each method is a part of the caller's transaction."""

    def __init__(self, schema: str, group_path: tuple[str, str, str]) -> None:
        self._schema = schema
        self._group = group_path
        self._names = {
            "shards": sql.Identifier(schema, SHARDS),
            "ranges": sql.Identifier(schema, RANGES),
            "group": sql.SQL(_GROUP),
        }

    def create(self, connection: Connection) -> None:
        """Create the tables if they do not exist. Raises `InvalidSinkError` if the user may not, or may not
        use them."""
        if any(self._identifier_of(connection, name) is None for name in (SHARDS, RANGES)):
            lock_creation(connection)
            try:
                connection.execute(self._sql(_CREATE))
            except psycopg.errors.InvalidSchemaName as error:
                raise InvalidSinkError(f"there is no schema {self._schema}: create it") from error
            except psycopg.errors.InsufficientPrivilege as error:
                raise InvalidSinkError(
                    f"the tables {SHARDS} and {RANGES} are missing in the schema {self._schema!r}, and the"
                    f" user may not create them ({error.diag.message_primary}): grant CREATE on the schema,"
                    " or create them as docs/sinks.md 3 says"
                ) from error
        for name in (SHARDS, RANGES):
            missing = missing_rights(connection, self._identifier_of(connection, name), _RIGHTS)
            if missing:
                raise InvalidSinkError(
                    f"the user may not {', '.join(missing)} in {name} of the schema {self._schema!r}"
                )

    def open(self, connection: Connection, shard: ShardIncarnation, token: str) -> list[tuple[int, int]]:
        """Make the owner of the token the one that may deliver the shard. Return begin and end of each range
        that is recorded for it."""
        connection.execute(
            self._sql(
                "INSERT INTO {shards} ({group}, shard, created, token) VALUES (%s, %s, %s, %s, %s, %s)"
                " ON CONFLICT ({group}, shard, created) DO UPDATE SET token = excluded.token"
            ),
            (*self._group, shard.shard, shard.created, token),
        )
        row = connection.execute(
            self._sql(
                "SELECT begins, ends FROM {ranges} WHERE ({group}, shard, created) = (%s, %s, %s, %s, %s)"
            ),
            (*self._group, shard.shard, shard.created),
        )
        return [(begins, ends) for begins, ends in row]

    def lock(self, connection: Connection, tokens: Mapping[ShardIncarnation, str]) -> None:
        """Keep these shards from being opened until the transaction ends. Raises `RangeTakenError` if one of
        them has another token."""
        shards = sorted(tokens, key=lambda shard: (shard.shard, shard.created))
        # Everyone locks in the same order. A row is read as it is once it is locked.
        rows = connection.execute(
            self._sql(
                "SELECT shard, created, token FROM {shards} WHERE ({group}) = (%s, %s, %s)"
                " AND (shard, created) IN (SELECT * FROM unnest(%s::integer[], %s::bigint[]))"
                " ORDER BY shard, created FOR UPDATE"
            ),
            (*self._group, [one.shard for one in shards], [one.created for one in shards]),
        )
        in_effect = {ShardIncarnation(shard=shard, created=created): token for shard, created, token in rows}
        for shard in shards:
            if in_effect.get(shard) != tokens[shard]:
                raise RangeTakenError(f"shard {shard.shard} was opened by another worker")

    def add(
        self, connection: Connection, batch: str, ranges: Sequence[tuple[ShardIncarnation, Range]]
    ) -> None:
        """Record the ranges of a batch. Raises `RangeTakenError` if a range of another batch begins where one
        of them does."""
        rows = [(one.shard, one.created, part.begin, part.end) for one, part in ranges]
        try:
            connection.execute(
                self._sql(
                    "INSERT INTO {ranges} ({group}, shard, created, begins, ends, batch)"
                    " SELECT %s, %s, %s, *, %s"
                    " FROM unnest(%s::integer[], %s::bigint[], %s::bigint[], %s::bigint[])"
                ),
                (*self._group, batch, *(list(column) for column in zip(*rows, strict=True))),
            )
        except psycopg.errors.UniqueViolation as error:
            raise RangeTakenError("another batch delivers one of the ranges") from error

    def remove_before(self, connection: Connection, checkpoints: Mapping[ShardIncarnation, int]) -> None:
        """Remove what begins before a checkpoint that the service has."""
        shards = list(checkpoints)
        connection.execute(
            self._sql(
                "DELETE FROM {ranges} r USING unnest(%s::integer[], %s::bigint[], %s::bigint[])"
                " AS c(shard, created, saved) WHERE ({group}) = (%s, %s, %s)"
                " AND (r.shard, r.created) = (c.shard, c.created) AND begins < saved"
            ),
            (
                [one.shard for one in shards],
                [one.created for one in shards],
                [checkpoints[one] for one in shards],
                *self._group,
            ),
        )

    def remove(self, connection: Connection, shard: ShardIncarnation, begins: Sequence[int]) -> None:
        """Let these ranges be delivered again."""
        connection.execute(
            self._sql(
                "DELETE FROM {ranges} WHERE ({group}, shard, created) = (%s, %s, %s, %s, %s)"
                " AND begins = ANY(%s)"
            ),
            (*self._group, shard.shard, shard.created, list(begins)),
        )

    def has(self, connection: Connection, batch: str, shard: ShardIncarnation, begin: int) -> bool:
        """Whether this batch has delivered the shard from this cursor on."""
        row = connection.execute(
            self._sql(
                "SELECT FROM {ranges} WHERE ({group}, shard, created, begins, batch)"
                " = (%s, %s, %s, %s, %s, %s, %s)"
            ),
            (*self._group, shard.shard, shard.created, begin, batch),
        )
        return row.fetchone() is not None

    def _sql(self, text: str) -> sql.Composed:
        return sql.SQL(text).format(**self._names)

    def _identifier_of(self, connection: Connection, name: str) -> int | None:
        return table_identifier(connection, self._schema, name)


def lock_creation(connection: Connection) -> None:
    """Let one worker create tables at a time: of two that create one table, PostgreSQL fails one, ``IF NOT
    EXISTS`` or not."""
    connection.execute("SELECT pg_advisory_xact_lock(%s)", (_CREATION_LOCK,))


def table_identifier(connection: Connection, schema: str, name: str) -> int | None:
    """The identifier of a table in the catalog; None if it does not exist."""
    row = connection.execute(
        "SELECT c.oid FROM pg_class c JOIN pg_namespace n ON n.oid = c.relnamespace"
        " WHERE (n.nspname, c.relname) = (%s, %s)",
        (schema, name),
    ).fetchone()
    return None if row is None else int(row[0])


def missing_rights(connection: Connection, table: int | None, rights: Sequence[str]) -> list[str]:
    """Which of these rights the user lacks on a table."""
    row = connection.execute(
        "SELECT one FROM unnest(%s::text[]) AS one WHERE NOT has_table_privilege(%s::oid, one)",
        (list(rights), table),
    )
    return [right for (right,) in row]


USERNAME, PASSWORD = "username", "password"
CA, CERTIFICATE, PRIVATE_KEY = "ca.crt", "tls.crt", "tls.key"
OPENING_CONNECTIONS = 4  # of a worker that opens shards; a server has room for few
CONNECT_TIMEOUT_S = 10
# A connection whose other end is gone without a word ends after about this time.
SILENCE_S = 30
LOCK_TIMEOUT_S = 10
# A worker that is paused while it holds the lock of a shard loses it after this time.
IDLE_TIMEOUT_S = 30
_SYSTEM_CERTIFICATES = "/etc/ssl/certs/ca-certificates.crt"
_CHARACTER = (
    "a text has a character that the database cannot store, such as NUL, or is not valid UTF-8: change it in"
    " the query, for example with replace(column, char(0), '') or make_valid_utf8(column)"
)
_ADVICE = {
    "22021": _CHARACTER,
    "22P05": _CHARACTER,
    "25006": "the server is read-only: sink.postgresql.host must name the primary",
    "42501": "grant the user the right",
    "42703": "the table has lost a column of the query: add it again, or change the query",
    "42P01": "create the table again; a worker does so when it starts, if createTable is set",
    "53100": "the disk of the server is full",
    "53300": "the server has no connection left: each worker needs one, and up to"
    f" {1 + OPENING_CONNECTIONS} while it opens shards",
    "55P03": "another session holds a lock for too long",
    CANCELLED: "the statement took longer than pipeline.batchTimeoutSeconds",
}


class SinkDatabase:
    """The database of a sink."""

    def __init__(
        self, sink: PostgresqlSink, credentials: CredentialFiles, *, client: str, statement_timeout_s: float
    ) -> None:
        """`client` is the name that ``pg_stat_activity`` shows."""
        self._sink = sink
        self._credentials = credentials
        self._client = client
        self._limits = sql.SQL(
            "SET LOCAL statement_timeout = {}; SET LOCAL lock_timeout = {};"
            " SET LOCAL idle_in_transaction_session_timeout = {};"
            # A server may be set to promise less than that a committed transaction is on its disk.
            " SELECT set_config('synchronous_commit', 'on', true)"
            " WHERE current_setting('synchronous_commit') = 'off'"
        ).format(*(int(s * 1000) for s in (statement_timeout_s, LOCK_TIMEOUT_S, IDLE_TIMEOUT_S)))

    def __str__(self) -> str:
        return f"PostgreSQL at {self._sink.host}:{self._sink.port}/{self._sink.database}"

    def check_credentials(self) -> None:
        """Raises `InvalidSinkError` if some are missing, or `OSError`."""
        self._parameters()

    def connect(self) -> Connection:
        """A new connection, with the credentials as they are now. Raises `OSError`."""
        try:
            connection = psycopg.connect(**self._parameters())
        except InvalidSinkError as error:  # the Secret was changed, and may be again
            raise SinkUnreachableError(str(error)) from error
        except (psycopg.Error, UnicodeError) as error:  # a host that is no valid name raises the latter
            raise SinkUnreachableError(f"{self}: {_one_line(str(error))}") from error
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.prepare_threshold = None  # a pooler between may give each transaction another session
        return connection

    def begin(self, connection: Connection) -> None:
        """Begin a transaction. All limits are set for the transaction, for the sake of a pooler. Raises
        `psycopg.Error`."""
        connection.execute(self._limits)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction on a connection of its own. Raises errors of the database as errors of the sink."""
        connection = self.connect()
        try:
            self.begin(connection)
            yield connection
            connection.commit()
        except psycopg.Error as error:
            raise self.translated(error) from error
        finally:
            close(connection)

    def translated(
        self, error: psycopg.Error, *, with_rows: bool = False
    ) -> RowsRejectedError | SinkUnreachableError:
        """The sink's error for an error of the database. `with_rows`: the statement writes the rows of a
        batch. It takes longer the more rows there are, so fewer rows may succeed after a timeout."""
        code, message = error.sqlstate, _one_line(error.diag.message_primary or str(error))
        if place := _one_line(error.diag.context or ""):
            message = f"{message} ({place})"
        if code in _ADVICE:
            message = f"{message}: {_ADVICE[code]}"
        if with_rows and code is not None and (not code.startswith(OUTAGE_STATES) or code == CANCELLED):
            return RowsRejectedError(f"{self} refuses the rows: {message}")
        return SinkUnreachableError(f"{self}: {message}")

    def _parameters(self) -> dict[str, Any]:
        certificate = self._credentials.file(CERTIFICATE)
        password = self._credentials.get(PASSWORD)
        if certificate is None and not password:
            self._credentials.require(PASSWORD)
        parameters: dict[str, Any] = {
            "host": self._sink.host,
            "port": self._sink.port,
            "dbname": self._sink.database,
            "user": self._credentials.require(USERNAME),
            "password": password,
            "sslmode": self._sink.ssl_mode,
            "application_name": self._client,
            "connect_timeout": CONNECT_TIMEOUT_S,
            "keepalives_idle": SILENCE_S // 2,
            "keepalives_interval": 5,
            "keepalives_count": 3,
            "tcp_user_timeout": SILENCE_S * 1000,
            "target_session_attrs": "read-write",
            "gssencmode": "disable",
            "client_encoding": "UTF8",
        }
        if self._sink.ssl_mode != "disable":
            parameters["sslrootcert"] = str(self._credentials.file(CA) or _system_certificates())
            if certificate is not None:
                key = self._credentials.file(PRIVATE_KEY)
                if key is None:
                    raise InvalidSinkError(f"the sink's credentials have {CERTIFICATE} but not {PRIVATE_KEY}")
                parameters |= {"sslcert": str(certificate), "sslkey": str(key)}
        return parameters


def close(connection: Connection) -> None:
    """Close a connection, whatever state it is in; a transaction that is not committed is rolled back."""
    with suppress(psycopg.Error):
        connection.close()


def _system_certificates() -> str:
    """The certificate authorities of the system. The OpenSSL in psycopg's wheel looks for them in another
    folder."""
    path = ssl.get_default_verify_paths().cafile or _SYSTEM_CERTIFICATES
    return path if Path(path).exists() else "system"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:1000]
