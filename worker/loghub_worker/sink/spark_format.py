"""The sink of any format that Spark writes, by `DataFrameWriter.save`, at least once.

Nothing can be said about such a format in general. Rows of a batch that failed midway may be visible, and the
batch is delivered again as a whole. `append` is shared with the Kafka sink.
"""

from collections.abc import Iterable, Mapping
from typing import NoReturn

from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame

from loghub.sink_settings import SparkSink
from loghub_worker.error_text import first_lines
from loghub_worker.sink.batch_sink import AtLeastOnceSink, InvalidSinkError
from loghub_worker.sink.error_blame import Blame, Evidence, JavaError, blame
from loghub_worker.sink.output_committer import own_temporary_files
from loghub_worker.sink.sink_credentials import SinkCredentials
from loghub_worker.spark_errors import SPARK_ERRORS, java_types

# Spark shows the options of a write in plans, also in those of its log. They may be credentials, whatever
# they are called, and whatever spark.conf says.
REDACT_OPTIONS = "spark.sql.redaction.options.regex"
EVERYTHING = "(?s).*"
MASK = "***"
NOT_FOUND = "[DATA_SOURCE_NOT_FOUND]"


class RejectedRowsError(Exception):
    """The format failed, and its message was changed because it contained a credential."""


class SparkFormat(AtLeastOnceSink):
    """The rows in one format of Spark's."""

    def __init__(self, sink: SparkSink, credentials: SinkCredentials) -> None:
        self._format = sink.format
        self._options = sink.options
        self._credentials = credentials
        self._evidence: Evidence | None = None  # once a failure was due to the rows or to the target
        self._failure = ""

    def check(self, empty: DataFrame) -> None:
        """Write no rows: a wrong option, a target that cannot be reached and a column without a type in the
        target show then. Raises `InvalidSinkError` or `OSError`.

        A target that takes no rows now, such as a locked table, may say nothing where there are none. So
        where nobody knows whether a failure was due to the rows, it was only if others were written
        meanwhile."""
        self._append(empty, at_start=True)
        if self._evidence is not None and not self._evidence.blames_rows:
            raise ConnectionError(
                f"{self._format}: since a log group failed, no other rows were written, so the target may be"
                f" at fault, and nothing is skipped: {self._failure}"
            )

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        rows = self._append(result, at_start=False)
        if rows and self._evidence is not None:
            self._evidence.took_rows()
        return rows

    def _append(self, rows: DataFrame, *, at_start: bool) -> int:
        secrets = self._credentials.all()
        options = self._options | secrets
        try:
            with own_temporary_files(rows.sparkSession, options):
                return append(rows, self._format, options)
        except Py4JNetworkError:  # the JVM has exited
            raise
        except SPARK_ERRORS as error:
            self._translate(error, secrets, at_start=at_start)

    def _translate(self, error: Exception, secrets: Mapping[str, str], *, at_start: bool) -> NoReturn:
        message = masked(first_lines(error), secrets.values())
        # Without the cause: its text may have a credential.
        causes = [JavaError(types=types, message=text, sql_state=s) for types, text, s in java_types(error)]
        blamed = blame(causes)
        if blamed is Blame.TARGET:
            raise ConnectionError(f"{self._format}: {message}") from None
        if any(cause.message.startswith(NOT_FOUND) for cause in causes):
            raise InvalidSinkError(
                f"Spark knows no format {self._format!r}: build an image from the worker's, put the jars of"
                " the format into the folder jars of its pyspark, and set it as worker.image; without a"
                " cluster, put them into that folder of your virtual environment"
            ) from None
        if at_start:
            raise InvalidSinkError(f"{self._format}: {message}") from None
        if blamed is Blame.UNKNOWN:
            self._evidence = self._evidence or Evidence()
            self._evidence.failed()
            self._failure = message
        if masked(str(error), secrets.values()) != str(error):
            raise RejectedRowsError(message) from None
        raise error


def append(rows: DataFrame, name: str, options: Mapping[str, str]) -> int:
    """Append the rows in a format of Spark's, and return their number."""
    rows.sparkSession.conf.set(REDACT_OPTIONS, EVERYTHING)
    kept = rows.persist()  # otherwise `count` would read the logs again
    try:
        kept.write.format(name).options(**options).mode("append").save()
        return kept.count()
    finally:
        kept.unpersist()


def masked(text: str, secrets: Iterable[str]) -> str:
    """The text without the secrets."""
    for secret in secrets:
        if secret:
            text = text.replace(secret, MASK)
    return text
