"""A real rollout whose second worker breaks: Spark, the StatefulSet's controller, the kubelet and `kubectl
wait` are real, and every version of the object is judged by Flux's kstatus and Argo CD's script.
"""

import json
import subprocess
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

import pytest

from tests.cluster.fixtures import health  # noqa: F401 - a fixture
from tests.cluster.kubectl import Object, eventually
from tests.cluster.stack import Stack, consumer_group
from tests.loghub_operator.support.health import judged
from tests.loghub_operator.support.watched_versions import documents

NAMESPACE = "rollout"
NAME = "rolling"
LOGSTORE = "rolled"
DEADLINE_S = 30
SECOND = f"{NAME}-0"  # of two: the highest ordinal is replaced first
CODE = f"""import os

def run(logs):
    if os.environ["LOGHUB_CONSUMER"] == "{SECOND}":
        raise RuntimeError("this one breaks")
    return logs.selectExpr("contents")
"""

pytestmark = [pytest.mark.cluster, pytest.mark.deep(minutes=10), pytest.mark.timeout(900, func_only=True)]


@pytest.fixture
def place(stack: Stack) -> Iterator[Stack]:
    stack.make_namespace(NAMESPACE)
    with stack.client("rolling-project") as client:
        client.create_project()
        client.create_logstore(LOGSTORE, shards=2)
    yield stack
    print(stack.explain(NAMESPACE))  # pytest shows it only if a test failed
    stack.kubectl.run("delete", "lhcg", "--all", "-n", NAMESPACE, "--wait=false")


@contextmanager
def running(stack: Stack, *arguments: str) -> Iterator["subprocess.Popen[str]"]:
    command = stack.kubectl.command("-n", NAMESPACE, *arguments)
    with subprocess.Popen(command, stdout=subprocess.PIPE, stderr=subprocess.STDOUT, text=True) as child:
        try:
            yield child
        finally:
            child.kill()


def change(stack: Stack, pipeline: Object) -> None:
    stack.kubectl.patch("lhcg", NAME, NAMESPACE, {"spec": {"pipeline": pipeline}})


def stalled(stack: Stack) -> str | None:
    """The message, once it is about the worker that breaks."""
    condition = stack.condition(NAME, NAMESPACE, "Stalled")
    assert condition is not None
    return condition["message"] if condition["status"] == "True" and SECOND in condition["message"] else None


def test_no_tool_passes_a_rollout_whose_second_worker_breaks(
    place: Stack,
    health: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    worker = {"progressDeadlineSeconds": DEADLINE_S}
    pipeline = {"sql": "SELECT contents FROM logs", "sink": {"console": {}}}
    code = {
        "apiVersion": "v1",
        "kind": "ConfigMap",
        "metadata": {"name": "code"},
        "data": {"enrich.py": CODE},
    }
    group = consumer_group(
        NAME, project="rolling-project", logstore=LOGSTORE, replicas=2, worker=worker, pipeline=pipeline
    )
    place.kubectl.apply(code, group, namespace=NAMESPACE)
    seen = tmp_path / "versions.json"
    with (
        seen.open("w") as output,
        subprocess.Popen(
            place.kubectl.command("-n", NAMESPACE, "get", "lhcg", NAME, "-w", "-o", "json"), stdout=output
        ) as watching,
    ):
        try:
            roll(place)
        finally:
            watching.terminate()
    judge(health, list(documents(seen.read_text())))


def roll(place: Stack) -> None:
    wait = ("wait", f"lhcg/{NAME}", "--timeout=600s")
    place.kubectl.run("-n", NAMESPACE, *wait, "--for=condition=Ready", guard_s=620)
    before = place.workers(NAME, NAMESPACE)
    assert before.keys() == {f"{NAME}-0", f"{NAME}-1"}
    python = {"function": "enrich:run", "configMap": {"name": "code"}}
    change(place, {"sql": None, "python": python})
    with running(place, *wait, "--for=condition=Ready") as ready:
        message = eventually(lambda: stalled(place), what=f"Stalled because of {SECOND}", guard_s=300)
        assert "this one breaks" in message
        status = place.group(NAME, NAMESPACE)["status"]
        assert (status["updatedReplicas"], status["workers"], status["phase"]) == (2, "1/2", "Degraded")
        assert ready.poll() is None, "kubectl wait went on"
        change(place, {"python": None, "sql": "SELECT contents AS c FROM logs"})
        assert ready.wait(600) == 0
    after = place.workers(NAME, NAMESPACE)
    assert after.keys() == before.keys()
    assert not set(after.values()) & set(before.values())


def judge(health: Path, seen: list[Object]) -> None:  # noqa: F811
    """Each generation passes only with both of its workers, the broken one never."""
    passed: dict[int, set[tuple[int, int]]] = {}
    failed = set()
    for version, judgement in zip(seen, judged(health, seen), strict=True):
        generation, status = version["metadata"]["generation"], version["status"]
        if judgement.passes:
            numbers = (status["readyReplicas"], status["updatedReplicas"])
            passed.setdefault(generation, set()).add(numbers)
        if (judgement.kstatus, judgement.argo) == ("Failed", "Degraded"):
            failed.add(generation)
    assert passed == {1: {(2, 2)}, 3: {(2, 2)}}, json.dumps(seen[-1])
    assert 2 in failed
