"""Whether an error of a database, or of a format of Spark's, is due to the rows or to the target. Pure."""

from collections.abc import Iterable, Sequence
from dataclasses import dataclass
from enum import Enum, auto

# Classes of SQLSTATE, and single codes, that are due to the database and not to the rows: the connection, a
# transaction that is read-only or has failed, the login, a database, schema, table or right that is missing,
# a deadlock, resources, a lock, an operator's intervention, the system, the configuration, the server of a
# foreign partition, damaged data.
OUTAGE_STATES = (
    "08", "25", "28", "3D", "3F", "40", "42", "53", "55", "57", "58", "F0", "HV", "XX001", "XX002",
)  # fmt: skip
CANCELLED = "57014"  # PostgreSQL's statement timeout, which depends on how many rows there are
# Codes that are due to the rows, in any database: cardinality, data, constraints, CHECK OPTION, SIGNAL,
# limits, PL/pgSQL.
_ROW_STATES = ("21", "22", "23", "44", "45", "54", "P0")
_SQL_OUTAGES = frozenset(
    f"java.sql.{name}"
    for name in (
        "SQLInvalidAuthorizationSpecException",
        "SQLNonTransientConnectionException",
        "SQLRecoverableException",
        "SQLTransactionRollbackException",
        "SQLTransientConnectionException",
    )
)
_NETWORK_OUTAGES = frozenset(
    f"java.net.{name}"
    for name in (
        "ConnectException",
        "NoRouteToHostException",
        "SocketTimeoutException",
        "UnknownHostException",
    )
)
_SPARK = "org.apache.spark."
_NO_DRIVER = "No suitable driver"  # due to the settings, though the code means a connection
_WRAPPER = "[TASK_WRITE_FAILED]"  # Spark's words for any error of the format


class Blame(Enum):
    """UNKNOWN: one or the other. Most drivers have codes of their own, and most formats no codes at all."""

    ROWS = auto()
    TARGET = auto()
    UNKNOWN = auto()


@dataclass(frozen=True, slots=True, kw_only=True)
class JavaError:
    """An exception of the JVM, or one of its causes. `types` are its class and the classes above it,
    `sql_state` is the SQLSTATE of an `SQLException`."""

    types: Sequence[str]
    message: str
    sql_state: str | None = None


def blame(errors: Iterable[JavaError]) -> Blame:
    """Whether an exception and its causes are due to the rows or to the target."""
    blames = {_blame(error) for error in errors}
    return next((one for one in (Blame.TARGET, Blame.ROWS) if one in blames), Blame.UNKNOWN)


def _blame(error: JavaError) -> Blame:
    state = error.sql_state or ""
    if not (_SQL_OUTAGES | _NETWORK_OUTAGES).isdisjoint(error.types):
        return Blame.TARGET
    if state.startswith(OUTAGE_STATES) and state != CANCELLED and error.message != _NO_DRIVER:
        return Blame.TARGET
    if state.startswith(_ROW_STATES):
        return Blame.ROWS
    # An error of Spark's own computation, or of a function of the user.
    is_sparks = error.types[:1] != () and error.types[0].startswith(_SPARK)
    is_computed = error.message.startswith("[") and not error.message.startswith(_WRAPPER)
    is_python = is_sparks and error.types[0].endswith(".PythonException")
    return Blame.ROWS if is_python or (is_sparks and is_computed) else Blame.UNKNOWN


class Evidence:
    """Whether the target takes other rows than the failed ones, if only that can show it. It writes nothing
    to try, because rows cannot be taken back."""

    def __init__(self) -> None:
        self._took_since_failure = False
        self._is_between = False

    def took_rows(self) -> None:
        """Rows were written."""
        self._took_since_failure = True

    def failed(self) -> None:
        """Rows were refused, or the target was at fault."""
        self._is_between, self._took_since_failure = self._took_since_failure, False

    @property
    def blames_rows(self) -> bool:
        """Whether rows were written between the last two failures, or since the last."""
        return self._is_between or self._took_since_failure
