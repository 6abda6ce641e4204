"""Every sink as the target of real workers, for the tests that kill and pause them.

A target has the settings of the sink, and says what the sink has. So one test, with the targets as its
parameter, holds for all sinks. The sinks of `EXACTLY_ONCE` have each log once, those of `AT_MIN_ONCE` at
least once.
"""

import json
import secrets
from collections import Counter
from collections.abc import Callable, Iterator, Mapping, Sequence
from contextlib import AbstractContextManager, contextmanager
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

import pytest

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import (
    ConsoleSink,
    DeltaSink,
    FileRoll,
    JsonSink,
    KafkaSink,
    LogstoreSink,
    ParquetSink,
    S3Settings,
    Sink,
    SparkSink,
)
from loghub.contract.worker import ENV_SINK_CREDENTIALS_DIR, CopyPipeline, SqlPipeline
from tests import kafka
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.sink.delta_tables import DeltaView
from tests.loghub_worker.sink.postgresql.line_worker import sink_settings
from tests.loghub_worker.sink_views import (
    COPY,
    CopiesView,
    FilesView,
    LinesView,
    NothingView,
    SinkView,
    TableView,
    TopicView,
)
from tests.loghub_worker.support import PROJECT, SQL, delivered
from tests.postgresql_server import PostgresqlServer, running_postgresql, write_credentials

PARTS = SQL.replace(" FROM", ", __shard__ AS part FROM")
NO_VARIABLES: Mapping[str, str] = {}


@dataclass(frozen=True, slots=True, kw_only=True)
class Target:
    """A sink, seen by the worker and from outside."""

    settings: Sink
    view: SinkView
    ids: Callable[[], Counter[str]]  # of the logs that the sink has
    # The ids of the logs for a reader that drops what has a place it has seen; None: there are no places.
    by_place: Callable[[], Counter[str]] | None = None
    variables: Mapping[str, str] = field(default_factory=dict)  # of the workers
    config: Mapping[str, Any] = field(default_factory=dict)  # further settings of the workers
    left_over: Callable[[], Sequence[Path]] = list  # what should be gone once all is saved


@dataclass(frozen=True, slots=True, kw_only=True)
class Place:
    """What a target is made in."""

    folder: Path
    client: HttpLogHub  # of a project with the logstore that is consumed
    fixture: Callable[[str], Any]  # gets a fixture of the test by name
    printed: Callable[[], str] = str  # what the workers have printed


def _bucket(place: Place) -> tuple[str, S3Settings, Path, Mapping[str, str]]:
    """The URL of a new bucket with its settings, its folder, and the variables that lead workers to the
    keys."""
    s3: S3Server = place.fixture("s3")
    name = f"target-{secrets.token_hex(4)}"
    variables = {ENV_SINK_CREDENTIALS_DIR: str(s3.credentials(place.folder / "keys"))}
    settings = S3Settings(endpoint=s3.endpoint, allow_http=True)
    return f"s3://{name}/raw", settings, s3.bucket(name) / "raw", variables


def _files(settings: Sink, folder: Path, variables: Mapping[str, str] = NO_VARIABLES) -> Target:
    view = FilesView(folder)
    records = ("range-claims/*", "stage/*/*")  # the decision of a killed worker may stay for a day

    def ids() -> Counter[str]:
        if isinstance(settings, JsonSink):
            return Counter(row["id"] for row in LinesView(folder).rows())
        return delivered(folder)

    return Target(
        settings=settings,
        view=view,
        ids=ids,
        variables=variables,
        left_over=lambda: [
            path for pattern in records for path in view.records.glob(pattern) if path.is_file()
        ],
    )


@contextmanager
def folder(place: Place) -> Iterator[Target]:
    yield _files(ParquetSink(path=str(place.folder / "sink")), place.folder / "sink")


@contextmanager
def lines_in_a_folder(place: Place) -> Iterator[Target]:
    yield _files(JsonSink(path=str(place.folder / "sink")), place.folder / "sink")


@contextmanager
def bucket(place: Place) -> Iterator[Target]:
    url, settings, objects, variables = _bucket(place)
    yield _files(ParquetSink(path=url, s3=settings), objects, variables)


@contextmanager
def partitions_of_a_folder(place: Place) -> Iterator[Target]:
    """Each batch has several files, of a size."""
    sink = ParquetSink(
        path=str(place.folder / "sink"),
        partition_by=("part",),
        roll=FileRoll(target_bytes=10_000, max_delay_s=0.5),
    )
    yield _partitions(_files(sink, place.folder / "sink"), place.folder / "sink")


@contextmanager
def partitions_of_a_bucket(place: Place) -> Iterator[Target]:
    url, settings, objects, variables = _bucket(place)
    sink = ParquetSink(path=url, s3=settings, partition_by=("part",))
    yield _partitions(_files(sink, objects, variables), objects)


def _partitions(target: Target, folder: Path) -> Target:
    return replace(
        target,
        ids=lambda: sum(map(delivered, folder.glob("part=*")), Counter()),
        config={"pipeline": SqlPipeline(text=PARTS)},
    )


@contextmanager
def lines_in_a_bucket(place: Place) -> Iterator[Target]:
    url, settings, objects, variables = _bucket(place)
    yield _files(JsonSink(path=url, s3=settings), objects, variables)


