"""Why a batch failed, from the errors of Spark's JVM."""

import errno
import os
from typing import Any

import pytest
from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.errors import PySparkException

from loghub.wire.errors import Code, EndpointUnreachable, LogHubError
from loghub_consumer.failure.policy import Cause
from loghub_consumer.reading.answers import ShortReadError
from loghub_worker.query.batch_errors import failure_of, is_outage, is_unreadable_state
from loghub_worker.query.transform import PipelineError
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.spark_errors import java_causes

SHORT_READ = f"{ShortReadError.__module__}.{ShortReadError.__name__}"
SPARK = "org.apache.spark.SparkException"
PYTHON = "org.apache.spark.api.python.PythonException"
TRACEBACK = """[PYTHON_EXCEPTION] An exception was thrown: Traceback (most recent call last):
  File "/app/loghub_worker/sink/logstore/sink.py", line 71, in write
    client.put_logs(self.options.logstore, group)
%s
 SQLSTATE: 38000"""


class JavaThrowable:
    """What Py4J shows of an exception of the JVM."""

    def __init__(self, name: str, message: str, cause: "JavaThrowable | None" = None) -> None:
        self._name, self._message, self._cause = name, message, cause

    def getClass(self) -> "JavaThrowable":
        return self

    def getName(self) -> str:
        return self._name

    def getMessage(self) -> str:
        return self._message

    def getCause(self) -> "JavaThrowable | None":
        return self._cause


def spark_error(*causes: tuple[str, str]) -> Exception:
    throwable = None
    for name, message in reversed(causes):
        throwable = JavaThrowable(name, message, throwable)
    error: Any = PySparkException("\nCaused by: ".join(f"{name}: {text}" for name, text in causes))
    error._origin = throwable
    return error  # type: ignore[no-any-return]


JOB_ABORTED = (
    "Job aborted due to stage failure: Task 0 in stage 2.0 failed 4 times, most recent failure: Lost task 0.3"
    " in stage 2.0 (TID 9) (10.0.0.7 executor 4): "
)
EXECUTOR_LOST = "ExecutorLostFailure (executor 4 exited caused by one of the running tasks) Reason: "

CASES = {
    "executor-lost": (
        [("org.apache.spark.SparkException", JOB_ABORTED + EXECUTOR_LOST + "Command exited with code 137")],
        Cause.ENDED,
        "ExecutorLost",
    ),
    "a-log-that-speaks-of-executors": (
        [("org.apache.spark.SparkException", JOB_ABORTED + f"java.lang.Error: {JOB_ABORTED}{EXECUTOR_LOST}")],
        Cause.REJECTED,
        "PipelineFailed",
    ),
    "ansi": (
        [("org.apache.spark.SparkNumberFormatException", "[CAST_INVALID_INPUT] The value '-' of")],
        Cause.REJECTED,
        "PipelineFailed",
    ),
    "udf": ([(PYTHON, TRACEBACK % "ValueError: bad")], Cause.REJECTED, "PipelineFailed"),
    "crash": (
        [
            ("org.apache.spark.SparkException", "Job aborted due to stage failure"),
            ("org.apache.spark.SparkException", "Python worker exited unexpectedly (crashed)."),
            ("java.io.EOFException", ""),
        ],
        Cause.REJECTED,
        "PipelineFailed",
    ),
    "row too large": (
        [(PYTHON, TRACEBACK % "loghub.wire.errors.LogHubError: PostBodyTooLarge (HTTP 400): 11 MB")],
        Cause.REJECTED,
        "PostBodyTooLarge",
    ),
    "quota": (
        [(PYTHON, TRACEBACK % "loghub.wire.errors.LogHubError: WriteQuotaExceed (HTTP 403): slower")],
        Cause.UNAVAILABLE,
        "WriteQuotaExceed",
    ),
    "unreachable": (
        [(PYTHON, TRACEBACK % "loghub.wire.errors.EndpointUnreachable: http://x did not answer")],
        Cause.UNAVAILABLE,
        "EndpointUnreachable",
    ),
    "a service of the user's function": (
        [(PYTHON, TRACEBACK % "ConnectionRefusedError: [Errno 111] Connection refused")],
        Cause.UNAVAILABLE,
        "PipelineFailed",
    ),
    "short read": (
        [(PYTHON, TRACEBACK % f"{SHORT_READ}: shard 1 returned nothing")],
        Cause.UNAVAILABLE,
        "PipelineFailed",
    ),
    "full disk": (
        [
            ("org.apache.spark.SparkException", "[TASK_WRITE_FAILED] Task failed while writing rows"),
            ("org.apache.hadoop.fs.FSError", "java.io.IOException: No space left on device"),
            ("java.io.IOException", "No space left on device"),
        ],
        Cause.UNAVAILABLE,
        "PipelineFailed",
    ),
    "no permission": (
        [("java.io.FileNotFoundException", "/sink/x.parquet (Permission denied)")],
        Cause.UNAVAILABLE,
        "PipelineFailed",
    ),
    "starved": (
        [("org.apache.spark.SparkException", "Python worker failed to connect back. SQLSTATE: XXKST")],
        Cause.UNAVAILABLE,
        "PythonWorkerTimeout",
    ),
    "stopped": (
        [("org.apache.spark.SparkException", "[SPARK_JOB_CANCELLED] Job 2 cancelled")],
        Cause.UNAVAILABLE,
        "PipelineFailed",
    ),
}


