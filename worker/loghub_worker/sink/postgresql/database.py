"""The database of a sink: connections, transactions, and the meaning of its errors.

An error's code (SQLSTATE, "PostgreSQL Error Codes" in its manual) decides whether a batch was refused because
of its rows or because of the state of the database: only the former leads to the failure policy. Outages are
a closed list, because no list has what a trigger may raise: PL/pgSQL takes any code.
"""

import ssl
from collections.abc import Iterator, Sequence
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from loghub.contract.sinks import PostgresqlSink
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError, SinkUnreachableError
from loghub_worker.sink.error_blame import CANCELLED, OUTAGE_STATES
from loghub_worker.sink.sink_start import CredentialFiles

# Any number will do that no other program locks.
_CREATION_LOCK = 0x6C6F676875620000

USERNAME, PASSWORD = "username", "password"
CA, CERTIFICATE, PRIVATE_KEY = "ca.crt", "tls.crt", "tls.key"
OPENING_CONNECTIONS = 4  # of a worker that opens shards; a server has room for few
CONNECT_TIMEOUT_S = 10  # for each address; the kernel alone would wait for two minutes
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

Connection = psycopg.Connection[tuple[Any, ...]]


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
