"""Subscriptions on a real Kubernetes: one object of each type delivers, and a Shared one follows its backlog
from two workers to six and back while one of them is killed.

All of them read one logstore of two shards. A processor writes each log down before it acknowledges it, and
then waits while the test holds a lock on a file of their volume, the gate. So the test decides when a backlog
stays, whatever the pace of the machine.
"""

import fcntl
import time
from collections import Counter
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import IO

import pytest

from loghub.client.http import HttpLogHub
from loghub.domain.subscription import SubscriptionType
from loghub.wire import loggroup
from loghub.wire.loggroup import Log, LogGroup
from loghub.wire.subscriptions import SubscriptionStatus
from tests.cluster.kubectl import Object, eventually
from tests.cluster.release import Release
from tests.cluster.stack import Stack, claim, config_map, consumer_group

NAMESPACE = PROJECT = "subscribed"
LOGSTORE = "access"
SHARED = "shared"
OTHERS = {"exclusive": "Exclusive", "failover": "Failover", "keyshared": "KeyShared"}
TYPES = {SHARED: "Shared", **OTHERS}
FEW, MANY = 2, 6  # workers of the Shared one
GROUP = 20  # logs of one log group
FIRST = 200  # two workers work them off in time: 200 logs / 10 s are 20/s, what one worker is said to take
BACKLOG = 1500  # 150/s are the work of 7.5 such workers
LAST = 100
KEEP = """
import fcntl, os
from loghub_consumer import LogBatch, Processor, Tracker

class Keep(Processor):
    def initialize(self, shard):
        self.gate = open("/kept/gate")
        self.taken = open(f"/kept/{os.environ['HOSTNAME']}-{os.getpid()}-{shard}", "a")

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        for group in logs.groups:
            for log in group.logs:
                print(log.get("number"), file=self.taken)
        self.taken.flush()
        fcntl.flock(self.gate, fcntl.LOCK_SH)
        fcntl.flock(self.gate, fcntl.LOCK_UN)
        tracker.ack()
"""

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900, func_only=True)]


@dataclass(kw_only=True)
class Story:
    """What the steps share. ``sent``: logs 0 to this number, exclusively, are in the logstore."""

    stack: Stack
    client: HttpLogHub
    folder: Path
    gate: IO[str]
    sent: int = 0

    def put(self, logs: int) -> None:
        for first in range(self.sent, self.sent + logs, GROUP):
            numbers = range(first, first + GROUP)
            contents = [(("number", str(number)), ("user", f"u{number % 7}")) for number in numbers]
            group = LogGroup(logs=tuple(Log(time=int(time.time()), contents=one) for one in contents))
            self.client.put_logs(LOGSTORE, loggroup.encode(group))
        self.sent += logs

    def taken(self, pods: str) -> Counter[int]:
        """How often each log was given to the processors of the pods whose names begin like this."""
        found: Counter[int] = Counter()
        for path in self.folder.glob(f"{pods}-*"):
            # The last line may be one that is just being written.
            lines = path.read_bytes().splitlines(keepends=True)
            found.update(int(line) for line in lines if line.endswith(b"\n"))
        return found

    def status(self, name: str) -> SubscriptionStatus:
        return self.client.subscription_status(LOGSTORE, name)

    def await_acknowledged(self, name: str) -> Counter[int]:
        """What was taken of the subscription once the log service has an acknowledgment of each log."""
        eventually(lambda: self.status(name).backlog_logs == 0, what=f"{name}: every log acknowledged")
        return self.taken(name)


@pytest.fixture
def story(release: Release) -> Iterator[Story]:
    stack = release.stack
    stack.make_namespace(NAMESPACE)
    folder = stack.make_volume("kept", namespace=NAMESPACE, claim="kept")
    with stack.client(PROJECT) as client, (folder / "gate").open("w") as gate:
        client.create_project()
        client.create_logstore(LOGSTORE, shards=2)
        yield Story(stack=stack, client=client, folder=folder, gate=gate)


def subscription(name: str) -> Object:
    """With as many workers as the type needs to show anything."""
    volume = {"name": "kept", "persistentVolumeClaim": {"claimName": "kept"}}
    container = {"name": "worker", "volumeMounts": [{"name": "kept", "mountPath": "/kept"}]}
    at_once = {"stabilizationWindowSeconds": 0}
    scaling = {
        "mode": "Auto",
        "minReplicas": FEW,
        "maxReplicas": MANY,
        "catchUpSeconds": 10,
        "workerCapacity": 20,
        "scaleUp": at_once,
        "scaleDown": at_once,
    }
    result = consumer_group(
        name,
        project=PROJECT,
        logstore=LOGSTORE,
        subscription={"type": TYPES[name], **({"key": ["user"]} if name == "keyshared" else {})},
        replicas=FEW if name == SHARED else 1,
        startPosition={"from": "Begin"},
        timeoutSeconds=10,
        heartbeatIntervalSeconds=2,
        deletionPolicy="Delete",
        pipeline={
            "processor": {
                "factory": "keep:Keep",
                "configMap": {"name": "keep"},
                "acknowledge": "Log",
                # So that a backlog stays while six workers have what they may have.
                "redelivery": {"maxUnacknowledged": 60},
            }
        },
        worker={
            "podTemplate": {"spec": {"containers": [container], "volumes": [volume]}},
            "resources": {"requests": {"cpu": "10m"}},  # ten of them find room on a node of two cores
        },
        **({"scaling": scaling} if name == SHARED else {}),
    )
    del result["spec"]["spark"]
    return result


