"""The whole life of a consumer group under the chart: what a team does with it, and what goes wrong.

Installs the chart with helm, applies the resource that its notes show, and continues with that one object:
a Kafka client that reads the same logstore, changes of each class, a broken query, a leader killed in the
middle of a step, suspend, checkpoint reset and undo, an autoscaler, a lease that is taken by another holder,
a log service that is down, an apiserver that is killed, a second object for the same group. Every line
that the producer wrote is counted at the end. It is one story, because starting a worker is what takes
time here. The query is repaired by a processor, since the operator treats all workers alike, and a processor
starts without a JVM; Spark goes on in `test_kinds_of_workers` and `test_spark_on_kubernetes`.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

import pytest
import yaml

from tests.cluster import addresses, kafka_reader, life, lines
from tests.cluster.agreement import Group, Places
from tests.cluster.kubectl import Object, eventually
from tests.cluster.life import LOGSTORE, NAME, NAMESPACE, SHARDS, Story
from tests.cluster.release import Release
from tests.cluster.stack import SERVICE_NAMESPACE, claim, config_map, example

RESTART_BOUND_S = 600  # the group's timeout: longer than a worker's restarts on a busy machine
UNSEEN = 2  # of hundreds of requests; one may fail on a busy machine
# Seconds from one log group to the next. Each costs a micro-batch, so they are few.
BUSY_S = 0.4
QUIET_S = 2.0
SINK = "life-sink"
KEEP = """
import json, os
from loghub_consumer import LogBatch, Processor, Tracker

class Keep(Processor):
    def initialize(self, shard):
        self.kept = open(f"/sink/{os.environ['HOSTNAME']}-{os.getpid()}-{shard}", "a")

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                keys = ("file", "pass", "number", "line")
                print(json.dumps([log.get(key) for key in keys]), file=self.kept)
        self.kept.flush()
        tracker.save(persist=False)
