"""The checks of an answer with log groups (docs/sls-protocol.md 3).

Nothing here imports Arrow, which a program that takes one log group after the other may not have.
"""

NANOSECONDS = 1_000_000_000  # in a second; the part of a log's time below a second is less


class ShortReadError(Exception):
    """The service returned fewer log groups than its own end cursor promised, or others than it says."""


def require_count(promised: int, actual: int) -> None:
    """Raises `ShortReadError` if an answer has another number of log groups than it says: they are numbered
    by that number, and some may be missing."""
    if actual != promised:
        raise ShortReadError(f"an answer has {actual} log groups and says that it has {promised}")
