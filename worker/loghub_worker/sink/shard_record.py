"""Where a shard continues: what the shard manager asks of a sink, and of a consumer without one."""

from collections.abc import Callable
from typing import Protocol

from loghub_worker.sink.range_claims import ShardIncarnation
from loghub_worker.sink.resumption import CheckpointOrigin


class ShardRecord(Protocol):
    """What else than the log service's checkpoint says where a shard continues. Cursors are integers.

    Different shards are opened and acknowledged at the same time, by several threads; the calls for one shard
    follow one another."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """This consumer was assigned the shard. Called before its checkpoint is requested."""

    def resume(
        self,
        shard: ShardIncarnation,
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,
    ) -> int:
        """Where the shard continues, given the service's checkpoint and who has set it.
        `confirm` is called before anything is changed; it raises if the shard was lost since it was
        opened."""

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """The service has the checkpoint."""


class NoRecord:
    """The checkpoint is the only record: what was delivered after it is delivered again."""

    def open_shard(self, shard: ShardIncarnation) -> None:
        """Do nothing: nobody else's delivery can be noticed."""

    def resume(
        self,
        shard: ShardIncarnation,  # noqa: ARG002
        checkpoint: int,
        *,
        confirm: Callable[[], None],
        origin: CheckpointOrigin = CheckpointOrigin.SAVED,  # noqa: ARG002
    ) -> int:
        """The checkpoint."""
        confirm()
        return checkpoint

    def acknowledge(self, shard: int, checkpoint: int) -> None:
        """Do nothing: there is no record to remove."""
