"""``spec.pipeline.sink.delta``: a Delta table."""

from enum import StrEnum

from pydantic import Field

from loghub_operator.api.explain import described
from loghub_operator.api.sink_location import PartitionColumns, SinkLocation


class SchemaEvolution(StrEnum):
    """What happens if the query returns a column that the table lacks.

    NONE: the worker ends with reason InvalidSink, which names the column. ADD_COLUMNS: the table gets the
    column, and its earlier rows have no value there. Other differences, such as another type, always end with
    InvalidSink.
    """

    NONE = "None"
    ADD_COLUMNS = "AddColumns"


class DeltaSink(SinkLocation):
    """A Delta table in a folder of a PersistentVolumeClaim or under a prefix of a bucket; each log exactly
    once.

    The table is created with the columns of the query. Each micro-batch is one commit, which contains how far
    the table has each shard. A volume must support hard links, an object storage create-only writes. Files
    are as small as micro-batches are: raise trigger.intervalSeconds, and compact the table with OPTIMIZE.
    VACUUM removes what it no longer needs."""

    partition_by: PartitionColumns = Field(
        default=(),
        description=(
            "Partition columns of a table that does not exist yet: columns of the query with texts, integers,"
            " dates or booleans. A table that exists must have the same ones, unless none is named."
        ),
    )
    schema_evolution: SchemaEvolution = Field(
        default=SchemaEvolution.NONE, strict=False, description=described(SchemaEvolution)
    )
