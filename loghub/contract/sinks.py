"""Where a worker writes: the settings of each sink, a part of `loghub.contract.worker.WorkerConfig`.

The rules of that module for what may change between releases hold here, too.
"""

from typing import Literal

import msgspec


class S3Settings(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """The object storage of a path ``s3://bucket/prefix``. Its credentials are the files ``accessKeyId``,
    ``secretAccessKey`` and, for temporary ones, ``sessionToken`` in ``LOGHUB_SINK_CREDENTIALS_DIR``; without
    them the identity of the environment or of the machine is used."""

    endpoint: str | None = None  # URL without the bucket; None: Amazon S3
    region: str | None = None  # None: the region of the environment, else us-east-1
    virtual_hosted: bool = False  # whether the bucket is a part of the host name
    allow_http: bool = False  # an http endpoint is refused without it


class FileRoll(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True):
    """How large the files of a sink become. A batch begins once the waiting logs make a file of the target
    size, or once a log has waited for the maximum."""

    target_bytes: int
    max_delay_s: float


class ParquetSink(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="parquet"
):
    """Parquet files in one directory of a file system with atomic rename (a PVC or a local disk), or under
    one prefix of a bucket."""

    path: str  # absolute, or s3://bucket/prefix
    s3: S3Settings | None = None  # None: the defaults
    partition_by: tuple[str, ...] = ()  # columns whose values are folders
    roll: FileRoll | None = None  # None: the trigger alone says when a batch begins


class JsonSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="json"):
    """Files of JSON lines in one directory or under one prefix, with the same conditions as for
    `ParquetSink`."""

    path: str  # absolute, or s3://bucket/prefix
    s3: S3Settings | None = None  # None: the defaults
    partition_by: tuple[str, ...] = ()
    roll: FileRoll | None = None


class DeltaSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="delta"):
    """A Delta table in one directory or under one prefix, with the same conditions as for `ParquetSink`."""

    path: str  # absolute, or s3://bucket/prefix
    s3: S3Settings | None = None  # None: the defaults
    partition_by: tuple[str, ...] = ()  # of a table that the sink creates; one that exists must have the same
    add_columns: bool = False  # whether the table gets the columns of the query that it lacks


class ConsoleSink(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="console"
):
    """JSON lines on the worker's standard output."""

    rows: int  # the maximum of rows of a micro-batch that are shown


class LogstoreSink(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="logstore"
):
    """Another logstore of the same endpoint. With `keep_order`, the rows of a shard are written in the
    order in which the shard has them."""

    project: str
    logstore: str
    keep_order: bool = False


class KafkaSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="kafka"):
    """A topic of Kafka. The files ``username``, ``password`` and ``ca.crt`` in the folder of the sink's
    credentials are read if `sasl` or `tls` ask for them. With `keep_order`, rows of a shard with equal keys
    are written in the order in which the shard has them."""

    bootstrap_servers: str  # host:port, separated by commas
    topic: str | None = None  # None: the column `topic` of the rows
    tls: bool = False
    sasl: Literal["PLAIN", "SCRAM-SHA-256", "SCRAM-SHA-512"] | None = None
    compression: str = "lz4"
    max_request_bytes: int = 1 << 20
    keep_order: bool = False


class SparkSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="spark"):
    """A format that Spark writes. Each file in the folder of the sink's credentials is an option as well and
    overrides the one in `options`."""

    format: str
    options: dict[str, str] = {}


class PostgresqlSink(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="postgresql"
):
    """A table of a PostgreSQL database. The user and the password are files in the folder of
    `ENV_SINK_CREDENTIALS_DIR`."""

    host: str
    port: int = 5432
    database: str
    schema: str = "public"
    table: str
    ssl_mode: Literal["verify-full", "verify-ca", "disable"] = "verify-full"
    create_table: bool = False  # with the columns of the query, if it does not exist


class NoSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="none"):
    """No sink, because the pipeline is a processor, which writes by itself."""


def roll_of(sink: "Sink") -> FileRoll | None:
    """How the files of a sink are rolled; None for a sink that does not roll files."""
    return sink.roll if isinstance(sink, ParquetSink | JsonSink) else None


Sink = (
    ParquetSink
    | JsonSink
    | DeltaSink
    | ConsoleSink
    | LogstoreSink
    | PostgresqlSink
    | KafkaSink
    | SparkSink
    | NoSink
)