@contextmanager
def delta_table(place: Place) -> Iterator[Target]:
    view = DeltaView(place.folder / "table")
    yield Target(settings=DeltaSink(path=str(view.folder)), view=view, ids=view.rows)


@contextmanager
def delta_table_in_a_bucket(place: Place) -> Iterator[Target]:
    url, settings, objects, variables = _bucket(place)
    view = DeltaView(objects)
    yield Target(settings=DeltaSink(path=url, s3=settings), view=view, ids=view.rows, variables=variables)


@contextmanager
def postgresql(place: Place) -> Iterator[Target]:
    with running_postgresql() as server:
        yield table_of(server, place.folder)


def table_of(server: PostgresqlServer, folder: Path) -> Target:
    view = TableView(server)
    return Target(
        settings=sink_settings(server.port, create_table=True),
        view=view,
        ids=view.ids,
        variables={ENV_SINK_CREDENTIALS_DIR: str(write_credentials(folder / "sink-credentials"))},
    )


@contextmanager
def logstore_copy(place: Place) -> Iterator[Target]:
    place.client.create_logstore(COPY, shards=1)
    view = CopiesView(place.client)
    yield Target(
        settings=LogstoreSink(project=PROJECT, logstore=COPY),
        view=view,
        ids=view.ids,
        config={"pipeline": CopyPipeline()},
    )


@contextmanager
def logstore_rows(place: Place) -> Iterator[Target]:
    place.client.create_logstore(COPY, shards=1)
    view = CopiesView(place.client)
    yield Target(settings=LogstoreSink(project=PROJECT, logstore=COPY), view=view, ids=view.ids)


@contextmanager
def kafka_topic(place: Place) -> Iterator[Target]:
    if missing := kafka.missing():
        pytest.skip(missing)
    with kafka.running_broker(place.folder / "broker") as broker:
        topic = broker.create_topic("lines")
        yield Target(
            settings=KafkaSink(bootstrap_servers=broker.plain, topic=topic),
            view=TopicView(broker, topic),
            ids=lambda: Counter(json.loads(record.value())["id"] for record in broker.records(topic)),
            by_place=lambda: Counter(
                {
                    kafka.place_of(record): json.loads(record.value())["id"]
                    for record in broker.records(topic)
                }.values()
            ),
        )


@contextmanager
def files_of_spark(place: Place) -> Iterator[Target]:
    view = LinesView(place.folder / "lines")
    options = {"path": str(view.folder)}
    yield Target(
        settings=SparkSink(format="json", options=options), view=view, ids=view.ids, by_place=view.by_place
    )


@contextmanager
def console(place: Place) -> Iterator[Target]:
    """What it prints is among what the workers of other tests print, which have other columns."""
    before = len(place.printed())

    def ids() -> Counter[str]:
        lines = place.printed()[before:].splitlines()
        return Counter(json.loads(line)["id"] for line in lines if line.startswith('{"id":'))

    yield Target(settings=ConsoleSink(rows=1000), view=NothingView(), ids=ids)


MakeTarget = Callable[[Place], AbstractContextManager[Target]]


def by_spark(make: MakeTarget) -> MakeTarget:
    """The same target, whose rows Spark computes and writes although Arrow could."""

    @contextmanager
    def make_by_spark(place: Place) -> Iterator[Target]:
        with make(place) as target:
            yield replace(target, config={**target.config, "engine": "Spark"})

    return make_by_spark


EXACTLY_ONCE: Sequence[Any] = [
    pytest.param(by_spark(folder), id="folder-by-spark"),
    pytest.param(by_spark(bucket), id="bucket-by-spark", marks=pytest.mark.tools),
    pytest.param(by_spark(delta_table), id="delta-by-spark"),
    pytest.param(by_spark(partitions_of_a_folder), id="partitions-by-spark"),
    pytest.param(folder, id="folder"),
    pytest.param(bucket, id="bucket", marks=pytest.mark.tools),
    pytest.param(delta_table, id="delta"),
    pytest.param(delta_table_in_a_bucket, id="delta-bucket", marks=pytest.mark.tools),
    pytest.param(postgresql, id="postgresql"),
    pytest.param(lines_in_a_folder, id="json"),
    pytest.param(lines_in_a_bucket, id="json-bucket", marks=pytest.mark.tools),
    pytest.param(partitions_of_a_folder, id="partitions"),
]
AT_MIN_ONCE: Sequence[Any] = [
    pytest.param(kafka_topic, id="kafka"),
    pytest.param(logstore_copy, id="copy"),
    pytest.param(files_of_spark, id="spark"),
]
# What a worker whose tasks run in a cluster can write to.
IN_A_CLUSTER: Sequence[Any] = [
    *(
        pytest.param(make, id=name, marks=pytest.mark.tools)
        for name, make in {
            "bucket": partitions_of_a_bucket,
            "json-bucket": lines_in_a_bucket,
            "delta-bucket": delta_table_in_a_bucket,
        }.items()
    ),
    *(
        pytest.param(make, id=name)
        for name, make in {
            "postgresql": postgresql,
            "json": lines_in_a_folder,
            "delta": delta_table,
            "logstore": logstore_rows,
            "copy": logstore_copy,
            "kafka": kafka_topic,
            "spark": files_of_spark,
            "console": console,
        }.items()
    ),
]
