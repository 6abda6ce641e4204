"""Shards that the settings name, without a consumer group: no heartbeats, and nobody else is asked.

Where a shard continues is in the checkpoint store of the user; without one it begins at the start position.
"""

import threading
from collections.abc import Callable
from concurrent.futures import ThreadPoolExecutor
from dataclasses import replace

from loghub.client.port import LogHub
from loghub.wire.errors import Code, LogHubError
from loghub.worker_contract import first_position
from loghub_worker.consumer.processor import ShardLostError
from loghub_worker.consumer.settings import ConsumerSettings
from loghub_worker.log_service import ReportedError, decode_cursor
from loghub_worker.membership.membership import HeldShard, ShardPhase
from loghub_worker.membership.parallel_tasks import PARALLEL

EPOCH = 1  # of each shard, which is assigned once


class StaticCheckpoints:
    """Checkpoints that are only noted."""

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


class StaticAssignment:
    """An `loghub_worker.consumer.assignment.Assignment`: the shards of `ConsumerSettings.shards`."""

    def __init__(self, settings: ConsumerSettings, client: LogHub) -> None:
        self._settings = settings
        self._client = client
        self._changed = threading.Condition()
        self._changes = 0
        self._on_change: Callable[[], None] = lambda: None
        self._held: dict[int, HeldShard] = {}
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

    def _begun(self, shard: int) -> HeldShard:
        settings = self._settings
        first = first_position(shard, settings.start_position, last_initial_shard=settings.last_initial_shard)
        position = decode_cursor(self._client.get_cursor(settings.logstore, shard, first))
        return HeldShard(shard=shard, epoch=EPOCH, phase=ShardPhase.OPEN, position=position, saved=position)

    def held(self) -> tuple[HeldShard, ...]:
        with self._changed:
            return tuple(self._held[shard] for shard in sorted(self._held))

    def released(self, shard: int, *, epoch: int) -> None:  # noqa: ARG002
        self._remove(shard)

    def fenced(self, shard: int, *, epoch: int) -> None:  # noqa: ARG002
        """A later program reads the shard; taking it back would only make the two alternate."""
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
