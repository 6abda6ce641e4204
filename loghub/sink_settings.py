"""Where a worker writes: the settings of each sink, a part of `loghub.worker_contract.WorkerConfig`.

Its rules for what may change between releases hold here too.
"""

from typing import Literal

import msgspec


class ParquetSink(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="parquet"
):
    """Parquet files in one directory of a file system with atomic rename (a PVC or a local disk)."""

    path: str  # absolute


class JsonSink(msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="json"):
    """Files of JSON lines in one directory of such a file system."""

    path: str  # absolute


class ConsoleSink(
    msgspec.Struct, frozen=True, kw_only=True, omit_defaults=True, tag_field="kind", tag="console"
):
    """JSON lines on the worker's standard output."""

    rows: int  # at most so many rows of a micro-batch are shown


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


Sink = ParquetSink | JsonSink | ConsoleSink | LogstoreSink | KafkaSink | SparkSink
