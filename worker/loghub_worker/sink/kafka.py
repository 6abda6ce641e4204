"""The sink that writes to a topic of Kafka, by Spark's connector, at least once.

Each task has a producer that waits for all replicas and repeats records that were not acknowledged, without
changing the order of the records for one partition. A batch counts once every record is acknowledged; a batch
that failed midway is delivered again as a whole. The place where a log was read becomes headers of its
record, so that a reader can drop records that it has already.
"""

from collections.abc import Iterable
from typing import Any

from py4j.protocol import Py4JJavaError, Py4JNetworkError
from pyspark.sql import Column, DataFrame, SparkSession
from pyspark.sql import functions as F  # noqa: N812 - Spark's own convention
from pyspark.sql.types import ArrayType, BinaryType, DataType, IntegralType, StringType, StructType

from loghub.contract.sinks import KafkaSink
from loghub_worker.sink.batch_sink import TIMES, AtLeastOnceSink, InvalidSinkError
from loghub_worker.sink.logstore.sink import require_order
from loghub_worker.sink.sink_start import CredentialFiles
from loghub_worker.sink.spark_format import append
from loghub_worker.spark_errors import SPARK_ERRORS, java_causes

KEY, VALUE, HEADERS, TOPIC, PARTITION = "key", "value", "headers", "topic", "partition"
RECORD = (KEY, HEADERS, TOPIC, PARTITION)  # besides the value
POSITION = ("__shard__", "__cursor__", "__index__")  # where a log was read
USERNAME, PASSWORD, CA = "username", "password", "ca.crt"
MAX_DELIVERY_S = 120.0  # Kafka's own default
MIN_BUFFER_BYTES = 32 << 20  # Kafka's own default
CONNECTOR = "org.apache.spark.sql.kafka010.KafkaSourceProvider"
WRITE = "WRITE"  # the operation as Kafka spells it
_LOGIN = {
    "PLAIN": "org.apache.kafka.common.security.plain.PlainLoginModule",
    "SCRAM-SHA-256": "org.apache.kafka.common.security.scram.ScramLoginModule",
    "SCRAM-SHA-512": "org.apache.kafka.common.security.scram.ScramLoginModule",
}
_KAFKA, _ERRORS = "org.apache.kafka.", "org.apache.kafka.common.errors."
# Errors that refuse one record, and no other.
REJECTED = frozenset(
    _ERRORS + name
    for name in (
        "RecordTooLargeException",
        "RecordBatchTooLargeException",
        "InvalidRecordException",
        "SerializationException",
    )
)
# Errors of the topic that a row names.
REJECTED_TOPIC = frozenset(
    _ERRORS + name
    for name in ("InvalidTopicException", "UnknownTopicOrPartitionException", "TopicAuthorizationException")
)
NO_SUCH_TOPIC = "not present in metadata"
# No answer, or no answer of a broker: the settings may be right.
NO_ANSWER = frozenset(
    _ERRORS + name for name in ("TimeoutException", "DisconnectException", "NetworkException")
)


