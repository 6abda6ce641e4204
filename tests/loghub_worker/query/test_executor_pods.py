"""Spark's settings for executors in pods, and why none runs."""

from pathlib import Path
from typing import Any

import pytest

from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import KUBERNETES, ExecutorSettings, WorkerConfig
from loghub_consumer.errors import FatalError
from loghub_worker.cluster_error import ClusterError
from loghub_worker.query import spark_session
from loghub_worker.query.executor_pods import ExecutorPods, executor_conf, why_not_running
from loghub_worker.query.spark_session import (
    driver_address,
    join_cluster,
    refused,
    spark_settings,
    start_spark,
)
from tests.loghub_worker.query.test_spark_master import FakeSession
from tests.loghub_worker.support import worker_config

SETTINGS = ExecutorSettings(
    cores=2,
    memory="2g",
    memory_overhead="1g",
    cpu="500m",
    pod={"metadata": {}, "spec": {"containers": [{"name": "executor", "image": "w:1"}]}},
)


def config_of(**changes: Any) -> WorkerConfig:
    return worker_config(
        "http://x", ParquetSink(path="/sink"), spark_master=KUBERNETES, executors=SETTINGS, **changes
    )


def test_a_worker_asks_for_as_many_executors_as_its_cores_need_and_makes_nothing_but_pods() -> None:
    conf = executor_conf(SETTINGS, cores=6)
    assert (conf["spark.executor.instances"], conf["spark.executor.cores"]) == ("3", "2")
    assert conf["spark.kubernetes.executor.request.cores"] == "500m"
    assert (conf["spark.executor.memory"], conf["spark.executor.memoryOverhead"]) == ("2g", "1g")
    assert conf["spark.kubernetes.executor.container.image"] == "w:1"
    assert conf["spark.kubernetes.executor.disableConfigMap"] == "true"
    for other in ("driver.ownPersistentVolumeClaim", "driver.service.deleteOnTermination"):
        assert conf[f"spark.kubernetes.{other}"] == "false"


def test_connections_are_authenticated_on_known_ports_unless_the_user_says_otherwise(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    monkeypatch.setenv("PYTHONPATH", "/app")
    settings = spark_settings(config_of(), Path("/s"), host="10.0.0.7")
    assert settings["spark.master"] == KUBERNETES
    assert settings["spark.authenticate"] == "true"
    assert (settings["spark.driver.port"], settings["spark.blockManager.port"]) == ("7078", "7079")
    assert settings["spark.executorEnv.PYTHONPATH"] == "/app"
    assert "spark.cores.max" not in settings
    other = spark_settings(config_of(spark_conf={"spark.driver.port": "1234"}), Path("/s"))
    assert other["spark.driver.port"] == "1234"


def test_outside_of_a_cluster_the_api_server_is_not_found() -> None:
    with pytest.raises(ClusterError, match=r"kubernetes\.default\.svc:443") as raised:
        driver_address(config_of())
    assert raised.value.reason == "SparkMasterUnavailable"


def test_a_session_that_ends_is_not_blamed_on_a_standalone_master() -> None:
    assert "standalone" not in str(refused(config_of(), "ended"))


def test_a_start_deletes_the_executors_of_the_process_before_it_or_ends(
    monkeypatch: pytest.MonkeyPatch, tmp_path: Path
) -> None:
    """A process that was killed has left them, and Kubernetes keeps them as long as the pod of the worker."""

    def refused(pods: ExecutorPods) -> None:
        raise ClusterError("SparkMasterUnavailable", "cannot deletecollection")

    monkeypatch.setattr(spark_session, "driver_address", lambda _: "127.0.0.1")
    monkeypatch.setattr(ExecutorPods, "delete_earlier", refused)
    with pytest.raises(FatalError, match="cannot deletecollection") as raised:
        start_spark(config_of(), tmp_path, pod="access-0")
    assert raised.value.reason == "SparkMasterUnavailable"


class _NoPods:
    def why_missing(self) -> str:
        return "Unschedulable: 0/1 nodes are available"


def test_without_an_executor_the_reason_is_that_of_the_pods(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(spark_session, "PODS_S", 0.0)
    session, pods = FakeSession(0), _NoPods()
    with pytest.raises(ClusterError, match="Unschedulable: 0/1 nodes") as raised:
        join_cluster(session, config_of(), None, pods=pods)  # type: ignore[arg-type]
    assert raised.value.reason == "NoExecutors"


@pytest.mark.parametrize(
    ("status", "said"),
    [
        ({"phase": "Pending"}, "phase Pending"),
        (
            {
                "phase": "Pending",
                "conditions": [
                    {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "full"}
                ],
            },
            "Unschedulable: full",
        ),
        (
            {
                "phase": "Pending",
                "conditions": [{"type": "PodScheduled", "status": "True"}],
                "containerStatuses": [
                    {"state": {"waiting": {"reason": "ImagePullBackOff", "message": "no such image"}}}
                ],
            },
            "ImagePullBackOff: no such image",
        ),
        (
            {
                "phase": "Failed",
                "initContainerStatuses": [{"state": {"terminated": {"exitCode": 0, "reason": "Completed"}}}],
                "containerStatuses": [{"state": {"terminated": {"exitCode": 137, "reason": "OOMKilled"}}}],
            },
            "OOMKilled: exit status 137",
        ),
        ({"phase": "Running", "containerStatuses": [{"state": {"running": {}}}]}, "phase Running"),
    ],
)
def test_why_a_pod_does_not_run(status: dict[str, Any], said: str) -> None:
    assert why_not_running([{"status": status}, {"status": status}]) == said
