"""The class that Spark knows: `LogHubDataSource`, the format ``loghub``."""

from pyspark.sql.datasource import DataSource
from pyspark.sql.types import StructType

from loghub_spark.columns import VIEW
from loghub_spark.options import Use, check_names, connection
from loghub_spark.own_python import use_own_python
from loghub_spark.reader import LogHubReader, LogHubStreamReader, plan_of
from loghub_spark.writer import LogHubStreamWriter, LogHubWriter


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
