"""A batch on its way to another process: which part of it, as bytes, and what was read of it there."""

from loghub_worker.consumer.batch import BodySlice, LogBatch


def part_of(batch: LogBatch, begin: int, end: int) -> LogBatch:
    """The log groups from one position to another, of which there is at least one."""
    slices = []
    for one in batch.slices:
        first = one.body.first
        low, high = max(one.begin, begin - first), min(one.end, end - first)
        if low < high:
            slices.append(BodySlice(one.body, low, high, one.only))
    return LogBatch(batch.shard, tuple(slices))


def bodies_of(batch: LogBatch) -> tuple[tuple[int, int, memoryview], ...]:
    """The log groups as they were pulled: the first position, the number, and the bytes of each body."""
    return tuple((one.body.first + one.begin, one.groups, one.content) for one in batch.slices)


def decoded_logs(batch: LogBatch) -> int:
    """The number of logs in what was decoded so far."""
    return sum(one.decoded_logs for one in batch.slices)
