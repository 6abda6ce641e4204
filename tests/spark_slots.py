"""Bounds how many tests with Spark run at the same time, one for each core.

Most other stories wait, so a run has more processes than there are cores. Spark computes, and gives each of
its Python processes ten seconds to start, which are too short once too many start together.
"""

import os
import time
from collections.abc import Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path

from tests.cluster import runs
from tests.support import ROOT

FOLDER = ROOT / "build" / "spark-slots"  # of the runs in this checkout
SLOTS = max(2, os.cpu_count() or 1)
LOOK_EVERY_S = 0.2


def try_take(folder: Path, *, slots: int) -> ExitStack | None:
    """A slot, which ends with the stack, or with the process; None if all are taken."""
    folder.mkdir(parents=True, exist_ok=True)
    for number in range(slots):
        with ExitStack() as stack:
            if runs.try_lock(stack.enter_context((folder / str(number)).open("a")).fileno()):
                return stack.pop_all()
    return None


@contextmanager
def slot() -> Iterator[None]:
    """Wait for a slot and have it for the block."""
    while (taken := try_take(FOLDER, slots=SLOTS)) is None:
        time.sleep(LOOK_EVERY_S)
    with taken:
        yield
