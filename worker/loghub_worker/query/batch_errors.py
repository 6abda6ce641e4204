"""Why a batch failed: the reason for the status, and the cause, which decides what is tried next.

Spark passes errors of its other processes on as text, and such a text may quote a log. So the text of a
Python error is only parsed where Spark's own error types say that there is one, and a text can lead only to
another attempt of the same shard: whatever a log contains, the other shards continue.
"""

import errno
import os
import re
from pathlib import Path

from py4j.protocol import Py4JNetworkError

from loghub.contract.worker import WorkerReason
from loghub.wire.errors import LogHubException
from loghub_consumer.errors import REJECTED_CONTENT, first_lines, rejects_content
from loghub_consumer.failure import outage
from loghub_consumer.failure.policy import Cause, Failure
from loghub_consumer.log_service import (
    PIPELINE_FAILED,
    ReportedError,
    reason_of_code,
    to_reported_error,
)
from loghub_consumer.reading.answers import ShortReadError
from loghub_consumer.user_code import WITHOUT_PANDAS
from loghub_worker.query.transform import PipelineError
from loghub_worker.sink.batch_sink import InvalidSinkError, RowsRejectedError
from loghub_worker.spark_errors import SPARK_ERRORS, java_causes

UNREACHABLE, PYTHON_TIMEOUT = "EndpointUnreachable", "PythonWorkerTimeout"
# Spark gives a new Python process ten seconds (docs/spark.md 8).
PYTHON_TIMEOUT_MESSAGE = "Python worker failed to connect back"
_PYTHON_TIMEOUT = re.compile(rf"(\[\w+\] )?{PYTHON_TIMEOUT_MESSAGE}")
TRACEBACK = "Traceback (most recent call last):"
SPARK_EXCEPTION = "org.apache.spark.SparkException"
PYTHON_EXCEPTION = "org.apache.spark.api.python.PythonException"
MAX_MESSAGE_CHARS = 4000
# At the beginning of the message of a job, because text from a log can only come later.
_EXECUTOR_LOST = re.compile(
    r"(\[\w+\] )?Job aborted due to stage failure: Task \d+ in stage [\d.]+ failed \d+ times, most recent"
    r" failure: Lost task [\d.]+ in stage [\d.]+ \(TID \d+\) \([^()]* executor \w+\): ExecutorLostFailure \("
)
EXECUTOR_LOST = "ExecutorLost"
# How Spark's messages begin if files of a state are damaged or missing. Other messages with the same begin
# say nothing of the state: too little memory, or files of a newer Spark.
_DAMAGED_STATE = re.compile(
    r"\[CANNOT_LOAD_STATE_STORE\.(AUTO_SNAPSHOT_REPAIR_FAILED|CANNOT_FIND_BASE_SNAPSHOT_CHECKPOINT"
    r"|CANNOT_READ_\w+|INVALID_CHECKPOINT_LINEAGE|(KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE"
    r"|SNAPSHOT_PARTITION_ID_NOT_FOUND|UNCATEGORIZED|UNEXPECTED_FILE_SIZE)\]"
    r"|\[STATE_STORE_((KEY|VALUE)_ROW_FORMAT_VALIDATION_FAILURE|ROW_CHECKSUM_VERIFICATION_FAILED)\]"
)
# Causes of uncategorized errors that say nothing of the state either: the JVM has too little memory, or
# stops.
_NO_DAMAGE = ("java.lang.OutOfMemoryError", "java.lang.InterruptedException")
_INTERRUPTED = "Interrupt"  # in the names of further types
CANCELLED = "[SPARK_JOB_CANCELLED]"  # without a timeout: Spark stops
# Errors that a file system reports whatever is written; errors of Spark's own disk look the same.
_DISK_ERRNOS = (
    errno.ENOSPC, errno.EDQUOT, errno.EROFS, errno.EACCES, errno.EIO, errno.EMFILE, errno.ENFILE,
    # Network file systems, or FUSE.
    errno.ESTALE, errno.ENOTCONN, errno.ETIMEDOUT, errno.EHOSTDOWN, errno.EHOSTUNREACH, errno.ENODEV,
)  # fmt: skip
_DISK_ERROR = re.compile(rf"({'|'.join(re.escape(os.strerror(number)) for number in _DISK_ERRNOS)})\)?$")
# Limits of the process, which it may have reached by its own fault.
_OWN_LIMITS = (errno.EMFILE, errno.ENOMEM)
# A file is where the folder of the sink should be, as with a volume that is not mounted.
_NO_FOLDER = "org.apache.hadoop.fs.ParentNotDirectoryException"
_DISK_ERROR_TYPES = ("java.io.", "java.nio.file.", "org.apache.hadoop.")
# The last line of a Python traceback.
_RAISED = re.compile(r"^((?:[a-z_]\w*\.)*)(\w+): (.*)$")
_FRAME = re.compile(r'^ +File "([^"]+)", line (\d+), in (.+)$')
_SERVICE_ERROR = re.compile(r"^(\w+) \(HTTP")
# Errors of a user's function in Spark's own processes, whose logs are not to blame.
_OUTAGES = {
    (f"{ShortReadError.__module__}.", ShortReadError.__name__),
    (f"{outage.UnavailableError.__module__}.", outage.UnavailableError.__name__),
    ("", "ConnectionError"), ("", "ConnectionRefusedError"), ("", "ConnectionResetError"),
    ("", "ConnectionAbortedError"), ("", "BrokenPipeError"), ("", "TimeoutError"),
}  # fmt: skip


