"""What the next process of this worker must know if this one ends during a batch.

A batch may end its process: memory runs out, or user code that cannot be cancelled hangs. The next process
would read the same logs and end as well, forever. So the ranges of the running batch, and what is known of
failing ranges and of skips, are in one file of the worker's state directory. A worker that stops in order
removes it.

The file is as good as the state directory. If that is new, as in a new pod, the next process begins with the
whole range again.
"""

from pathlib import Path

import msgspec
import structlog

from loghub.atomic_file import replace_file
from loghub_worker.batch_plan import Range
from loghub_worker.failure.failure_policy import FailingRange
from loghub_worker.failure.skip_limits import Cause, Failure, PastSkips

log = structlog.get_logger()

ENDED = Failure(
    cause=Cause.ENDED,
    reason="WorkerEnded",
    message="an earlier process of this worker ended during the batch, perhaps because memory ran out",
)


class Journal(msgspec.Struct, frozen=True, kw_only=True):
    """The content of the file."""

    running: tuple[Range, ...] = ()
    failing: tuple[FailingRange, ...] = ()
    skips: tuple[PastSkips, ...] = ()  # the limits of skips would not hold for logs that end each process


class AttemptJournal:
    """The file. Without it the worker works as well, so an error of the disk is only logged."""

    def __init__(self, path: Path) -> None:
        self._path = path
        self._last: Journal | None = None

    def read(self) -> Journal:
        """What the previous process left; empty if it stopped in order, or left nothing that can be read."""
        try:
            return msgspec.json.decode(self._path.read_bytes(), type=Journal)
        except FileNotFoundError:
            return Journal()
        except (OSError, msgspec.MsgspecError, UnicodeDecodeError) as error:
            log.warning("the journal of attempts cannot be read", message=str(error))
            return Journal()

    def write(self, journal: Journal) -> None:
        """Replace the content; an empty journal has no file."""
        if journal == self._last:
            return
        try:
            if journal == Journal():
                self._path.unlink(missing_ok=True)
            else:
                replace_file(self._path, msgspec.json.encode(journal))
        except OSError as error:
            log.warning("the journal of attempts was not written", message=str(error))
            return
        self._last = journal
