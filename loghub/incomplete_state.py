"""What a worker reports of the state of a stateful pipeline; a part of `loghub.worker_contract`."""

import msgspec


class IncompleteState(msgspec.Struct, frozen=True, kw_only=True):
    """A held shard of which the state of a stateful pipeline does not have the earlier logs."""

    shard: int
    cursor: str  # from which the state has its logs
    why: str  # Elsewhere, Reset, Changed or Unusable
