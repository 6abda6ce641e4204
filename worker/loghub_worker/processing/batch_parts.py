"""A batch on its way to another process: which part of it, as bytes, and what was read of it there."""

from loghub_worker.consumer.batch import BodySlice, LogBatch
from loghub_worker.processing.messages import BodyHead


def part_of(batch: LogBatch, begin: int, end: int) -> LogBatch:
    """The log groups from one position to another, of which there is at least one."""
    slices = []
    for one in batch.slices:
        first = one.body.first
        low, high = max(one.begin, begin - first), min(one.end, end - first)
        if low < high:
            slices.append(BodySlice(one.body, low, high, one.only))
    return LogBatch(batch.shard, tuple(slices))


def bodies_of(batch: LogBatch) -> tuple[tuple[BodyHead, bytes], ...]:
    """The log groups as they were pulled."""
    found = []
    for one in batch.slices:
        packed = one.packed
        head = BodyHead(one.body.first + one.begin, one.groups, packed.size, packed.how)
        found.append((head, packed.content))
    return tuple(found)


def decoded_logs(batch: LogBatch) -> int:
    """The number of logs in what was decoded so far."""
    return sum(one.decoded_logs for one in batch.slices)
