"""Errors of Spark as Python sees them: which types they have, what of them a user needs, and their causes in
the JVM."""

import re

from py4j.protocol import Py4JError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
MESSAGE_LINES = 4  # of Spark's message that are reported; the query plan that follows does not help
CAUSED_BY = "Caused by: "
MAX_JAVA_CAUSES = 20
_FRAME_OF_JAVA = re.compile(r"\s+(at \S+\(.*\)|\.\.\. \d+ more)$")


def first_lines(error: BaseException) -> str:
    """The part of a Spark error that a user needs: its first lines, and of a Java stack trace the root
    cause."""
    text = str(error).split("JVM stacktrace:")[0].strip()
    lines = [line for line in text.splitlines() if line.strip() and not _FRAME_OF_JAVA.match(line)]
    shown, causes = lines[:MESSAGE_LINES], [line for line in lines if line.startswith(CAUSED_BY)]
    if causes and causes[-1] not in shown:
        shown[-1] = causes[-1]
    return "\n".join(shown)


def java_causes(error: Exception) -> list[tuple[str, str]]:
    """The type and the message of an exception of the JVM and of each of its causes; empty if `error` is of
    Python only."""
    causes: list[tuple[str, str]] = []
    at = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while at is not None and len(causes) < MAX_JAVA_CAUSES:
        causes.append((str(at.getClass().getName()), str(at.getMessage() or "")))
        at = at.getCause()
    return causes
