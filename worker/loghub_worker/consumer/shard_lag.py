"""How far a shard is behind, from what the pulls have seen."""

from dataclasses import dataclass

from loghub_worker.consumer.shard_flow import ShardFlow


@dataclass(frozen=True, slots=True, kw_only=True)
class ShardLag:
    """Log groups that were not processed yet. `is_complete`: the last pull reached the end of the shard, so
    that there were no more at that time; otherwise there are at least so many."""

    log_groups: int
    is_complete: bool


def lag_of(flow: ShardFlow, end: int | None) -> ShardLag:
    """`end` is the cursor after the last log group; None if the last pull did not reach it."""
    if end is not None and end >= flow.position:
        return ShardLag(log_groups=end - flow.position, is_complete=True)
    return ShardLag(log_groups=max(0, flow.read_to - flow.position), is_complete=False)
