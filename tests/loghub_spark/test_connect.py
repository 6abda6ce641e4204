"""The data source through Spark Connect: a server and a client, whose processes of Python have the packages
of locks/connect.txt and no others. The server's JVM has the jars of the tests' own PySpark, of the same
release, for which there is an archive of classes."""

import json
import os
import re
import signal
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from importlib.metadata import version
from pathlib import Path
from typing import Any

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.loggroup import Log, LogGroup, decode, encode, split
from tests import java, locked
from tests.loghub_spark.support import COPY, LOGSTORE, LOWER, UPPER, options_of
from tests.spark_cluster import LOG_SETTINGS, LOGGING, SPARK
from tests.spark_settings import jvm_options
from tests.support import ROOT, ServiceProcess, wait_until

pytestmark = [pytest.mark.spark, pytest.mark.long, pytest.mark.timeout(1800)]

GUARD_S = 420.0
SERVER = "org.apache.spark.sql.connect.service.SparkConnectServer"
_STARTED = re.compile(r"Spark Connect server started at: \S+:(\d+)")
TIME = 1_700_000_000
GROUPS, LOGS = 5, 4  # log groups of each shard, and logs of each


def environment_of(python: Path) -> dict[str, str]:
    """Variables with which its programs find the modules of this checkout."""
    own = {name: value for name, value in os.environ.items() if not name.startswith(("PYTHON", "SPARK"))}
    path = os.pathsep.join(map(str, (ROOT / "worker", ROOT)))
    return own | {"PYTHONPATH": path, "PYSPARK_PYTHON": str(python), "SPARK_LOCAL_IP": "127.0.0.1"}


@contextmanager
def running_server(python: Path, folder: Path) -> Iterator[str]:
    """The `remote` URL of a Spark Connect server whose processes of Python are of this environment."""
    folder.mkdir()
    (folder / LOG_SETTINGS).write_text(LOGGING)
    log_option = f"-Dlog4j2.configurationFile={(folder / LOG_SETTINGS).as_uri()}"
    settings = {
        "spark.connect.grpc.binding.address": "127.0.0.1",
        "spark.connect.grpc.binding.port": "0",
        "spark.driver.memory": "512m",
        "spark.driver.extraJavaOptions": f"{jvm_options()} {log_option}",
        "spark.ui.enabled": "false",
        "spark.local.dir": str(folder / "local"),
        "spark.sql.warehouse.dir": str(folder / "warehouse"),
        "spark.sql.shuffle.partitions": "1",
    }
    command = [SPARK / "bin" / "spark-submit", "--class", SERVER, "--master", "local[1]"]
    command += [part for name, value in settings.items() for part in ("--conf", f"{name}={value}")]
    variables = environment_of(python) | {"SPARK_HOME": str(SPARK)}
    log = folder / "log"
    with log.open("wb") as output:
        process = subprocess.Popen(
            [*command, "spark-internal"],
            cwd=folder,
            env=variables,
            stdout=output,
            stderr=output,
            start_new_session=True,
        )
    try:

        def is_started() -> bool:
            assert process.poll() is None, log.read_text()[-4000:]
            return _STARTED.search(log.read_text()) is not None

        wait_until(is_started, "the server of Spark Connect", guard_s=GUARD_S)
        match = _STARTED.search(log.read_text())
        assert match is not None
        yield f"sc://127.0.0.1:{match[1]}"
    finally:
        os.killpg(process.pid, signal.SIGKILL)
        process.wait()


@pytest.fixture(scope="module")
def python() -> Path:
    if missing := java.missing():
        pytest.skip(missing)
    return locked.environment("connect")


def put_logs(client: HttpLogHub) -> None:
    """Numbered logs in both shards, the last of each log group without a number."""
    for shard, hash_key in enumerate((LOWER, UPPER)):
        for group in range(GROUPS):
            names = [f"{shard}-{group}-{n}" for n in range(LOGS)]
            contents = [(("id", name), ("n", str(n))) for n, name in enumerate(names)]
            contents[-1] = contents[-1][:1]
            logs = tuple(Log(time=TIME + n, contents=pairs) for n, pairs in enumerate(contents))
            client.put_logs(LOGSTORE, encode(LogGroup(logs=logs, topic="t")), hash_key=hash_key)


def stored_rows(client: HttpLogHub) -> list[list[Any]]:
    """The rows that a reader should have: id, n, time, shard, cursor, index."""
    rows: list[list[Any]] = []
    for shard in (0, 1):
        cursor = client.get_cursor(LOGSTORE, shard, "begin")
        while (pulled := client.pull_logs(LOGSTORE, shard, cursor=cursor, count=1)).count:
            (group,) = map(decode, split(pulled.body))
            for index, log in enumerate(group.logs):
                found = dict(log.contents)
                number = int(found["n"]) if "n" in found else None
                name = found["id"]
                text = name if isinstance(name, str) else name.decode()
                rows.append([text, number, log.time, shard, decode_cursor(cursor), index])
            cursor = pulled.next_cursor
    return sorted(rows)


def test_a_client_reads_and_writes_in_batches_and_streams(
    python: Path, service: ServiceProcess, client: HttpLogHub, tmp_path: Path
) -> None:
    put_logs(client)
    given = {
        "source": options_of(service),
        "copy": options_of(service, logstore=COPY),
        "folder": str(tmp_path),
    }
    with running_server(python, tmp_path / "server") as remote:
        done = subprocess.run(
            [python, "-m", "tests.loghub_spark.connect_client"],
            input=json.dumps(given | {"remote": remote}),
            env=environment_of(python),
            cwd=tmp_path,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr[-4000:]
    result = json.loads(done.stdout.splitlines()[-1])
    rows = stored_rows(client)
    assert len(rows) == 2 * GROUPS * LOGS
    assert result["batch"] == rows
    assert result["filtered"] == [row for row in rows if row[1] is not None and row[1] % 2]
    assert sorted(result["view"]) == [["t", row[0]] for row in rows]
    assert result["stream"] == rows
    written = [row[:3] for row in rows]
    assert result["written"] == written
    assert result["written_twice"] == sorted(written * 2)
    assert result["read_again"] == written, "the server keeps the plan of a DataFrame that it has read"
    assert "startingOffsets" in result["refused"], "the name that was probably meant"
    assert not result["has_vendor_sdk"]
    assert result["packages"]["protobuf"].split(".")[0] == "6"
    assert result["packages"]["pyspark"] == version("pyspark"), "the release of the server's jars"
