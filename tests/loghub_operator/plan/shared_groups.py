"""Two clusters and two log services for `tests.loghub_operator.plan.operator_lives`, without operators."""

import random
from dataclasses import dataclass, field

from loghub_operator.api import LogHubConsumerGroup, parse_resource
from loghub_operator.api.conditions import rfc3339
from loghub_operator.model.memory import Memory
from loghub_operator.model.observed import CheckpointBackup, GroupSettings
from loghub_operator.model.revision import Revision, WorkerSpec
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.golden import EPOCH

ENDPOINTS = ("http://one.svc", "http://two.svc")
SHARDS = 2
TIMEOUT_S = 30
Who = tuple[str, str]  # cluster, or "" for another client, and consumer


@dataclass
class Group:
    """A consumer group at one log service."""

    settings: GroupSettings
    checkpoints: dict[int, int] = field(default_factory=dict)
    heartbeats: dict[Who, float] = field(default_factory=dict)

    def live(self, now: float) -> set[Who]:
        return {who for who, at in self.heartbeats.items() if now - at < self.settings.timeout_s}


@dataclass
class Pod:
    """A worker; it reads from the endpoint that it was started with."""

    revision: Revision
    endpoint: str
    ready: bool = False
    drain_unix_s: float | None = None
    left: bool = False


@dataclass
class Stored:
    """One object, its StatefulSet and pods, and what the operator remembers of it."""

    document: Document
    workers: tuple[int, WorkerSpec, str] | None = None  # replicas, settings, endpoint
    pods: dict[int, Pod] = field(default_factory=dict)
    backups: dict[str, CheckpointBackup] = field(default_factory=dict)
    memory: Memory | None = None
    rested: int = 0  # reconciles in a row without an action or a write

    @property
    def name(self) -> str:
        return str(self.document["metadata"]["name"])

    @property
    def endpoint(self) -> str:
        return str(self.document["spec"]["endpoint"])

    def parsed(self) -> LogHubConsumerGroup:
        return parse_resource(self.document)


@dataclass
class Cluster:
    """The objects of one cluster, and its operator."""

    name: str
    objects: dict[str, Stored] = field(default_factory=dict)
    index: GroupIndex = field(default_factory=lambda: GroupIndex(Settings()))
    skew_s: float = 0.0
    proofs: dict[tuple[str, str], list[str]] = field(default_factory=dict)  # uid by endpoint, group; in order


