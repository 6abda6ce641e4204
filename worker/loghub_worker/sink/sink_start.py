"""The steps of a worker's start that need the target of the sink.

A target that cannot be used for a while ends no start: a process that is started again would try the same
steps, after pauses that others choose and that grow to minutes. So each step is taken again here until it
succeeds, and the status says what is wrong meanwhile. The worker is no member of its group yet and holds no
shard.
"""

from collections.abc import Callable
from typing import TypeVar

import structlog

from loghub.worker_contract import WorkerReason
from loghub_worker.backoff import Backoff
from loghub_worker.fatal_error import FatalError
from loghub_worker.log_service import ReportedError
from loghub_worker.sink.batch_sink import InvalidSinkError

log = structlog.get_logger()

T = TypeVar("T")
FIRST_PAUSE_S, LONGEST_PAUSE_S = 1.0, 30.0


class SinkStart:
    """Takes steps, one after another."""

    def __init__(self, wait: Callable[[float], None], *, random: Callable[[], float]) -> None:
        """`wait` waits for so many seconds, and raises what ends the start; `random` is as in `Backoff`."""
        self._wait = wait
        self._backoff = Backoff(first_s=FIRST_PAUSE_S, longest_s=LONGEST_PAUSE_S, random=random)
        self.error = ReportedError()  # why the step has not succeeded yet

    def take(self, step: Callable[[], T]) -> T:
        """What the step returns, once the target can be used. Raises `FatalError` ``InvalidSink`` for what no
        retry resolves, and whatever else the step raises."""
        failures = 0
        while True:
            try:
                result = step()
            except InvalidSinkError as error:
                raise FatalError(WorkerReason.INVALID_SINK, str(error)) from error
            except OSError as error:
                failures += 1
                self.error = ReportedError(WorkerReason.SINK_UNAVAILABLE, str(error))
                log.warning(
                    "the sink cannot be used, will retry",
                    reason=WorkerReason.SINK_UNAVAILABLE,
                    message=str(error),
                    consecutive_failures=failures,
                )
                self._wait(self._backoff.pause_s(failures))
            else:
                self.error = ReportedError()
                return result
