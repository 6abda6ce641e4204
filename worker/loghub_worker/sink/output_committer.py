"""Lets several workers write files of Spark's formats into one folder at the same time.

Hadoop's committer keeps what tasks have written below ``<folder>/_temporary/<number>/`` until a job ends. The
number is the same for every job of Spark, and at its end a job removes ``_temporary`` with the files of all
others. A task whose files are gone ends without an error, so that rows could be lost; usually the other job
fails. So each write has a number of its own here, and removes that alone.
"""

import secrets
from collections.abc import Iterator, Mapping
from contextlib import contextmanager

import structlog
from pyspark.sql import SparkSession

from loghub_worker.error_text import first_lines
from loghub_worker.spark_errors import SPARK_ERRORS

log = structlog.get_logger()

NUMBER = "mapreduce.job.application.attempt.id"
KEEP_OTHERS = "mapreduce.fileoutputcommitter.cleanup.skipped"
TEMPORARY = "_temporary"
ABANDONED_MS = 86_400_000  # of a worker that was killed; no write takes that long


@contextmanager
def own_temporary_files(spark: SparkSession, options: Mapping[str, str]) -> Iterator[None]:
    """While the body runs, what it writes with these options has temporary files of its own. They are removed
    afterwards, and those that are a day old by the clock of the storage too."""
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
    """Remove the files of this number, and old ones, but not their folder, in which others may just begin."""
    hadoop = spark._jvm.org.apache.hadoop.fs  # type: ignore[union-attr]
    folder = hadoop.Path(path, TEMPORARY)
    storage = folder.getFileSystem(spark._jsparkSession.sessionState().newHadoopConf())
    own = hadoop.Path(folder, number)
    if not storage.exists(own):
        return
    written_ms = storage.getFileStatus(own).getModificationTime()
    for found in storage.listStatus(folder):
        is_old = found.getModificationTime() < written_ms - ABANDONED_MS
        if is_old or found.getPath().getName() == number:
            storage.delete(found.getPath(), True)
