"""What does not work in a consumer at the moment."""

from collections.abc import Iterable
from dataclasses import dataclass

from loghub_worker.log_service import ReportedError


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerError:
    """Why something does not work now; it is retried. `shard` is None for what concerns all."""

    shard: int | None
    reason: str  # in CamelCase
    message: str


def errors_of(shard: int | None, errors: Iterable[ReportedError]) -> tuple[ConsumerError, ...]:
    """Those that have a reason."""
    return tuple(
        ConsumerError(shard=shard, reason=error.reason, message=error.message)
        for error in errors
        if error.reason
    )
