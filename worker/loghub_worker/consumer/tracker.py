"""The checkpoint of one shard, as its processor sees it."""

import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress
from typing import Any

from loghub_worker.consumer.acknowledgement import Acknowledgement
from loghub_worker.consumer.assignment import Checkpoints
from loghub_worker.consumer.batch import LogBatch, Logs
from loghub_worker.consumer.processor import ShardLostError
from loghub_worker.consumer.shard_flow import ShardFlow
from loghub_worker.consumer.slot_control import SlotControl
from loghub_worker.consumer.stored_position import StoredPosition
from loghub_worker.failure.skip_limits import Failure
from loghub_worker.log_service import decode_cursor, encode_cursor
from loghub_worker.membership.membership import HeldShard


class ShardTracker:
    """The `loghub_worker.consumer.processor.Tracker` of one assignment."""

    def __init__(
        self,
        checkpoints: Checkpoints,
        acknowledgement: Acknowledgement,
        stored: StoredPosition | None,
        control: SlotControl,
        *,
        held: HeldShard,
    ) -> None:
        position = held.position
        assert position is not None
        self.shard = held.shard
        self.seek, self.pause, self.resume = control.seek, control.pause, control.resume
        self._control = control
        self._acknowledgement = acknowledgement
        self._stored = stored
        self._checkpoints = checkpoints
        self._epoch = held.epoch
        self._noting = threading.Lock()
        self._noted = position
        self._asked = position  # what was to be noted, also if something before it is not acknowledged
        self._handed_over = position  # the end of the last batch
        self._done = position  # what `save` means without a cursor
        self._ahead: int | None = None  # noted while a batch is being processed
        self._asked_in: int | None = None  # generation of the flow
        self._reached: int | None = None  # noted last while a batch was, unless the position was sought since
        self._generation = 0  # of the flow, at the last batch

    def begin_batch(self, end: int, *, generation: int) -> None:
        """`process` is called with a batch that ends there."""
        with self._noting:
            self._done, self._ahead, self._handed_over = self._furthest(end, generation), None, end

    def passed(self, position: int) -> None:
        """A query has left out what lies before, so no processor saves it: note it if all that was handed
        over is saved. Raises `ShardLostError`."""
        with self._noting:
            if position > self._asked >= self._handed_over:
                self._note(position)

    def end_batch(self, flow: ShardFlow) -> None:
        """No batch is being processed, and everything before the position was. If the batch failed, it may
        have saved more than that."""
        with self._noting:
            self._reached, self._ahead = self._reached if self._ahead is None else self._ahead, None
            self._done = self._furthest(flow.position, flow.generation)

    def _furthest(self, position: int, generation: int) -> int:
        """This position, or what was saved beyond it; that does not count once another position was
        sought."""
        if generation != self._generation:
            self._generation, self._reached = generation, None
        return position if self._reached is None else max(position, self._reached)

    def save(self, *, persist: bool = True, cursor: str | None = None) -> None:
        self._checkpoints.require_place()
        given = None if cursor is None else decode_cursor(cursor)
        with self._noting:
            self._saved(self._done if given is None else given)
        if persist:
            self.send()

    def send(self) -> None:
        """Send what was noted. Raises as `save` does."""
        self._checkpoints.send(self.shard, epoch=self._epoch)

    def _saved(self, position: int) -> None:
        self._acknowledgement.saved(position)
        self._ahead = self._note(position)

    def commit(self, present: Callable[[], ShardFlow]) -> None:
        """Save what was processed, or what a batch has saved already, which is further. Raises as `save`
        does."""
        self._checkpoints.require_place()
        with self._noting:
            flow = present()
            position = self._furthest(flow.position, flow.generation) if self._ahead is None else self._ahead
            self._acknowledgement.committed(position)
            self._note(position)
        self._checkpoints.send(self.shard, epoch=self._epoch)

    def nack(self, *logs: Logs, delay_s: float | None = None, reason: str = "") -> None:
        self._require_order()
        self._acknowledgement.refuse(logs, delay_s, reason)

    def nack_up_to(self, last: Logs, *, delay_s: float | None = None, reason: str = "") -> None:
        self._require_order()
        self._acknowledgement.refuse_up_to(last, delay_s, reason)

    def reject(self, *logs: Logs, reason: str = "") -> None:
        self._require_order()
        self._acknowledgement.refuse(logs, None, reason, is_final=True)

    def _require_order(self) -> None:
        if self._stored is not None:
            raise ValueError("with a checkpoint store the logs stay in order; let process raise instead")

    @contextmanager
    def transaction(self, logs: LogBatch) -> Iterator[Any]:
        if self._stored is None:
            raise ValueError("there is no database; set ConsumerSettings.checkpoint_store")
        with self._stored.transaction(logs.begin, logs.end) as connection:
            yield connection
        with suppress(ShardLostError), self._noting:  # it is committed; the log service need not know
            self._saved(logs.end)

    @property
    def is_given_up(self) -> bool:
        """Whether nothing of the shard is processed any more, but its `shutdown`."""
        return self._control.is_given_up

    @property
    def is_held(self) -> bool:
        """False if another consumer may have the shard."""
        try:
            self.require_held()
        except ShardLostError:
            return False
        return True

    def require_held(self) -> None:
        """Raises `ShardLostError` if another consumer may have the shard."""
        with self._noting:
            self._checkpoints.note(self.shard, epoch=self._epoch, position=self._noted)

    def ack(self, *logs: Logs) -> None:
        self._acknowledgement.acknowledge(logs)

    def interrupted(self, failure: Failure) -> None:
        """The processor is gone. What it had, and neither acknowledged nor refused, comes again; by batch so
        does what it has not saved, since it may have kept that in its memory."""
        self._acknowledgement.interrupted(failure)
        self._control.roll_back(self.restart_before(self._control.flow.position))

    def is_settled_before(self, position: int) -> bool:
        """Whether nothing before is refused, or handed over and not acknowledged."""
        floor = self._acknowledgement.floor
        return floor is None or floor >= position

    def restart_before(self, position: int) -> int:
        """Where another processor has to begin of which the last one has got everything before `position`: by
        batch, where it has saved, or since then was sought, and what came again since; by log there."""
        if not self._checkpoints.can_save:
            return position
        with self._noting:
            flow, unsaved = self._control.flow, self._acknowledgement.first_unsaved
            position = position if unsaved is None else min(position, unsaved)
            if not self._acknowledgement.is_by_batch:
                return position
            return min(position, self._asked if self._asked_in == flow.generation else flow.began_at)

    def note_acknowledged(self) -> None:
        """Note what was acknowledged by log, up to the first log that was not. Raises `ShardLostError`."""
        with self._noting:
            position = self._acknowledgement.take_prefix()
            if position is not None:
                self._note(position)

    def settled(self, begin: int, end: int) -> None:
        """These log groups were settled, so that no processor saves them. Raises `ShardLostError`."""
        self._acknowledgement.settled()
        with self._noting:
            if end > self._asked >= begin:  # what is before was saved
                self._note(end)
            else:
                self._note_asked()

    def _note(self, position: int) -> int:
        self._asked, self._asked_in = position, self._control.flow.generation
        return self._note_asked()

    def _note_asked(self) -> int:
        """As far as nothing before is refused, or not acknowledged, or may be in the processor's memory
        alone."""
        bounds = (self._asked, self._acknowledgement.floor, self._acknowledgement.first_unsaved)
        position = min(bound for bound in bounds if bound is not None)
        self._checkpoints.note(self.shard, epoch=self._epoch, position=position)
        self._noted = position
        return position

    def get(self) -> str:
        return encode_cursor(self._noted)
