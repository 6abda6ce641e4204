"""Random lives of objects in two clusters that share consumer groups, over the production decisions.

Two log services have one group of the same name each. Each cluster has its own operator, whose clock is wrong
at times, which ends at any effect, learns late of other objects, and whose actions fail before or after they
take effect. Users create, edit, suspend, delete and recreate objects, request resets and edit endpoints;
other consumers come and go; a StatefulSet is scaled by hand; pods do not become ready. Observation and
effects are models, everything between them is production code: `plan`, `finish`, `GroupIndex`.

What must hold: a group is not deleted while another object or consumer uses it, nor taken from a live one; a
checkpoint moves only in phase Committing of a reset, at the log service where it was requested, and never
after its end; the first to prove access owns a group. When nothing happens any more, the operator comes to
rest, an object that is Ready is as its spec says, and one that is not says why.
"""

import contextlib
from dataclasses import replace

from loghub.wire import cursor as wire_cursor
from loghub.wire.errors import EndpointUnreachable, LogHubException
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.adoption import GroupRecord, is_attributed, read_record, record_annotations
from loghub_operator.api.labels import FINALIZER
from loghub_operator.logservice.group_changes import GroupExists
from loghub_operator.logservice.shard_cursors import last_initial_shard
from loghub_operator.model import actions
from loghub_operator.model.observed import (
    Available,
    GroupSettings,
    LogServiceObserved,
    ObservedState,
    ObservedStatefulSet,
    Placement,
    ResetObserved,
    ServiceErrorReason,
    ShardObserved,
    Unavailable,
    WorkerObserved,
    WorkerPhase,
    backup_name,
    needs_observation,
)
from loghub_operator.plan.planner import finish, plan
from loghub_operator.plan.status.builder import worth_writing
from loghub_operator.plan.subject import subject_of
from tests.loghub_operator.plan.shared_groups import ENDPOINTS, SHARDS, Cluster, Group, Stored, World
from tests.loghub_operator.support.golden import EPOCH, SameTemplate


class EndedError(Exception):
    """The operator's end."""


