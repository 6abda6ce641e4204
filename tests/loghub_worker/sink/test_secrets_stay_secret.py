"""Whatever goes wrong with the credentials of a sink, none of them stands in what its worker says: the
status, the message with which it ends, its log, and what Spark logs and shows of each write.

Each sink that takes credentials is made, checked and written to, as a worker does it, at a target that
refuses them or does not answer. `test_key_rotation` has the access key of the log service.
"""

import re
import traceback
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any, get_args

import pytest
import structlog
from pyspark.sql import SparkSession

from loghub.contract.sinks import (
    ConsoleSink,
    DeltaSink,
    JsonSink,
    KafkaSink,
    LogstoreSink,
    NoSink,
    ParquetSink,
    PostgresqlSink,
    S3Settings,
    Sink,
    SparkSink,
)
from loghub.contract.worker import LogSettings
from loghub_consumer.batch_plan import Range
from loghub_consumer.errors import FatalError
from loghub_consumer.resumption import ShardIncarnation
from loghub_worker.log import configure_log
from loghub_worker.query.batch_errors import failure_of, query_error
from loghub_worker.sink.batch_sink import BatchSink
from loghub_worker.sink.sink_start import CredentialFiles, SinkStart
from loghub_worker.sink.sinks import make_sink
from tests import kafka
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.support import SOURCE, worker_config
from tests.ports import free_ports

pytestmark = [pytest.mark.spark, pytest.mark.tools]

WITHOUT_CREDENTIALS = {ConsoleSink, LogstoreSink, NoSink}
SAME_AS_PARQUET = {JsonSink}  # but for the format of the files
KEYS = {"accessKeyId": "alice", "secretAccessKey": "hush-key", "sessionToken": "hush-token"}
LOGIN = {"username": "alice", "password": '"hush\\password'}


@dataclass(frozen=True, slots=True)
class Place:
    """An object storage that refuses the keys, and an address at which nothing listens."""

    storage: str
    host: str
    port: int

    def in_bucket(self, kind: Any) -> Any:
        return kind(path="s3://silent/raw", s3=S3Settings(endpoint=self.storage, allow_http=True))

    def kafka(self) -> KafkaSink:
        return KafkaSink(bootstrap_servers=f"{self.host}:{self.port}", topic="t", sasl="PLAIN")

    def postgresql(self) -> PostgresqlSink:
        return PostgresqlSink(host=self.host, port=self.port, database="d", table="t", ssl_mode="disable")

    def hive(self) -> SparkSink:
        url = f"jdbc:hive2://{self.host}:{self.port}/x"
        driver = "org.apache.hive.jdbc.HiveDriver"
        return SparkSink(format="jdbc", options={"url": url, "dbtable": "t", "driver": driver})


CASES: Mapping[type, tuple[Callable[[Place], Sink], Mapping[str, str]]] = {
    ParquetSink: (lambda place: place.in_bucket(ParquetSink), KEYS),
    DeltaSink: (lambda place: place.in_bucket(DeltaSink), KEYS),
    KafkaSink: (Place.kafka, LOGIN),
    PostgresqlSink: (Place.postgresql, LOGIN),
    # Spark itself hides what is called a password, and not what is called a user.
    SparkSink: (Place.hive, {"user": "hush-user", "password": "hush-password"}),
}


def test_every_sink_with_credentials_has_a_case() -> None:
    assert CASES.keys() | SAME_AS_PARQUET | WITHOUT_CREDENTIALS == {*get_args(Sink)}


MOST_EXECUTIONS = 20  # more than one sink starts until it has failed


