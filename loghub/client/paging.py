"""Lists that come in pages: ask until all is told.

What for: one bound and one end for every adapter. What it must not know: how a page is asked
for. Read next: `http`, `aliyun`.
"""

from collections.abc import Callable, Sequence

PAGE = 500  # SLS gives no more at once
_MAX_PAGES = 100


def all_pages(ask: Callable[[int], tuple[Sequence[str], int]]) -> tuple[str, ...]:
    """``ask(offset)`` gives a page and how many there are in all; an empty page ends it too."""
    names: list[str] = []
    for _ in range(_MAX_PAGES):
        page, total = ask(len(names))
        names += page
        if not page or len(names) >= total:
            break
    return tuple(names)
