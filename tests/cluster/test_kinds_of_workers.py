"""The kinds of workers that the other stories lack, on a real Kubernetes, side by side: processors that
refuse logs, and a stateful group that writes files to a bucket whose keys are in a Secret.

A pod of each is killed while a producer writes. The S3 server runs as a pod of its own.
"""

import shutil
from collections import Counter
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.wire import loggroup
from loghub.wire.loggroup import LogGroup
from tests.cluster import lines
from tests.cluster.kubectl import Object, eventually, is_ready
from tests.cluster.lines import Line, Producer
from tests.cluster.release import Release
from tests.cluster.s3_server import S3Server
from tests.cluster.stack import Stack, claim, config_map, consumer_group

NAMESPACE = PROJECT = "kinds"
SORTING, ONCE = "sorting", "once"
WORKERS = [f"{name}-0" for name in (SORTING, ONCE)]
S3_PORT = 7070
# Takes some logs only after they have waited in the retry logstore, and others never. What it takes is a line
# in a file of its process.
SORT = """
import json, os
from loghub_consumer import LogBatch, Processor, Tracker

class Sort(Processor):
    def initialize(self, shard):
        self.taken = open(f"/taken/{os.environ['HOSTNAME']}-{os.getpid()}-{shard}", "a")

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                number = int(log.get("number"))
                if number % 10 == 3 or (number % 10 == 7 and logs.delivery <= 2):
                    tracker.nack(log, reason="not this one")
                else:
                    keys = ("file", "pass", "number", "line")
                    print(json.dumps([log.get(key) for key in keys]), file=self.taken)
        self.taken.flush()
        tracker.save(persist=False)
"""
COLUMNS = [
    "contents['file'] AS file",
    "CAST(contents['pass'] AS INT) AS pass",
    "CAST(contents['number'] AS INT) AS number",
    "contents['line'] AS line",
]
ONCE_CODE = f"""
def run(logs):
    rows = logs.selectExpr("__time__", *{COLUMNS})
    return rows.withWatermark("__time__", "1 hour").dropDuplicatesWithinWatermark(
        ["file", "pass", "number", "line"]
    )
"""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the steps share. The folders are those of the volumes."""

    stack: Stack
    client: HttpLogHub
    producer: Producer
    taken: Path
    bucket: Path

    def uids(self) -> dict[str, str]:
        """Of the ready workers, by pod."""
        pods = self.stack.kubectl.list("pod", NAMESPACE)
        return {
            one["metadata"]["name"]: one["metadata"]["uid"]
            for one in pods
            if one["metadata"]["name"] in WORKERS and is_ready(one)
        }


@pytest.fixture
def story(release: Release, versitygw: Path) -> Iterator[Story]:
    stack = release.stack
    stack.make_namespace(NAMESPACE)
    taken = stack.make_volume("taken", namespace=NAMESPACE, claim="taken")
    stack.make_volume("once-state", namespace=NAMESPACE, claim="state-once-0")
    objects = stack.make_volume("objects", namespace=NAMESPACE, claim="objects")
    with ExitStack() as cleanup:
        client = cleanup.enter_context(stack.client(PROJECT))
        client.create_project()
        for name in ("access", "access-retry", "access-rejected"):
            client.create_logstore(name, shards=1)
        stack.kubectl.apply(*s3_server(stack, objects, versitygw), namespace=NAMESPACE)
        producer = cleanup.enter_context(Producer(client, "access", pause_s=1.0))
        stack.kubectl.apply(claim("taken"), *processors(), *stateful(), namespace=NAMESPACE)
        yield Story(
            stack=stack,
            client=client,
            producer=producer,
            taken=taken,
            bucket=objects / "buckets" / "rows" / "lines",
        )


def s3_server(stack: Stack, objects: Path, program: Path) -> list[Object]:
    """A pod and a Service with the server, and the Secret with its keys. The program runs in any image."""
    shutil.copy(program, objects / "versitygw")
    for name in ("buckets/rows", "metadata"):
        (objects / name).mkdir(parents=True)
        for folder in (objects / name, (objects / name).parent):
            folder.chmod(0o777)
    keys = {
        "ROOT_ACCESS_KEY_ID": S3Server.access_key_id,
        "ROOT_SECRET_ACCESS_KEY": S3Server.secret_access_key,
    }
    command = ["/data/versitygw", "--port", f":{S3_PORT}", "--quiet", "posix", "--sidecar", "/data/metadata"]
    container = {
        "name": "s3",
        "image": stack.cluster.images["worker"],
        "command": [*command, "/data/buckets"],
        "env": [{"name": name, "value": value} for name, value in keys.items()],
        "volumeMounts": [{"name": "data", "mountPath": "/data"}],
        "readinessProbe": {"tcpSocket": {"port": S3_PORT}, "periodSeconds": 1},
    }
    volume = {"name": "data", "hostPath": {"path": f"{stack.cluster.volumes_on_node}/objects"}}
    pod = {
        "apiVersion": "v1",
        "kind": "Pod",
        "metadata": {"name": "s3", "labels": {"app": "s3"}},
        "spec": {"containers": [container], "volumes": [volume], "terminationGracePeriodSeconds": 0},
    }
    service = {
        "apiVersion": "v1",
        "kind": "Service",
        "metadata": {"name": "s3"},
        "spec": {"selector": {"app": "s3"}, "ports": [{"port": S3_PORT}]},
    }
    data = {"accessKeyId": S3Server.access_key_id, "secretAccessKey": S3Server.secret_access_key}
    secret = {"apiVersion": "v1", "kind": "Secret", "metadata": {"name": "bucket-keys"}, "stringData": data}
    return [pod, service, secret]


def processors() -> list[Object]:
    volume = {"name": "taken", "persistentVolumeClaim": {"claimName": "taken"}}
    container = {"name": "worker", "volumeMounts": [{"name": "taken", "mountPath": "/taken"}]}
    group = consumer_group(
        SORTING,
        project=PROJECT,
        startPosition={"from": "Begin"},
        timeoutSeconds=10,
        heartbeatIntervalSeconds=2,
        deletionPolicy="Delete",
        pipeline={
            "processor": {
                "factory": "sort:Sort",
                "configMap": {"name": "sort"},
                "redelivery": {"delayMilliseconds": 100},
                "retryLogstore": {"name": "access-retry", "delaysSeconds": [1, 2]},
            },
            "onFailure": {
                "policy": "DeadLetter",
                "maxAttempts": 2,
                "maxConsecutive": 10_000,
                "maxPerHour": 100_000,
                "deadLetter": {"logstore": {"name": "access-rejected"}},
            },
        },
        worker={"podTemplate": {"spec": {"containers": [container], "volumes": [volume]}}},
    )
    del group["spec"]["spark"]
    return [config_map("sort", sort=SORT), group]


def stateful() -> list[Object]:
    s3 = {"endpoint": f"http://s3.{NAMESPACE}.svc:{S3_PORT}", "allowHttp": True}
    group = consumer_group(
        ONCE,
        project=PROJECT,
        startPosition={"from": "Begin"},
        timeoutSeconds=10,
        heartbeatIntervalSeconds=2,
        deletionPolicy="Delete",
        pipeline={
            "trigger": {"intervalSeconds": 2},
            "stateful": True,
            "state": {"size": "1Gi"},
            "python": {"function": "once:run", "configMap": {"name": "once"}},
            "sink": {
                "parquet": {"url": "s3://rows/lines", "s3": s3},
                "credentialsSecret": {"name": "bucket-keys"},
            },
            "onFailure": {"policy": "Retry"},
        },
    )
    return [config_map("once", once=ONCE_CODE), group]


def test_processors_and_a_state_outlive_their_pods(story: Story) -> None:
    try:
        all_of_them_deliver(story)
        their_pods_are_killed(story)
        lines_come_again(story)
        processors_have_taken_what_they_do_not_refuse(story)
        the_bucket_has_every_line_once_for_the_state_has_outlived_its_pod(story)
        the_keys_of_the_bucket_are_shown_nowhere(story)
        deleting_the_groups_removes_the_volume_claim_of_the_state(story)
    except BaseException:
        print(story.stack.explain(NAMESPACE))
        raise


def all_of_them_deliver(story: Story) -> None:
    eventually(lambda: taken(story) or None, what="lines that a processor has taken")
    eventually(lambda: lines.in_parquet(story.bucket) or None, what="rows in the bucket")
    eventually(lambda: len(story.uids()) == len(WORKERS), what="all workers ready")


def their_pods_are_killed(story: Story) -> None:
    before = story.uids()
    how = ("--force", "--grace-period=0")
    story.stack.kubectl.run("delete", "pod", *WORKERS, "-n", NAMESPACE, *how)

    def are_back() -> bool:
        now = story.uids()
        return len(now) == len(WORKERS) and not now.items() & before.items()

    eventually(are_back, what="new pods are ready")


def lines_come_again(story: Story) -> None:
    """The producer ends; all that it has written is written once more."""
    story.producer.stop()
    assert story.producer.error is None
    sent = list(story.producer.sent)
    assert len(sent) > 100
    for first in range(0, len(sent), 100):
        group = LogGroup(logs=tuple(map(lines.log_of, sent[first : first + 100])))
        story.client.put_logs("access", loggroup.encode(group))


def processors_have_taken_what_they_do_not_refuse(story: Story) -> None:
    """Some of it after it had waited in the retry logstore. At least once: their pods were killed."""
    refused = {line for line in story.producer.sent if line[2] % 10 == 3}
    expected = story.producer.sent.keys() - refused
    eventually(lambda: taken(story) == expected, what="every line taken by a processor")

    def rejected() -> Counter[Line]:
        return lines.in_logstore(story.client, "access-rejected")

    eventually(lambda: rejected().keys() == refused, what="the others in the dead letter")
    assert any(line[2] % 10 == 7 for line in taken(story))
    assert lines.in_logstore(story.client, "access-retry").keys() >= refused


def taken(story: Story) -> set[Line]:
    """What the processors have taken, by whichever pod."""
    return set(lines.in_files(story.taken))


def the_bucket_has_every_line_once_for_the_state_has_outlived_its_pod(story: Story) -> None:
    """It knows the lines that were written before its pod was killed."""

    def is_consumed() -> bool:
        shards = story.client.group_status("access", ONCE).shards
        return all(shard.checkpoint == shard.end_cursor for shard in shards)

    eventually(is_consumed, what="the checkpoint of the stateful group at the end")
    assert lines.in_parquet(story.bucket) == story.producer.sent
    assert max(story.producer.sent.values()) == 1
    story.stack.wait_condition(ONCE, NAMESPACE, "StateIncomplete", status="False", reason="StateComplete")


def the_keys_of_the_bucket_are_shown_nowhere(story: Story) -> None:
    settings = story.stack.kubectl.run("get", "lhcg,cm,sts", "-n", NAMESPACE, "-o", "yaml")
    logs = story.stack.kubectl.run("logs", f"{ONCE}-0", "-n", NAMESPACE)
    assert S3Server.secret_access_key not in settings + logs


def deleting_the_groups_removes_the_volume_claim_of_the_state(story: Story) -> None:
    kubectl = story.stack.kubectl
    kubectl.run("delete", "lhcg", SORTING, ONCE, "-n", NAMESPACE, "--timeout=180s", guard_s=200)
    eventually(lambda: kubectl.get("pvc", "state-once-0", NAMESPACE) is None, what="no claim of the state")