@pytest.mark.parametrize("name", CASES)
def test_the_cause_of_an_error_follows_from_sparks_own_types(name: str) -> None:
    causes, cause, reason = CASES[name]
    failure = failure_of(spark_error(*causes))
    assert (failure.cause, failure.reason) == (cause, reason)


def test_a_table_that_does_not_take_the_columns_any_more_is_not_due_to_the_logs() -> None:
    """Another writer has changed it. No log group is divided, skipped or dead-lettered because of it."""
    error = InvalidSinkError("column 'x' is long in the query and string in the table")
    failure = failure_of(error)
    assert is_outage(error)
    assert (failure.cause, failure.reason) == (Cause.UNAVAILABLE, "InvalidSink")


@pytest.mark.parametrize("code", ["ENOSPC", "ESTALE", "EACCES", "ETIMEDOUT", "EHOSTDOWN", "ENODEV", "EMFILE"])
def test_what_a_file_system_reports_whatever_is_written_is_not_due_to_the_logs(code: str) -> None:
    """A soft NFS mount times out, a mount is gone, a limit of the process is reached."""
    text = os.strerror(getattr(errno, code))
    for name, message in (("java.io.IOException", text), ("java.io.FileNotFoundException", f"/x ({text})")):
        task = ("org.apache.spark.SparkException", "[TASK_WRITE_FAILED] Task failed while writing rows")
        assert failure_of(spark_error(task, (name, message))).cause is Cause.UNAVAILABLE


def test_a_file_where_the_folder_of_the_sink_should_be_is_not_due_to_the_logs() -> None:
    name = "org.apache.hadoop.fs.ParentNotDirectoryException"
    failure = failure_of(spark_error((name, "Parent path is not a directory: file:/sink")))
    assert (failure.cause, failure.reason) == (Cause.UNAVAILABLE, "PipelineFailed")


@pytest.mark.parametrize(
    "log",
    [
        "Traceback (most recent call last):\nloghub.wire.errors.EndpointUnreachable: http://x did not answer",
        "Python worker failed to connect back.",
        "java.io.IOException: No space left on device",
        "[SPARK_JOB_CANCELLED] Job 2 cancelled",
    ],
)
def test_a_log_that_an_error_quotes_does_not_decide_about_it(log: str) -> None:
    quoted = f'[CAST_INVALID_INPUT] The value \'{log}\' of the type "STRING" cannot be cast to "INT"'
    failure = failure_of(spark_error(("org.apache.spark.SparkNumberFormatException", quoted)))
    assert (failure.cause, failure.reason) == (Cause.REJECTED, "PipelineFailed")
    raised = failure_of(spark_error((PYTHON, TRACEBACK % f"ValueError: {log}")))
    assert (raised.cause, raised.reason) == (Cause.REJECTED, "PipelineFailed")