def test_each_type_delivers_and_a_shared_one_follows_its_backlog(story: Story) -> None:
    try:
        each_type_delivers_every_log(story)
        first = story.await_acknowledged(SHARED)
        the_others_are_deleted(story)
        with gate_closed(story):
            a_backlog_brings_workers(story)
            lost = a_worker_is_killed(story)
        taken = no_log_is_lost(story, lost)
        the_end_of_the_backlog_takes_them_away(story)
        nothing_that_was_acknowledged_comes_again(story, first, taken)
        of_the_others_nothing_is_left(story)
    except BaseException:
        print(story.stack.explain(NAMESPACE))
        raise


def each_type_delivers_every_log(story: Story) -> None:
    story.put(FIRST)
    objects = [subscription(name) for name in TYPES]
    story.stack.kubectl.apply(claim("kept"), config_map("keep", keep=KEEP), *objects, namespace=NAMESPACE)
    for name, kind in TYPES.items():
        eventually(lambda of=name: story.taken(of).keys() == set(range(FIRST)) or None, what=f"{name}: logs")
        story.stack.wait_condition(name, NAMESPACE, "Ready", status="True", reason="Running")
        status = story.status(name)
        assert (status.type, status.in_order) == (SubscriptionType(kind), kind != "Shared")
        eventually(lambda of=name: reported(story, of) == (TYPES[of], 0), what=f"{name}: type and backlog")


def reported(story: Story, name: str) -> tuple[str, int | None]:
    """Type and backlog in the status of the object."""
    shown = story.stack.group(name, NAMESPACE)["status"].get("subscription", {})
    return shown.get("type", ""), shown.get("backlogLogs")


def the_others_are_deleted(story: Story) -> None:
    """Their end is looked at later."""
    story.stack.kubectl.run("delete", "lhcg", *OTHERS, "-n", NAMESPACE, "--wait=false")


@contextmanager
def gate_closed(story: Story) -> Iterator[None]:
    """What a processor gets meanwhile is written down and not acknowledged."""
    fcntl.flock(story.gate, fcntl.LOCK_EX)
    try:
        yield
    finally:
        fcntl.flock(story.gate, fcntl.LOCK_UN)


def a_backlog_brings_workers(story: Story) -> None:
    """More than there are shards, and each has logs."""
    assert story.stack.workers(SHARED, NAMESPACE).keys() == pods(FEW)
    story.put(BACKLOG)

    def all_have_logs() -> bool:
        consumers = {one.name: one.unacked_logs for one in story.status(SHARED).consumers}
        return consumers.keys() == pods(MANY) and all(consumers.values())

    eventually(all_have_logs, what="six workers with logs", pause_s=1.0)
    assert story.status(SHARED).backlog_logs == BACKLOG


def a_worker_is_killed(story: Story) -> set[int]:
    """The last one, by SIGKILL; the logs that it had in its hands."""
    name = f"{SHARED}-{MANY - 1}"
    had = eventually(lambda: story.taken(name) or None, what=f"logs at the processor of {name}")
    story.stack.kill(name, NAMESPACE)
    return set(had)


def no_log_is_lost(story: Story, lost: set[int]) -> Counter[int]:
    """What the killed worker had comes again, and everything is taken. Returns what was taken how often."""
    taken = story.await_acknowledged(SHARED)
    assert taken.keys() == set(range(story.sent))
    assert lost
    assert all(taken[number] >= 2 for number in lost)
    return taken


def the_end_of_the_backlog_takes_them_away(story: Story) -> None:
    def few() -> bool:
        return {one.name for one in story.status(SHARED).consumers} == pods(FEW)

    eventually(few, what="two workers in the subscription", pause_s=1.0)
    left = story.stack.workers
    eventually(lambda: left(SHARED, NAMESPACE).keys() == pods(FEW), what="two pods", pause_s=1.0)


def nothing_that_was_acknowledged_comes_again(story: Story, first: Counter[int], taken: Counter[int]) -> None:
    """Not after the kill, nor after workers have left."""
    assert {number: taken[number] for number in first} == first
    story.put(LAST)
    numbers = set(range(story.sent))
    eventually(lambda: story.taken(SHARED).keys() == numbers or None, what="the last logs")
    again = story.await_acknowledged(SHARED)
    assert {number: again[number] for number in taken} == taken


def of_the_others_nothing_is_left(story: Story) -> None:
    """As deletionPolicy Delete says."""

    def gone() -> bool:
        objects = {one["metadata"]["name"] for one in story.stack.kubectl.list("lhcg", NAMESPACE)}
        return objects == {SHARED}

    eventually(gone, what="the other objects gone")
    assert [one.name for one in story.client.list_subscriptions(LOGSTORE)] == [SHARED]
    story.stack.kubectl.run("delete", "lhcg", SHARED, "-n", NAMESPACE, "--timeout=120s", guard_s=180)


def pods(number: int) -> set[str]:
    return {f"{SHARED}-{ordinal}" for ordinal in range(number)}
