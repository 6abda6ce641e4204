"""Lists that arrive in pages: request pages until the list is complete.

Every adapter has the same bound and the same end of the list.
"""

from collections.abc import Callable, Sequence

PAGE = 500  # the most that SLS returns at once
_MAX_PAGES = 100


def all_pages(request: Callable[[int], tuple[Sequence[str], int]]) -> tuple[str, ...]:
    """All names. ``ask(offset)`` returns a page and the total count; an empty page also ends the list."""
    names: list[str] = []
    for _ in range(_MAX_PAGES):
        page, total = request(len(names))
        names += page
        if not page or len(names) >= total:
            break
    return tuple(names)
