"""Tries settings in a process of its own, while the workers that run go on with theirs.

The process is the worker's program, which then does what its start checks and ends (`loghub_worker.trial`).
With Spark that takes as long, and as much memory, as the start of one more worker.
"""

import asyncio
import shutil
import signal
from collections.abc import Callable, Mapping

from loghub.clock import Clock
from loghub_operator.local.paths import WorkerFolder
from loghub_operator.local.processes.child_process import Child, exit_message
from loghub_operator.local.processes.process_plan import Trial, backoff_s
from loghub_operator.local.processes.worker_program import WorkerProgram, prepare
from loghub_operator.local.processes.worker_state import LocalReason, last_words
from loghub_operator.model.revision import WorkerSpec

ARGUMENT = "try"  # of the worker's program
# A start takes a minute or two on a machine with too much to do; code of a user that hangs takes forever.
LONGEST_S = 600.0


class TrialRun:
    """The last trial; ``failure`` has its reason and message until other settings are tried."""

    def __init__(
        self,
        name: str,
        folder: WorkerFolder,
        program: WorkerProgram,
        clock: Clock,
        *,
        on_end: Callable[[], None],
    ) -> None:
        self._name = name
        self._folder = folder
        self._program = program
        self._clock = clock
        self._on_end = on_end
        self._child: Child | None = None
        self._timer: asyncio.TimerHandle | None = None
        self._failures = 0
        self.state: Trial | None = None
        self.failure: tuple[str, str] | None = None
        self.starts = 0

    def start(self, spec: WorkerSpec, variables: Mapping[str, str]) -> None:
        """Ends the one before."""
        self.end()
        revision = spec.revision.of_pods()
        if self.state is None or self.state.revision != revision:
            self._failures, self.failure = 0, None
        self.starts += 1
        self.state = Trial(revision=revision, running=True, passed=False, again_at_s=0.0)
        try:
            prepare(self._folder, spec, keep_state=False)
            self._child = self._program.start(
                self._name, self._folder, variables, on_exit=self._ended, arguments=(ARGUMENT,)
            )
        except (OSError, ValueError) as error:  # as for a worker
            self._failed((LocalReason.START_FAILED, str(error)))
            return
        self._timer = asyncio.get_running_loop().call_later(LONGEST_S, self._give_up, self._child)

    def end(self) -> None:
        """Kills it if it runs; nothing is learned from it."""
        if self._timer is not None:
            self._timer.cancel()
        if self._child is not None:
            self._child.signal(signal.SIGKILL)
            self._child, self.state = None, None

    def _give_up(self, child: Child) -> None:
        self._failed((LocalReason.TRIAL_TIMED_OUT, f"it takes longer than {LONGEST_S:.0f} s"))
        self._child = None
        child.signal(signal.SIGKILL)

    def _ended(self, child: Child) -> None:
        if child is not self._child:
            return
        self._child = None
        shutil.rmtree(self._folder.state, ignore_errors=True)
        if self._timer is not None:
            self._timer.cancel()
        assert child.exit_status is not None
        assert self.state is not None
        if child.exit_status:
            self._failed(last_words(self._folder) or ("", exit_message(child.exit_status)))
        else:
            self.failure = None
            self.state = Trial(revision=self.state.revision, running=False, passed=True, again_at_s=0.0)
        self._on_end()

    def _failed(self, failure: tuple[str, str]) -> None:
        assert self.state is not None
        self._failures += 1
        self.failure = failure
        again_at_s = self._clock.monotonic_s() + backoff_s(self._failures)
        self.state = Trial(revision=self.state.revision, running=False, passed=False, again_at_s=again_at_s)
