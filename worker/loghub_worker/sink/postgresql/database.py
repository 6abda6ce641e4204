"""Connects to the database, begins transactions, and says what an error of the database means.

Whether a batch was refused because of its rows or because of the state of the database is decided by the
error's code (SQLSTATE, "PostgreSQL Error Codes" in its manual): only the former leads to the failure policy.
Outages are a closed list, since no list has what a trigger may raise: PL/pgSQL takes any code.
"""

import ssl
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from pathlib import Path
from typing import Any

import psycopg
from psycopg import sql

from loghub.sink_settings import PostgresqlSink
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError, SinkUnreachableError
from loghub_worker.sink.error_blame import CANCELLED, OUTAGE_STATES
from loghub_worker.sink.postgresql.delivered_ranges import Connection
from loghub_worker.sink.sink_credentials import SinkCredentials

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


class Database:
    """The database of a sink."""

    def __init__(
        self, sink: PostgresqlSink, credentials: SinkCredentials, *, client: str, statement_timeout_s: float
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
        except (psycopg.Error, UnicodeError) as error:  # the latter of a host that is no name
            raise SinkUnreachableError(f"{self}: {_one_line(str(error))}") from error
        connection.isolation_level = psycopg.IsolationLevel.READ_COMMITTED
        connection.prepare_threshold = None  # a pooler between may give each transaction another session
        return connection

    def begin(self, connection: Connection) -> None:
        """Begin a transaction. All limits are its own, for the sake of a pooler. Raises `psycopg.Error`."""
        connection.execute(self._limits)

    @contextmanager
    def transaction(self) -> Iterator[Connection]:
        """One transaction on a connection of its own. Errors of the database are raised as this sink's."""
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
        """The error of the sink that an error of the database is. `with_rows`: of a statement that writes the
        rows of a batch. It takes the longer the more there are, so fewer may succeed where it took too
        long."""
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
    """The certificate authorities of the system. The wheel's own OpenSSL looks for them in another folder."""
    found = ssl.get_default_verify_paths().cafile or _SYSTEM_CERTIFICATES
    return found if Path(found).exists() else "system"


def _one_line(text: str) -> str:
    return " ".join(text.split())[:1000]
