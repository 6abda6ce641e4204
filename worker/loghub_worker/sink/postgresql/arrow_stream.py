"""The rows of a DataFrame as Arrow batches, one after the other as Spark computes them.

`DataFrame.toArrow` returns the same batches in one table, which would be too large for the batch of many
shards. Here the rows of one task are together in Spark's JVM, and at most 10,000 of them in this process.
"""

from collections.abc import Generator
from contextlib import suppress
from typing import Any

import pyarrow as pa
from pyspark.errors.exceptions.captured import unwrap_spark_exception
from pyspark.sql import DataFrame
from pyspark.sql.pandas.serializers import ArrowCollectSerializer
from pyspark.util import _load_from_socket


def arrow_batches(rows: DataFrame) -> Generator[pa.RecordBatch, None, None]:
    """The batches, in any order. Raises Spark's errors."""
    port, secret, server = rows._jdf.collectAsArrowToPython()
    serializer: Any = ArrowCollectSerializer()  # type: ignore[no-untyped-call]
    try:
        with _load_from_socket((port, secret), serializer) as stream:
            try:
                # The last item is the order of the batches.
                yield from (batch for batch in stream if isinstance(batch, pa.RecordBatch))
            except GeneratorExit:
                # The reader has failed. The job ends first, so that none of it runs during the next batch.
                with suppress(Exception):
                    for _ in stream:
                        pass
                raise
    finally:
        # What was raised in the JVM; that the stream broke off is only its consequence.
        with unwrap_spark_exception():
            server.getResult()
