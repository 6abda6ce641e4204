"""A cluster's settings and its errors, without one."""

import socket
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import LOCAL_MASTER, PythonPipeline, WorkerConfig
from loghub_consumer.errors import FatalError
from loghub_worker.cluster_error import ClusterError
from loghub_worker.query import spark_session
from loghub_worker.query.spark_session import (
    cluster_settings,
    driver_address,
    join_cluster,
    spark_settings,
    start_spark,
)
from loghub_worker.sink.batch_sink import require_rows
from tests.loghub_worker.support import worker_config

CLUSTER = "spark://master:7077"


def config_of(master: str, **changes: Any) -> WorkerConfig:
    return worker_config("http://x", ParquetSink(path="/sink"), spark_master=master, **changes)


class FakeSession:
    """A session of Spark with so many executors."""

    def __init__(self, executors: int, *, ended: bool = False) -> None:
        self._executors = executors
        self._ended = ended
        self.sent: list[str] = []

    @property
    def sparkContext(self) -> "FakeSession":
        return self

    _jsc = sparkContext

    def sc(self) -> "FakeSession":
        return self

    def getExecutorMemoryStatus(self) -> "FakeSession":
        return self

    def size(self) -> int:
        return 1 + self._executors

    def isStopped(self) -> bool:
        return self._ended

    def addPyFile(self, path: str) -> None:
        self.sent.append(path)


@pytest.fixture
def port() -> int:
    """A port where nothing listens."""
    with socket.socket() as one:
        one.bind(("127.0.0.1", 0))
        return int(one.getsockname()[1])


def test_in_its_pod_a_worker_listens_on_loopback_and_needs_no_master() -> None:
    assert driver_address(config_of(LOCAL_MASTER)) == "127.0.0.1"
    assert cluster_settings(config_of(LOCAL_MASTER), {"PYTHONPATH": "/app"}) == {}
    assert spark_settings(config_of(LOCAL_MASTER, cores=3), Path("/s"))["spark.master"] == "local[3]"


def test_the_driver_has_the_address_from_which_it_reaches_the_first_master_that_answers(port: int) -> None:
    with socket.create_server(("127.0.0.1", 0)) as master:
        url = f"spark://127.0.0.1:{port},127.0.0.1:{master.getsockname()[1]}"
        assert driver_address(config_of(url)) == "127.0.0.1"


def test_a_worker_takes_only_its_cores_of_the_cluster_and_modules_are_found_as_here(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/app")
    settings = spark_settings(config_of(CLUSTER, cores=3), Path("/s"), host="10.0.0.7")
    assert settings["spark.master"] == CLUSTER
    assert (settings["spark.cores.max"], settings["spark.executorEnv.PYTHONPATH"]) == ("3", "/app")
    assert settings["spark.driver.host"] == settings["spark.driver.bindAddress"] == "10.0.0.7"


@pytest.mark.parametrize("url", ["spark://127.0.0.1:{port}", "spark://nowhere.invalid:7077", "spark://x"])
def test_a_wrong_address_of_the_master_is_a_reason_before_spark_starts(
    url: str, port: int, tmp_path: Path
) -> None:
    with pytest.raises(FatalError, match=r"spark://|spec\.spark\.master") as raised:
        start_spark(config_of(url.format(port=port)), tmp_path)
    assert raised.value.reason == "SparkMasterUnavailable"


def test_a_cluster_without_a_free_executor_is_a_reason(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "EXECUTORS_S", 0.0)
    session: Any = FakeSession(0)
    with pytest.raises(ClusterError, match=r"spark\.executor\.memory") as raised:
        join_cluster(session, config_of(CLUSTER), None)
    assert raised.value.reason == "NoExecutors"


def test_a_master_that_ends_the_application_is_a_reason() -> None:
    session: Any = FakeSession(0, ended=True)
    with pytest.raises(ClusterError) as raised:
        join_cluster(session, config_of(CLUSTER), None)
    assert raised.value.reason == "SparkMasterUnavailable"


def test_the_files_of_the_pipeline_are_sent_and_a_folder_of_a_volume_is_not(tmp_path: Path) -> None:
    (tmp_path / "enrich.py").touch()
    files = PythonPipeline(function="enrich:run", files={"enrich.py": ""})
    for pipeline, expected in (
        (files, [str(tmp_path / "enrich.py")]),
        (PythonPipeline(function="enrich:run", folder=str(tmp_path)), []),
    ):
        session: Any = FakeSession(1)
        join_cluster(session, config_of(CLUSTER, pipeline=pipeline), tmp_path)
        assert session.sent == expected


def test_rows_that_the_sink_does_not_find_are_an_error_of_its_volume() -> None:
    require_rows(3, 3)
    with pytest.raises(OSError, match="10 rows, and the worker finds 0"):
        require_rows(10, 0)