class Lives(World):
    """One seed, one sequence of events."""

    def observe(self, cluster: Cluster, stored: Stored, group: LogHubConsumerGroup) -> ObservedState:
        now = self.now + cluster.skew_s
        placement = Placement(endpoint=stored.endpoint, sink_root="/sink", needs_project_address=False)
        service = self.service(stored.endpoint)
        recorded = read_record(group)
        return ObservedState(
            at_unix_s=now,
            placement=placement,
            environment=SameTemplate(),
            service=service,
            worker_set=None
            if stored.workers is None
            else ObservedStatefulSet(replicas=stored.workers[0], revision=stored.workers[1].revision),
            workers=tuple(
                WorkerObserved(
                    name=f"{stored.name}-{ordinal}",
                    ordinal=ordinal,
                    phase=WorkerPhase.LEFT
                    if pod.left
                    else WorkerPhase.RUNNING
                    if pod.ready
                    else WorkerPhase.STARTING,
                    ready=pod.ready,
                    revision=pod.revision.of_pods(),
                    drain_requested=pod.drain_unix_s is not None,
                    drain_requested_at_unix_s=pod.drain_unix_s,
                )
                for ordinal, pod in sorted(stored.pods.items())
            ),
            has_finalizer=FINALIZER in group.metadata.finalizers,
            group_record=recorded,
            record_annotated=is_attributed(group),
            last_initial_shard=last_initial_shard(recorded, service),
            peers=cluster.index.peers_of(group),
            reset=self.observe_reset(stored, group, service),
        )

    def service(self, endpoint: str) -> LogServiceObserved:
        if endpoint in self.away:
            return Unavailable(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message="no answer")
        group = self.groups.get(endpoint)
        live = () if group is None else tuple(sorted({name for _, name in group.live(self.now)}))
        saved = {} if group is None else group.checkpoints
        shards = (
            ShardObserved(
                shard=shard,
                state="already_alloc" if live else "not_alloc",
                holder=live[shard % len(live)] if live else "",
                checkpoint=wire_cursor.encode(saved[shard]) if shard in saved else "",
                lag_s=0.0,
                lag_logs=0,
                lag_groups=0,
            )
            for shard in range(SHARDS)
        )
        return Available(
            group=None if group is None else group.settings, shards=tuple(shards), consumers=live
        )

    def observe_reset(
        self, stored: Stored, group: LogHubConsumerGroup, service: LogServiceObserved
    ) -> ResetObserved | None:
        ready = isinstance(service, Available) and service.group is not None
        if stored.pods or not ready or not needs_observation(group):
            return None
        ends = {shard: wire_cursor.encode(self.end(shard, stored.endpoint)) for shard in range(SHARDS)}
        return ResetObserved(backup=stored.backups.get(backup_name(group)), positions=ends, ends=ends)

    def end(self, shard: int, endpoint: str) -> int:
        """Of each log service in another range."""
        return int(self.now - EPOCH) + 1000 * shard + 10**6 * ENDPOINTS.index(endpoint)

    def reconcile(self, cluster: Cluster, stored: Stored) -> None:
        group = stored.parsed()
        observed = self.observe(cluster, stored, group)
        now = self.now + cluster.skew_s
        subject, error = subject_of(group, observed, stored.memory), None
        planned = plan(subject, now)
        try:
            for action in planned.actions:
                self.carry_out(cluster, stored, group, action, observed.group_record)
        except (actions.ActionRefused, LogHubException) as raised:
            error = raised
        outcome = finish(subject, planned, error, now)
        stored.memory = outcome.memory
        news = worth_writing(group.status, outcome.status, since_last_s=60.0)
        quiet = not planned.actions and not news
        stored.rested = stored.rested + 1 if quiet else 0
        if cluster.objects.get(stored.name) is not stored or not news or self.chance(0.05):
            return
        self.effect()
        stored.document["status"] = outcome.status.to_dict()
        self.note_proof(cluster, stored)
        reset = stored.document["status"].get("checkpointReset") or {}
        if reset.get("phase") == "StoppingWorkers":
            self.requested.setdefault((group.metadata.uid, reset["nonce"]), stored.endpoint)

    def effect(self) -> None:
        if self.chance(0.02):
            self.count("killed")
            raise EndedError

    def note_proof(self, cluster: Cluster, stored: Stored) -> None:
        """In which order proofs were stored that the operator knew of each other."""
        metadata, ownership = stored.document["metadata"], stored.document["status"].get("ownership") or {}
        order = cluster.proofs.setdefault((stored.endpoint, "shared"), [])
        for endpoint, proven in cluster.proofs.items():
            if endpoint != (stored.endpoint, "shared") and metadata["uid"] in proven:
                proven.remove(metadata["uid"])
        if not ownership.get("accessSince"):
            self.proven.discard((stored.endpoint, metadata["uid"]))
        elif (stored.endpoint, metadata["uid"]) not in self.proven:
            self.proven = {one for one in self.proven if one[1] != metadata["uid"]}
            self.proven.add((stored.endpoint, metadata["uid"]))
            peers = cluster.index.peers_of(stored.parsed())
            known = {one.name for one in peers if one.access_since}
            others = {one.name for one in cluster.objects.values() if one is not stored}
            if known or not others:  # otherwise two proved at once, and either may own
                order.append(metadata["uid"])

    def carry_out(
        self,
        cluster: Cluster,
        stored: Stored,
        group: LogHubConsumerGroup,
        action: actions.Action,
        recorded: GroupRecord | None,
    ) -> None:
        self.effect()
        self.check(cluster, stored, group, action, recorded)
        if self.chance(0.03):
            raise self.random.choice(
                [
                    actions.ActionRefused("the API server answered 500"),
                    EndpointUnreachable("x", "reset", definite=False),
                ]
            )
        self.apply(cluster, stored, group, action, recorded)
        self.count(type(action).__name__)
        if self.chance(0.03):
            raise EndpointUnreachable("x", "no answer in time", definite=False)

    def apply(
        self,
        cluster: Cluster,
        stored: Stored,
        resource: LogHubConsumerGroup,
        action: actions.Action,
        recorded: GroupRecord | None,
    ) -> None:
        metadata, group = stored.document["metadata"], self.groups.get(stored.endpoint)
        match action:
            case actions.AddFinalizer():
                metadata["finalizers"] = [FINALIZER]
            case actions.RecordGroupOrigin(record):
                metadata |= {
                    "finalizers": [FINALIZER], "annotations": record_annotations(record, resource)
                }  # fmt: skip
            case actions.CreateGroup() if group is not None:
                metadata["annotations"] = record_annotations(GroupRecord("Refused", SHARDS - 1), resource)
                raise GroupExists("shared")
            case actions.CreateGroup() | actions.UpdateGroup():
                settings = action.settings
                assert isinstance(settings, GroupSettings)
                kept = group or Group(settings)
                self.groups[stored.endpoint] = replace(kept, settings=settings)
            case actions.DeleteGroup():
                self.groups.pop(stored.endpoint, None)
            case actions.BackUpCheckpoints(name=name, backup=backup):
                stored.backups.setdefault(name, backup)
            case actions.CommitCheckpoints(cursors) if group is not None:
                group.checkpoints |= {shard: wire_cursor.decode(cursor) for shard, cursor in cursors}
            case actions.ApplyWorkers(replicas=replicas, spec=spec):
                stored.workers = (replicas, spec, stored.endpoint)
            case actions.DrainWorker(consumer):
                stored.pods[int(consumer.rpartition("-")[2])].drain_unix_s = self.now + cluster.skew_s
            case actions.RestartWorker(consumer):
                del stored.pods[int(consumer.rpartition("-")[2])]
            case actions.RemoveWorkers():
                stored.workers = None
            case actions.RemoveFinalizer():
                del cluster.objects[stored.name]
                cluster.index.remove("default", stored.name, metadata["uid"])

    # What must hold.

    def check(
        self,
        cluster: Cluster,
        stored: Stored,
        resource: LogHubConsumerGroup,
        action: actions.Action,
        recorded: GroupRecord | None,
    ) -> None:
        group, metadata = self.groups.get(stored.endpoint), stored.document["metadata"]
        live = set() if group is None else group.live(self.now)
        own = {
            (cluster.name, f"{stored.name}-{ordinal}")
            for ordinal, pod in stored.pods.items()
            if pod.endpoint == stored.endpoint
        }
        if isinstance(action, actions.DeleteGroup):
            assert live <= own, f"deleted under {live - own}"
            peers = cluster.index.peers_of(resource)
            assert not any(one.access_since and not one.leaving for one in peers)
            assert stored.document["spec"]["deletionPolicy"] == "Delete"
        if isinstance(action, actions.RecordGroupOrigin) and recorded is None and group is not None:
            assert action.record.origin == "Adopted", "a group that existed counts as created"
            policy = stored.document["spec"]["adoption"]
            assert policy != "Never"
            assert policy == "Always" or live <= own, f"taken from {live - own}"
        if isinstance(action, actions.CommitCheckpoints):
            reset = stored.document["status"]["checkpointReset"]
            assert reset["phase"] == "Committing"
            assert self.requested[metadata["uid"], reset["nonce"]] == stored.endpoint
            assert not stored.pods

    def check_rest(self) -> None:
        for cluster in self.clusters:
            for stored in cluster.objects.values():
                what = f"{cluster.name}/{stored.name}: {stored.document}"
                assert stored.rested >= 5, f"no rest: {what}"
                self.check_status(stored, what)
            self.check_owner(cluster)

    def check_status(self, stored: Stored, what: str) -> None:
        status, metadata = stored.document["status"], stored.document["metadata"]
        conditions = {one["type"]: one for one in status["conditions"]}
        ready = conditions["Ready"]
        assert status["observedGeneration"] == metadata["generation"], what
        if ready["status"] != "True":
            assert ready["message"], what
            assert conditions["Degraded"]["status"] == "True" or stored.endpoint in self.away, what
            return
        spec = stored.document["spec"]
        wanted = 0 if spec.get("suspend") else spec["replicas"]
        running = [pod for pod in stored.pods.values() if pod.ready and pod.endpoint == stored.endpoint]
        assert len(running) == len(stored.pods) == wanted, what
        assert self.groups.get(stored.endpoint) is not None, what

    def check_owner(self, cluster: Cluster) -> None:
        """One object of a cluster runs workers of a group: the one that proved access first."""
        for endpoint in ENDPOINTS:
            running = [one for one in cluster.objects.values() if one.endpoint == endpoint and one.pods]
            assert len(running) <= 1, f"{[one.name for one in running]} share a group"
            here = {
                one.document["metadata"]["uid"]: one
                for one in cluster.objects.values()
                if one.endpoint == endpoint
            }
            order = [uid for uid in cluster.proofs.get((endpoint, "shared"), []) if uid in here]
            if len(order) > 1 and running:
                assert running[0] is not here[order[1]], "a later proof owns the group"

    def live(self, *, events: int) -> None:
        for _ in range(events):
            if self.random.random() < 0.5:
                self.disturb()
            self.step()
        self.faults = False
        for cluster in self.clusters:
            cluster.skew_s = 0.0
            for stored in cluster.objects.values():
                stored.rested = 0
        self.others.clear()
        self.away.clear()
        for _ in range(400):
            self.step()
            all_objects = [one for cluster in self.clusters for one in cluster.objects.values()]
            if all(one.rested >= 8 for one in all_objects):
                break
            self.now += 60.0  # every wait of the operator is over some time
        self.check_rest()

    def step(self) -> None:
        self.turn()
        for cluster in self.clusters:
            for stored in list(cluster.objects.values()):
                with contextlib.suppress(EndedError):
                    self.reconcile(cluster, stored)
                    continue
                self.restart(cluster)


def run(seed: int, *, events: int = 60) -> dict[str, int]:
    """One life; returns how often what happened. Raises AssertionError."""
    lives = Lives(seed)
    lives.live(events=events)
    return lives.happened
