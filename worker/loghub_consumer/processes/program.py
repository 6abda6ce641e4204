"""The processes of a program, for `ConsumerSettings.processes`.

As in a worker, the program's own process is the member of the group. Nothing that the processors do, such as
a regular expression that holds the interpreter's lock, delays its heartbeats.
"""

import os
import sys
import time
from collections.abc import Callable
from functools import partial
from pathlib import Path

from loghub.clock import Clock
from loghub_consumer.failure.handler import FailureReport
from loghub_consumer.processes.child_process import CHILD, LOOK_S, ProcessPool, ProcessSettings
from loghub_consumer.processes.messages import Load
from loghub_consumer.processes.remote_processor import ProcessorCounts, RemoteParts, RemoteProcessor, has_hung
from loghub_consumer.processor import ProcessorFactory
from loghub_consumer.running_batches import RunningBatches
from loghub_consumer.settings import ConsumerSettings, WorkerOptions

RESTART_S = 1.0  # the first pause after a process has ended; a new one is there in about a second


class ProgramProcesses:
    """The processes of one `loghub_consumer.consumer.Consumer`."""

    def __init__(
        self,
        settings: ConsumerSettings,
        factory: ProcessorFactory | str,
        report: Callable[[], FailureReport],
        clock: Clock,
        *,
        random: Callable[[], float],
    ) -> None:
        """`report` is asked while processors run. Raises `ValueError` for a factory that another process
        could not import."""
        main = sys.modules["__main__"].__spec__
        if main is not None and main.name == CHILD:
            raise RuntimeError(
                "this module runs a consumer with processes when it is imported, as its processes do; put"
                ' that under if __name__ == "__main__":'
            )
        load = Load(
            entry_of(factory),
            None,
            by_log=settings.acknowledge == "log",
            times_out=settings.ack_timeout_s is not None,
            path=list(sys.path),
        )
        self._pool = ProcessPool(
            settings.processes,
            ProcessSettings(
                load=load,
                load_timeout_s=settings.load_timeout_s,
                load_setting="ConsumerSettings.load_timeout_s",
                environment=os.environ,
                send_timeout_s=settings.batch_timeout_s,
                random=random,
            ),
        )
        parts = RemoteParts(
            pool=self._pool,
            counts=ProcessorCounts(),
            clock=clock,
            timeout_s=settings.batch_timeout_s,
            has_hung=lambda shard: has_hung(report(), shard),
        )
        self.factory: ProcessorFactory = partial(RemoteProcessor, parts)
        self.options = WorkerOptions(
            timeout_s=None,
            retry_timeout_s=None,
            state_dir=None,
            batch_timeout_s=settings.batch_timeout_s,
            restart_s=RESTART_S,
            retry_factory=partial(RemoteProcessor, parts.of_retries()),
            running=RunningBatches(None),
        )

    def start(self, is_stopped: Callable[[], bool]) -> None:
        """Start one process, and wait until it has loaded the user's code. Raises `RuntimeError` if it
        cannot."""
        first = self._pool.start_first()
        while not first.loaded and self.failure is None and not is_stopped():
            time.sleep(LOOK_S / 10)
        if self.failure is not None:
            raise self.failure

    @property
    def failure(self) -> RuntimeError | None:
        """Why the program cannot go on."""
        pool_failure = self._pool.failure
        return None if pool_failure is None else RuntimeError(pool_failure.message)

    def close(self) -> None:
        self._pool.close()


def entry_of(factory: ProcessorFactory | str) -> str:
    """The factory as ``module:name``, for another process to import. Raises `ValueError`."""
    if isinstance(factory, str):
        return factory
    module, name = getattr(factory, "__module__", None), getattr(factory, "__qualname__", None)
    if module is None or name is None or not name.isidentifier():
        raise ValueError(
            f"{name or factory!r} cannot be imported by the processes; with processes, give a class or a"
            " function of a module, or its name as module:name"
        )
    return f"{_main_module(name) if module == '__main__' else module}:{name}"


def _main_module(name: str) -> str:
    main = sys.modules["__main__"]
    if main.__spec__ is not None:  # python -m
        return main.__spec__.name
    file = Path(getattr(main, "__file__", None) or "-")
    if not file.stem.isidentifier():
        raise ValueError(
            f"{name} is in no module that the processes can import; put it into a file of its own"
        )
    return file.stem
