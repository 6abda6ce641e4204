"""Real workers are killed with SIGKILL while a Spark job runs, again and again, with everything that they
have started. Another worker takes over each time, under the same name or under another one, and producers
write all the time. At the end the input and the output are compared line by line.

`tests/loghub_worker/sink` has a kill at each single step of the commit log, without Spark.
"""

import json
import secrets
from collections import Counter
from collections.abc import Mapping, Sequence
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loghub.sink_settings import DeltaSink, KafkaSink, LogstoreSink, ParquetSink, S3Settings
from loghub.worker_contract import ENV_SINK_CREDENTIALS_DIR, SqlPipeline, WorkerConfig
from tests import kafka
from tests.cluster.s3_server import S3Server
from tests.loghub_worker.sink.delta_tables import DeltaView
from tests.loghub_worker.sink.postgresql.line_worker import sink_settings
from tests.loghub_worker.sink_views import COPY, Copied, FilesView, LogstoreView, TableView, TopicView
from tests.loghub_worker.support import (
    PROJECT,
    delivered,
    prepare,
    worker_config,
    worker_processes,
)
from tests.loghub_worker.worker_kills import LOGS, MAX_LOG_GROUPS, SHARDS, TIMEOUT_S, Scene, run
from tests.postgresql_server import running_postgresql, write_credentials
from tests.support import running_service

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

KILLS = [3, pytest.param(100, marks=[pytest.mark.deep, pytest.mark.timeout(6 * 3600)])]
COPY_SQL = """
SELECT contents['id'] AS id, __shard__ AS shard, __cursor__ AS cursor, {worker} AS worker FROM logs
"""


@dataclass(frozen=True, slots=True)
class FilesPlace:
    """Where a sink of files writes, and the folder in which the tests see that."""

    sink: ParquetSink
    folder: Path


