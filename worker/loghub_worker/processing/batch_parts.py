"""A batch on its way to another process: its bytes, and what was read of it there."""

from loghub_worker.consumer.batch import LogBatch


def bodies_of(batch: LogBatch) -> tuple[tuple[int, int, memoryview], ...]:
    """The log groups as they were pulled: the first position, the number, and the bytes of each body."""
    return tuple((one.body.first + one.begin, one.groups, one.content) for one in batch.slices)


def decoded_logs(batch: LogBatch) -> int:
    """The number of logs in what was decoded so far."""
    return sum(one.decoded_logs for one in batch.slices)
