"""A worker process with a user function and JSON files, whose access key is rotated while it runs, which
leaves its group, and what is in its log."""

import json
import os
import shutil
import signal
from collections import Counter
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from loghub.contract.sinks import JsonSink
from loghub.contract.worker import DRAIN_REQUESTED, LogFile, LogSettings, PythonPipeline
from loghub.wire.errors import LogHubError
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    Producer,
    WorkerProcess,
    prepare,
    processes_of,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.timeout(1800)]

OLD = {"accessKeyId": "testKeyId", "accessKeySecret": "testKeySecret"}
NEW = {"accessKeyId": "nextKeyId", "accessKeySecret": "nextKeySecret", "securityToken": "token-of-sts"}
CODE = """
import logging

from pyspark.sql import functions as F

@F.udf("string")
def shout(text):
    return text.upper()

logging.basicConfig(format="user's own: %(message)s", force=True)

def run(logs):
    print("printed by the pipeline")
    logging.getLogger("enrich").warning("logged by the pipeline")
    line = F.col("contents")["line"]
    return logs.select(F.col("contents")["id"].alias("id"), shout(line).alias("line"), line.alias("was"))
"""


def mount(folder: Path, version: str, files: dict[str, str]) -> None:
    """Write a Secret's files as the kubelet does: all of them change in one step, by one link."""
    old = folder / os.readlink(folder / "..data") if (folder / "..data").exists() else None
    real = folder / f"..{version}"
    real.mkdir(parents=True)
    for name, text in files.items():
        (real / name).write_text(text)
    (folder / "..data_tmp").symlink_to(real.name)
    (folder / "..data_tmp").rename(folder / "..data")
    for name in files:
        if not (folder / name).is_symlink():
            (folder / name).symlink_to(f"..data/{name}")
    if old is not None:
        shutil.rmtree(old)


def rows(sink: Path) -> list[dict[str, str]]:
    """The rows in the folder's files of JSON lines."""
    texts = (file.read_text(encoding="utf-8") for file in sink.glob("*.json"))
    return [json.loads(line) for text in texts for line in text.split("\n") if line]


def wait_for(sent: Counter[str], sink: Path, worker: WorkerProcess) -> None:
    def is_delivered() -> bool:
        assert worker.process.poll() is None, worker.log_tail()
        return len(rows(sink)) >= sent.total()

    wait_until(is_delivered, "the rows", guard_s=GUARD_S)
    assert Counter(row["id"] for row in rows(sink)) == sent


def accepted(client: HttpLogHub) -> bool:
    try:
        return client.project_exists()
    except LogHubError:
        return False


def rotate_key(service: ServiceProcess) -> HttpLogHub:
    """Replace the key; return a client with the new key once the service accepts no other."""
    mount(service.credentials_dir, "second", NEW)
    client = HttpLogHub(
        service.endpoint,
        PROJECT,
        credentials=Credentials(
            access_key_id=NEW["accessKeyId"],
            access_key_secret=NEW["accessKeySecret"],
            security_token=NEW["securityToken"],
        ),
    )
    wait_until(lambda: accepted(client), "the service to accept the new key")
    assert not accepted(HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials))
    return client


def visible_texts(worker: WorkerProcess, service: ServiceProcess) -> list[str]:
    """The command lines and environments of all processes, which other users or child processes can read."""
    running = processes_of(worker).values()
    assert any("org.apache.spark" in command for command, _ in running), "the JVM is one of them"
    assert any("pyspark" in command and "java" not in command for command, _ in running), "so is its Python"
    of_service = Path(f"/proc/{service.pid}")
    texts = [text for pair in running for text in pair]
    return [*texts, *((of_service / name).read_text() for name in ("cmdline", "environ"))]


def assert_no_key_in(texts: list[str]) -> None:
    for secret in (OLD["accessKeySecret"], NEW["accessKeySecret"], NEW["securityToken"]):
        assert not [text for text in texts if secret in text]


def assert_file_has_the_worker_alone(output: str, in_file: str) -> None:
    """Standard output and standard error have what the pipeline prints and logs, too, as it was."""
    own = [line for line in output.splitlines(keepends=True) if line.startswith("{")]
    assert "".join(own) == in_file
    events = {json.loads(line)["event"] for line in own}
    wanted = {"membership changed", "heartbeat answered", "batch delivered", "checkpoint saved", "draining"}
    assert wanted <= events
    assert "printed by the pipeline\n" in output
    assert "user's own: logged by the pipeline\n" in output


def leave(worker: WorkerProcess, client: HttpLogHub) -> None:
    """Let it leave its group, whose timeout is far longer than the hang guard: nothing else frees the
    shards."""
    worker.drain_file.write_text(DRAIN_REQUESTED)
    wait_until(lambda: worker.phase == "left", "the worker to leave", guard_s=GUARD_S)
    status = client.group_status(LOGSTORE, GROUP)
    assert status.consumers == ()
    assert [shard.shard for shard in status.shards if shard.state == "already_alloc"] == []
    assert worker.end(signal.SIGTERM) == 0, worker.log_tail()


def test_a_new_key_restarts_no_worker_and_moves_no_shard(tmp_path: Path) -> None:
    sink = tmp_path / "sink"
    mount(tmp_path / "service" / "credentials", "first", OLD)
    with (
        running_service(tmp_path / "service") as service,
        worker_processes(tmp_path / "workers", service) as workers,
    ):
        producer = Producer(prepare(service, shards=2, timeout_s=3600))
        producer.put(groups=10)
        pipeline = PythonPipeline(function="enrich:run", files={"enrich.py": CODE})
        settings = LogSettings(level="Debug", format="JSON", file=LogFile(folder=str(tmp_path / "logs")))
        worker = workers.start(
            "w-0",
            worker_config(
                service.endpoint, JsonSink(path=str(sink)), timeout_s=3600, pipeline=pipeline, log=settings
            ),
        )
        wait_for(producer.sent, sink, worker)
        assert all(row["line"] == row["was"].upper() for row in rows(sink))

        client = rotate_key(service)
        producer.use(client)
        producer.put(groups=10)
        wait_for(producer.sent, sink, worker)
        wait_until(lambda: worker.status is not None and not worker.status.reason, "the error to be cleared")
        assert (worker.phase, worker.shards) == ("running", {0, 1})
        assert_no_key_in(visible_texts(worker, service))
        leave(worker, client)
        log_text = (worker.folder / "log").read_text()
        assert log_text.count("shard opened") == 2, "no shard was lost and assigned again"
        assert log_text.count('"after": "member"') == 1
        files = ("log", "config.json", "status.json")
        assert_no_key_in([(worker.folder / name).read_text() for name in files])
        assert_no_key_in([service.log.read_text()])
        assert_file_has_the_worker_alone(log_text, (tmp_path / "logs" / "w-0.log").read_text())
    assert Counter(row["id"] for row in rows(sink)) == producer.sent