class KafkaTopic(AtLeastOnceSink):
    """The rows as records of Kafka."""

    def __init__(
        self, sink: KafkaSink, credentials: CredentialFiles, *, client_id: str, batch_timeout_s: float
    ) -> None:
        self._sink = sink
        self._credentials = credentials
        self._client_id = client_id
        # A producer's waits for metadata and for acknowledgements end well before the batch does.
        self._delivery_ms = int(min(MAX_DELIVERY_S, batch_timeout_s / 2) * 1000)
        _ = self._client_settings()  # credentials that are missing show before Spark starts

    def check(self, empty: DataFrame) -> None:
        """Ask the broker for the topic. Raises `ValueError` for columns that cannot be written,
        `InvalidSinkError`, and `OSError` if no broker answers."""
        records(self._sink, empty)
        ask_for_topic(
            empty.sparkSession,
            self._client_settings() | {"default.api.timeout.ms": str(self._delivery_ms // 2)},
            self._sink.topic,
        )

    def write(self, result: DataFrame, batch: str) -> int:  # noqa: ARG002 - nothing is staged
        rows = records_in_order(self._sink, result)
        topic = {} if self._sink.topic is None else {"topic": self._sink.topic}
        producer = {f"kafka.{name}": value for name, value in self._producer_settings().items()}
        try:
            return append(rows, "kafka", producer | topic)
        except Py4JNetworkError:  # the JVM has exited
            raise
        except SPARK_ERRORS as error:
            if (message := outage(java_causes(error), one_topic=self._sink.topic is not None)) is None:
                raise
            raise ConnectionError(f"Kafka at {self._sink.bootstrap_servers}: {message}") from error

    def _client_settings(self) -> dict[str, str]:
        sink = self._sink
        settings = {
            "bootstrap.servers": sink.bootstrap_servers,
            "client.id": self._client_id,
            "request.timeout.ms": str(min(30_000, self._delivery_ms // 2)),
            "security.protocol": ("SASL_" if sink.sasl else "") + ("SSL" if sink.tls else "PLAINTEXT"),
        }
        if sink.tls and (certificates := self._credentials.get(CA)):
            settings |= {"ssl.truststore.type": "PEM", "ssl.truststore.certificates": certificates}
        if sink.sasl:
            username, password = (_quoted(self._credentials.require(name)) for name in (USERNAME, PASSWORD))
            settings |= {
                "sasl.mechanism": sink.sasl,
                "sasl.jaas.config": (
                    f"{_LOGIN[sink.sasl]} required username={username} password={password};"
                ),
            }
        return settings

    def _producer_settings(self) -> dict[str, str]:
        sink = self._sink
        return self._client_settings() | {
            "acks": "all",
            "enable.idempotence": "true",
            "delivery.timeout.ms": str(self._delivery_ms),
            "max.block.ms": str(self._delivery_ms // 2),
            "compression.type": sink.compression,
            "max.request.size": str(sink.max_request_bytes),
            "buffer.memory": str(max(MIN_BUFFER_BYTES, 2 * sink.max_request_bytes)),
        }


def _quoted(value: str) -> str:
    """A value of a login module's option."""
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def records(sink: KafkaSink, rows: DataFrame) -> DataFrame:
    """The rows as Spark's Kafka sink takes them. Raises `ValueError`."""
    columns = record_columns(rows.schema, needs_topic=sink.topic is None)
    if sink.keep_order and KEY not in rows.columns:
        raise ValueError(
            "the group consumes in order, so the query must return the column key: records with equal"
            " keys stay in order"
        )
    return rows.select(columns)


def records_in_order(sink: KafkaSink, rows: DataFrame) -> DataFrame:
    """The records, after a check that they stay in order if they must. Raises `ValueError`."""
    sent = records(sink, rows)
    if sink.keep_order:
        require_order(sent)
    return sent


def record_columns(schema: StructType, *, needs_topic: bool) -> list[Column]:
    """The columns as Spark's Kafka sink takes them. Raises `ValueError`."""
    types = {field.name: field.dataType for field in schema.fields}
    if needs_topic and TOPIC not in types:
        raise ValueError(
            "no topic: set sink.kafka.topic, or return the column topic, which says it for each row"
        )
    columns = [_bytes(KEY, types[KEY])] if KEY in types else []
    columns.append(_value(types))
    if (headers := _headers(types)) is not None:
        columns.append(headers)
    if TOPIC in types:
        columns.append(_column(TOPIC).cast("string").alias(TOPIC))
    if PARTITION in types:
        if not isinstance(types[PARTITION], IntegralType):
            raise ValueError(f"the column {PARTITION} must be a whole number")
        columns.append(_column(PARTITION).cast("int").alias(PARTITION))
    return columns


def _value(types: dict[str, DataType]) -> Column:
    if VALUE in types:
        return _bytes(VALUE, types[VALUE])
    fields = [_column(name) for name in types if name not in (*RECORD, *POSITION)]
    if not fields:
        raise ValueError("the query returns no column for the value of a record")
    return F.to_json(F.struct(*fields), TIMES).alias(VALUE)


def _headers(types: dict[str, DataType]) -> Column | None:
    """The user's headers, and the position of the log as far as the rows have it."""
    parts = []
    if HEADERS in types:
        if not _is_headers(types[HEADERS]):
            raise ValueError(
                f"the column {HEADERS} must be an array of structs of key (string) and value (binary), not"
                f" {types[HEADERS].simpleString()}"
            )
        parts.append(F.coalesce(_column(HEADERS), F.array().cast(types[HEADERS])))
    position = [
        F.struct(F.lit(name).alias("key"), _column(name).cast("string").cast("binary").alias("value"))
        for name in POSITION
        if name in types
    ]
    if position:
        parts.append(F.array(*position))
    return F.concat(*parts).alias(HEADERS) if parts else None


def _is_headers(kind: DataType) -> bool:
    element = kind.elementType if isinstance(kind, ArrayType) else None
    fields = element.fields if isinstance(element, StructType) else []
    return [(field.name, field.dataType) for field in fields] == [
        ("key", StringType()),
        ("value", BinaryType()),
    ]


def _bytes(name: str, kind: DataType) -> Column:
    column = _column(name)
    return (column if isinstance(kind, BinaryType) else column.cast("string")).alias(name)


def _column(name: str) -> Column:
    return F.col(f"`{name.replace('`', '``')}`")


def outage(causes: Iterable[tuple[str, str]], *, one_topic: bool) -> str | None:
    """Why no record can be written, given the types and messages of an error's causes; None for an error of
    some rows. With `one_topic`, all records have the same topic."""
    for name, message in causes:
        if name in REJECTED or not name.startswith(_KAFKA):
            continue
        if not one_topic and (name in REJECTED_TOPIC or NO_SUCH_TOPIC in message):
            continue
        return f"{name.rpartition('.')[2]}: {message}"
    return None


def ask_for_topic(spark: SparkSession, settings: dict[str, str], topic: str | None) -> None:
    """Connect, and see that the topic is there and may be written; without a topic, only connect. Raises
    `InvalidSinkError`, and `OSError` if no broker answers."""
    jvm: Any = spark._jvm
    try:
        jvm.java.lang.Class.forName(CONNECTOR)
    except Py4JJavaError:
        raise InvalidSinkError(
            "this Spark has no connector to Kafka: the worker's image has it; without a cluster, run make"
            " jars (docs/sinks.md)"
        ) from None
    options = jvm.java.util.HashMap()
    for name, value in settings.items():
        options.put(name, value)
    servers = settings["bootstrap.servers"]
    admin = None
    try:
        admin = jvm.org.apache.kafka.clients.admin.AdminClient.create(options)
        operations = _operations(jvm, admin, topic)
    except Py4JJavaError as error:
        # Without the cause: its text may quote a setting.
        raise _refusal(java_causes(error), servers) from None
    finally:
        if admin is not None:
            admin.close(jvm.java.time.Duration.ZERO)
    if operations is not None and WRITE not in operations:
        raise InvalidSinkError(f"Kafka at {servers}: no right to write to the topic {topic}")


def _operations(jvm: Any, admin: Any, topic: str | None) -> list[str] | None:
    """What the client may do with the topic; None if that is not known."""
    if topic is None:
        admin.describeCluster().nodes().get()
        return None
    topics = jvm.java.util.ArrayList()
    topics.add(topic)
    options = jvm.org.apache.kafka.clients.admin.DescribeTopicsOptions().includeAuthorizedOperations(True)
    described = admin.describeTopics(topics, options).allTopicNames().get().get(topic)
    operations = described.authorizedOperations()
    return None if operations is None else [str(one.name()) for one in operations]


def _refusal(causes: list[tuple[str, str]], servers: str) -> Exception:
    """The error for a user."""
    name, message = next((one for one in reversed(causes) if one[0].startswith(_KAFKA)), causes[-1])
    text = f"Kafka at {servers}: {name.rpartition('.')[2]}: {message}"
    if name in NO_ANSWER:
        return ConnectionError(
            f"{text}; check the address, and whether the listener expects TLS (tls) or a login (sasl)"
        )
    if name == _ERRORS + "UnknownTopicOrPartitionException":
        return InvalidSinkError(f"{text} Create the topic: a worker creates none")
    return InvalidSinkError(text)
