"""Which errors of a database or a format are due to the rows, and which to the target."""

import pytest

from loghub_worker.sink.error_blame import Blame, JavaError, blame

SQL = ("java.sql.SQLException", "java.lang.Exception")
WRITE = JavaError(types=("org.apache.spark.SparkException",), message="[TASK_WRITE_FAILED] Task failed")


def of_sql(state: str | None, *types: str) -> JavaError:
    return JavaError(types=(*types, *SQL), message="refused", sql_state=state)


def of_spark(name: str, message: str) -> JavaError:
    return JavaError(types=(f"org.apache.spark.{name}", "java.lang.RuntimeException"), message=message)


@pytest.mark.parametrize(
    ("cause", "expected"),
    [
        # A connection, a read-only replica, a right, a deadlock, a lock in Derby, in PostgreSQL, a full disk.
        *((of_sql(state), Blame.TARGET) for state in ("08006", "25006", "42501", "40001")),
        *((of_sql(state), Blame.TARGET) for state in ("40XL1", "55P03", "53100")),
        # What MySQL and SQL Server have no class for, a timeout, which smaller batches may not reach, a
        # driver without codes, Oracle's tablespace.
        *((of_sql(state), Blame.UNKNOWN) for state in ("HY000", "S0001", "57014", None, "72000")),
        *((of_sql(state), Blame.ROWS) for state in ["22001", "23505", "45000", "P0001", "54000"]),
        (of_sql("HY000", "a.b.Deadlock", "java.sql.SQLTransactionRollbackException"), Blame.TARGET),
        (of_sql(None, "java.sql.SQLRecoverableException"), Blame.TARGET),
        (of_sql("HY000", "java.sql.SQLTimeoutException", "java.sql.SQLTransientException"), Blame.UNKNOWN),
        (JavaError(types=("java.net.ConnectException",), message=""), Blame.TARGET),
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
