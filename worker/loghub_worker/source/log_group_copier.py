"""Copies log groups to another logstore, byte by byte.

A log group is neither decoded nor passed through Spark. The groups of a shard are written one after the
other to the target shard that holds the first key of their shard, so that their order is kept. After an
error nothing that follows is written: the range counts as read up to the log group that failed, and the
next batch begins with it. Only a log group whose write was not answered, or was not saved in a checkpoint
before a crash, is written again."""

from collections.abc import Callable, Sequence
from concurrent.futures import ThreadPoolExecutor

from loghub.client.port import LogHub
from loghub.wire.errors import LogHubError, LogHubException
from loghub.wire.loggroup import split
from loghub.wire.protobuf import fields
from loghub_worker.batch_plan import Range
from loghub_worker.log_service import (
    PIPELINE_FAILED,
    encode_cursor,
    put_log_group,
    rejects_content,
    to_reported_error,
)
from loghub_worker.source.read_counts import ReadCount, ReadFailure
from loghub_worker.source.shard_reader import RangeCounts, ShortReadError, pull_range, require_count

MAX_SHARDS_AT_ONCE = 8
LOGS_FIELD = 1  # of a LogGroup (docs/sls-protocol.md 3)


class LogGroupCopier:
    """Copies ranges of one logstore. `begin_key` is the first hash key of a shard of the source."""

    def __init__(
        self,
        source: LogHub,
        logstore: str,
        *,
        target: LogHub,
        target_logstore: str,
        begin_key: Callable[[int], str],
    ) -> None:
        self._source = source
        self._logstore = logstore
        self._target = target
        self._target_logstore = target_logstore
        self._begin_key = begin_key

    def copy_all(self, ranges: Sequence[Range]) -> dict[Range, ReadCount]:
        """Copy ranges of different shards at the same time."""
        with ThreadPoolExecutor(min(MAX_SHARDS_AT_ONCE, len(ranges))) as pool:
            copies = {shard_range: pool.submit(self.copy, shard_range) for shard_range in ranges}
        return {shard_range: copy.result() for shard_range, copy in copies.items()}

    def copy(self, shard_range: Range) -> ReadCount:
        """Copy a range, up to the first error. It is no exception even if nothing could be copied: Spark
        would discard the batch, and the other shards would be copied again."""
        counts, copied = RangeCounts(), shard_range.begin
        try:
            hash_key = self._begin_key(shard_range.shard)
            for first_cursor, pulled in pull_range(self._source, self._logstore, shard_range, counts):
                log_groups = list(split(pulled.body))
                require_count(pulled.count, len(log_groups))
                for cursor, log_group in enumerate(log_groups, first_cursor):
                    if cursor >= shard_range.end:
                        break
                    copied, logs = cursor, number_of_logs(log_group)  # those before it have expired
                    self._put(shard_range.shard, cursor, bytes(log_group), hash_key)
                    copied = cursor + 1
                    counts.logs += logs
                    counts.bytes += len(log_group)
        except (LogHubException, ShortReadError) as error:
            if copied == shard_range.begin:
                counts.failure = failure_of(error)
            else:
                counts.end = copied
        return counts.count()

    def _put(self, shard: int, cursor: int, log_group: bytes, hash_key: str) -> None:
        try:
            put_log_group(self._target, self._target_logstore, log_group, hash_key=hash_key)
        except LogHubError as error:
            message = f"{error.message}, from shard {shard} at cursor {encode_cursor(cursor)}"
            raise LogHubError(error.code, error.status, message, error.request_id) from error


def failure_of(error: LogHubException | ShortReadError) -> ReadFailure:
    """Why nothing of a range could be copied."""
    if isinstance(error, ShortReadError):
        return ReadFailure(rejected=False, reason=PIPELINE_FAILED, message=f"ShortReadError: {error}")
    reported = to_reported_error(error)
    return ReadFailure(rejected=rejects_content(error), reason=reported.reason, message=reported.message)


def number_of_logs(log_group: bytes | memoryview) -> int:
    """The number of logs in a serialized LogGroup, whose logs are skipped and not decoded."""
    view = memoryview(log_group)
    return sum(number == LOGS_FIELD for number, _, _, _ in fields(view, 0, len(view)))
