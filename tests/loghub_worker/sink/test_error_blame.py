"""Which errors are due to the rows and which to the target: of a database, of a format, of a volume."""

import errno
import secrets
from pathlib import Path

import pytest
from py4j.protocol import Py4JNetworkError
from pyspark.errors import PySparkException

from loghub_worker.sink.error_blame import Blame, JavaError, blame
from loghub_worker.sink.files.storage import writing_to

# One code of each class of the SQL standard, of PostgreSQL and of Derby that says whose fault it is.
STATES_OF_TARGETS = {
    "08006": "no connection",
    "25006": "a read-only replica",
    "28P01": "a wrong password",
    "3D000": "no such database",
    "3F000": "no such schema",
    "40001": "a deadlock",
    "40XL1": "a lock in Derby",
    "42501": "a right that is missing",
    "53100": "a full disk",
    "55P03": "a lock in PostgreSQL",
    "57P01": "an operator's shutdown",
    "58030": "an error of the system",
    "F0001": "a lock file of the configuration",
    "HV00N": "no connection to the server of a foreign partition",
    "XX001": "damaged data",
    "XX002": "a damaged index",
}
STATES_OF_ROWS = {
    "21000": "a row of an upsert twice",
    "22001": "a text that is too long",
    "23505": "a key that is there already",
    "44000": "a row outside of the view",
    "45000": "SIGNAL of a trigger",
    "54000": "a row that is too large",
    "P0001": "RAISE of a trigger",
}
SQL_OUTAGES = (
    "SQLInvalidAuthorizationSpecException",
    "SQLNonTransientConnectionException",
    "SQLRecoverableException",
    "SQLTransactionRollbackException",
    "SQLTransientConnectionException",
)
NETWORK_OUTAGES = (
    "ConnectException",
    "NoRouteToHostException",
    "SocketTimeoutException",
    "UnknownHostException",
)
SQL = ("java.sql.SQLException", "java.lang.Exception")
WRITE = JavaError(types=("org.apache.spark.SparkException",), message="[TASK_WRITE_FAILED] Task failed")


def of_sql(state: str | None, *types: str) -> JavaError:
    return JavaError(types=(*types, *SQL), message="refused", sql_state=state)


def of_spark(name: str, message: str) -> JavaError:
    return JavaError(types=(f"org.apache.spark.{name}", "java.lang.RuntimeException"), message=message)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        *((of_sql(state), Blame.TARGET) for state in STATES_OF_TARGETS),
        # What MySQL and SQL Server have no class for, a timeout, which smaller batches may not reach, a
        # driver without codes, Oracle's tablespace.
        *((of_sql(state), Blame.UNKNOWN) for state in ("HY000", "S0001", "57014", None, "72000")),
        *((of_sql(state), Blame.ROWS) for state in STATES_OF_ROWS),
        (of_sql("HY000", "a.b.Deadlock", "java.sql.SQLTransactionRollbackException"), Blame.TARGET),
        *((of_sql(None, f"java.sql.{name}"), Blame.TARGET) for name in SQL_OUTAGES),
        (of_sql("HY000", "java.sql.SQLTimeoutException", "java.sql.SQLTransientException"), Blame.UNKNOWN),
        *((JavaError(types=(f"java.net.{name}",), message=""), Blame.TARGET) for name in NETWORK_OUTAGES),
        (JavaError(types=("org.elasticsearch.EsException",), message="[x] no room"), Blame.UNKNOWN),
        (of_spark("SparkNumberFormatException", "[CAST_INVALID_INPUT] 'x'"), Blame.ROWS),
        (of_spark("api.python.PythonException", "Traceback (most recent call last):"), Blame.ROWS),
        (of_spark("SparkException", "Job aborted due to stage failure: Task 0"), Blame.UNKNOWN),
    ],
    ids=lambda one: f"{one.types[0]} {one.sql_state}" if isinstance(one, JavaError) else one.name,
)
def test_a_cause_below_sparks_own_words_decides(cause: JavaError, expected: Blame) -> None:
    assert blame([WRITE, cause]) is expected


def test_of_two_causes_the_target_counts_and_no_cause_says_nothing() -> None:
    assert blame([WRITE, of_sql("23505"), of_sql("08006")]) is Blame.TARGET
    assert blame([]) is Blame.UNKNOWN


FAILED = PySparkException("[TASK_WRITE_FAILED] Task failed while writing rows")


def test_an_error_of_spark_stays_if_the_volume_can_be_written(tmp_path: Path) -> None:
    with pytest.raises(PySparkException), writing_to(tmp_path):
        raise FAILED
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("place", "number"), [("sink", errno.ENOTDIR), ("gone", errno.ENOENT)], ids=["a-file", "gone"]
)
def test_it_becomes_the_error_of_a_volume_that_cannot(tmp_path: Path, place: str, number: int) -> None:
    (tmp_path / "sink").write_text("a file, as where a volume is not mounted any more")
    with pytest.raises(OSError, match=place) as raised, writing_to(tmp_path / place / "stage"):
        raise FAILED
    assert raised.value.errno == number
    assert raised.value.__context__ is FAILED


def test_what_a_full_disk_has_no_room_for_is_named(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(secrets, "token_hex", lambda _: "part")
    (tmp_path / "part").symlink_to("/dev/full")
    with pytest.raises(OSError, match=str(tmp_path / "part")) as raised, writing_to(tmp_path):
        raise FAILED
    assert raised.value.errno == errno.ENOSPC


def test_a_jvm_that_exited_and_a_target_elsewhere_are_no_matter_of_a_volume(tmp_path: Path) -> None:
    with pytest.raises(Py4JNetworkError), writing_to(tmp_path / "gone"):
        raise Py4JNetworkError("Answer from Java side is empty")
    with pytest.raises(PySparkException), writing_to(None):
        raise FAILED
