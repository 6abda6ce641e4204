"""A suspended group whose checkpoints are reset, over a log service in memory.

The plan, its actions and their calls of the log service are real; the backups are a dict. `World.killed_at`
ends a reconcile at that effect, before or after it.
"""

from typing import Any

from loghub.client.port import GroupInfo
from loghub.clock import SystemClock
from loghub.wire import loggroup
from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.logservice.group_changes import commit_checkpoints, resolve_targets
from loghub_operator.logservice.group_state import ConsumerGroupKey
from loghub_operator.model.actions import Action, ApplyWorkers, BackUpCheckpoints, CommitCheckpoints
from loghub_operator.model.memory import NO_MEMORY
from loghub_operator.model.observed import (
    CheckpointBackup,
    ObservedState,
    ObservedStatefulSet,
    Peer,
    Placement,
    ResetObserved,
    StoredCheckpoints,
    backup_name,
    needs_observation,
)
from loghub_operator.resources.worker_config import worker_config
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.logservice.test_group_state import WithoutExtensions
from tests.loghub_operator.support.availability import available
from tests.loghub_operator.support.examples import Document, resource
from tests.loghub_operator.support.golden import SameTemplate
from tests.loghub_operator.support.observing import service_observed
from tests.loghub_operator.support.rounds import plan

PLACEMENT = Placement(endpoint="http://127.0.0.1:1", sink_root="/sink", needs_project_address=False)
LOGSTORE = "access"
GROUP = loggroup.encode(loggroup.LogGroup(logs=(loggroup.Log(time=1, contents=(("a", "b"),)),)))
SHARDS = 3


class KilledError(Exception):
    """The operator's end."""


class World:
    """One suspended group, so that no worker has to be played."""

    def __init__(self, order: Document, *, extensions: bool = True, killed_at: int = -1) -> None:
        self.server = MemoryServer()
        self.client = self.server.client("demo")
        self.client.create_project()
        self.client.create_logstore(LOGSTORE, shards=SHARDS)
        self.client.create_group(LOGSTORE, GroupInfo(name=LOGSTORE, timeout_s=30, order=False))
        self.clock = SystemClock()
        self.log_service: Any = self.client if extensions else WithoutExtensions(self.client)
        self.write()
        self.spec: Document = {"suspend": True, "resetCheckpoints": order}
        self.status: Document = {"observedGeneration": 1}
        self.backups: dict[str, CheckpointBackup] = {}
        self.sources: dict[str, dict[str, str]] = {}
        self.effects = 0
        self.killed_at = killed_at
        self.now = 1000.0
        self.memory = NO_MEMORY
        self.peers: tuple[Peer, ...] = ()

    def write(self) -> None:
        for shard in self.client.list_shards(LOGSTORE):
            self.client.put_logs(LOGSTORE, GROUP, hash_key=shard.begin_key)

    def resource(self) -> LogHubConsumerGroup:
        return resource(self.spec, self.status, uid="uid-1")

    def observe(self, group: LogHubConsumerGroup) -> ObservedState:
        desired = SameTemplate().worker_spec(group, worker_config(group, PLACEMENT))
        service = available(service_observed(self.log_service, group, clock=self.clock))
        return ObservedState(
            at_unix_s=self.now,
            placement=PLACEMENT,
            environment=SameTemplate(),
            service=service,
            worker_set=ObservedStatefulSet(replicas=0, revision=desired.revision),
            reset=self.observe_reset(group, service.shards) if needs_observation(group) else None,
            group_record=GroupRecord("Created", None),
            memory=self.memory,
            peers=self.peers,
        )

    def observe_reset(self, group: LogHubConsumerGroup, shards: Any) -> ResetObserved:
        assert group.spec.reset_checkpoints is not None
        source = self.sources.get(group.spec.reset_checkpoints.config_map_name or "")
        backup = self.backups.get(backup_name(group))
        return resolve_targets(
            self.log_service,
            group,
            shards,
            StoredCheckpoints(backup=backup, source=source),
            last_initial_shard=None,
            clock=self.clock,
        )

    def round(self) -> None:
        group = self.resource()
        planned = plan(group, self.observe(group), self.now)
        for action in planned.actions:
            self.carry_out(group, action)
        self.effect()
        self.status = planned.status.to_dict()
        self.memory = planned.memory
        self.effect()
        self.now += 1

    def effect(self) -> None:
        """Between any two effects the operator may end."""
        self.effects += 1
        if self.effects == self.killed_at:
            raise KilledError

    def carry_out(self, group: LogHubConsumerGroup, action: Action) -> None:
        assert not isinstance(action, ApplyWorkers)
        match action:
            case BackUpCheckpoints(name=name, backup=backup):
                self.effect()
                self.backups.setdefault(name, backup)
                self.effect()
            case CommitCheckpoints(cursors):
                for cursor in cursors:  # the call is one for each shard
                    self.effect()
                    commit_checkpoints(
                        self.client, ConsumerGroupKey.of(group), CommitCheckpoints((cursor,)), self.clock
                    )
                self.effect()

    def until_over(self) -> Document:
        for _ in range(20):
            try:
                self.round()
            except KilledError:
                self.write()  # the end of a shard is another one by now
                self.now += 1
            reset: Document = self.status.get("checkpointReset", {})
            if (
                reset.get("phase") in ("Succeeded", "Failed")
                and reset["nonce"] == self.spec["resetCheckpoints"]["nonce"]
            ):
                return reset
        raise AssertionError(f"not over: {self.status}")

    def checkpoints(self) -> dict[int, str]:
        return {one.shard: one.cursor for one in self.client.get_checkpoints(LOGSTORE, LOGSTORE)}

    def cursors(self, position: str) -> dict[int, str]:
        return {n: self.client.get_cursor(LOGSTORE, n, position) for n in range(SHARDS)}  # type: ignore[arg-type]

    def force(self, cursors: dict[int, str]) -> None:
        for shard, cursor in cursors.items():
            self.client.update_checkpoint(
                LOGSTORE, LOGSTORE, shard=shard, cursor=cursor, consumer="", force=True
            )
