"""One consumer group from start to end on a real Kubernetes.

Applies `deploy/` and its examples as a user would, and follows every line that a producer writes until it is
in the sink, while workers are added, killed and removed. Holders in the status are compared with the pods and
with the service three times.
"""

import time
from collections.abc import Iterator
from contextlib import ExitStack
from dataclasses import dataclass
from datetime import datetime
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from tests.cluster import addresses, lines
from tests.cluster.kubectl import eventually
from tests.cluster.lines import Producer
from tests.cluster.stack import Stack, example

NAMESPACE = "first-light"
NAME = "access-log"
COPY = "copy-logstore"
SHARDS = 3

pytestmark = [pytest.mark.cluster, pytest.mark.deep(minutes=10), pytest.mark.timeout(900, func_only=True)]


@dataclass(frozen=True, slots=True, kw_only=True)
class Story:
    """What the steps share."""

    stack: Stack
    client: HttpLogHub
    producer: Producer
    sink: Path


@pytest.fixture
def story(stack: Stack) -> Iterator[Story]:
    """Project, logstores, a producer at work, and the first example applied."""
    stack.make_namespace(NAMESPACE)
    sink = stack.make_volume("sink", namespace=NAMESPACE, claim="access-log-sink")
    with ExitStack() as cleanup:
        client = cleanup.enter_context(stack.client("demo"))
        client.create_project()
        client.create_logstore("access", shards=SHARDS)
        client.create_logstore("access-copy", shards=1)
        producer = cleanup.enter_context(Producer(client, "access"))
        stack.kubectl.apply(*example("access-log.yaml"), namespace=NAMESPACE)
        yield Story(stack=stack, client=client, producer=producer, sink=sink / "access")


def test_first_light(story: Story) -> None:
    try:
        the_group_starts_and_shows_itself(story)
        addresses.every_address_is_of_the_chosen_family(story.stack.kubectl)
        a_worker_is_added_by_the_load(story)
        more_workers_than_shards_are_refused_with_a_reason(story)
        a_killed_pod_comes_back_and_consumes(story)
        a_broken_query_stops_one_worker_only(story)
        addresses.the_project_has_a_name(story.stack.kubectl, "demo", pod=f"{NAME}-0", namespace=NAMESPACE)
        every_line_is_in_the_sink_once(story)
        a_logstore_is_copied(story)
        deleting_follows_the_policy(story)
    except BaseException:
        print(story.stack.explain(NAMESPACE))
        raise


def the_group_starts_and_shows_itself(story: Story) -> None:
    wait_held(story, {f"{NAME}-0", f"{NAME}-1"})
    groups = {group.name: group for group in story.client.list_groups("access")}
    assert groups[NAME].timeout_s == 10
    # A worker may hold shards before its pod's next readiness probe.
    lag_s = eventually(lambda: shown_lag_s(story), what="the table shows a running group, all workers ready")
    assert lag_s >= 0
    eventually(lambda: lines.in_parquet(story.sink) or None, what="first rows in the sink")


def shown_lag_s(story: Story) -> int | None:
    """The lag in seconds that `kubectl get` shows, or None until it shows the group running."""
    head, row = story.stack.kubectl.run("get", "lhcg", NAME, "-n", NAMESPACE).splitlines()
    assert head.split() == ["NAME", "PHASE", "READY", "UP-TO-DATE", "REASON", "SHARDS", "LAG(S)", "AGE"]
    *shown, lag_s, _ = row.split()
    return int(lag_s) if shown == [NAME, "Running", "2/2", "2", "Running", str(SHARDS)] else None


def a_worker_is_added_by_the_load(story: Story) -> None:
    """One worker is configured with half a log group a second; more are written, so every shard gets one."""
    kubectl, before = story.stack.kubectl, story.stack.workers(NAME, NAMESPACE)
    auto = {"mode": "Auto", "workerCapacity": "500m", "scaleUp": {"stabilizationWindowSeconds": 0}}
    kubectl.patch("lhcg", NAME, NAMESPACE, {"spec": {"scaling": auto}})
    wait_held(story, {f"{NAME}-{ordinal}" for ordinal in range(SHARDS)})
    reported = story.stack.group(NAME, NAMESPACE)["status"]["scaling"]
    assert (reported["uncappedReplicas"] > SHARDS, reported["limitedBy"]) == (True, "Shards")
    assert reported["desiredReplicas"] == SHARDS
    assert [(step["from"], step["to"]) for step in reported["history"]] == [(2, SHARDS)]
    assert before.items() <= story.stack.workers(NAME, NAMESPACE).items(), "no worker was restarted for it"
    by_hand = {"scaling": {"mode": "Fixed", "workerCapacity": None, "scaleUp": None}, "replicas": SHARDS}
    kubectl.patch("lhcg", NAME, NAMESPACE, {"spec": by_hand})


