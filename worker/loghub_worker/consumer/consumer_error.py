"""What does not work in a consumer at the moment."""

from dataclasses import dataclass


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerError:
    """Why something does not work now; it is retried. `shard` is None for what concerns all."""

    shard: int | None
    reason: str  # in CamelCase
    message: str
