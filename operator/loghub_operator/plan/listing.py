"""Lists names in a message without letting it grow."""

from collections.abc import Iterable
from itertools import islice

MOST_LISTED = 10


def listed(items: Iterable[object], most: int = MOST_LISTED) -> str:
    """The first ones, separated by commas."""
    return ", ".join(map(str, islice(items, most)))
