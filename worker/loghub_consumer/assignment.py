"""Where the shards of a consumer come from, and where their checkpoints go.

`GroupAssignment` is one member of a consumer group, with the same membership, heartbeats and checkpoints as
the worker on Spark (`loghub_consumer.membership`). `StaticAssignment` has the shards that the settings name,
without a group: it sends no heartbeats and coordinates with no other consumer. Its shards continue at the
positions in the user's checkpoint store; without one they begin at the start position. With
`loghub_consumer.subscription_assignment.SubscriptionAssignment` the logs come with the shards.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace
from functools import partial
from typing import Protocol, TypeVar

from loghub.client.port import LogHub
from loghub.contract.worker import first_position
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.errors import Code, LogHubError
from loghub_consumer.log_service import ConsumerIdentity, ReportedError
from loghub_consumer.membership.heartbeat import GroupWatch, Heartbeats
from loghub_consumer.membership.membership import (
    MemberShard,
    Membership,
    MembershipTimings,
    MemberState,
    ShardPhase,
    ShutdownMode,
)
from loghub_consumer.membership.shard_manager import NOT_HELD, PARALLEL, ShardManager
from loghub_consumer.membership.shard_opening import ShardOpening
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.processor import ShardLostError
from loghub_consumer.program_parts import ProgramParts
from loghub_consumer.resumption import NoRecord
from loghub_consumer.settings import ConsumerSettings, group_timeout_s, present_timeout_s
from loghub_consumer.shard_table import HeldShardEntry, ShardTable
from loghub_consumer.subscription_assignment import SubscriptionAssignment


class Checkpoints(Protocol):
    """Notes and saves the checkpoints of the held shards. Thread-safe."""

    def note(self, shard: int, *, epoch: int, position: int) -> None:
        """Note a position, which is saved later if checkpoints have a place. Raises `ShardLostError`."""

    def send(self, shard: int, *, epoch: int) -> None:
        """Save the noted position. Raises `ShardLostError` and `LogHubException`, and `ValueError` if
        checkpoints have no place."""

    @property
    def can_save(self) -> bool:
        """Whether checkpoints are saved anywhere."""

    def require_place(self) -> None:
        """Raises `ValueError` unless checkpoints are saved."""


class Assignment(Protocol):
    """The shards of one consumer. Thread-safe after `start`."""

    @property
    def checkpoints(self) -> Checkpoints:
        """The checkpoints of the shards; available after `start`."""

    def start(self) -> None:
        """Begin to assign shards. Raises `LogHubException` if the log service cannot be read."""

    def held(self) -> tuple[MemberShard, ...]:
        """The shards that this consumer has or is giving up."""

    def standby(self) -> tuple[int, ...]:
        """The shards of an ordered subscription in which another consumer is active."""

    def opened(self, entry: HeldShardEntry) -> None:
        """The shard of `held` has an entry, and will have a processor."""

    def seek(self, entry: HeldShardEntry, to: int) -> None:
        """Continue the shard at a cursor. Raises `LogHubException`."""

    def released(self, shard: int, *, epoch: int) -> None:
        """The processor of the shard has ended."""

    def fenced(self, shard: int, *, epoch: int) -> None:
        """Give up a shard that the checkpoint store has given to another owner."""

    def give_up(self, *, leaves: bool) -> None:
        """Begin to give up every shard; with `leaves`, tell the group that this consumer leaves, too."""

    def abandon(self) -> None:
        """Treat every shard as lost, even if its processor still runs."""

    @property
    def has_joined(self) -> bool:
        """Whether the shards of this consumer are known."""

    @property
    def is_drained(self) -> bool:
        """Whether every shard is given up and its checkpoint saved."""

    @property
    def has_left(self) -> bool:
        """Whether the other consumers know that this one has left."""

    @property
    def failure(self) -> BaseException | None:
        """The error that ended a thread of this part unexpectedly."""

    def errors(self) -> tuple[ReportedError, ...]:
        """The present problems; an error without a reason is no problem."""

    def stop(self) -> None:
        """End the threads."""

    # -- changes

    @property
    def changes(self) -> int:
        """The number of changes so far, for `wait`."""

    def wait(self, since: int, timeout_s: float) -> None:
        """Wait until a change follows the change `since`, but at most `timeout_s` seconds."""

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        """Call this after each change. It must not block. To be called before `start`."""

    def wake(self) -> None:
        """End every `wait`."""


class PulledLogs:
    """A part of an assignment whose consumer pulls the logs of its shards."""

    def standby(self) -> tuple[int, ...]:
        return ()

    def opened(self, entry: HeldShardEntry) -> None:
        """Nothing: the logs are pulled from the position on."""

    def seek(self, entry: HeldShardEntry, to: int) -> None:
        """Only this consumer continues there."""
        entry.seek(to)


EPOCH = 1  # a shard is assigned only once


class StaticCheckpoints:
    """Checkpoints that are only noted, and never saved."""

    def __init__(self, shards: "StaticAssignment") -> None:
        self._shards = shards

    def note(self, shard: int, *, epoch: int, position: int) -> None:  # noqa: ARG002
        if not any((held.shard, held.epoch) == (shard, epoch) for held in self._shards.held()):
            raise ShardLostError(f"shard {shard} has another owner in the checkpoint store")

    def send(self, shard: int, *, epoch: int) -> None:  # noqa: ARG002
        self.require_place()

    can_save = False

    def require_place(self) -> None:
        raise ValueError(
            "shards that the settings name have no consumer group in which to save checkpoints; set"
            " ConsumerSettings.checkpoint_store and use tracker.transaction, or keep logs.next_cursor and"
            " seek to it in Listener.on_assigned"
        )


class StaticAssignment(PulledLogs):
    """An `Assignment`: the shards of `ConsumerSettings.shards`."""

    def __init__(self, settings: ConsumerSettings, client: LogHub) -> None:
        self._settings = settings
        self._client = client
        self._changed = threading.Condition()
        self._changes = 0
        self._on_change: Callable[[], None] = lambda: None
        self._held: dict[int, MemberShard] = {}
        self.checkpoints = StaticCheckpoints(self)

    def start(self) -> None:
        """Raises `LogHubError` ``ShardNotExist`` for a shard that the logstore lacks."""
        settings = self._settings
        wanted = sorted(set(settings.shards or ()))
        existing = {info.shard for info in self._client.list_shards(settings.logstore)}
        missing = [shard for shard in wanted if shard not in existing]
        if missing:
            raise LogHubError(
                Code.SHARD_NOT_EXIST,
                400,
                f"logstore {settings.project}/{settings.logstore} has no shards {missing}; it has"
                f" {sorted(existing)}",
            )
        with ThreadPoolExecutor(PARALLEL, thread_name_prefix="cursor") as pool:
            self._held = dict(zip(wanted, pool.map(self._begun, wanted), strict=True))

    def _begun(self, shard: int) -> MemberShard:
        settings = self._settings
        first = first_position(shard, settings.start_position, last_initial_shard=settings.last_initial_shard)
        position = decode_cursor(self._client.get_cursor(settings.logstore, shard, first))
        return MemberShard(shard=shard, epoch=EPOCH, phase=ShardPhase.OPEN, position=position, saved=position)

    def held(self) -> tuple[MemberShard, ...]:
        with self._changed:
            return tuple(self._held[shard] for shard in sorted(self._held))

    def released(self, shard: int, *, epoch: int) -> None:  # noqa: ARG002
        self._remove(shard)

    def fenced(self, shard: int, *, epoch: int) -> None:  # noqa: ARG002
        """Give up the shard, because a later program reads it; taking it back would only make the two
        alternate."""
        self._remove(shard)

    def _remove(self, shard: int) -> None:
        with self._changed:
            self._held.pop(shard, None)
        self.wake()

    def give_up(self, *, leaves: bool) -> None:  # noqa: ARG002
        with self._changed:
            self._held = {
                shard: replace(held, phase=ShardPhase.DRAINING) for shard, held in self._held.items()
            }
        self.wake()

    def abandon(self) -> None:
        with self._changed:
            self._held.clear()
        self.wake()

    @property
    def has_joined(self) -> bool:
        return True

    @property
    def is_drained(self) -> bool:
        return True  # nothing is saved

    @property
    def has_left(self) -> bool:
        return True

    @property
    def failure(self) -> BaseException | None:
        return None

    def errors(self) -> tuple[ReportedError, ...]:
        return ()

    def stop(self) -> None:
        """There are no threads."""

    @property
    def changes(self) -> int:
        return self._changes

    def wait(self, since: int, timeout_s: float) -> None:
        with self._changed:
            self._changed.wait_for(lambda: self._changes != since, timeout_s)

    def call_on_change(self, on_change: Callable[[], None]) -> None:
        self._on_change = on_change

    def wake(self) -> None:
        with self._changed:
            self._changes += 1
            self._changed.notify_all()
        self._on_change()


T = TypeVar("T")

# The heartbeat interval is the timeout divided by this: two heartbeats in a row may fail.
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
        """Does nothing, because the log service has a place for checkpoints."""


class GroupAssignment(PulledLogs):
    """An `Assignment`: one member of a consumer group."""

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
        """`timeout_s` is the timeout of the group; None: it is read from the group, at the start and
        periodically."""
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
        # a heartbeat that takes longer than an interval counts as failed, because the next one is due
        program = self._program
        heartbeat_client = program.connections.open(settings, timeout_s=max(2.0, timings.interval_s))
        self._heartbeat_client = heartbeat_client
        # Only this consumer creates the group in a retry logstore. Its sessions have the known timeout.
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
        """The result of `view` for the membership at the present monotonic time; None before `start`."""
        if self._parts is None:
            return None
        shared_state, shard_manager, *_ = self._parts
        with shared_state.use() as (membership, now):
            return view(membership, now, shard_manager)

    def held(self) -> tuple[MemberShard, ...]:
        with self._shared_state.use() as (membership, _):
            return membership.shards

    def released(self, shard: int, *, epoch: int) -> None:
        """Release the shard as soon as its checkpoint is saved."""
        with self._shared_state.use() as (membership, _):
            membership.source_released(shard, epoch=epoch)

    def fenced(self, shard: int, *, epoch: int) -> None:
        """Does nothing, because the group decides whose the shard is."""

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
) -> GroupAssignment | StaticAssignment | SubscriptionAssignment:
    """The shards that the settings name, if they name shards; otherwise the shards of the subscription, or of
    the group."""
    if settings.subscription is not None:
        is_worker = timeout_s is not None
        return SubscriptionAssignment(
            settings, client, table, parts=parts, random=random, is_worker=is_worker
        )
    if settings.shards is not None:
        return StaticAssignment(settings, client)
    return GroupAssignment(settings, client, table, parts=parts, random=random, timeout_s=timeout_s)
