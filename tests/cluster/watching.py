"""Records what happens to pods and shards during a test, not only before and after.

Pods are recorded by one watch of the apiserver, holders by querying the log service often.
"""

import json
import subprocess
import threading
import time
from dataclasses import dataclass, field
from types import TracebackType

from loghub.client.port import LogHub
from loghub.contract.worker import DRAIN_ANNOTATION, DRAIN_REQUESTED
from tests.cluster.kubectl import Kubectl, Object, is_ready

ASK_EVERY_S = 0.2


@dataclass(slots=True)
class PodTimes:
    """When one pod's steps were seen first, in monotonic seconds; by uid, so never two pods in one."""

    name: str
    created_s: float
    drain_requested_s: float | None = None
    ready_s: float | None = None
    deleted_s: float | None = None


class PodsWatch:
    """Every step of every pod with this label, from now on."""

    def __init__(self, kubectl: Kubectl, namespace: str, selector: str) -> None:
        command = (
            "get",
            "pods",
            "-n",
            namespace,
            "-l",
            selector,
            "--output-watch-events",
            "-w",
            "-o",
            "json",
        )
        self._command = kubectl.command(*command)
        self.pods: dict[str, PodTimes] = {}

    def __enter__(self) -> "PodsWatch":
        self._child = subprocess.Popen(self._command, stdout=subprocess.PIPE, text=True)
        self._thread = threading.Thread(target=self._read, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._child.kill()
        self._child.wait()
        self._thread.join()

    def draining(self) -> list[str]:
        """Names of those that were asked to drain and still exist."""
        existing = [pod for pod in list(self.pods.values()) if pod.deleted_s is None]
        return [pod.name for pod in existing if pod.drain_requested_s is not None]

    def _read(self) -> None:
        assert self._child.stdout is not None
        for line in self._child.stdout:  # kubectl writes one event a line
            event = json.loads(line)
            self.note(event["type"], event["object"])

    def note(self, kind: str, pod: Object) -> None:
        """One event of the watch."""
        now, meta = time.monotonic(), pod["metadata"]
        observed = self.pods.setdefault(meta["uid"], PodTimes(name=meta["name"], created_s=now))
        if meta.get("annotations", {}).get(DRAIN_ANNOTATION) == DRAIN_REQUESTED:
            observed.drain_requested_s = observed.drain_requested_s or now
        if is_ready(pod):
            observed.ready_s = observed.ready_s or now
        if kind == "DELETED":
            observed.deleted_s = now


@dataclass(slots=True)
class Held:
    """Who had a shard, and since when, in monotonic seconds."""

    state: str
    holder: str
    since_s: float


@dataclass(slots=True)
class HoldersWatch:
    """Every state and holder of every shard of a group that was seen, in order, by shard.

    ``unanswered``: how often the log service did not answer.
    """

    client: LogHub
    logstore: str
    group: str
    observed: dict[int, list[Held]] = field(default_factory=dict)
    unanswered: int = 0
    _stop: threading.Event = field(default_factory=threading.Event)
    _thread: threading.Thread | None = None

    def __enter__(self) -> "HoldersWatch":
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self._stop.set()
        assert self._thread is not None
        self._thread.join()

    def now(self) -> dict[int, tuple[str, str]]:
        """State and holder of each shard, as seen last."""
        return {shard: (held[-1].state, held[-1].holder) for shard, held in list(self.observed.items())}

    def freed_s(self, holder: str) -> float | None:
        """When each shard that the consumer had was owned by another one; None while one is not."""
        times = []
        for held in list(self.observed.values()):
            had = [place for place, one in enumerate(held) if one.holder == holder]
            if had:
                after = (one.since_s for one in held[had[-1] + 1 :] if one.state == "already_alloc")
                times.append(next(after, None))
        known = [moment for moment in times if moment is not None]
        return max(known) if known and len(known) == len(times) else None

    def _run(self) -> None:
        while not self._stop.wait(ASK_EVERY_S):
            try:
                shards = self.client.group_status(self.logstore, self.group).shards
            except Exception:  # noqa: BLE001 - the service may be away on purpose; the test checks `unanswered`
                self.unanswered += 1
                continue
            for shard in shards:
                self._note(shard.shard, Held(shard.state, shard.holder, time.monotonic()))

    def _note(self, shard: int, held: Held) -> None:
        before = self.observed.setdefault(shard, [])
        if not before or (before[-1].state, before[-1].holder) != (held.state, held.holder):
            before.append(held)
