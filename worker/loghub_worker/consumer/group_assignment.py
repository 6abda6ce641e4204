"""The shards that a consumer group gives to this consumer: membership, heartbeats and checkpoints.

They are those of the worker on Spark (`loghub_worker.membership`).
"""

from collections.abc import Callable
from dataclasses import replace
from functools import partial
from typing import TypeVar

from loghub.client.port import LogHub
from loghub.wire.errors import LogHubError
from loghub_worker.consumer.group import group_timeout_s, present_timeout_s
from loghub_worker.consumer.processor import ShardLostError
from loghub_worker.consumer.program_parts import ProgramParts
from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.consumer.shard_table import ShardTable
from loghub_worker.consumer.static_assignment import StaticAssignment
from loghub_worker.log_service import ConsumerIdentity, ReportedError
from loghub_worker.membership.group_watch import GroupWatch
from loghub_worker.membership.heartbeat import Heartbeats
from loghub_worker.membership.membership import (
    HeldShard,
    Membership,
    MembershipTimings,
    MemberState,
    ShutdownMode,
)
from loghub_worker.membership.shard_manager import NOT_HELD, ShardManager
from loghub_worker.membership.shard_opening import ShardOpening
from loghub_worker.membership.shared_membership import SharedState
from loghub_worker.sink.shard_record import NoRecord

T = TypeVar("T")

HEARTBEATS_PER_TIMEOUT = 3


class GroupCheckpoints:
    """The checkpoints of a consumer group, in the log service."""

    def __init__(self, shared_state: SharedState, shard_manager: ShardManager) -> None:
        self._shared_state = shared_state
        self._shard_manager = shard_manager

    def note(self, shard: int, *, epoch: int, position: int) -> None:
        with self._shared_state.use() as (membership, now):
            is_ours = membership.moved(shard, epoch=epoch, position=position, now=now)
        if not is_ours:
            raise ShardLostError(f"shard {shard} is no longer assigned to this consumer")

    def send(self, shard: int, *, epoch: int) -> None:
        try:
            self._shard_manager.save_now(shard, epoch=epoch)
        except LogHubError as error:
            if error.code in NOT_HELD:
                raise ShardLostError(f"shard {shard}: {error.message}") from error
            raise

    can_save = True

    def require_place(self) -> None:
        """The log service is one."""


