"""Determines where a shard continues that was just assigned to this consumer.

The record of the sink decides (`loghub_worker.sink.shard_record`): the service's checkpoint may be behind.
"""

from collections.abc import Callable

import structlog

from loghub.client.port import LogHub, ShardInfo
from loghub.wire.errors import LogHubError
from loghub.worker_contract import first_position
from loghub_worker.log_service import ConsumerIdentity, decode_cursor
from loghub_worker.membership.ports import ShardHistory, ShardSettings
from loghub_worker.sink.range_claims import ShardIncarnation
from loghub_worker.sink.shard_record import ShardRecord

log = structlog.get_logger()


class ShardOpening:
    """Thread-safe for different shards. `history` is that of a pipeline with state."""

    def __init__(
        self,
        client: LogHub,
        record: ShardRecord,
        identity: ConsumerIdentity,
        *,
        config: ShardSettings,
        history: ShardHistory | None = None,
    ) -> None:
        self.record = record
        self._client = client
        self._history = history
        self._logstore = identity.logstore
        self._group = identity.group
        self._start_position = config.start_position
        self._last_initial_shard = config.last_initial_shard

    def open(self, shard: int, *, confirm: Callable[[], None], save: Callable[[int], None]) -> int:
        """The position to continue from, which is also the checkpoint that the service has at the end.

        A position that was determined is saved before anything is delivered from it, so that the next
        consumer finds the same one. A checkpoint without a consumer's name was moved on purpose. Whether the
        real SLS always reports the name has not been observed, so a checkpoint in SLS never counts as moved.
        `confirm` raises if the shard is no longer held; `save` saves a checkpoint.
        Raises `LogHubException`, or `OSError` of the record.
        """
        incarnation = ShardIncarnation(shard=shard, created=self._shard_info(shard).created_unix_s)
        # It may have been given up since, and opening it would keep the next holder from delivering.
        confirm()
        self.record.open_shard(incarnation)
        checkpoints = self._client.get_checkpoints(self._logstore, self._group, shard)
        last = next((c for c in checkpoints if c.shard == shard and c.cursor), None)
        moved = last is not None and not last.consumer and self._client.has_extensions()
        cursor = last.cursor if last else self._first_cursor(shard)
        checkpoint = decode_cursor(cursor)
        position = self.record.resume(incarnation, checkpoint, confirm=confirm, moved=moved)
        position = max(position, self._oldest(shard, position))
        if self._history is not None:
            is_first = self._is_initial(shard) and (last is None or self._is_unread(shard, position))
            position = self._history.continue_at(
                incarnation, position, is_first=is_first and not moved, moved=moved
            )
        # Save it under this worker's name immediately. Otherwise the next consumer treats the checkpoint as
        # moved again, and delivers a third time what this worker commits from it.
        if last is None or moved or position != checkpoint:
            confirm()
            save(position)
        self.record.acknowledge(shard, position)
        return position

    def _is_initial(self, shard: int) -> bool:
        return self._last_initial_shard is None or shard <= self._last_initial_shard

    def _is_unread(self, shard: int, position: int) -> bool:
        """Whether nobody has read any log of the shard that still exists."""
        return position == decode_cursor(self._first_cursor(shard))

    def _first_cursor(self, shard: int) -> str:
        position = first_position(shard, self._start_position, last_initial_shard=self._last_initial_shard)
        return self._client.get_cursor(self._logstore, shard, position)

    def _oldest(self, shard: int, position: int) -> int:
        oldest = decode_cursor(self._client.get_cursor(self._logstore, shard, "begin"))
        if oldest > position:
            log.warning(
                "log groups expired before they were read", shard=shard, position=position, oldest=oldest
            )
        return oldest

    def _shard_info(self, shard: int) -> ShardInfo:
        for info in self._client.list_shards(self._logstore):
            if info.shard == shard:
                return info
        raise LogHubError("ShardNotExist", 400, f"the logstore no longer has shard {shard}")
