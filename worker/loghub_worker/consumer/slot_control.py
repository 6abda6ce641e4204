"""Where one assignment of a shard continues, and whether it is paused. Any thread may use it."""

from loghub.client.port import LogHub
from loghub_worker.consumer import shard_flow
from loghub_worker.consumer.processor import NotAssignedError
from loghub_worker.consumer.shard_flow import ENDING, FlowPhase, ShardFlow
from loghub_worker.consumer.shard_slot import ShardSlot
from loghub_worker.consumer.shard_table import ShardTable
from loghub_worker.log_service import decode_cursor


class SlotControl:
    """`seek`, `pause` and `resume` raise `NotAssignedError` once the shard is lost."""

    def __init__(self, table: ShardTable, slot: ShardSlot, client: LogHub, *, logstore: str) -> None:
        self._table = table
        self._slot = slot
        self._client = client
        self._logstore = logstore

    def seek(self, to: str | int) -> None:
        self._require()
        cursor = to
        if isinstance(to, int) or to in ("begin", "end"):
            cursor = self._client.get_cursor(self._logstore, self._slot.flow.shard, to)  # type: ignore[arg-type]
        position = decode_cursor(str(cursor))
        self._table.apply(self._slot, lambda flow, now: shard_flow.sought(flow, to=position, now=now))

    def pause(self) -> None:
        self._require()
        self._table.apply(self._slot, lambda flow, _: shard_flow.paused(flow))

    def resume(self) -> None:
        self._require()
        self._table.apply(self._slot, lambda flow, now: shard_flow.resumed(flow, now=now))

    @property
    def flow(self) -> ShardFlow:
        return self._slot.flow

    def roll_back(self, to: int) -> None:
        """Continue at an earlier cursor; never at a later one, and nothing happens to a lost shard."""
        self._table.apply(
            self._slot,
            lambda flow, now: shard_flow.sought(flow, to=to, now=now) if to < flow.position else flow,
        )

    @property
    def is_given_up(self) -> bool:
        """Whether nothing of the shard is processed any more."""
        return self._slot.flow.phase in ENDING

    def _require(self) -> None:
        if self._slot.flow.phase in (FlowPhase.LOST, FlowPhase.ENDED):
            raise NotAssignedError(f"shard {self._slot.flow.shard} is not assigned to this consumer")