def is_outage(error: Exception) -> bool:
    """Whether no batch can succeed now, of whichever shard: Spark's JVM has exited, or the folder of the sink
    cannot be used, or the sink does not take the query's columns any more. The user's own errors of these
    types arrive as `PipelineError`: the outages among them (`loghub_consumer.failure.outage`) let one shard
    wait."""
    outages = Py4JNetworkError | OSError | InvalidSinkError
    return isinstance(error, outages) and not isinstance(error, LogHubException)


def may_need_restart(error: Exception) -> bool:
    """Whether a new process may do better after an error that ended the query. It does not if the log service
    or the target of the sink is unavailable, or if other processes leave no CPU: it would have to open its
    shards again, and another worker might get them meanwhile."""
    if isinstance(error, OSError) and error.errno in _OWN_LIMITS:
        return True
    return query_error(error).reason not in (UNREACHABLE, PYTHON_TIMEOUT, WorkerReason.SINK_UNAVAILABLE)


def is_unreadable_state(error: Exception) -> bool:
    """Whether the state of a stateful pipeline is damaged: Spark cannot read it, and neither the disk nor the
    memory is why."""
    causes = java_causes(error)
    is_damaged = any(
        name.startswith("org.apache.spark.") and _DAMAGED_STATE.match(text) is not None
        for name, text in causes
    )
    return is_damaged and not any(
        _is_disk_error(*cause) or cause[0] in _NO_DAMAGE or _INTERRUPTED in cause[0] for cause in causes
    )


def failure_of(error: Exception) -> Failure:
    """Why a batch failed."""
    reported, cause = _examine(error)
    # Messages of other programs may contain lone surrogates, and a whole log.
    message = reported.message.encode(errors="replace").decode()[:MAX_MESSAGE_CHARS]
    return Failure(cause=cause, reason=reported.reason, message=message)


def query_error(error: Exception) -> ReportedError:
    """Why a query failed, for the status. Errors of the service keep their reason although Spark passes them
    on as text. Most others are PipelineFailed with the message of the exception that was raised first."""
    return _examine(error)[0]


def _examine(error: Exception) -> tuple[ReportedError, Cause]:
    if isinstance(error, LogHubException):
        return to_reported_error(error), Cause.REJECTED if rejects_content(error) else Cause.UNAVAILABLE
    if isinstance(error, PipelineError):
        is_away = error.__cause__ is not None and outage.is_outage(error.__cause__)
        return ReportedError(PIPELINE_FAILED, str(error)), Cause.UNAVAILABLE if is_away else Cause.REJECTED
    if isinstance(error, InvalidSinkError):
        return ReportedError(WorkerReason.INVALID_SINK, str(error)), Cause.UNAVAILABLE
    if isinstance(error, RowsRejectedError):
        return ReportedError(PIPELINE_FAILED, str(error)), Cause.REJECTED
    if isinstance(error, OSError):
        return ReportedError(WorkerReason.SINK_UNAVAILABLE, str(error)), Cause.UNAVAILABLE
    if not isinstance(error, SPARK_ERRORS):
        return ReportedError(PIPELINE_FAILED, f"{type(error).__name__}: {error}"), Cause.REJECTED
    return _examine_spark(error)


def _examine_spark(error: Exception) -> tuple[ReportedError, Cause]:
    causes = java_causes(error)
    if any(map(_is_python_timeout, causes)) or (not causes and PYTHON_TIMEOUT_MESSAGE in str(error)):
        advice = "Spark's Python processes did not start within ten seconds: raise worker.resources"
        return ReportedError(PYTHON_TIMEOUT, advice), Cause.UNAVAILABLE
    if any(name == SPARK_EXCEPTION and _EXECUTOR_LOST.match(text) for name, text in causes):
        advice = "executors of Spark ended during the batch: see their logs, or raise spark.executor.memory"
        return ReportedError(EXECUTOR_LOST, advice), Cause.ENDED
    traceback = "".join(text for name, text in causes if name == PYTHON_EXCEPTION) if causes else str(error)
    location = ""
    for line in traceback.partition(TRACEBACK)[2].splitlines():
        if (frame := _FRAME.match(line)) is not None:
            location = f" ({Path(frame[1]).name}:{frame[2]}, in {frame[3]})"
        if (raised := _RAISED.match(line)) is not None:
            return _examine_python(raised, location)
    is_unavailable = any(_is_disk_error(*one) or one[1].startswith(CANCELLED) for one in causes)
    cause = Cause.UNAVAILABLE if is_unavailable else Cause.REJECTED
    return ReportedError(PIPELINE_FAILED, first_lines(error)), cause


def _examine_python(raised: re.Match[str], location: str) -> tuple[ReportedError, Cause]:
    module, name, message = raised.groups()
    code = _SERVICE_ERROR.match(message)
    if name == UNREACHABLE:
        return ReportedError(UNREACHABLE, message), Cause.UNAVAILABLE
    if name == "LogHubError" and code is not None:
        cause = Cause.REJECTED if code[1] in REJECTED_CONTENT else Cause.UNAVAILABLE
        return ReportedError(reason_of_code(code[1]), message), cause
    # An import that fails in a user's function in Spark's own processes arrives only as text.
    advice = WITHOUT_PANDAS if message == "No module named 'pandas'" else ""
    cause = Cause.UNAVAILABLE if (module, name) in _OUTAGES else Cause.REJECTED
    return ReportedError(PIPELINE_FAILED, f"{name}: {message}{location}{advice}"), cause


def _is_python_timeout(cause: tuple[str, str]) -> bool:
    name, message = cause
    return name == SPARK_EXCEPTION and _PYTHON_TIMEOUT.match(message) is not None


def _is_disk_error(name: str, message: str) -> bool:
    if name == _NO_FOLDER:
        return True
    return name.startswith(_DISK_ERROR_TYPES) and _DISK_ERROR.search(message) is not None
