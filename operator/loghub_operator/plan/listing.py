"""Lists names in a message without letting it grow, and counts things in one."""

from collections.abc import Iterable
from itertools import islice

MAX_LISTED = 10  # names in one message, which has at most 1,024 characters


def comma_list(items: Iterable[object], maximum: int = MAX_LISTED) -> str:
    """The first ones, separated by commas."""
    return ", ".join(map(str, islice(items, maximum)))


def counted(number: int, singular: str, plural: str) -> str:
    """Such as "1 worker is" or "2 workers are"."""
    return f"{number} {singular if number == 1 else plural}"


def worker_count(number: int) -> str:
    """Such as "1 worker" or "2 workers"."""
    return counted(number, "worker", "workers")
