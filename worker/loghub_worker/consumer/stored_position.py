"""The position of one assignment of a shard in the user's database."""

from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import replace
from typing import Any

from loghub_worker.consumer import shard_flow
from loghub_worker.consumer.checkpoint_store import CheckpointStore, FencedError, Owned, StoredShard
from loghub_worker.consumer.processor import ShardLostError
from loghub_worker.consumer.shard_flow import ShardFlow
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
        self._generation = 0  # of the flow, in which the position in the database was reached
        self.is_uncertain = True  # what the database has, such as after a commit without an answer

    def acquire(self) -> bool:
        """Own the shard in the database, and continue where that says, unless another position was sought
        since. Returns whether what was last written from is committed, so that it must not come again."""
        before, flow, since = self._owned, self._slot.flow, self._generation
        shard, known = (
            (self._describe(), flow.position) if before is None else (before.shard, before.position)
        )
        self._owned = owned = self._store.acquire(shard, position=flow.position)
        self.is_uncertain = False
        if owned.position == known:
            return False

        def continued(flow: ShardFlow, now: float) -> ShardFlow:
            return flow if flow.generation != since else shard_flow.sought(flow, to=owned.position, now=now)

        self._table.apply(self._slot, continued)
        return self._slot.kept is not None and self._slot.kept.generation == since

    @contextmanager
    def transaction(self, begin: int, end: int) -> Iterator[Any]:
        """A transaction that writes from the logs between, and saves their end. Raises `ShardLostError`, and
        what the driver raises."""
        assert self._owned is not None
        if self.is_uncertain:
            raise ShardLostError("an earlier transaction of this batch failed; let process raise its error")
        flow = self._slot.flow
        generation = flow.generation if self._slot.kept is None else self._slot.kept.generation
        was_sought = generation != self._generation
        self._generation, self.is_uncertain = generation, True
        if was_sought and end == self._owned.position:
            # The database has this position already, so it would not tell whether this one was committed.
            with self._saving(flow.began_at if generation == flow.generation else begin):
                pass
        with self._saving(end) as connection:
            yield connection
        self.is_uncertain = False

    @contextmanager
    def _saving(self, position: int) -> Iterator[Any]:
        assert self._owned is not None
        try:
            with self._store.transaction(self._owned, position=position) as connection:
                yield connection
        except FencedError as error:
            self._on_fenced()
            raise ShardLostError(str(error)) from error
        self._owned = replace(self._owned, position=position)
