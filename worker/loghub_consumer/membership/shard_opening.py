"""Determines where a newly assigned shard continues.

The record of the sink decides (`loghub_consumer.resumption`): the service's checkpoint may be behind.
"""

from collections.abc import Callable, Collection, Mapping
from http import HTTPStatus

import structlog

from loghub.client.port import CheckpointInfo, LogHub, Position, ShardInfo
from loghub.contract.worker import first_position
from loghub.domain.shards import BadHashKey, HashRange, Shard, infer_parents
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, LogHubError
from loghub_consumer.log_service import ConsumerIdentity
from loghub_consumer.membership.shared_membership import ShardHistory, ShardSettings
from loghub_consumer.resumption import CheckpointOrigin, ShardIncarnation, ShardRecord

log = structlog.get_logger()


class ShardOpening:
    """Opens shards; thread-safe for different shards. `history` belongs to a pipeline with state."""

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
        self.continued: dict[int, int] = {}  # positions of shards without a checkpoint that the sink had
        # Shard that began at the start position -> the existing shards that continue it -> the cursor of the
        # start position in them.
        self._starts_after: dict[ShardIncarnation, dict[ShardIncarnation, str]] = {}

    def open(self, shard: int, *, confirm: Callable[[], None], save: Callable[[int], None]) -> int:
        """The position to continue from, which is also the checkpoint in the service at the end.

        A position that was determined is saved before anything is delivered from it, so that the next
        consumer finds the same one. A checkpoint without a consumer's name was moved on purpose. Whether the
        real SLS always reports the name has not been observed, so a checkpoint in SLS never counts as moved.
        `confirm` raises if the shard is no longer held; `save` saves a checkpoint. Raises `LogHubException`,
        or the `OSError` of the record.
        """
        incarnation = _incarnation(self._shard_info(shard))
        # The shard may have been given up since, and opening it would keep the next holder from delivering.
        confirm()
        self.record.open_shard(incarnation)
        checkpoints = self._client.get_checkpoints(self._logstore, self._group, shard)
        last = next((c for c in checkpoints if c.shard == shard and c.cursor), None)
        origin = self._origin(last)
        moved = origin is CheckpointOrigin.MOVED
        cursor = last.cursor if last else self._first_cursor(shard)
        checkpoint = decode_cursor(cursor)
        position = self.record.resume(incarnation, checkpoint, confirm=confirm, origin=origin)
        self.continued.pop(shard, None)
        if last is None and position != checkpoint:
            self.continued[shard] = position
            log.warning(
                "the consumer group has no checkpoint of a shard that the sink has logs of, as if the group"
                " was lost: the shard continues after them (docs/sinks.md 7)",
                shard=shard,
                start_position=cursor,
                position=encode_cursor(position),
            )
        position = max(position, self._oldest(shard, position))
        if self._history is not None:
            is_unread = position == checkpoint if last is None else self._is_unread(shard, position)
            is_first = self._is_initial(shard) and is_unread
            position = self._history.continue_at(
                incarnation, position, is_first=is_first and not moved, moved=moved
            )
        # Save it under this worker's name immediately. Otherwise the next consumer treats the checkpoint as
        # moved again, and delivers a third time the logs that this worker commits from it.
        if last is None or moved or position != checkpoint:
            confirm()
            save(position)
        self.record.acknowledge(shard, position)
        return position

    def _origin(self, last: CheckpointInfo | None) -> CheckpointOrigin:
        if last is None:
            return CheckpointOrigin.NONE
        if not self._client.has_extensions():
            return CheckpointOrigin.UNKNOWN
        return CheckpointOrigin.SAVED if last.consumer else CheckpointOrigin.MOVED

    def _is_initial(self, shard: int) -> bool:
        return self._last_initial_shard is None or shard <= self._last_initial_shard

    def _is_unread(self, shard: int, position: int) -> bool:
        """Whether no consumer has read any existing log of the shard."""
        return position == decode_cursor(self._first_cursor(shard))

    def _first_cursor(self, shard: int) -> str:
        position = first_position(shard, self._start_position, last_initial_shard=self._last_initial_shard)
        if position == "begin" or self._last_initial_shard is not None:
            return self._cursor(shard, position)
        infos = self._client.list_shards(self._logstore)
        incarnations = {info.shard: _incarnation(info) for info in infos}
        parents = infer_parents(map(_as_shard, infos))
        checkpoints = self._client.get_checkpoints(self._logstore, self._group)
        read = {checkpoint.shard for checkpoint in checkpoints if checkpoint.cursor}
        read_before = _ancestors(shard, parents) & read
        if read_before:
            # Its logs follow the logs of shards that were read, so the start position would leave some out.
            # If these began at the start position themselves, this shard begins at the cursor of the start
            # position then.
            starts = [self._starts_after.get(incarnations[one], {}) for one in read_before]
            starts_then = [start[incarnations[shard]] for start in starts if incarnations.get(shard) in start]
            is_known = len(starts_then) == len(read_before)
            return min(starts_then, key=decode_cursor) if is_known else self._cursor(shard, "begin")
        if shard in incarnations and incarnations[shard] not in self._starts_after:
            self._starts_after[incarnations[shard]] = {
                incarnations[other]: self._cursor(other, position)
                for other in incarnations
                if shard in _ancestors(other, parents)
            }
        return self._cursor(shard, position)

    def _cursor(self, shard: int, position: Position) -> str:
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


def _incarnation(info: ShardInfo) -> ShardIncarnation:
    return ShardIncarnation(shard=info.shard, created=info.created_unix_s)


def _ancestors(shard: int, parents: Mapping[int, Collection[int]]) -> set[int]:
    """The shards from which a shard was split or merged, through any number of splits and merges."""
    ancestors: set[int] = set()
    todo = [shard]
    while todo:
        further = set(parents.get(todo.pop(), ())) - ancestors
        ancestors |= further
        todo.extend(further)
    return ancestors


def _as_shard(info: ShardInfo) -> Shard:
    """The shard as a value. Raises `LogHubError` if its keys are malformed."""
    try:
        keys = HashRange.parse(begin_key=info.begin_key, end_key=info.end_key)
    except BadHashKey as error:
        message = f"shard {info.shard} has the keys {info.begin_key!r} and {info.end_key!r}"
        raise LogHubError(Code.BAD_RESPONSE, HTTPStatus.OK, message) from error
    return Shard(shard=info.shard, keys=keys, read_only=info.read_only)