@contextmanager
def shown_by_spark(spark: SparkSession) -> Iterator[Callable[[], str]]:
    """What Spark logs, and the plans that its user interface shows. A driver of a database may log more than
    that at the level DEBUG: Hive's logs the password (docs/sinks.md 5)."""
    jvm: Any = spark._jvm
    log4j = jvm.org.apache.logging.log4j
    root = log4j.LogManager.getContext(False).getConfiguration().getRootLogger()
    text = jvm.java.io.StringWriter()
    layout = log4j.core.layout.PatternLayout.createDefaultLayout()
    appender = log4j.core.appender.WriterAppender.createAppender(layout, None, text, "text", False, True)
    appender.start()
    root.addAppender(appender, None, None)
    spark.sparkContext.setLogLevel("INFO")
    store = spark._jsparkSession.sharedState().statusStore()

    def last_executions() -> dict[int, Any]:
        """By their numbers. Spark keeps a thousand, whose count then says nothing any more."""
        spark.sparkContext._jsc.sc().listenerBus().waitUntilEmpty()
        found = store.executionsList(max(0, store.executionsCount() - MOST_EXECUTIONS), MOST_EXECUTIONS)
        return {found.apply(n).executionId(): found.apply(n) for n in range(found.size())}

    before = max(last_executions(), default=-1)

    def shown() -> str:
        plans = [one.physicalPlanDescription() for n, one in last_executions().items() if n > before]
        return "\n".join([text.toString(), *plans])

    try:
        yield shown
    finally:
        spark.sparkContext.setLogLevel("ERROR")
        root.removeAppender("text")


class WouldWaitError(Exception):
    """The worker would wait for its sink now."""


def wait(_seconds: float) -> None:
    raise WouldWaitError


class Worker:
    """Takes the steps of a worker with a sink, and notes what it would report of those that fail."""

    def __init__(self) -> None:
        self.reported: list[str] = []

    def take(self, step: Callable[[], Any]) -> Any:
        start = SinkStart(wait, random=lambda: 0.0)
        try:
            return start.take(step)
        except (WouldWaitError, FatalError) as error:
            failed = error.__context__
        except Exception as error:  # noqa: BLE001 - of any library
            failed = error
        assert isinstance(failed, Exception)
        self.reported += [start.error.message, failure_of(failed).message, query_error(failed).message]
        self.reported += traceback.format_exception(failed)
        return None

    def write(self, sink: BatchSink, spark: SparkSession) -> None:
        rows = spark.range(0, 1, 1, 1).selectExpr("CAST(id AS STRING) AS id")
        self.take(lambda: sink.check(rows.limit(0)))
        self.take(lambda: sink.open_shard(ShardIncarnation(shard=0, created=1)))
        self.take(lambda: sink.write(rows, "w-0-b"))
        self.take(lambda: sink.publish("w-0-b", (Range(0, 0, 1),), lambda: True))


@pytest.mark.parametrize("kind", CASES)
def test_no_credential_stands_in_status_log_or_plan(
    kind: type, spark: SparkSession, s3: S3Server, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    if kind is KafkaSink and (missing := kafka.missing()):
        pytest.skip(missing)
    describe, credentials = CASES[kind]
    (port,) = free_ports(1)
    s3.bucket("silent")
    config = worker_config("http://x", describe(Place(s3.endpoint, "127.0.0.1", port)), batch_timeout_s=4.0)
    worker, folder = Worker(), tmp_path / "credentials"

    def give(values: Mapping[str, str]) -> None:
        folder.mkdir(exist_ok=True)
        for file in folder.iterdir():
            file.unlink()
        for name, value in values.items():
            (folder / name).write_text(value)

    def make() -> Any:
        return make_sink(
            config,
            consumer="w-0",
            source=SOURCE,
            sink_credentials=CredentialFiles(folder),
            scratch=tmp_path / "scratch",
        )

    configure_log(LogSettings(level="Debug"))
    try:
        with shown_by_spark(spark) as shown:
            give(credentials)
            sink = worker.take(make)
            if sink is None and credentials is KEYS:  # the storage has refused them, as it does later
                give({})
                s3.credentials(folder)
                sink = make()
                give(credentials)
            if sink is not None:
                worker.write(sink, spark)
            of_spark = shown()
    finally:
        structlog.reset_defaults()
    text = "\n".join([*worker.reported, capsys.readouterr().err, of_spark])
    assert "the sink cannot be used, will retry" in text
    assert kind not in (KafkaSink, SparkSink) or "SaveIntoDataSourceCommand" in of_spark
    assert re.findall("hush.*", text) == []