"""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(1200, func_only=True)]


@pytest.fixture
def story(release: Release, request: pytest.FixtureRequest) -> Iterator[Story]:
    """Project, logstores and a producer at work; no consumer group yet."""
    stack = release.stack
    stack.make_secret(NAMESPACE)
    sink = stack.make_volume(SINK, namespace=NAMESPACE, claim=SINK)
    with stack.client("demo") as client:
        client.create_project()
        client.create_logstore(LOGSTORE, shards=SHARDS)
        client.create_logstore("access-copy", shards=1)
        group = Group(stack=stack, namespace=NAMESPACE, name=NAME, logstore=LOGSTORE, shards=SHARDS)
        reported = Story(release=release, say=_terminal(request), sink=sink, client=client, group=group)
        reported.produce(QUIET_S)
        try:
            yield reported
        finally:
            for producer in reported.producers:
                producer.stop()


def test_the_whole_life_of_a_group(story: Story) -> None:
    steps: tuple[Callable[[Story], None], ...] = (
        the_pasted_resource_consumes,
        names_and_addresses_are_of_the_cluster,
        a_kafka_client_reads_what_was_put,
        a_change_that_no_worker_needs_restarts_none,
        a_broken_query_stops_one_worker_and_moves_no_shard,
        a_rolling_restart_with_a_processor_moves_no_shard,
        suspended_while_the_leader_is_killed,
        checkpoints_are_moved_and_moved_back,
        an_autoscaler_brings_a_second_worker,
        the_log_service_is_away,
        the_apiserver_is_restarted,
        the_autoscaler_takes_one_away,
        every_line_came_as_often_as_it_should,
        a_second_object_takes_the_group_over,
    )
    try:
        for step in steps:
            with _timed(story, step.__name__):
                step(story)
    except BaseException:
        print(story.stack.explain(NAMESPACE))
        raise


def the_pasted_resource_consumes(story: Story) -> None:
    """A second worker is requested while the first one starts: both take as long as one."""
    kubectl = story.stack.kubectl
    kubectl.run("apply", "-f", "-", text=story.release.pasted())
    first = eventually(lambda: life.pods(story) or None, what="a pod of the pasted resource")
    kubectl.run("scale", "lhcg", NAME, "-n", NAMESPACE, "--replicas=2")
    with story.release.testing():
        eventually(lambda: life.copied(story) or None, what="first line in the copy", guard_s=300)
    story.group.wait_held(story.client, life.workers(2))
    assert first.keys() == life.workers(1)
    assert first.items() <= life.pods(story).items(), "the first was restarted for the second"


def names_and_addresses_are_of_the_cluster(story: Story) -> None:
    kubectl = story.stack.kubectl
    addresses.every_address_is_of_the_chosen_family(kubectl)
    addresses.the_project_has_a_name(kubectl, "demo", pod=f"{NAME}-0", namespace=NAMESPACE)


def a_kafka_client_reads_what_was_put(story: Story) -> None:
    """Through the Service, while the workers consume and the producer goes on."""
    sent = story.sent()
    with story.release.kafka() as address:
        found = kafka_reader.read_until(
            address,
            LOGSTORE,
            lambda found: not sent - found,
            project="demo",
            credentials=story.stack.credentials,
            group="readers",
        )
    eventually(lambda: not found - story.sent(), what="no line that was not sent, and none twice")
    (group,) = story.client.list_kafka_groups(LOGSTORE)
    assert (group.name, group.state) == ("readers", "Empty")


def a_change_that_no_worker_needs_restarts_none(story: Story) -> None:
    before = life.pods(story)
    story.patch(deletionPolicy="Delete", scaling={"maxReplicas": 5})
    life.wait_until_observed(story)
    assert life.pods(story) == before


def a_broken_query_stops_one_worker_and_moves_no_shard(story: Story) -> None:
    """The other one goes on with the query that it has."""
    before = life.pods(story)
    pipeline = {"sql": "SELECT contents FROM logs WHERE nonsense = 1", "trigger": {"intervalSeconds": 3}}
    with _no_shard_moves(story):
        story.patch(timeoutSeconds=RESTART_BOUND_S, inOrder=True, pipeline=pipeline)
        message = story.stack.wait_condition(
            NAME, NAMESPACE, "WorkersAvailable", status="False", reason="InvalidPipeline"
        )
        assert "nonsense" in message
        copied = life.copied(story).total()
        eventually(lambda: life.copied(story).total() > copied, what="the other worker going on")
    unchanged = life.pods(story).items() & before.items()
    assert {name for name, _ in unchanged} == {f"{NAME}-0"}


def a_rolling_restart_with_a_processor_moves_no_shard(story: Story) -> None:
    """It goes on where the query has ended, and writes to a volume."""
    before = life.pods(story)
    code = config_map("keep", keep=KEEP)
    story.stack.kubectl.apply(claim(SINK), code, namespace=NAMESPACE)
    volume = {"name": "sink", "persistentVolumeClaim": {"claimName": SINK}}
    container = {"name": "worker", "volumeMounts": [{"name": "sink", "mountPath": "/sink"}]}
    template = {"spec": {"containers": [container], "volumes": [volume]}}
    processor = {"factory": "keep:Keep", "configMap": {"name": "keep"}}
    with _no_shard_moves(story) as held:
        story.patch(
            pipeline={"sql": None, "sink": None, "trigger": None, "processor": processor},
            worker={"podTemplate": template},
        )
        eventually(lambda: life.all_new(story, before), what="both workers restarted", guard_s=300)
        assert story.group.wait_held(story.client, life.workers(2)) == held
    group = life.group_at_service(story)
    assert (group.timeout_s, group.order) == (RESTART_BOUND_S, True)
    eventually(lambda: lines.in_files(story.sink) or None, what="first lines in the sink")
    # But for the broken one, which may end by itself while the hook runs.
    broken, _ = before[f"{NAME}-1"]
    events = story.stack.kubectl.list("event", NAMESPACE)
    others = {event["reason"] for event in events if event["involvedObject"].get("uid") != broken}
    assert "FailedPreStopHook" not in others


@contextmanager
def _no_shard_moves(story: Story) -> Iterator[Places]:
    """While the body runs, which gets the holders."""
    held = story.group.real(story.client)
    with life.holders(story) as holders:
        yield held
    moved = {shard: observed for shard, observed in holders.observed.items() if len(observed) != 1}
    assert not moved
    assert len(holders.observed) == SHARDS
    assert holders.unanswered <= UNSEEN, "not all of it was seen"


def suspended_while_the_leader_is_killed(story: Story) -> None:
    """The step is two workers to none; the leader is killed after the first half of it."""
    leader = story.release.holder()
    with life.watched(story) as pods:
        story.patch(suspend=True, replicas=1)
        eventually(lambda: pods.draining() or None, what="workers asked to leave", pause_s=0.1)
        story.release.kill_leader()
        killed_s = time.monotonic()
        assert life.replicas(story) == 2, "the step was over before the leader was killed"
        eventually(lambda: story.release.holder() not in ("", leader), what="another leader")
        story.say(f"another leader after {time.monotonic() - killed_s:.1f} s")
        eventually(lambda: all(pod.deleted_s for pod in pods.pods.values()), what="no worker left")
    story.stack.wait_condition(NAME, NAMESPACE, "Suspended", status="True", reason="Suspended")
    assert life.replicas(story) == 0
    assert {shard: holder for shard, (_, holder) in story.group.real(story.client).items()} == dict.fromkeys(
        range(SHARDS)
    )


def checkpoints_are_moved_and_moved_back(story: Story) -> None:
    """All while suspended, so that no worker is started for it."""
    story.before = lines.in_files(story.sink)
    old, copied = life.checkpoints(story), life.copied(story)
    consumed = lines.in_logstore(story.client, LOGSTORE, until=old)
    assert life.texts(story.before) + copied == life.texts(consumed)
    begin = {shard: story.client.get_cursor(LOGSTORE, shard, "begin") for shard in range(SHARDS)}
    record = life.reset_checkpoints(story, to="Begin", nonce="again")
    assert life.checkpoints(story) == life.numbers(begin)
    life.reset_checkpoints(story, to="ConfigMap", configMapName=record, nonce="undo")
    assert life.checkpoints(story) == old
    life.reset_checkpoints(story, to="Begin", nonce="once-more")
    assert life.checkpoints(story) == life.numbers(begin)


def an_autoscaler_brings_a_second_worker(story: Story) -> None:
    """From one, as the stream gets busier than the configured capacity of one worker.

    Both operators may take themselves for the one that acts, since the lease is taken away: no
    worker is created twice or asked to leave.
    """
    story.producers[-1].pause_s = BUSY_S
    story.stack.kubectl.apply(_autoscaler(), namespace=NAMESPACE)
    at_once = {"stabilizationWindowSeconds": 0}  # the window that counts here is the autoscaler's own
    scaling = {"mode": "External", "minReplicas": 1, "maxReplicas": SHARDS, "workerCapacity": 1}
    scaling |= {"scaleUp": at_once, "scaleDown": at_once}
    with life.watched(story) as pods:
        story.patch(suspend=False, scaling=scaling)
        eventually(lambda: pods.pods, what="the first worker")
        story.release.take_lease_away()
        story.group.wait_held(story.client, life.workers(SHARDS), guard_s=400)
        assert sorted(pod.name for pod in pods.pods.values()) == sorted(life.workers(SHARDS))
        assert not pods.draining()
    scaled = story.stack.kubectl.get("hpa", NAME, NAMESPACE)
    assert scaled is not None
    assert scaled["status"]["desiredReplicas"] == SHARDS


def the_log_service_is_away(story: Story) -> None:
    """Until operator and autoscaler have seen it; the producer waits with its next line."""
    kubectl, before = story.stack.kubectl, life.pods(story)
    story.producers[-1].stop()
    life.scale_service(story, 0)
    stack = story.stack
    stack.wait_condition(NAME, NAMESPACE, "GroupSynced", status="False", reason="EndpointUnreachable")
    stack.wait_condition(NAME, NAMESPACE, "LagAvailable", status="False", reason="LogServiceUnavailable")
    eventually(lambda: _autoscaler_is_active(story) == "False", what="an autoscaler that knows nothing")
    assert life.replicas(story) == SHARDS
    assert life.pods(story) == before
    life.scale_service(story, 1)
    kubectl.run("rollout", "status", "statefulset/loghub-service", "-n", SERVICE_NAMESPACE)
    stack.wait_condition(NAME, NAMESPACE, "GroupSynced", status="True", reason="UpToDate")
    stack.wait_condition(NAME, NAMESPACE, "LagAvailable", status="True", reason="Available")
    assert life.pods(story) == before


def _autoscaler_is_active(story: Story) -> str:
    """The status of the condition that says so."""
    conditions = (story.stack.kubectl.get("hpa", NAME, NAMESPACE) or {})["status"]["conditions"]
    return next(one["status"] for one in conditions if one["type"] == "ScalingActive")


def the_apiserver_is_restarted(story: Story) -> None:
    """The workers do not notice; the operator takes what is changed afterwards."""
    before = life.pods(story)
    story.stack.cluster.restart_apiserver()
    eventually(lambda: life.answers(story), what="the apiserver answers")
    story.patch(inOrder=False)
    life.wait_until_observed(story)
    with story.stack.client("demo") as client:
        story.client = client
        eventually(lambda: not life.group_at_service(story).order, what="the order of the group changed")
        assert story.group.wait_held(client, life.workers(SHARDS))
    assert life.pods(story) == before


def the_autoscaler_takes_one_away(story: Story) -> None:
    """Each leaves first: its shards are owned by another one before its pod is deleted."""
    with story.stack.client("demo") as client:
        story.client = client
        story.produce(QUIET_S)
        with life.watched(story) as pods, life.holders(story) as holders:
            eventually(lambda: len(holders.now()) == SHARDS, what="the holders of now")
            # Only now, so that no worker leaves unobserved.
            down = {"behavior": {"scaleDown": {"stabilizationWindowSeconds": 0}}}
            story.stack.kubectl.patch("hpa", NAME, NAMESPACE, {"spec": down})
            story.group.wait_held(client, life.workers(1), guard_s=400)
            leaving = [pod for pod in pods.pods.values() if pod.name != f"{NAME}-0"]
            eventually(lambda: all(pod.deleted_s for pod in leaving), what="the pod deleted")
        assert len(leaving) == SHARDS - 1
        assert holders.unanswered <= UNSEEN, "not all of it was seen"
        for pod in leaving:
            drain_s, owned_s, deleted_s = pod.drain_requested_s, holders.freed_s(pod.name), pod.deleted_s
            assert drain_s is not None
            assert owned_s is not None
            assert deleted_s is not None
            reported = (
                f"{pod.name} asked to leave; its shards owned after {owned_s - drain_s:.1f} s, gone after"
            )
            story.say(f"{reported} {deleted_s - drain_s:.1f} s")
            assert drain_s <= owned_s < deleted_s
        story.producers[-1].stop()
    story.stack.kubectl.run("delete", "hpa", NAME, "-n", NAMESPACE)


def every_line_came_as_often_as_it_should(story: Story) -> None:
    """Twice what was in the sink when all began again, once what was not."""
    expected = story.before + story.sent()
    assert story.before.total() > 0
    lines.wait_equal(lambda: lines.in_files(story.sink), expected, what="sink")


def a_second_object_takes_the_group_over(story: Story) -> None:
    """It waits until the older one is deleted, adopts the group, and never deletes it."""
    stack, successor = story.stack, "successor"
    with stack.client("demo") as client:
        story.client = client
        eventually(lambda: life.is_saved_to_the_end(story), what="checkpoints at the ends of the shards")
        checkpoints = life.checkpoints(story)
        resource = yaml.safe_load(story.release.pasted())
        resource["metadata"] = {"name": successor}
        resource["spec"] |= {"consumerGroup": NAME, "replicas": 0, "deletionPolicy": "Delete"}
        stack.kubectl.apply(resource, namespace=NAMESPACE)
        stack.wait_condition(successor, NAMESPACE, "GroupSynced", status="False", reason="OwnershipConflict")
        assert stack.group(NAME, NAMESPACE)["spec"]["deletionPolicy"] == "Delete"
        stack.kubectl.run("delete", "lhcg", NAME, "-n", NAMESPACE, "--timeout=120s")
        stack.wait_condition(successor, NAMESPACE, "GroupSynced", status="True", reason="UpToDate")
        assert stack.group(successor, NAMESPACE)["status"]["groupOrigin"] == "Adopted"
        stack.kubectl.run("delete", "lhcg", successor, "-n", NAMESPACE, "--timeout=120s")
        assert NAME in {group.name for group in client.list_groups(LOGSTORE)}
        assert life.checkpoints(story) == checkpoints


def _autoscaler() -> Object:
    """That of the example, for our group; it waits for minutes before it takes a worker away."""
    result = next(one for one in example("hpa-external.yaml") if one["kind"] == "HorizontalPodAutoscaler")
    spec = result["spec"]
    spec["scaleTargetRef"]["name"] = NAME
    spec["maxReplicas"] = SHARDS
    spec["metrics"][0]["external"]["metric"]["selector"]["matchLabels"]["consumerGroup"] = NAME
    return {**result, "metadata": {"name": NAME}}


@contextmanager
def _timed(story: Story, name: str) -> Iterator[None]:
    started_s = time.monotonic()
    yield
    story.say(f"{name}: {time.monotonic() - started_s:.0f} s")


def _terminal(request: pytest.FixtureRequest) -> Callable[[str], None]:
    """Shows a line while the test runs: what was measured is read by people."""
    plugins = request.config.pluginmanager
    terminal, capture = plugins.get_plugin("terminalreporter"), plugins.get_plugin("capturemanager")

    def say(line: str) -> None:
        with capture.global_and_fixture_disabled():
            terminal.write_line(f"[life] {line}")

    return say
