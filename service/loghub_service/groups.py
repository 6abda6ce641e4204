"""The consumer groups of a running service: the coordinator's state, and its facts that are being persisted.

The registry passes events to `loghub.domain.coordinator` one at a time, logs each state change, and delays
each response until everything that it depends on is persisted (`loghub_service.durable_steps`).
"""

from collections.abc import Callable, Mapping
from dataclasses import dataclass

import structlog

from loghub.clock import Clock
from loghub.domain import coordinator
from loghub.domain.group import (
    Event,
    GroupState,
    Heartbeat,
    LogShard,
    ServicePaused,
    ShardsChanged,
    Step,
    Tick,
    Transition,
)
from loghub_service.durable_steps import NewestCommits, PauseDetector
from loghub_service.facts import GroupDeleted, GroupStepped, ServiceFact
from loghub_service.polls import Notifier
from loghub_service.storage.group_commit import Batches

_log = structlog.get_logger("loghub_service.groups")


@dataclass(slots=True, eq=False)
class RegisteredGroup:
    """One group. A group that is created again under the name of a deleted one is another object."""

    logstore: int
    state: GroupState
    revision: int = 0  # differs after each change of assignment, consumers or settings


class GroupRegistry:
    """All groups of all logstores, by logstore id and name."""

    def __init__(
        self,
        *,
        clock: Clock,
        batches: Batches[tuple[ServiceFact, ...]],
        tick_interval_s: float,
        named: Callable[[int], Mapping[str, str]],
    ) -> None:
        """`tick` is called every ``tick_interval_s`` seconds; a much longer interval means that the process
        was paused. ``named`` has the names of a logstore and its project, for the log."""
        self._clock = clock
        self._batches = batches
        self._named = named
        self._pauses = PauseDetector(clock, tick_interval_s)
        self._commits: NewestCommits[RegisteredGroup] = NewestCommits()
        self.durable, self.answer = self._commits.durable, self._commits.answer
        self._groups: dict[int, dict[str, RegisteredGroup]] = {}
        self.changes = Notifier()  # of the revision of a group, and its deletion
        # Above all revisions of earlier groups of the same name, and of the run of the service before.
        self._revision = int(clock.unix_s() * 1_000_000)

    def of(self, logstore: int) -> dict[str, RegisteredGroup]:
        """The groups of a logstore by name. The caller must not change the mapping."""
        return self._groups.get(logstore, {})

    async def create(
        self, *, logstore: int, name: str, timeout_s: float, order: bool, shards: tuple[LogShard, ...]
    ) -> None:
        created = coordinator.create_group(
            group=name, timeout_s=timeout_s, order=order, shards=shards, now=self._clock.monotonic_s()
        )
        group = RegisteredGroup(logstore=logstore, state=created.state, revision=self._next_revision())
        self._groups.setdefault(logstore, {})[name] = group
        self._submit_facts(group, created)
        await self.durable(group)

    def _next_revision(self) -> int:
        self._revision += 1
        return self._revision

    def restore(self, group: RegisteredGroup) -> None:
        group.revision = self._next_revision()
        self._groups.setdefault(group.logstore, {})[group.state.group] = group

    async def delete(self, group: RegisteredGroup) -> None:
        """Delete a group. A later heartbeat fails because the group does not exist."""
        name = group.state.group
        del self._groups[group.logstore][name]
        self.changes.notify(group)
        await self._batches.submit((GroupDeleted(logstore=group.logstore, group=name),))

    def forget_logstore(self, logstore: int) -> None:
        """Remove a logstore's groups from memory. Call it before persisting the logstore's deletion, which
        also deletes the groups' rows."""
        for group in self._groups.pop(logstore, {}).values():
            self.changes.notify(group)

    async def apply_durably(self, group: RegisteredGroup, event: Event) -> Step:
        """Apply one event; return once all facts are durable on which the response depends."""
        step = self.apply(group, event)
        await self.durable(group)
        return step

    def apply(self, group: RegisteredGroup, event: Event) -> Step:
        """Apply one event and submit its facts without waiting, for callers that send no response."""
        step = coordinator.step(group.state, event, now=self._clock.monotonic_s())
        before, group.state = group.state, step.state
        self._submit_facts(group, step)
        if step.transitions or _outline(before) != _outline(step.state) or _is_passing(step, event):
            group.revision = self._next_revision()
            self.changes.notify(group)
        return step

    def _submit_facts(self, group: RegisteredGroup, step: Step) -> None:
        if step.facts:
            fact = GroupStepped(logstore=group.logstore, group=step.state.group, facts=step.facts)
            self._commits.add(group, self._batches.submit((fact,)))
        for change in step.transitions:
            _log_transition(change, self._named(group.logstore))

    def tick(self) -> None:
        """Remove the consumers whose sessions have timed out; cheap if there are none."""
        now, paused_s = self._clock.monotonic_s(), self._pauses.tick()
        for group in [group for groups in self._groups.values() for group in groups.values()]:
            if paused_s:
                self.apply(group, ServicePaused(pause_s=paused_s))
            deadline = coordinator.next_deadline(group.state)
            if deadline is not None and deadline <= now:
                self.apply(group, Tick())

    async def shards_changed(self, logstore: int, shards: tuple[LogShard, ...]) -> None:
        """Report the new shards to every group of a logstore, all before the first wait because a group may
        be deleted during it."""
        groups = list(self.of(logstore).values())
        for group in groups:
            self.apply(group, ShardsChanged(shards=shards))
        for group in groups:
            await self.durable(group)


def _is_passing(step: Step, event: Event) -> bool:
    """Whether the next heartbeat has another answer, though nothing else happens: a client that polls the
    group should send its heartbeat soon."""
    return isinstance(event, Heartbeat) and step.answer != step.state.owned_by(event.consumer)


def _outline(state: GroupState) -> tuple[object, ...]:
    """The parts of the state that change the revision, besides the states and holders of shards, whose
    changes are transitions."""
    return state.timeout_s, state.order, state.consumers.keys(), state.shards.keys()


def _log_transition(change: Transition, logstore: Mapping[str, str]) -> None:
    _log.info(
        "shard state changed",
        **logstore,
        group=change.group,
        shard=change.shard,
        old=change.old.value if change.old else None,
        new=change.new.value,
        trigger=change.trigger.value,
        holder=change.holder,
        next_holder=change.next_holder,
    )
