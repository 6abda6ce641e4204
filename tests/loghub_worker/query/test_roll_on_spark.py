"""A worker's threads on a real Spark and a real service: files roll by size."""

import json
from functools import partial
from pathlib import Path
from typing import Any

import pytest
from pyspark.sql import SparkSession

from loghub.contract.sinks import FileRoll, JsonSink
from loghub.contract.worker import SqlPipeline
from loghub.wire.cursor import decode
from loghub_worker.sink.sinks import make_sink
from tests.loghub_worker.query.worker_threads import WorkerThreads
from tests.loghub_worker.support import GUARD_S, LOGSTORE, SOURCE, Producer, prepare, worker_config
from tests.support import running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(600)]

TARGET = 60_000
QUERY = "SELECT contents['id'] AS id, contents['line'] AS line, __shard__ AS shard FROM logs"


def files(out: Path) -> list[Path]:
    return sorted(out.glob("shard=*/*.json"), key=lambda path: path.stat().st_mtime)


def source_saw(threads: WorkerThreads, end: int) -> bool:
    return threads.exchange.report().ends.get(0) == end


def ids(paths: list[Path]) -> list[str]:
    return [json.loads(line)["id"] for path in paths for line in path.read_text().splitlines()]


def test_logs_wait_in_the_log_service_until_they_are_worth_a_file(
    spark: SparkSession, tmp_path: Path
) -> None:
    """What is there at the start does not wait, and shows how large the files of logs are."""
    with running_service(tmp_path / "service") as service:
        client = prepare(service, shards=1)
        producer = Producer(client)
        producer.put(groups=3, logs=50)
        out = tmp_path / "out"
        settings = JsonSink(
            path=str(out), partition_by=("shard",), roll=FileRoll(target_bytes=TARGET, max_delay_s=3600)
        )
        pipeline = SqlPipeline(text=QUERY)
        config = worker_config(service.endpoint, settings, pipeline=pipeline, fetch_interval_s=0.1)
        sink: Any = make_sink(config, consumer="w-0", source=SOURCE, scratch=tmp_path / "scratch")
        threads = WorkerThreads(spark, config, sink, service.credentials_dir, tmp_path / "state")
        threads.start()
        try:
            wait_until(lambda: ids(files(out)), "what is there at the start", guard_s=GUARD_S)
            assert len(ids(files(out))) == producer.sent.total()
            while len(files(out)) == 1:
                producer.put(groups=1, logs=50)
                end = decode(client.get_cursor(LOGSTORE, 0, "end"))
                wait_until(partial(source_saw, threads, end), "the end to be seen")
            [_, second] = files(out)
            assert 0.8 * TARGET < second.stat().st_size < 1.5 * TARGET
        finally:
            threads.stop()
        delivered = ids(files(out))
        assert len(delivered) == len(set(delivered))
        assert set(delivered) <= set(producer.sent)
