"""The CPU time of a process and of everything that it has started, as far as it can be seen.

A test starts services, JVMs and clients, so the time on the clock says little: much of it is waiting. What a
process and its ended children took, the kernel adds up; what living descendants took stands in ``/proc``.
Descendants whose parent ended before them are missed.
"""

import contextlib
import os
import resource
from collections.abc import Iterator
from pathlib import Path

_TICKS_PER_S = os.sysconf("SC_CLK_TCK")
_PROC = Path("/proc")


def used_s() -> float:
    """CPU seconds, user and system, of this process, its ended children and its living descendants."""
    own = sum(
        usage.ru_utime + usage.ru_stime
        for usage in map(resource.getrusage, (resource.RUSAGE_SELF, resource.RUSAGE_CHILDREN))
    )
    return own + sum(_used_s(pid) for pid in _descendants(os.getpid()))


def _descendants(pid: int) -> Iterator[int]:
    for child in _children(pid):
        yield child
        yield from _descendants(child)


def _children(pid: int) -> list[int]:
    children: list[int] = []
    # A thread or a process may end while its folder is read.
    with contextlib.suppress(OSError):
        for thread in (_PROC / str(pid) / "task").iterdir():
            children += map(int, (thread / "children").read_text().split())
    return children


def _used_s(pid: int) -> float:
    """With the children that it has waited for."""
    with contextlib.suppress(OSError):
        # The name of the program, in parentheses, may have spaces; utime is the 12th field after it.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS_PER_S
    return 0.0
