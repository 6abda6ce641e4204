"""Where the rows of a pipeline are written: ``spec.pipeline.sink``.

Each sink is a model, which returns the settings that a worker gets of it (`loghub.contract.sinks`). `Sink`
has a field for each. Pure.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Annotated, ClassVar, Protocol

from pydantic import Field

from loghub.contract import sinks as contract
from loghub_operator.api import fields
from loghub_operator.api.fields import (
    LogstoreName,
    ObjectName,
    ProjectName,
    RelativePath,
    Seconds,
    described,
    once,
)
from loghub_operator.api.validation import ApiModel, Rule


@dataclass(frozen=True, slots=True, kw_only=True)
class SinkContext:
    """What the settings of a sink depend on besides its own fields."""

    project: str  # that is consumed
    in_order: bool  # whether the group consumes in order
    volume: str  # absolute folder in which the content of the sink's volume is


class SinkModel(Protocol):
    """One sink of the spec."""

    def settings(self, context: SinkContext) -> contract.Sink:
        """What a worker gets of it."""


# Exactly as the database has it: without quotes, PostgreSQL turns a name into lower case.
PostgresqlName = Annotated[str, Field(min_length=1, max_length=63, pattern=fields.POSTGRESQL_NAME)]


class SslMode(StrEnum):
    """How the worker's connection to PostgreSQL is secured, in the words of PostgreSQL.

    VERIFY_FULL: TLS; the server's certificate must be signed by ca.crt of credentialsSecret, or without it by
    an authority that the worker's image knows, and must be for this host. VERIFY_CA: TLS with a certificate
    of such an authority, which may be for another host. DISABLE: no TLS; passwords are still not sent in
    clear text, rows are.
    """

    VERIFY_FULL = "verify-full"
    VERIFY_CA = "verify-ca"
    DISABLE = "disable"


class PostgresqlSink(ApiModel):
    """A table of a PostgreSQL database; each log exactly once.

    A micro-batch is one transaction, which also records its ranges in the tables loghub_shards and
    loghub_ranges of the same schema. credentialsSecret has username and password, and optionally ca.crt, or
    tls.crt and tls.key in place of a password."""

    host: Annotated[str, Field(min_length=1, max_length=253, pattern=fields.SINK_HOST)] = Field(
        description="Host name or address of the primary server."
    )
    port: Annotated[int, Field(ge=1, le=65_535)] = Field(default=5432, description="Port of the server.")
    database: PostgresqlName = Field(description="Name of the database.")
    schema_: PostgresqlName = Field(default="public", description="Name of the schema, which must exist.")
    table: PostgresqlName = Field(
        description=(
            "Name of the table. Each column of the query must be a column of the table, with a type that"
            " takes every value of it."
        )
    )
    ssl_mode: SslMode = Field(default=SslMode.VERIFY_FULL, strict=False, description=described(SslMode))
    create_table: bool = Field(
        default=False,
        description="Create the table with the columns of the query if it does not exist.",
    )

    def settings(self, context: SinkContext) -> contract.PostgresqlSink:  # noqa: ARG002 - as all sinks
        return contract.PostgresqlSink(
            host=self.host,
            port=self.port,
            database=self.database,
            schema=self.schema_,
            table=self.table,
            ssl_mode=self.ssl_mode.value,
            create_table=self.create_table,
        )


MAX_PARTITION_COLUMNS = 8  # each level of folders multiplies the files of a batch

ColumnName = Annotated[str, Field(min_length=1, max_length=255)]
PartitionColumns = Annotated[
    tuple[ColumnName, ...],
    Field(max_length=MAX_PARTITION_COLUMNS, json_schema_extra={"x-kubernetes-list-type": "set"}),
    once(),
]


class S3(ApiModel):
    """The object storage of a URL, if it is not Amazon S3 or not in its default region."""

    RULES: ClassVar = (
        Rule(
            field="endpoint",
            cel="!has(self.endpoint) || !self.endpoint.startsWith('http://') || self.allowHttp",
            message="an http endpoint is used only with allowHttp: true",
            holds=lambda self: not (self.endpoint or "").startswith("http://") or self.allow_http,
        ),
    )

    endpoint: Annotated[str, Field(max_length=512, pattern=fields.ENDPOINT)] | None = Field(
        default=None,
        description="URL of the storage without the bucket. Default: Amazon S3 in the region.",
    )
    region: Annotated[str, Field(min_length=1, max_length=64, pattern=fields.REGION)] | None = Field(
        default=None,
        description="Region of the bucket. Default: the region of the worker's environment, else us-east-1.",
    )
    virtual_hosted: bool = Field(
        default=False,
        description="Put the bucket into the host name of requests, as OSS requires, not into their path.",
    )
    allow_http: bool = Field(
        default=False,
        description="Allow an http endpoint: rows and the session token then travel unencrypted.",
    )

    def settings(self) -> contract.S3Settings:
        return contract.S3Settings(
            endpoint=self.endpoint,
            region=self.region,
            virtual_hosted=self.virtual_hosted,
            allow_http=self.allow_http,
        )


class SinkLocation(ApiModel):
    """A folder of a PersistentVolumeClaim, or a prefix of a bucket."""

    RULES: ClassVar = (
        Rule(
            cel=(
                "has(self.url) ? !has(self.path) && !has(self.volumeClaim)"
                " : has(self.path) && has(self.volumeClaim)"
            ),
            message="either path and volumeClaim, or url must be set",
            holds=lambda self: (
                (self.path is None and self.volume_claim is None)
                if self.url is not None
                else (self.path is not None and self.volume_claim is not None)
            ),
        ),
        Rule(
            cel="!has(self.s3) || has(self.url)",
            message="s3 describes the storage of url, which is not set",
            holds=lambda self: self.s3 is None or self.url is not None,
        ),
    )

    path: RelativePath | None = Field(
        default=None, description="Folder inside the volume. Set with volumeClaim, unless url is set."
    )
    volume_claim: ObjectName | None = Field(
        default=None,
        description="Name of a PersistentVolumeClaim in this namespace; every worker mounts it.",
    )
    url: Annotated[str, Field(max_length=576, pattern=fields.S3_URL)] | None = Field(
        default=None,
        description=(
            "Prefix of a bucket, s3://bucket/prefix, in place of a folder. The storage must honour"
            " create-only writes (If-None-Match), which each worker tries before it starts."
            " pipeline.sink.credentialsSecret has the keys accessKeyId, secretAccessKey and, for temporary"
            " ones, sessionToken; without it the identity of the pod or of its node is used."
        ),
    )
    s3: S3 | None = None

    def path_in(self, context: SinkContext) -> str:
        """Absolute, or a URL."""
        return self.url or f"{context.volume}/{self.path}"

    @property
    def s3_settings(self) -> contract.S3Settings | None:
        return None if self.s3 is None else self.s3.settings()


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

    def settings(self, context: SinkContext) -> contract.DeltaSink:
        return contract.DeltaSink(
            path=self.path_in(context),
            s3=self.s3_settings,
            partition_by=self.partition_by,
            add_columns=self.schema_evolution is SchemaEvolution.ADD_COLUMNS,
        )


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

    def settings(self) -> contract.FileRoll:
        return contract.FileRoll(target_bytes=self.target_bytes, max_delay_s=float(self.max_delay_seconds))


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

    @property
    def roll_settings(self) -> contract.FileRoll | None:
        return None if self.roll is None else self.roll.settings()


class ParquetSink(FileSink):
    """Parquet files in a folder of a PersistentVolumeClaim or under a prefix of a bucket; each log exactly
    once.

    Each micro-batch is one file, unless roll or partitionBy divide it; a file appears complete and in one
    step. With spark.master each task writes files of its own to a bucket. A volume must support hard links,
    an object storage create-only writes. The subfolder `_loghub` holds files that are not part of the data
    yet: read `*.parquet` outside of it."""

    def settings(self, context: SinkContext) -> contract.ParquetSink:
        return contract.ParquetSink(
            path=self.path_in(context),
            s3=self.s3_settings,
            partition_by=self.partition_by,
            roll=self.roll_settings,
        )


class JsonSink(FileSink):
    """JSON Lines files in a folder of a PersistentVolumeClaim or under a prefix of a bucket; each log exactly
    once.

    Each micro-batch is one file, unless roll or partitionBy divide it; a file appears complete and in one
    step. With spark.master each task writes files of its own to a bucket. A volume must support hard links,
    an object storage create-only writes. The subfolder `_loghub` holds files that are not part of the data
    yet: read `*.json` outside of it."""

    def settings(self, context: SinkContext) -> contract.JsonSink:
        return contract.JsonSink(
            path=self.path_in(context),
            s3=self.s3_settings,
            partition_by=self.partition_by,
            roll=self.roll_settings,
        )


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

    Each row is one record. The columns key, value, headers, topic and partition are parts of the record, as
    in Spark's Kafka sink; without a column value, the other columns are its value as a JSON object. If the
    query returns __shard__, __cursor__ and __index__, they become headers of these names, by which a reader
    drops repeated records."""

    bootstrap_servers: Annotated[
        str, Field(min_length=1, max_length=2048, pattern=fields.HOSTS_WITH_PORTS)
    ] = Field(description="Brokers to connect to first: host:port, separated by commas.")
    topic: Annotated[str, Field(min_length=1, max_length=249, pattern=fields.KAFKA_TOPIC)] | None = Field(
        default=None,
        description="The topic, which must exist. Default: the topic in the column topic of the query.",
    )
    tls: bool = Field(
        default=False,
        description=(
            "Connect with TLS. The key ca.crt of credentialsSecret, if it is there, has the certificates that"
            " are trusted; otherwise the certificates of the worker's image are."
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

    def settings(self, context: SinkContext) -> contract.KafkaSink:
        return contract.KafkaSink(
            bootstrap_servers=self.bootstrap_servers,
            topic=self.topic,
            tls=self.tls,
            sasl=None if self.sasl is None else self.sasl.value,
            compression=self.compression.value,
            max_request_bytes=self.max_request_bytes,
            keep_order=context.in_order,
        )


class SparkSink(ApiModel):
    """Any format that Spark writes, such as csv, orc or jdbc; at least once.

    The jars of the format must be in the worker's image. Each key of credentialsSecret is an option too, and
    overrides an option of the same name; passwords belong there."""

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

    format: Annotated[str, Field(min_length=1, max_length=256, pattern=fields.SPARK_FORMAT)] = Field(
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

    def settings(self, context: SinkContext) -> contract.SparkSink:  # noqa: ARG002 - as all sinks
        return contract.SparkSink(format=self.format, options=dict(self.options))


class ConsoleSink(ApiModel):
    """The worker's own log, for trying out a pipeline; at least once."""

    rows: Annotated[int, Field(ge=1, le=1000)] = Field(
        default=20, description="The most rows printed of a micro-batch; the others are counted."
    )

    def settings(self, context: SinkContext) -> contract.ConsoleSink:  # noqa: ARG002 - as all sinks
        return contract.ConsoleSink(rows=self.rows)


class LogstoreSink(ApiModel):
    """Another logstore at the same endpoint; at least once.

    Of the rows, __time__, __time_ns__, __topic__, __source__ and __tags__ become the time of a log and the
    topic, source and tags of its log group; the pairs of contents and every other column become contents.
    So SELECT * keeps everything. __hash_key__ (32 hex digits, such as md5 returns) chooses the shard. If
    the group consumes in order, the rows of a shard are written in order; for this the query returns
    __shard__."""

    project: ProjectName | None = Field(
        default=None, description="Project of the logstore. Default: the project that is consumed."
    )
    name: LogstoreName = Field(description="Name of the logstore.")
    copy_: bool = Field(
        default=False,
        description=(
            "Copy the log groups byte by byte, without a query; sql and python are left out. The log groups"
            " of a shard are written in order, to the shard of the target that holds the first hash key of"
            " theirs."
        ),
    )

    def settings(self, context: SinkContext) -> contract.LogstoreSink:
        return contract.LogstoreSink(
            project=self.project or context.project,
            logstore=self.name,
            keep_order=context.in_order and not self.copy_,
        )


class SinkCredentials(ApiModel):
    """The Secret in this namespace with the credentials of a sink that is not a logstore."""

    name: ObjectName = Field(description="Name of the Secret.")


class Sink(ApiModel):
    """Where the rows are written. Exactly one sink is set."""

    RULES: ClassVar = (
        Rule(
            cel=(
                "[has(self.parquet), has(self.json), has(self.delta), has(self.console), has(self.logstore),"
                " has(self.postgresql), has(self.kafka), has(self.spark)].filter(given, given).size() == 1"
            ),
            message=(
                "exactly one sink must be set: parquet, json, delta, console, logstore, postgresql, kafka or"
                " spark"
            ),
            holds=lambda self: sum(one is not None for one in self.kinds) == 1,
        ),
        Rule(
            cel="!has(self.kafka) || !has(self.kafka.sasl) || has(self.credentialsSecret)",
            message="kafka.sasl needs credentialsSecret, with the keys username and password",
            holds=lambda self: (
                self.kafka is None or self.kafka.sasl is None or self.credentials_secret is not None
            ),
        ),
        Rule(
            field="credentialsSecret",
            cel="!has(self.postgresql) || has(self.credentialsSecret)",
            message="postgresql needs credentialsSecret, with username and password",
            holds=lambda self: self.postgresql is None or self.credentials_secret is not None,
        ),
    )

    parquet: ParquetSink | None = None
    json_: JsonSink | None = None
    delta: DeltaSink | None = None
    console: ConsoleSink | None = None
    logstore: LogstoreSink | None = None
    postgresql: PostgresqlSink | None = None
    kafka: KafkaSink | None = None
    spark: SparkSink | None = None
    credentials_secret: SinkCredentials | None = Field(
        default=None,
        description=(
            "The Secret in this namespace with the credentials of a sink that is not a logstore. The sink"
            " says which keys it reads. A change takes effect without a restart."
        ),
    )

    @property
    def kinds(self) -> tuple[SinkModel | None, ...]:
        """Every sink, of which one is set."""
        return (
            self.parquet,
            self.json_,
            self.delta,
            self.console,
            self.logstore,
            self.postgresql,
            self.kafka,
            self.spark,
        )

    def settings(self, context: SinkContext) -> contract.Sink:
        """What a worker gets of the sink that is set."""
        (sink,) = (sink for sink in self.kinds if sink is not None)  # a rule of the CR
        return sink.settings(context)

    @property
    def location(self) -> SinkLocation | None:
        """Where the sink writes, if it writes files."""
        return self.parquet or self.json_ or self.delta

    @property
    def file_sink(self) -> FileSink | None:
        """The sink of files, if it is one."""
        return self.parquet or self.json_

    @property
    def volume_claim(self) -> str | None:
        """The volume that the sink writes to, if it does."""
        return None if self.location is None else self.location.volume_claim
