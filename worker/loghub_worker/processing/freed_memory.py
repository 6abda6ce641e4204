"""Gives freed buffers back to the system."""

import contextlib
import ctypes

M_MMAP_THRESHOLD = -3
THRESHOLD_BYTES = 128 << 10


def return_freed_memory() -> None:
    """Let glibc map each large buffer by itself, so that what is freed does not stay in the arenas of the
    threads (docs/processor.md 6). It does so at first, but raises its threshold with the first that is freed.
    Other C libraries are left as they are."""
    with contextlib.suppress(AttributeError):
        ctypes.CDLL(None).mallopt(M_MMAP_THRESHOLD, THRESHOLD_BYTES)