class GroupAssignment:
    """An `loghub_worker.consumer.assignment.Assignment`: one member of a consumer group."""

    def __init__(
        self,
        settings: ConsumerSettings,
        client: LogHub,
        table: ShardTable,
        *,
        parts: ProgramParts,
        random: Callable[[], float],
        timeout_s: int | None,
    ) -> None:
        """`timeout_s` is the group's; None: it is read from the group, at the start and now and then."""
        self._program = parts
        self._settings = settings
        self._client = client
        self._table = table
        self._random = random
        self._timeout_s = timeout_s
        self._heartbeat_client: LogHub | None = None
        self._parts: tuple[SharedState, ShardManager, Heartbeats, GroupWatch] | None = None
        self._on_change: Callable[[], None] = lambda: None
        self.checkpoints: GroupCheckpoints

    def start(self) -> None:
        settings, random = self._settings, self._random
        timeout_s = self._timeout_s or group_timeout_s(self._client, settings)
        timings = self._timings_of(timeout_s)
        shared_state = SharedState(
            Membership(timings, random=random), self._table, self._table.clock, random=random
        )
        identity = ConsumerIdentity(
            logstore=settings.logstore, group=settings.consumer_group, consumer=settings.consumer
        )
        # A heartbeat that takes longer than an interval counts as failed: the next one is due.
        program = self._program
        heartbeat_client = program.connections.open(settings, timeout_s=max(2.0, timings.interval_s))
        self._heartbeat_client = heartbeat_client
        # Nobody else knows of the group in a retry logstore. Sessions have the timeout that is known.
        again = replace(settings, timeout_s=timeout_s)
        create_group = partial(group_timeout_s, heartbeat_client, again) if settings.is_of_retries else None
        heartbeats = Heartbeats(shared_state, heartbeat_client, identity, create_group=create_group)
        shard_manager = ShardManager(
            shared_state,
            self._client,
            ShardOpening(self._client, NoRecord(), identity, config=settings),
            identity,
            config=settings,
            tasks=program.tasks,
        )
        with shared_state.use() as (membership, _):
            membership.source_started()
        self.checkpoints = GroupCheckpoints(shared_state, shard_manager)
        follows = None if self._timeout_s else self._present_timings
        group_watch = GroupWatch(shared_state, self._client, identity, timings=follows, polls=program.polls)
        self._parts = (shared_state, shard_manager, heartbeats, group_watch)
        shared_state.call_on_change(self._on_change)
        shard_manager.start(program.control, step_s=program.step_s)
        heartbeats.start(program.heartbeats)
        group_watch.start(program.requests)

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def _timings_of(self, timeout_s: int) -> MembershipTimings:
        interval_s = min(self._settings.heartbeat_interval_s, timeout_s / HEARTBEATS_PER_TIMEOUT)
        return MembershipTimings.of(interval_s=interval_s, timeout_s=timeout_s)

    def _present_timings(self) -> MembershipTimings | None:
        timeout_s = present_timeout_s(self._client, self._settings)
        return None if timeout_s is None else self._timings_of(timeout_s)

    @property
    def _shared_state(self) -> SharedState:
        assert self._parts is not None
        return self._parts[0]

    def inspect(self, view: Callable[[Membership, float, ShardManager], T]) -> T | None:
        """What `view` makes of the membership, at the present monotonic time; None before `start`."""
        if self._parts is None:
            return None
        shared_state, shard_manager, *_ = self._parts
        with shared_state.use() as (membership, now):
            return view(membership, now, shard_manager)

    def held(self) -> tuple[HeldShard, ...]:
        with self._shared_state.use() as (membership, _):
            return membership.shards

    def released(self, shard: int, *, epoch: int) -> None:
        """The shard is released as soon as its checkpoint is saved."""
        with self._shared_state.use() as (membership, _):
            membership.source_released(shard, epoch=epoch)

    def fenced(self, shard: int, *, epoch: int) -> None:
        """Nothing: whose the shard is, the group says."""

    def give_up(self, *, leaves: bool) -> None:
        with self._shared_state.use() as (membership, _):
            membership.set_shutdown_mode(ShutdownMode.LEAVE if leaves else ShutdownMode.STOP)

    def abandon(self) -> None:
        with self._shared_state.use() as (membership, _):
            membership.abandon()

    @property
    def has_joined(self) -> bool:
        with self._shared_state.use() as (membership, _):
            return membership.state is MemberState.MEMBER

    @property
    def is_drained(self) -> bool:
        with self._shared_state.use() as (membership, _):
            return membership.drained

    @property
    def has_left(self) -> bool:
        with self._shared_state.use() as (membership, _):
            return membership.state is MemberState.LEFT

    @property
    def failure(self) -> BaseException | None:
        parts = () if self._parts is None else self._parts[1:]
        return next((part.failure for part in parts if part.failure is not None), None)

    def errors(self) -> tuple[ReportedError, ...]:
        if self._parts is None:
            return ()
        _, shard_manager, heartbeats, _ = self._parts
        return heartbeats.error, shard_manager.error

    def stop(self) -> None:
        if self._parts is not None:
            _, shard_manager, heartbeats, group_watch = self._parts
            group_watch.stop()
            heartbeats.stop()
            shard_manager.stop()
        if self._heartbeat_client is not None:
            self._program.connections.give_back(self._heartbeat_client)

    @property
    def changes(self) -> int:
        return self._shared_state.changes

    def wait(self, since: int, timeout_s: float) -> None:
        self._shared_state.wait(since, timeout_s)

    def wake(self) -> None:
        if self._parts is not None:
            self._shared_state.wake()


def make_assignment(
    settings: ConsumerSettings,
    client: LogHub,
    table: ShardTable,
    *,
    parts: ProgramParts,
    random: Callable[[], float],
    timeout_s: int | None,
) -> GroupAssignment | StaticAssignment:
    """The shards that the settings name, without any group; otherwise those of the group."""
    if settings.shards is not None:
        return StaticAssignment(settings, client)
    return GroupAssignment(settings, client, table, parts=parts, random=random, timeout_s=timeout_s)
