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


def of_process_s() -> float:
    """CPU seconds, user and system, of this process alone. Takes microseconds."""
    return _of_usage_s(resource.RUSAGE_SELF)


def of_descendants_s() -> float:
    """CPU seconds of the processes below this one, ended ones included. Only of these without ``/proc``."""
    return _of_usage_s(resource.RUSAGE_CHILDREN) + sum(map(_used_s, _descendants(os.getpid())))


def _of_usage_s(who: int) -> float:
    usage = resource.getrusage(who)
    return usage.ru_utime + usage.ru_stime


def of_machine_s() -> float | None:
    """CPU seconds that all processors of the machine were busy since its start. None without ``/proc``."""
    try:
        # user, nice, system, idle, iowait, irq, softirq, steal
        ticks = [int(text) for text in (_PROC / "stat").read_text().split("\n", 1)[0].split()[1:9]]
    except OSError:
        return None
    return (sum(ticks) - ticks[3] - ticks[4] - ticks[7]) / _TICKS_PER_S


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
    with contextlib.suppress(OSError):
        # The name of the program, in parentheses, may have spaces; utime is the 12th field after it.
        fields = (_PROC / str(pid) / "stat").read_text().rpartition(")")[2].split()
        return sum(map(int, fields[11:15])) / _TICKS_PER_S
    return 0.0
