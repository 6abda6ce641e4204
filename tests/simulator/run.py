"""Runs schedules, each in an empty folder and with everything random replaced.

    python -m tests.simulator.run worker|library|consumer|subscription SEED

replays one schedule and prints its faults.
"""

import asyncio
import errno
import logging
import os
import secrets
import shutil
import sys
import tempfile
from collections import Counter
from collections.abc import Callable, Iterable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any
from unittest.mock import patch

import structlog

from loghub import atomic_file
from loghub_service import start
from loghub_worker.sink.files import exclusive_files, storage
from tests.simulator.consumer import ConsumerSimulation
from tests.simulator.faults import Dice, Fault
from tests.simulator.library import LibrarySimulation
from tests.simulator.simulation import Simulation
from tests.simulator.subscriptions import SubscriptionSimulation

# A memory file system, where there is one: nothing of it has to survive.
SHARED_MEMORY = Path("/dev/shm")


def _sync_in_this_thread(paths: Iterable[Path]) -> None:
    for path in paths:
        atomic_file.sync(path)


async def _in_this_thread(work: Callable[..., Any], *args: Any, **kwargs: Any) -> Any:
    return work(*args, **kwargs)


@contextmanager
def _silent() -> Iterator[None]:
    before = structlog.get_config()
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.CRITICAL))
    try:
        yield
    finally:
        structlog.configure(**before)


def _lying_link(dice: Dice) -> Callable[[Any, Any], None]:
    """As NFS does if the reply to a link request is lost and the request repeated (link(2), BUGS)."""
    link = os.link

    def lying_link(source: Any, target: Any) -> None:
        link(source, target)
        if dice.happens(Fault.LINK_LIED):
            raise FileExistsError(errno.EEXIST, "the link exists", str(target))

    return lying_link


@contextmanager
def _empty_folder() -> Iterator[Path]:
    folder = Path(tempfile.mkdtemp(dir=SHARED_MEMORY if SHARED_MEMORY.is_dir() else None))
    try:
        yield folder
    finally:
        shutil.rmtree(folder)


KINDS: dict[str, type[Simulation]] = {
    "worker": Simulation,
    "library": LibrarySimulation,
    "consumer": ConsumerSimulation,
    "subscription": SubscriptionSimulation,
}


def run_schedule(kind: str, seed: int) -> Counter[Fault]:
    """Run one schedule; return how often each fault happened. Raises AssertionError."""
    with _silent(), _empty_folder() as folder:
        simulation = KINDS[kind](seed, folder)
        with (
            patch.object(start, "Database", simulation.service.open_database),
            patch.object(secrets, "token_hex", simulation.dice.token_hex),
            patch.object(asyncio, "to_thread", _in_this_thread),
            patch.object(os, "link", _lying_link(simulation.dice)),
            patch.object(exclusive_files, "sync_all", _sync_in_this_thread),
            patch.object(storage, "sync_all", _sync_in_this_thread),
        ):
            try:
                simulation.run()
            except Exception as error:
                raise AssertionError(
                    f"{error}\nreplay with: python -m tests.simulator.run {kind} {seed}"
                ) from error
        return simulation.dice.counts


if __name__ == "__main__":
    name, number = sys.argv[1:]
    for fault, count in run_schedule(name, int(number)).items():
        print(f"{count:6} {fault}")