@pytest.fixture(params=["folder", pytest.param("bucket", marks=pytest.mark.tools)])
def place(request: Any, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> FilesPlace:
    if request.param == "folder":
        return FilesPlace(ParquetSink(path=str(tmp_path / "sink")), tmp_path / "sink")
    s3: S3Server = request.getfixturevalue("s3")
    monkeypatch.setenv(ENV_SINK_CREDENTIALS_DIR, str(s3.credentials(tmp_path / "keys")))
    bucket = f"kills-{secrets.token_hex(4)}"
    settings = S3Settings(endpoint=s3.endpoint, allow_http=True)
    return FilesPlace(ParquetSink(path=f"s3://{bucket}/raw", s3=settings), s3.bucket(bucket) / "raw")


@pytest.mark.parametrize("kills", KILLS)
def test_a_place_of_files_has_every_line_once_after_kills(
    tmp_path: Path, place: FilesPlace, kills: int
) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        sink = FilesView(place.folder)
        config = worker_config(
            service.endpoint,
            place.sink,
            timeout_s=TIMEOUT_S,
            max_log_groups=MAX_LOG_GROUPS,
            # So that there are batches between the sink and a checkpoint at most times.
            checkpoint_interval_s=2.0,
        )
        scene = Scene(service=service, client=client, workers=workers, sink=sink, config=lambda _: config)
        sent = run(scene, kills).sent
    rows = delivered(sink.folder)
    print(
        f"\n{kills} kills: {sent.total()} lines in, {rows.total()} lines out,"
        f" {rows.total() - len(rows)} duplicates"
    )
    assert rows == sent
    assert list(sink.records.glob("range-claims/*")) == []
    assert [path for path in sink.records.glob("stage/*/*") if path.is_file()] == []


@pytest.mark.parametrize(
    "place",
    ["folder", pytest.param("bucket", marks=[pytest.mark.tools, pytest.mark.deep])],
    indirect=True,
)
@pytest.mark.parametrize("kills", KILLS)
def test_a_delta_table_has_every_line_once_after_kills(tmp_path: Path, place: FilesPlace, kills: int) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        sink = DeltaView(place.folder)
        config = worker_config(
            service.endpoint,
            DeltaSink(path=place.sink.path, s3=place.sink.s3),
            timeout_s=TIMEOUT_S,
            max_log_groups=MAX_LOG_GROUPS,
            checkpoint_interval_s=2.0,
        )
        scene = Scene(service=service, client=client, workers=workers, sink=sink, config=lambda _: config)
        sent = run(scene, kills).sent
    rows = sink.rows()
    print(
        f"\n{kills} kills: {sent.total()} lines in, {rows.total()} lines out,"
        f" {rows.total() - len(rows)} duplicates"
    )
    assert rows == sent


@pytest.mark.parametrize("kills", KILLS)
def test_a_table_has_every_line_once_after_kills(tmp_path: Path, kills: int) -> None:
    credentials = write_credentials(tmp_path / "sink-credentials")
    with (
        running_postgresql() as server,
        running_service(tmp_path / "service") as service,
        worker_processes(
            tmp_path / "workers", service, {ENV_SINK_CREDENTIALS_DIR: str(credentials)}
        ) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        sink = TableView(server)
        config = worker_config(
            service.endpoint,
            sink_settings(server.port, create_table=True),
            timeout_s=TIMEOUT_S,
            max_log_groups=MAX_LOG_GROUPS,
            checkpoint_interval_s=2.0,
        )
        scene = Scene(service=service, client=client, workers=workers, sink=sink, config=lambda _: config)
        sent = run(scene, kills).sent
        rows = sink.ids()
        ranges = server.rows("SELECT count(*) FROM loghub_ranges")
    print(
        f"\n{kills} kills: {sent.total()} lines in, {rows.total()} lines out,"
        f" {rows.total() - len(rows)} duplicates; {ranges[0][0]} ranges still recorded"
    )
    assert rows == sent


@pytest.mark.parametrize("kills", KILLS)
def test_a_logstore_has_every_line_and_repeats_at_most_one_batch_for_each_kill(
    tmp_path: Path, kills: int
) -> None:
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        client.create_logstore(COPY, shards=1)
        sink = LogstoreView(client)

        def config(number: int) -> WorkerConfig:
            return worker_config(
                service.endpoint,
                LogstoreSink(project=PROJECT, logstore=COPY),
                timeout_s=TIMEOUT_S,
                max_log_groups=MAX_LOG_GROUPS,
                pipeline=SqlPipeline(text=COPY_SQL.format(worker=number)),
            )

        outcome = run(Scene(service=service, client=client, workers=workers, sink=sink, config=config), kills)
        rows = sink.rows()
    ids = {row.id for row in rows}
    in_flight = [written_after(saved, rows, by=number) for number, saved in enumerate(outcome.checkpoints)]
    duplicates = len(rows) - len(ids)
    print(
        f"\n{kills} kills: {outcome.sent.total()} lines in, {len(rows)} lines out, {duplicates} duplicates;"
        f" {sum(map(len, in_flight))} lines were in flight"
    )
    assert ids == outcome.sent.keys()
    for number, saved in enumerate(outcome.checkpoints):
        batch = {shard: range(begin, begin + MAX_LOG_GROUPS) for shard, begin in saved.items()}
        assert [row for row in in_flight[number].values() if row.cursor not in batch[row.shard]] == []
        assert [row for row in rows if row.worker > number and row.cursor < saved[row.shard]] == []
    assert duplicates <= sum(map(len, in_flight))


@pytest.mark.parametrize("kills", KILLS)
def test_kafka_has_every_line_and_readers_can_drop_what_is_repeated(tmp_path: Path, kills: int) -> None:
    if missing := kafka.missing():
        pytest.skip(missing)
    with (
        kafka.running_broker(tmp_path / "broker") as broker,
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        client = prepare(service, shards=SHARDS, timeout_s=TIMEOUT_S)
        sink = TopicView(broker, broker.create_topic("lines"))
        config = worker_config(
            service.endpoint,
            KafkaSink(bootstrap_servers=broker.plain, topic="lines"),
            timeout_s=TIMEOUT_S,
            max_log_groups=MAX_LOG_GROUPS,
        )
        scene = Scene(service=service, client=client, workers=workers, sink=sink, config=lambda _: config)
        sent = run(scene, kills).sent
        records = broker.records("lines")
    rows = {kafka.place_of(record): json.loads(record.value())["id"] for record in records}
    print(
        f"\n{kills} kills: {sent.total()} lines in, {len(records)} records out,"
        f" {len(records) - len(rows)} duplicates, {len(rows)} without them"
    )
    assert Counter(rows.values()) == sent
    assert len(records) - len(rows) <= kills * SHARDS * MAX_LOG_GROUPS * LOGS


def written_after(saved: Mapping[int, int], rows: Sequence[Copied], *, by: int) -> dict[str, Copied]:
    """The rows that the workers up to this one wrote of logs after these checkpoints, by id."""
    return {row.id: row for row in rows if row.worker <= by and row.cursor >= saved[row.shard]}
