"""The sinks that Spark writes through a connector: ``spec.pipeline.sink.kafka`` and ``.spark``."""

from enum import StrEnum
from typing import Annotated, ClassVar

from pydantic import Field

from loghub_operator.api import patterns
from loghub_operator.api.validation import ApiModel, Rule

# Formats for which there is a sink with a better guarantee, or with credentials of its own.
OTHER_SINKS = ("parquet", "json", "kafka", "console", "loghub")


class SaslMechanism(StrEnum):
    """How a worker proves to a Kafka broker who it is."""

    PLAIN = "PLAIN"
    SCRAM_SHA_256 = "SCRAM-SHA-256"
    SCRAM_SHA_512 = "SCRAM-SHA-512"


class KafkaCompression(StrEnum):
    """How the producer compresses its batches."""

    NONE = "none"
    GZIP = "gzip"
    SNAPPY = "snappy"
    LZ4 = "lz4"
    ZSTD = "zstd"


class KafkaSink(ApiModel):
    """A topic of Apache Kafka; at least once.

    Each row is one record. The columns key, value, headers, topic and partition are those of the record, as
    in Spark's Kafka sink; without a column value, the other columns are its value as a JSON object. If the
    query returns __shard__, __cursor__ and __index__, they become headers of these names, by which a reader
    drops repeated records."""

    bootstrap_servers: Annotated[
        str, Field(min_length=1, max_length=2048, pattern=patterns.HOSTS_WITH_PORTS)
    ] = Field(description="Brokers to connect to first: host:port, separated by commas.")
    topic: Annotated[str, Field(min_length=1, max_length=249, pattern=patterns.KAFKA_TOPIC)] | None = Field(
        default=None,
        description="The topic, which must exist. Default: that of the column topic of the query.",
    )
    tls: bool = Field(
        default=False,
        description=(
            "Connect with TLS. The key ca.crt of credentialsSecret, if it is there, has the certificates that"
            " are trusted; otherwise those of the worker's image are."
        ),
    )
    sasl: SaslMechanism | None = Field(
        default=None,
        strict=False,
        description=(
            "Authenticate by this mechanism, PLAIN, SCRAM-SHA-256 or SCRAM-SHA-512, with the keys username"
            " and password of credentialsSecret. PLAIN sends the password as it is: use it with tls."
        ),
    )
    compression: KafkaCompression = Field(
        default=KafkaCompression.LZ4,
        strict=False,
        description="How batches of records are compressed: none, gzip, snappy, lz4 or zstd.",
    )
    max_request_bytes: Annotated[int, Field(ge=1024, le=1 << 30)] = Field(
        default=1 << 20,
        description=(
            "The size of the largest record in bytes, before compression. The topic must allow it"
            " (max.message.bytes). A log group with a larger record counts as failed, see onFailure."
        ),
    )


class SparkSink(ApiModel):
    """Any format that Spark writes, such as csv, orc or jdbc; at least once.

    The jars of the format must be in the worker's image. Each key of credentialsSecret is an option too, and
    overrides the one in options; passwords belong there."""

    RULES: ClassVar = (
        Rule(
            field="format",
            cel=f"!(self.format in {list(OTHER_SINKS)})",
            message=(
                "parquet, json, kafka, console and a logstore have sinks of their own in pipeline.sink;"
                " parquet and json are written exactly once there"
            ),
            holds=lambda self: self.format not in OTHER_SINKS,
        ),
    )

    format: Annotated[str, Field(min_length=1, max_length=256, pattern=patterns.SPARK_FORMAT)] = Field(
        description="The format as in DataFrameWriter.format: a short name, or the name of a class."
    )
    options: Annotated[
        dict[
            Annotated[str, Field(max_length=256)],
            Annotated[str, Field(max_length=4096)],
        ],
        Field(max_length=128),
    ] = Field(
        default={},
        description="Options as in DataFrameWriter.options, for example path, or url and dbtable for jdbc.",
    )
