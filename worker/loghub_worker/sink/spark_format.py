"""The sink of any format that Spark writes, by `DataFrameWriter.save`, at least once.

Such a format guarantees nothing in general. Rows of a batch that failed midway may be visible, and the batch
is delivered again as a whole. `append` is shared with the Kafka sink.

Several workers may write files of Spark's formats into one folder at the same time. Hadoop's committer keeps
the files of tasks below ``<folder>/_temporary/<number>/`` until a job ends. The number is the same for every
job of Spark, and at its end a job removes ``_temporary`` with the files of all other jobs. A task whose files
are gone ends without an error, so that rows could be lost; usually the other job fails. So each write has
another number here, and removes only its own folder.
"""

import secrets
from collections.abc import Iterable, Iterator, Mapping
from contextlib import contextmanager
from typing import NoReturn

import structlog
from py4j.protocol import Py4JNetworkError
from pyspark.sql import DataFrame, SparkSession

from loghub.contract.sinks import SparkSink
from loghub_consumer.errors import first_lines
from loghub_worker.sink.batch_sink import AtLeastOnceSink, InvalidSinkError
from loghub_worker.sink.error_blame import Blame, Evidence, JavaError, blame
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.spark_errors import SPARK_ERRORS, java_types

log = structlog.get_logger()


NUMBER = "mapreduce.job.application.attempt.id"
KEEP_OTHERS = "mapreduce.fileoutputcommitter.cleanup.skipped"
TEMPORARY = "_temporary"
ABANDONED_MS = 86_400_000  # of a worker that was killed; no write takes that long


@contextmanager
def own_temporary_files(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """While the body runs, writes with these options have temporary files of their own. They are removed
    afterwards, with any temporary files that are a day old by the clock of the storage."""
    path = next((value for name, value in options.items() if name.lower() == "path"), None)
    if path is None:  # it is no format of files
        yield
        return
    number = str(secrets.randbits(31))
    settings = {NUMBER: number, KEEP_OTHERS: "true"}
    for name, value in settings.items():
        spark.conf.set(name, value)
    try:
        yield
    finally:
        for name in settings:
            spark.conf.unset(name)
        try:
            _remove(spark, path, number)
        except SPARK_ERRORS as error:
            log.warning("temporary files of a batch are left over", path=path, message=first_lines(error))


def _remove(spark: SparkSession, path: str, number: str) -> None:
    """Remove the files of this number, and old ones, but not their folder, in which other writes may just
    begin."""
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    folder = hadoop.Path(path, TEMPORARY)
    storage = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    own = hadoop.Path(folder, number)
    if not storage.exists(own):
        return
    written_ms = storage.getFileStatus(own).getModificationTime()
    for file in storage.listStatus(folder):
        is_old = file.getModificationTime() < written_ms - ABANDONED_MS
        if is_old or file.getPath().getName() == number:
            storage.delete(file.getPath(), True)


# Spark shows the options of a write in plans, and so in its log. Options may be credentials, whatever their
# names are and whatever spark.conf says.
REDACT_OPTIONS = "spark.sql.redaction.options.regex"
EVERYTHING = "(?s).*"
MASK = "***"
NOT_FOUND = "[DATA_SOURCE_NOT_FOUND]"


class RejectedRowsError(Exception):
    """The format failed, and its message was changed because it contained a credential."""


class SparkFormat(AtLeastOnceSink):
    """The rows in one format of Spark's."""

    def __init__(self, sink: SparkSink, credentials: CredentialFiles) -> None:
        self._format = sink.format
        self._options = sink.options
        self._credentials = credentials
        self._evidence: Evidence | None = None  # once a failure was due to the rows or to the target
        self._failure = ""

    def check(self, empty: DataFrame) -> None:
        """Write no rows: a wrong option, a target that cannot be reached and a column without a type in the
        target show then. Raises `InvalidSinkError` or `OSError`.

        A target that takes no rows now, such as a locked table, may not fail without rows. So where a failure
        may or may not be due to the rows, it counts as due to them only if other rows were written meanwhile.
        """
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