class World:
    """Everything but the operators: users, StatefulSets, workers, other clients."""

    def __init__(self, seed: int) -> None:
        self.random = random.Random(seed)
        self.now = EPOCH
        self.clusters = [Cluster("a"), Cluster("b")]
        self.groups: dict[str, Group] = {}
        self.away: set[str] = set()
        self.others: set[str] = set()  # endpoints at which another client consumes
        self.faults = True
        self.uid = 0
        self.proven: set[tuple[str, str]] = set()  # endpoint and uid
        self.requested: dict[tuple[str, str], str] = {}  # uid and nonce of a reset -> endpoint
        self.happened: dict[str, int] = {}

    def count(self, what: str) -> None:
        self.happened[what] = self.happened.get(what, 0) + 1

    def chance(self, part: float) -> bool:
        return self.faults and self.random.random() < part

    # What users and other programs do.

    def create(self, cluster: Cluster, name: str) -> None:
        self.uid += 1
        spec = {
            "endpoint": self.random.choice(ENDPOINTS),
            "consumerGroup": "shared",
            "replicas": self.random.randint(1, 2),
            "timeoutSeconds": TIMEOUT_S,
            "deletionPolicy": self.random.choice(["Retain", "Delete"]),
            "adoption": self.random.choice(["IfIdle", "IfIdle", "Never", "Always"]),
            "scaling": {"mode": "Fixed"},
        }
        made = document(
            spec, name=name, uid=f"u{self.uid}", generation=1, creationTimestamp=rfc3339(self.now)
        )
        made["status"] = {"observedGeneration": -1}
        cluster.objects[name] = Stored(made)

    def disturb(self) -> None:
        cluster = self.random.choice(self.clusters)
        name = self.random.choice(["access", "backup"])
        stored = cluster.objects.get(name)
        what = self.random.choice(
            ["object", "object", "suspend", "endpoint", "reset", "withdraw", "delete", "outage", "other",
             "group", "clock", "restart", "scale", "unready", "replicas"]
        )  # fmt: skip
        if what == "outage":
            self.away ^= {self.random.choice(ENDPOINTS)}
        elif what == "other":
            self.others ^= {self.random.choice(ENDPOINTS)}
        elif what == "group":
            self.groups.pop(self.random.choice(ENDPOINTS), None)
        elif what == "clock":
            cluster.skew_s = self.random.choice([0.0, -3600.0, -5.0, 5.0, 3600.0])
        elif what == "restart":
            self.restart(cluster)
        elif stored is None:
            if what != "object":
                return
            self.create(cluster, name)
        elif not self.edit(stored, what):
            return
        self.count(what)

    def edit(self, stored: Stored, what: str) -> bool:
        spec, metadata = stored.document["spec"], stored.document["metadata"]
        if what == "scale" and stored.workers is not None:
            stored.workers = (self.random.randint(0, 3), *stored.workers[1:])
            return True
        if what == "unready":
            for pod in stored.pods.values():
                pod.ready = False
            return True
        if "deletionTimestamp" in metadata:
            return False
        match what:
            case "delete":
                metadata["deletionTimestamp"] = rfc3339(self.now)
            case "suspend":
                spec["suspend"] = not spec.get("suspend", False)
            case "endpoint":
                spec["endpoint"] = self.random.choice(ENDPOINTS)
            case "replicas":
                spec["replicas"] = self.random.randint(0, 2)
            case "reset":
                nonce = f"n{self.random.randint(0, 10**6)}"
                spec["resetCheckpoints"] = {"to": self.random.choice(["Begin", "End"]), "nonce": nonce}
            case "withdraw" if "resetCheckpoints" in spec:
                del spec["resetCheckpoints"]
            case _:
                return False
        metadata["generation"] += 1
        return True

    def restart(self, cluster: Cluster) -> None:
        cluster.index = GroupIndex(Settings())
        for stored in cluster.objects.values():
            stored.memory = None
            self.reported(cluster, stored)

    def reported(self, cluster: Cluster, stored: Stored) -> None:
        cluster.index.update(stored.document)

    # The StatefulSet controller, the workers, and the log service.

    def turn(self) -> None:
        self.now += 2.0
        for cluster in self.clusters:
            for stored in cluster.objects.values():
                self.run_pods(cluster, stored)
                if not self.chance(0.4):
                    self.reported(cluster, stored)
        for endpoint in self.others & set(self.groups):
            self.groups[endpoint].heartbeats["", "java-7f"] = self.now

    def run_pods(self, cluster: Cluster, stored: Stored) -> None:
        wanted = 0 if stored.workers is None else stored.workers[0]
        for ordinal in [one for one in stored.pods if one >= wanted and not self.chance(0.3)]:
            del stored.pods[ordinal]
        if stored.workers is None:
            return
        _, spec, endpoint = stored.workers
        for ordinal in range(wanted):
            pod = stored.pods.get(ordinal)
            if pod is None:
                stored.pods[ordinal] = Pod(spec.revision, endpoint)
            elif pod.revision != spec.revision and all(
                one.ready for number, one in stored.pods.items() if number > ordinal
            ):
                del stored.pods[ordinal]
        for ordinal, pod in stored.pods.items():
            pod.ready = not pod.left and (pod.ready or not self.chance(0.5))
            group, who = self.groups.get(pod.endpoint), (cluster.name, f"{stored.name}-{ordinal}")
            if pod.drain_unix_s is not None and not self.chance(0.3):
                pod.left = True
                if group is not None:
                    group.heartbeats.pop(who, None)
            elif group is not None and pod.endpoint not in self.away and not pod.left:
                group.heartbeats[who] = self.now
