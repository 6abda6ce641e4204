"""What a worker reports of the state of a stateful pipeline; a part of `loghub.worker_contract`."""

import msgspec


class IncompleteState(msgspec.Struct, frozen=True, kw_only=True):
    """A held shard of which the state of a stateful pipeline does not have the earlier logs."""

    shard: int
    cursor: str  # from which the state has its logs
    why: str  # Elsewhere, Reset, Changed or Unusable


class KeptState(msgspec.Struct, frozen=True, kw_only=True):
    """The state of a stateful pipeline after the last batch, and what Spark has dropped as late."""

    rows: int
    bytes: int  # in memory
    watermark_s: float | None  # unix seconds, of the last batch; None before there is one
    late_rows: int  # dropped as late, since the state was first kept
    late_age_s: float | None  # how long ago the last of them was dropped; None: none was
    is_ahead: bool = False  # the watermark lies after the receipt of the logs that were read last
