"""The larger images of workers, which no cluster of the tests runs: each is built and runs a worker."""

import shutil
import subprocess
from pathlib import Path

import msgspec
import pytest

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import PythonPipeline, SqlPipeline
from tests.cluster import images
from tests.loghub_worker.bench_latency import requests_of
from tests.loghub_worker.support import (
    GUARD_S,
    SQL,
    Producer,
    all_saved,
    delivered,
    prepare,
    worker_config,
    worker_environment,
)
from tests.support import running_service, wait_until

USES_PANDAS = """
import pandas

def run(logs):
    def copy(frames):
        return (pandas.DataFrame({"id": frame["id"]}) for frame in frames)
    return logs.selectExpr("contents['id'] AS id").mapInPandas(copy, "id string")
"""
EXTENSIONS = ("AwaitEnds", "AwaitGroup", "SaveCheckPoints")
PANDAS = PythonPipeline(function="uses_pandas:run", files={"uses_pandas.py": USES_PANDAS})


@pytest.mark.deep(minutes=8)
@pytest.mark.timeout(3600)  # Spark and its packages are fetched for an image
@pytest.mark.usefixtures("image_builder")
@pytest.mark.parametrize(
    ("target", "pipeline", "has_extensions"),
    [
        pytest.param("worker-sdk", SqlPipeline(text=SQL), False, id="sdk"),
        pytest.param("worker-pandas", PANDAS, True, id="pandas"),
    ],
)
def test_a_worker_of_the_image_delivers_and_saves(
    target: str, pipeline: SqlPipeline | PythonPipeline, has_extensions: bool, tmp_path: Path
) -> None:
    """With `has_extensions` the worker makes calls that only our own client has."""
    ours, theirs = tmp_path / "shared", Path(images.SHARED)
    variables = worker_environment(theirs, name="w-0", credentials_dir=theirs / "credentials")
    with (
        running_service(tmp_path / "service", extra=("--admin-listen", "127.0.0.1:0")) as service,
        images.container(target, ours) as container,
    ):
        client = prepare(service)
        producer = Producer(client)
        producer.put(groups=5)
        shutil.copytree(service.credentials_dir, ours / "credentials")
        ours.chmod(0o777)  # the user of the image is another
        config = worker_config(service.endpoint, ParquetSink(path=str(theirs / "sink")), pipeline=pipeline)
        (ours / "config.json").write_bytes(msgspec.json.encode(config))

        def command(module: str) -> list[str]:
            return container.command("python", "-m", module, variables=variables)

        with (
            (tmp_path / "log").open("wb") as log,
            subprocess.Popen(command("loghub_worker"), stdout=log, stderr=log) as worker,
        ):
            try:
                wait_until(
                    lambda: worker.poll() is not None or delivered(ours / "sink") == producer.sent,
                    "the rows",
                    guard_s=GUARD_S,
                )
                assert worker.poll() is None
                wait_until(lambda: all_saved(client), "the checkpoints", guard_s=GUARD_S)
            finally:
                subprocess.run(command("loghub_worker.pre_stop"), check=True, timeout=GUARD_S)
                try:
                    worker.wait(GUARD_S)
                finally:
                    worker.kill()
                print((tmp_path / "log").read_text(errors="replace")[-4000:])
        assert worker.returncode == 0
        requests = requests_of(service)
        assert requests["HeartBeat"] > 0
        assert any(requests[name] > 0 for name in EXTENSIONS) == has_extensions, requests
