"""The Spark data source ``loghub``: reads and writes logstores from any Spark 4.2, without the operator.

    from loghub_spark import LogHubDataSource
    spark.dataSource.register(LogHubDataSource)

docs/data-source.md describes its options.
"""

from loghub_spark.datasource import LogHubDataSource

__all__ = ["LogHubDataSource"]
