"""``spec.pipeline.sink.parquet`` and ``.json``: files in a folder or under a prefix of a bucket."""

from typing import Annotated

from pydantic import Field

from loghub_operator.api.fields import Seconds
from loghub_operator.api.sink_location import PartitionColumns, SinkLocation
from loghub_operator.api.validation import ApiModel

MIB = 1 << 20


class FileRoll(ApiModel):
    """How large files become. Logs wait in the log service until they are worth a file.

    A micro-batch begins once its files would have targetBytes, once a log has waited for maxDelaySeconds, or
    once it has reached fetch.maxBytes of a shard or fetch.maxLogs, whichever is first; never before
    pipeline.trigger allows one. For large files raise both of fetch. How large files become of logs is
    learned from the micro-batches before; a worker that starts, or is assigned a shard, does not wait."""

    target_bytes: Annotated[int, Field(ge=MIB, le=1024 * MIB)] = Field(
        default=128 * MIB,
        description=(
            "The target size of files, in bytes. A micro-batch with more is several files of about this size."
        ),
    )
    max_delay_seconds: Seconds = Field(
        default=300, description="The longest time that a log waits for a larger file, in seconds."
    )


class FileSink(SinkLocation):
    """Files of one format."""

    partition_by: PartitionColumns = Field(
        default=(),
        description=(
            "Columns of the query with texts, integers, dates or booleans, whose values become folders, such"
            " as date=2026-01-31, as Spark writes them. The files themselves lack these columns. A"
            " micro-batch has at least one file for each combination of values, of which there may be 1000."
            " Its files appear one after another."
        ),
    )
    roll: FileRoll | None = Field(
        default=None,
        description=(
            "Wait until logs are worth a file of a size. Without it pipeline.trigger alone says when a"
            " micro-batch begins, and files have at most 1 GiB."
        ),
    )


class ParquetSink(FileSink):
    """Parquet files in a folder of a PersistentVolumeClaim or under a prefix of a bucket; each log exactly
    once.

    Each micro-batch is one file, unless roll or partitionBy divide it; a file appears complete and in one
    step. With spark.master each task writes files of its own to a bucket. A volume must support hard links,
    an object storage create-only writes. The subfolder `_loghub` holds files that are not part of the data
    yet: read `*.parquet` outside of it."""


class JsonSink(FileSink):
    """JSON Lines files in a folder of a PersistentVolumeClaim or under a prefix of a bucket; each log exactly
    once.

    Each micro-batch is one file, unless roll or partitionBy divide it; a file appears complete and in one
    step. With spark.master each task writes files of its own to a bucket. A volume must support hard links,
    an object storage create-only writes. The subfolder `_loghub` holds files that are not part of the data
    yet: read `*.json` outside of it."""
