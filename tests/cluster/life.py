"""The consumer group of `test_whole_life`, and the questions and changes that its steps use."""

from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.wire import cursor as wire_cursor
from tests.cluster import lines
from tests.cluster.agreement import Group
from tests.cluster.kubectl import Object, RefusedError, eventually
from tests.cluster.lines import Line, Producer
from tests.cluster.release import Release
from tests.cluster.stack import SERVICE_NAMESPACE, Stack
from tests.cluster.watching import HoldersWatch, PodsWatch

NAMESPACE = "default"  # the notes' own
NAME = "first"
LOGSTORE = "access"
SHARDS = 2


@dataclass(kw_only=True)
class Story:
    """What the steps share."""

    release: Release
    say: Callable[[str], None]
    sink: Path
    client: HttpLogHub
    group: Group
    source: Iterator[Line] = field(default_factory=lines.endless)
    producers: list[Producer] = field(default_factory=list)
    before: Counter[Line] = field(default_factory=Counter)  # in the sink when all began again

    @property
    def stack(self) -> Stack:
        return self.release.stack

    def sent(self) -> Counter[Line]:
        for producer in self.producers:
            assert producer.error is None
        return sum((producer.sent for producer in self.producers), Counter())

    def patch(self, **spec: object) -> None:
        self.stack.kubectl.patch("lhcg", NAME, NAMESPACE, {"spec": spec})

    def produce(self, pause_s: float) -> None:
        producer = Producer(self.client, LOGSTORE, source=self.source, pause_s=pause_s)
        self.producers.append(producer)
        producer.__enter__()


def workers(number: int) -> set[str]:
    return {f"{NAME}-{ordinal}" for ordinal in range(number)}


def pods(story: Story) -> dict[str, tuple[str, int]]:
    """Uid and restarts of each worker pod that is not being deleted, by name."""
    pods = story.stack.kubectl.list("pod", NAMESPACE, f"app.kubernetes.io/instance={NAME}")
    remaining = (pod for pod in pods if "deletionTimestamp" not in pod["metadata"])
    return {pod["metadata"]["name"]: (pod["metadata"]["uid"], restarts(pod)) for pod in remaining}


def all_new(story: Story, before: dict[str, tuple[str, int]]) -> bool:
    """As many pods as before are ready, and none of those."""
    now = story.stack.workers(NAME, NAMESPACE)
    return now.keys() == before.keys() and not set(now.values()) & {uid for uid, _ in before.values()}


def restarts(pod: Object) -> int:
    return sum(one["restartCount"] for one in pod.get("status", {}).get("containerStatuses", []))


def replicas(story: Story) -> int:
    result = story.stack.kubectl.get("statefulset", NAME, NAMESPACE)
    assert result is not None
    replicas: int = result["spec"]["replicas"]
    return replicas


def wait_until_observed(story: Story) -> None:
    """The operator has seen what was patched last."""

    def observed() -> bool:
        result = story.stack.group(NAME, NAMESPACE)
        current: bool = result["status"].get("observedGeneration") == result["metadata"]["generation"]
        return current

    eventually(observed, what="the change taken")


def answers(story: Story) -> bool:
    try:
        return story.stack.kubectl.run("get", "--raw", "/readyz") == "ok"
    except RefusedError:
        return False


def group_at_service(story: Story) -> GroupInfo:
    return next(group for group in story.client.list_groups(LOGSTORE) if group.name == NAME)


def checkpoints(story: Story) -> dict[int, int]:
    points = story.client.get_checkpoints(LOGSTORE, NAME)
    return numbers({point.shard: point.cursor for point in points})


def is_saved_to_the_end(story: Story) -> bool:
    """Whether every log has a checkpoint behind it; the last one follows the sink within the interval."""
    return all(
        shard.checkpoint == shard.end_cursor for shard in story.client.group_status(LOGSTORE, NAME).shards
    )


def numbers(cursors: dict[int, str]) -> dict[int, int]:
    return {shard: wire_cursor.decode(cursor) for shard, cursor in cursors.items()}


def copied(story: Story) -> Counter[str]:
    """The pasted resource copies a line's text and nothing else."""
    return Counter(lines.value(log, "line") for log in lines.logs_in(story.client, "access-copy"))


def texts(result: Counter[Line]) -> Counter[str]:
    return Counter(text for _, _, _, text in result.elements())


def reset_checkpoints(story: Story, **order: object) -> str:
    """Give the order and wait for it; name of the record of the checkpoints of before."""
    story.stack.kubectl.patch("lhcg", NAME, NAMESPACE, {"spec": {"resetCheckpoints": None}})
    story.patch(resetCheckpoints=order)

    def done() -> Object | None:
        reported: Object = story.stack.group(NAME, NAMESPACE)["status"].get("checkpointReset", {})
        assert reported.get("phase") != "Failed", reported
        return (
            reported
            if (reported.get("nonce"), reported.get("phase")) == (order["nonce"], "Succeeded")
            else None
        )

    record: str = eventually(done, what=f"reposition {order['nonce']}")["backupConfigMap"]
    return record


def scale_service(story: Story, replicas: int) -> None:
    kubectl = story.stack.kubectl
    kubectl.run("scale", "statefulset/loghub-service", "-n", SERVICE_NAMESPACE, f"--replicas={replicas}")
    if replicas == 0:
        arguments = ("--for=delete", "pod/loghub-service-0", "-n", SERVICE_NAMESPACE, "--timeout=60s")
        kubectl.run("wait", *arguments)


@contextmanager
def watched(story: Story) -> Iterator[PodsWatch]:
    with PodsWatch(story.stack.kubectl, NAMESPACE, f"app.kubernetes.io/instance={NAME}") as pods:
        yield pods


def holders(story: Story) -> HoldersWatch:
    return HoldersWatch(client=story.client, logstore=LOGSTORE, group=NAME)
