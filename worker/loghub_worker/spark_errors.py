"""Errors of Spark as Python sees them: which types they have, and their causes in the JVM."""

from contextlib import suppress

from py4j.protocol import Py4JError, Py4JNetworkError
from pyspark.errors import PySparkException

SPARK_ERRORS = (PySparkException, Py4JError)
# The errors of a call while Spark's JVM exits, and afterwards.
JVM_EXITED = (Py4JNetworkError, ConnectionError, EOFError)
MAX_JAVA_CAUSES = 20


def java_types(error: Exception) -> list[tuple[tuple[str, ...], str, str | None]]:
    """The exception and its causes as in `java_causes`, with all types of each, and with the SQLSTATE of an
    `SQLException`."""
    causes: list[tuple[tuple[str, ...], str, str | None]] = []
    at = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    while at is not None and len(causes) < MAX_JAVA_CAUSES:
        types, kind = list[str](), at.getClass()
        while kind is not None:
            types.append(str(kind.getName()))
            kind = kind.getSuperclass()
        state = at.getSQLState() if "java.sql.SQLException" in types else None
        causes.append((tuple(types), str(at.getMessage() or ""), state and str(state)))
        at = at.getCause()
    return causes


def java_causes(error: Exception) -> list[tuple[str, str]]:
    """The type and the message of an exception of the JVM and of each of its causes; empty if `error` is an
    error of Python only. Causes that are not known once the JVM exits are left out."""
    causes: list[tuple[str, str]] = []
    at = getattr(error, "_origin", None) or getattr(error, "java_exception", None)
    with suppress(*JVM_EXITED):
        while at is not None and len(causes) < MAX_JAVA_CAUSES:
            causes.append((str(at.getClass().getName()), str(at.getMessage() or "")))
            at = at.getCause()
    return causes
