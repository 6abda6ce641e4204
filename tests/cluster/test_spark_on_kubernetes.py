"""A group whose workers make their executors as pods, on a real Kubernetes.

The tasks of its batches are held in an executor until that pod is killed, and each line must be in the sink
once.
"""

from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import pytest

from loghub.contract.worker import KUBERNETES, LABEL_OF_WORKER
from tests.cluster import lines
from tests.cluster.kubectl import Object, eventually
from tests.cluster.lines import Producer
from tests.cluster.release import Release
from tests.cluster.stack import Stack, consumer_group

NAME = "far"
WORKER = f"{NAME}-0"
PROCESS_KILLED = "executors-process-killed"  # the namespace of the story in which that happens, too
EXECUTORS = "app.kubernetes.io/name=loghub-executor"
CORES = 1  # each executor has one, and costs as much as starting a worker
# Holds a task while a file exists, and says in which pod.
MODULE = """
import os, socket, time
from pyspark.sql import functions as F

@F.udf
def hold(line):
    if os.path.exists("/sink/hold"):
        open(f"/sink/holding-{socket.gethostname()}", "w").close()
        while os.path.exists("/sink/hold"):
            time.sleep(0.05)
    return line

def run(logs):
    numbers = [F.col(f"contents.{name}").cast("int").alias(name) for name in ("pass", "number")]
    return logs.select("contents.file", *numbers, hold("contents.line").alias("line"))
"""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(600, func_only=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the steps share."""

    stack: Stack
    namespace: str  # also the name of the project
    producer: Producer
    sink: Path  # the volume

    def executors(self) -> dict[str, Object]:
        """The executors that run, by name."""
        pods = self.stack.kubectl.list("pod", self.namespace, EXECUTORS)
        running = (one for one in pods if "deletionTimestamp" not in one["metadata"])
        return {one["metadata"]["name"]: one for one in running if one["status"]["phase"] == "Running"}

    def held_in(self) -> set[str]:
        """The pods in which a task is or was held."""
        return {path.name.removeprefix("holding-") for path in self.sink.glob("holding-*")}


@pytest.fixture
def story(release: Release, request: pytest.FixtureRequest) -> Iterator[Story]:
    """In the namespace of the parameter."""
    stack, namespace = release.stack, request.param
    labels = {"pod-security.kubernetes.io/enforce": "restricted"}
    stack.kubectl.apply(
        {"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": namespace, "labels": labels}}
    )
    stack.make_secret(namespace)
    sink = stack.make_volume(namespace, namespace=namespace, claim="far-sink")
    with ExitStack() as cleanup:
        client = cleanup.enter_context(stack.client(namespace))
        client.create_project()
        client.create_logstore("access", shards=2)
        producer = cleanup.enter_context(Producer(client, "access", pause_s=1.0))
        stack.kubectl.apply(*objects(namespace), namespace=namespace)
        yield Story(stack=stack, namespace=namespace, producer=producer, sink=sink)


def objects(project: str) -> list[Object]:
    code = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": "far"}, "data": {"far.py": MODULE}}
    claim = {
        "apiVersion": "v1",
        "kind": "PersistentVolumeClaim",
        "metadata": {"name": "far-sink"},
        "spec": {
            "accessModes": ["ReadWriteOnce"],
            "storageClassName": "",
            "resources": {"requests": {"storage": "1Gi"}},
        },
    }
    group = consumer_group(
        NAME,
        project=project,
        deletionPolicy="Delete",
        pipeline={
            "trigger": {"intervalSeconds": 2},
            "python": {"function": "far:run", "configMap": {"name": "far"}},
            "sink": {"parquet": {"path": "lines", "volumeClaim": "far-sink"}},
        },
        spark={"master": KUBERNETES, "cores": CORES, "executors": {"cpu": "100m"}},
    )
    return [code, claim, group]


@pytest.mark.parametrize(
    "story", ["executors", pytest.param(PROCESS_KILLED, marks=pytest.mark.deep)], indirect=True
)
def test_executors_are_pods_of_their_worker(story: Story) -> None:
    try:
        lines_arrive_through_executors(story)
        executors_are_like_their_worker_and_have_no_rights(story)
        a_killed_executor_loses_and_doubles_nothing(story)
        if story.namespace == PROCESS_KILLED:
            the_next_process_of_the_worker_removes_the_executors_of_the_one_before(story)
        every_line_is_in_the_sink_once(story)
        deleting_the_group_removes_executors_and_rights(story)
    except BaseException:
        print(story.stack.explain(story.namespace))
        raise


def lines_arrive_through_executors(story: Story) -> None:
    eventually(lambda: lines.in_parquet(story.sink / "lines") or None, what="first rows in the sink")
    eventually(lambda: len(story.executors()) == CORES, what="an executor for each core")


def executors_are_like_their_worker_and_have_no_rights(story: Story) -> None:
    kubectl = story.stack.kubectl
    worker = kubectl.get("pod", WORKER, story.namespace)
    assert worker is not None
    for pod in story.executors().values():
        (owner,) = pod["metadata"]["ownerReferences"]
        assert (owner["kind"], owner["uid"]) == ("Pod", worker["metadata"]["uid"])
        assert pod["metadata"]["labels"][LABEL_OF_WORKER] == WORKER
        (theirs,), (ours,) = pod["spec"]["containers"], worker["spec"]["containers"]
        assert theirs["image"] == ours["image"] == story.stack.cluster.images["worker"]
        assert theirs["securityContext"] == ours["securityContext"]
        assert pod["spec"]["securityContext"] == worker["spec"]["securityContext"]
        assert theirs["resources"]["requests"]["cpu"] == "100m"
        assert theirs["resources"]["limits"]["memory"] == "1536Mi"
        assert token_mounts(pod) == []
    assert token_mounts(worker) != []
    assert can(story, "create", "pods")
    assert can(story, "deletecollection", "pods")
    for verb, what in (
        ("get", "secrets"),
        ("create", "configmaps"),
        ("patch", "pods"),
        ("create", "rolebindings"),
    ):
        assert not can(story, verb, what), f"{verb} {what}"
    assert not can(story, "create", "pods", namespace="default")


def token_mounts(pod: Object) -> list[Any]:
    return [
        mount
        for container in pod["spec"]["containers"]
        for mount in container["volumeMounts"]
        if "serviceaccount" in mount["mountPath"]
    ]


def can(story: Story, verb: str, what: str, *, namespace: str = "") -> bool:
    """Whether the ServiceAccount of the workers may do this, as the API server says; in its own namespace
    unless another one is given."""
    user = f"system:serviceaccount:{story.namespace}:{NAME}-workers"
    attributes = {"verb": verb, "resource": what, "namespace": namespace or story.namespace}
    if what == "rolebindings":
        attributes["group"] = "rbac.authorization.k8s.io"
    review = {
        "apiVersion": "authorization.k8s.io/v1",
        "kind": "SubjectAccessReview",
        "spec": {"user": user, "resourceAttributes": attributes},
    }
    return story.stack.kubectl.create(review)["status"]["allowed"] is True


def a_killed_executor_loses_and_doubles_nothing(story: Story) -> None:
    (story.sink / "hold").touch()
    eventually(lambda: story.held_in() or None, what="a task to be held", pause_s=0.1)
    killed = story.held_in()
    for name in killed:
        story.stack.kubectl.run("delete", "pod", name, "-n", story.namespace, "--force", "--grace-period=0")
    eventually(lambda: story.held_in() - killed or None, what="the task in another executor", pause_s=0.1)
    (story.sink / "hold").unlink()
    arrived = lines.in_parquet(story.sink / "lines").total()
    eventually(lambda: lines.in_parquet(story.sink / "lines").total() > arrived, what="the next batch")
    assert restarts(story) == 0, "the worker itself has gone on"


def restarts(story: Story) -> int:
    worker = story.stack.kubectl.get("pod", WORKER, story.namespace)
    assert worker is not None
    return sum(one["restartCount"] for one in worker["status"]["containerStatuses"])


def the_next_process_of_the_worker_removes_the_executors_of_the_one_before(story: Story) -> None:
    """Killed, it could not remove them itself, and Kubernetes does not while its pod exists."""
    before = set(story.executors())
    kill = "import os, pathlib, signal; [os.kill(int(p.parent.name), signal.SIGKILL) for p in"
    kill += " pathlib.Path('/proc').glob('[0-9]*/cmdline') if b'loghub_worker' in p.read_bytes()"
    kill += " and p.parent.name not in ('1', str(os.getpid()))]"
    story.stack.kubectl.run("exec", WORKER, "-n", story.namespace, "--", "python", "-c", kill)
    eventually(lambda: restarts(story) == 1, what="the container to be started again")
    eventually(lambda: len(set(story.executors()) - before) == CORES, what="executors of the new process")
    pods = {one["metadata"]["name"] for one in story.stack.kubectl.list("pod", story.namespace, EXECUTORS)}
    assert not pods & before


def every_line_is_in_the_sink_once(story: Story) -> None:
    story.producer.stop()
    assert story.producer.error is None
    assert len(story.producer.sent) > 100
    lines.wait_equal(lambda: lines.in_parquet(story.sink / "lines"), story.producer.sent, what="sink")


def deleting_the_group_removes_executors_and_rights(story: Story) -> None:
    kubectl = story.stack.kubectl
    kubectl.run("delete", "lhcg", NAME, "-n", story.namespace, "--timeout=180s", guard_s=200)
    eventually(lambda: not kubectl.list("pod", story.namespace), what="no pods")
    eventually(lambda: not kubectl.list("rolebinding", story.namespace), what="no rights")
