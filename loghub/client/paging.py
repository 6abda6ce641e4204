"""Lists that arrive in pages: request pages until the list is complete.

Every adapter has the same bound and the same end of the list.
"""

from collections.abc import Callable, Sequence
from typing import TypeVar

T = TypeVar("T")

PAGE = 500  # the most that SLS returns at once
_MAX_PAGES = 100


def all_pages(request: Callable[[int], tuple[Sequence[T], int]]) -> tuple[T, ...]:
    """The whole list. ``request(offset)`` returns a page and the total count; an empty page also ends it."""
    found: list[T] = []
    for _ in range(_MAX_PAGES):
        page, total = request(len(found))
        found += page
        if not page or len(found) >= total:
            break
    return tuple(found)
