"""The class that Spark knows: `LogHubDataSource`, the format ``loghub``."""

import os
import sys

from pyspark import SparkContext
from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from loghub_spark.columns import VIEW
from loghub_spark.options import Use, check_names, connection
from loghub_spark.reader import LogHubReader, LogHubStreamReader, plan_of
from loghub_spark.writer import LogHubStreamWriter, LogHubWriter

LOCAL = "local"  # of the URL of a master without executors of their own, such as local[4]


def use_own_python() -> None:
    """Let a session on this machine run this Python, which has the data source. Executors on other machines
    may have theirs at another path, so a cluster is left alone.

    Unless PYSPARK_PYTHON names another one, Spark takes ``python3`` from PATH. In a virtual environment that
    is not activated, that is a Python without the data source, and the query would end in a trace of the JVM.
    """
    context: SparkContext | None = SparkContext._active_spark_context
    if context is None or "PYSPARK_PYTHON" in os.environ or not str(context.master).startswith(LOCAL):
        return
    context.pythonExec = sys.executable


class LogHubDataSource(DataSource):
    """Register it once in a session: ``spark.dataSource.register(LogHubDataSource)``."""

    @classmethod
    def name(cls) -> str:
        """Spark asks for it when the class is registered, before it notes which Python to run it in."""
        use_own_python()
        return "loghub"

    def schema(self) -> StructType:
        """Every column of a log. Unknown options fail here already, in ``load()``."""
        check_names(self.options)
        return VIEW

    def reader(self, schema: StructType) -> LogHubReader:
        return LogHubReader(plan_of(self.options, schema, Use.BATCH_READ))

    # Spark passes the schema under exactly this name.
    def streamReader(self, schema: StructType) -> LogHubStreamReader:  # noqa: N802
        return LogHubStreamReader(self.options, schema)

    def writer(self, schema: StructType, overwrite: bool) -> LogHubWriter:
        return LogHubWriter(connection(self.options, Use.WRITE), schema, overwrite=overwrite)

    def streamWriter(self, schema: StructType, overwrite: bool) -> LogHubStreamWriter:  # noqa: N802
        return LogHubStreamWriter(connection(self.options, Use.WRITE), schema, overwrite=overwrite)