def test_errors_of_the_driver() -> None:
    assert failure_of(PipelineError("run: KeyError: 'a'")).cause is Cause.REJECTED
    assert failure_of(ValueError("no such thing")).cause is Cause.REJECTED
    assert failure_of(EndpointUnreachable("http://x", "refused", definite=True)).cause is Cause.UNAVAILABLE
    assert failure_of(LogHubError.of(Code.POST_BODY_TOO_LARGE)).cause is Cause.REJECTED
    assert failure_of(LogHubError.of(Code.SERVER_BUSY)).cause is Cause.UNAVAILABLE


def test_only_a_lost_jvm_and_an_unusable_folder_are_outages_of_the_whole_worker() -> None:
    assert is_outage(Py4JNetworkError("Answer from Java side is empty"))
    assert is_outage(OSError(28, "No space left on device"))
    assert not is_outage(PipelineError("run: PermissionError: /data"))
    assert not is_outage(EndpointUnreachable("http://x", "refused", definite=True))
    assert not any(is_outage(spark_error(*causes)) for causes, _, _ in CASES.values())


def test_a_message_is_bounded_and_can_be_encoded() -> None:
    failure = failure_of(ValueError("\ud83d" + "x" * 10_000))
    assert failure.message.encode().startswith(b"ValueError: ?xxx")
    assert len(failure.message) <= 4000


def test_errors_of_py4j_have_the_causes_of_the_jvm_too() -> None:
    error: Any = Py4JJavaError.__new__(Py4JJavaError)
    error.java_exception = JavaThrowable("a.B", "c", JavaThrowable("d.E", "f"))
    assert java_causes(error) == [("a.B", "c"), ("d.E", "f")]
    assert java_causes(ValueError()) == []


LOADING = "[CANNOT_LOAD_STATE_STORE.%s] An error occurred during loading state."
DAMAGES: dict[str, tuple[bool, tuple[str, str] | None]] = {
    "CANNOT_READ_DELTA_FILE_NOT_EXISTS": (True, None),
    "CANNOT_READ_SNAPSHOT_FILE_VALUE_SIZE": (True, None),
    "CANNOT_READ_CHECKPOINT": (True, None),
    "UNEXPECTED_FILE_SIZE": (True, None),
    "AUTO_SNAPSHOT_REPAIR_FAILED": (True, None),
    "UNCATEGORIZED": (True, ("java.io.EOFException", "null")),
    "UNCATEGORIZED ": (False, ("java.io.IOException", "No space left on device")),
    "UNCATEGORIZED  ": (False, ("java.lang.OutOfMemoryError", "Java heap space")),
    "UNCATEGORIZED   ": (False, ("java.nio.channels.ClosedByInterruptException", "null")),
    "HDFS_STORE_PROVIDER_OUT_OF_MEMORY": (False, None),
    "ROCKSDB_STORE_PROVIDER_OUT_OF_MEMORY": (False, None),
    "UNRELEASED_THREAD_ERROR": (False, None),
    "INVALID_CHANGE_LOG_READER_VERSION": (False, None),
    "FAILED_TO_GET_CHANGELOG_WRITER": (False, None),
}


@pytest.mark.parametrize("kind", DAMAGES)
def test_only_damage_makes_a_state_unreadable(kind: str) -> None:
    """What does not is tried again, and the state stays."""
    is_damaged, cause = DAMAGES[kind]
    text = LOADING % kind.strip()
    causes = [(SPARK, JOB_ABORTED), (SPARK, text), *([] if cause is None else [cause])]
    assert is_unreadable_state(spark_error(*causes)) == is_damaged
    assert not is_unreadable_state(spark_error((PYTHON, TRACEBACK % text))), "a log may quote it"


def test_the_causes_that_are_known_remain_if_the_jvm_exits_meanwhile() -> None:
    class Gone(JavaThrowable):
        def getMessage(self) -> str:
            raise ConnectionRefusedError

    error: Any = PySparkException("")
    error._origin = JavaThrowable("a.B", "c", Gone("d.E", ""))
    assert java_causes(error) == [("a.B", "c")]
