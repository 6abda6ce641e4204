"""How much freed memory a process keeps for the next buffers.

Each thread that allocates gets an arena of its own from glibc, and each arena keeps the memory that was freed
there, so a worker with many shards, or a service with many clients, would keep many times what it uses.
Mapping each buffer by itself keeps nothing, but the pages of new mappings are a third of the cost of pulling
logs and passing them on (docs/performance.md 5.1). So there is one arena, which keeps no more than was in use
at once.
"""

import contextlib
import ctypes

# The numbers of the options of mallopt in glibc's malloc.h.
M_ARENA_MAX, M_MMAP_THRESHOLD, M_TRIM_THRESHOLD = -8, -3, -1
OPTIONS = {
    M_ARENA_MAX: 1,
    M_MMAP_THRESHOLD: 8 << 20,  # a larger buffer is mapped by itself
    M_TRIM_THRESHOLD: 16 << 20,  # at the end of the arena; more free memory than this goes back to the kernel
}


def limit_freed_memory() -> None:
    """Call it before the first thread allocates: such a thread keeps its arena. C libraries other than glibc
    are not changed."""
    with contextlib.suppress(AttributeError):
        libc = ctypes.CDLL(None)
        for option, value in OPTIONS.items():
            libc.mallopt(option, value)
