"""The position of one assignment of a shard in the user's database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any

from loghub_worker.consumer import shard_flow
from loghub_worker.consumer.checkpoint_store import CheckpointStore, FencedError, Owned, StoredShard
from loghub_worker.consumer.processor import ShardLostError
from loghub_worker.consumer.shard_slot import ShardSlot
from loghub_worker.consumer.shard_table import ShardTable


class StoredPosition:
    """Used by the thread of the shard only."""

    def __init__(
        self,
        store: CheckpointStore,
        table: ShardTable,
        slot: ShardSlot,
        *,
        describe: Callable[[], StoredShard],
        on_fenced: Callable[[], None],
    ) -> None:
        """`describe` asks the log service what the shard is; `on_fenced` if it has another owner."""
        self._store = store
        self._table = table
        self._slot = slot
        self._describe = describe
        self._on_fenced = on_fenced
        self._owned: Owned | None = None
        self._known: int | None = None
        self.is_uncertain = True  # what the database has, such as after a commit without an answer

    def acquire(self) -> bool:
        """Own the shard in the database, and continue where that says. Returns whether this is elsewhere."""
        shard = self._describe() if self._owned is None else self._owned.shard
        flow = self._slot.flow
        self._owned = self._store.acquire(shard, position=flow.position)
        known = flow.position if self._known is None else self._known
        is_sought = self._known is None and flow.generation > 0  # by the listener, who knows better
        self._known, self.is_uncertain = self._owned.position, False
        if is_sought or self._owned.position == known:
            return False
        to = self._owned.position
        self._table.apply(self._slot, lambda flow, now: shard_flow.sought(flow, to=to, now=now))
        return True

    @contextmanager
    def transaction(self, position: int) -> Iterator[Any]:
        """A transaction that saves this position. Raises `ShardLostError`, and what the driver raises."""
        assert self._owned is not None
        if self.is_uncertain:
            raise ShardLostError("an earlier transaction of this batch failed; let process raise its error")
        self.is_uncertain = True
        try:
            with self._store.transaction(self._owned, position=position) as connection:
                yield connection
        except FencedError as error:
            self._on_fenced()
            raise ShardLostError(str(error)) from error
        self._known, self.is_uncertain = position, False
