"""The Python in which Spark runs the data source on one machine.

Unless PYSPARK_PYTHON names another one, Spark takes ``python3`` from PATH. In a virtual environment that is
not activated, that is a Python without the data source, and the query would end in a trace of the JVM.
"""

import os
import sys

from pyspark import SparkContext

LOCAL = "local"  # of the URL of a master without executors of their own, such as local[4]


def use_own_python() -> None:
    """Let a session on this machine run this Python, which has the data source. Executors on other machines
    may have theirs at another path, so a cluster is left alone."""
    context: SparkContext | None = SparkContext._active_spark_context
    if context is None or "PYSPARK_PYTHON" in os.environ or not str(context.master).startswith(LOCAL):
        return
    context.pythonExec = sys.executable