def more_workers_than_shards_are_refused_with_a_reason(story: Story) -> None:
    story.stack.kubectl.run("scale", "lhcg", NAME, "-n", NAMESPACE, "--replicas=4")
    message = story.stack.wait_condition(
        NAME, NAMESPACE, "ScalingLimited", status="True", reason="TooFewShards"
    )
    assert str(SHARDS) in message
    statefulset = story.stack.kubectl.get("statefulset", NAME, NAMESPACE)
    assert statefulset is not None
    assert statefulset["spec"]["replicas"] == SHARDS


def a_killed_pod_comes_back_and_consumes(story: Story) -> None:
    """The worker of the second example starts meanwhile, for `a_logstore_is_copied`."""
    killed = f"{NAME}-1"
    before = story.stack.workers(NAME, NAMESPACE)
    text = ("delete", "pod", killed, "-n", NAMESPACE, "--force", "--grace-period=0")
    story.stack.kubectl.run(*text)
    story.stack.kubectl.apply(*example("copy-logstore.yaml"), namespace=NAMESPACE)
    eventually(
        lambda: story.stack.workers(NAME, NAMESPACE).get(killed) not in (None, before[killed]),
        what=f"a new {killed} is ready",
    )
    wait_held(story, set(before))


def a_broken_query_stops_one_worker_only(story: Story) -> None:
    kubectl, stack = story.stack.kubectl, story.stack
    query = stack.group(NAME, NAMESPACE)["spec"]["pipeline"]["sql"]
    kubectl.patch("lhcg", NAME, NAMESPACE, {"spec": {"pipeline": {"sql": query + " WHERE nonsense = 1"}}})
    message = stack.wait_condition(
        NAME, NAMESPACE, "WorkersAvailable", status="False", reason="InvalidPipeline"
    )
    assert "nonsense" in message
    assert {f"{NAME}-0", f"{NAME}-1"} <= set(stack.workers(NAME, NAMESPACE))
    arrived = lines.in_parquet(story.sink).total()
    eventually(lambda: lines.in_parquet(story.sink).total() > arrived, what="the others going on")
    kubectl.patch("lhcg", NAME, NAMESPACE, {"spec": {"pipeline": {"sql": query}}})
    wait_held(story, {f"{NAME}-{ordinal}" for ordinal in range(SHARDS)})


def every_line_is_in_the_sink_once(story: Story) -> None:
    story.producer.stop()
    assert story.producer.error is None
    assert len(story.producer.sent) > 100
    lines.wait_equal(lambda: lines.in_parquet(story.sink), story.producer.sent, what="sink")

    def lag_is_reported_as_none() -> bool:
        status = story.stack.group(NAME, NAMESPACE)["status"]
        shards = status["shards"]
        return len(shards) == SHARDS and all(shard.get("lagSeconds") == 0 for shard in shards)

    eventually(lag_is_reported_as_none, what="no lag in the status")
    assert lines.in_parquet(story.sink) == story.producer.sent


def a_logstore_is_copied(story: Story) -> None:
    lines.wait_equal(lambda: lines.in_logstore(story.client, "access-copy"), story.producer.sent, what="copy")


def deleting_follows_the_policy(story: Story) -> None:
    kubectl, long = story.stack.kubectl, ("--timeout=180s",)
    kubectl.run("delete", "lhcg", NAME, COPY, "-n", NAMESPACE, "--wait=false")
    for kind in ("lhcg", "statefulset"):
        # Waits until the objects are deleted, also if they are already.
        for name in (NAME, COPY):
            kubectl.run("wait", "--for=delete", f"{kind}/{name}", "-n", NAMESPACE, *long, guard_s=200)
    left = {group.name for group in story.client.list_groups("access")}
    assert left == {COPY}
    checkpoints = story.client.get_checkpoints("access", COPY)
    assert {point.shard for point in checkpoints if point.cursor} == set(range(SHARDS))


def wait_held(story: Story, expected: set[str]) -> None:
    """Status, pods and service agree: these workers run, each holds a shard, every shard is held."""
    since = int(time.time())

    def agree() -> bool:
        status = story.stack.group(NAME, NAMESPACE).get("status", {})
        shards = status.get("shards", [])
        fresh = all(_unix_s(shard["observedAt"]) >= since for shard in shards)
        if len(shards) != SHARDS or not fresh or status.get("phase") != "Running":
            return False
        reported = {shard["id"]: (shard["state"], shard.get("consumer")) for shard in shards}
        real = {
            shard.shard: (shard.state, shard.holder)
            for shard in story.client.group_status("access", NAME).shards
        }
        held_by = {holder for state, holder in reported.values() if state == "already_alloc"}
        return reported == real and held_by == expected == set(story.stack.workers(NAME, NAMESPACE))

    eventually(agree, what=f"shards held by {sorted(expected)}", guard_s=300)


def _unix_s(text: str) -> float:
    return datetime.fromisoformat(text).timestamp()
