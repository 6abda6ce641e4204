"""Simulated workers of some groups of the bench: a ready pod each, and its heartbeats.

A group whose workers run is observed differently from one that waits for its pods. Pods and StatefulSets are
written once, as kubelet and controller would; the heartbeats go to the real log service while the bench runs,
so that every shard keeps its holder.
"""

import threading
from collections.abc import Callable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass

from loghub.client.port import LogHub
from loghub.wire.errors import LogHubException
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_operator.clients.kube import STATEFUL_SET, Kube
from tests.loghub_operator.support.examples import Document

HEARTBEAT_S = 5.0
BUSY_EVERY_S = 5.0
BUSY_SHARDS = 4
LOGS = encode(LogGroup(logs=(Log(time=1, contents=(("line", "x" * 200),)),)))
_CONTAINER: Document = {
    "name": "worker",
    "ready": True,
    "started": True,
    "restartCount": 0,
    "state": {"running": {"startedAt": "2026-01-01T00:00:00Z"}},
    "image": "i",
    "imageID": "i",
}
_POD_STATUS: Document = {
    "phase": "Running",
    "conditions": [{"type": "Ready", "status": "True"}],
    "containerStatuses": [_CONTAINER],
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Worked:
    """One group with one worker; logstore and consumer group are named as the object is."""

    namespace: str
    name: str
    client: LogHub


async def start_pod(kube: Kube, group: Worked) -> None:
    """The pod of its StatefulSet, ready at once; the StatefulSet counts it."""
    owner = await kube.get(STATEFUL_SET, group.namespace, group.name)
    assert owner is not None, f"{group.name} has no StatefulSet"
    template, metadata = owner["spec"]["template"], {"name": f"{group.name}-0", "namespace": group.namespace}
    pod = {"apiVersion": "v1", "kind": "Pod", "metadata": {**template["metadata"], **metadata}}
    await kube.create({**pod, "spec": template["spec"]})
    reported = {"apiVersion": "v1", "kind": "Pod", "metadata": metadata, "status": _POD_STATUS}
    await kube.apply(reported, subresource="status")
    its = {"name": group.name, "namespace": group.namespace}
    observed = {"observedGeneration": owner["metadata"]["generation"]}
    counted = observed | dict.fromkeys(("replicas", "readyReplicas", "updatedReplicas"), 1)
    reported = {"apiVersion": "apps/v1", "kind": "StatefulSet", "metadata": its, "status": counted}
    await kube.apply(reported, subresource="status")


@contextmanager
def consuming(groups: Sequence[Worked]) -> Iterator[None]:
    """Producers write to `BUSY_SHARDS` shards of each group every `BUSY_EVERY_S` seconds, and its worker
    consumes what was written before."""
    with _repeating(_consume_and_produce, groups, every_s=BUSY_EVERY_S):
        yield


def _consume_and_produce(group: Worked) -> None:
    for shard in group.client.list_shards(group.name)[:BUSY_SHARDS]:
        end = group.client.get_cursor(group.name, shard.shard, "end")
        group.client.update_checkpoint(
            group.name,
            group.name,
            shard=shard.shard,
            cursor=end,
            consumer=f"{group.name}-0",
            force=False,
        )
        group.client.put_logs(group.name, LOGS, hash_key=shard.begin_key)


@contextmanager
def beating(groups: Sequence[Worked]) -> Iterator[None]:
    """Their workers send heartbeats."""
    held: dict[str, tuple[int, ...]] = {}

    def beat(group: Worked) -> None:
        had = held.get(group.name, ())
        held[group.name] = group.client.heartbeat(
            group.name, group.name, consumer=f"{group.name}-0", held=had
        )

    with _repeating(beat, groups, every_s=HEARTBEAT_S):
        yield


@contextmanager
def _repeating(act: Callable[[Worked], None], groups: Sequence[Worked], *, every_s: float) -> Iterator[None]:
    """Do this for every group again and again, in a thread. A request that fails ends it, and is raised at
    the end."""
    stop, failed = threading.Event(), list[LogHubException]()

    def run() -> None:
        try:
            while not stop.wait(every_s):
                for group in groups:
                    act(group)
        except LogHubException as error:
            failed.append(error)

    thread = threading.Thread(target=run, name=act.__name__)
    thread.start()
    try:
        yield
    finally:
        stop.set()
        thread.join()
    if failed:
        raise failed[0]
