"""Whether a volume, or a value that it cannot have as a folder, is at fault for an error of Spark."""

from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from pathlib import Path

from py4j.protocol import Py4JNetworkError

from loghub_worker.sink.batch_sink import RowsRejectedError
from loghub_worker.sink.exclusive_files import unlinked_file
from loghub_worker.sink.partition_columns import obstacle
from loghub_worker.spark_errors import SPARK_ERRORS, java_causes

# A disk that was too full for a large file has room again for a small one, once the first is removed.
TRIAL_BYTES = 1 << 20


@contextmanager
def writing_to(folder: Path | None, partition_by: Sequence[str] = ()) -> Iterator[None]:
    """Let Spark write below a folder of the target; None if it writes elsewhere. Spark's errors do not say
    whether the target, the query or a disk of Spark's own is at fault. So the folder gets a trial file after
    an error, and if it takes none, the `OSError` that says why is raised instead. A value of a partition
    column that no folder can have is a `RowsRejectedError`."""
    try:
        yield
    except Py4JNetworkError:  # the JVM has exited
        raise
    except SPARK_ERRORS as error:
        if folder is not None:
            with unlinked_file(folder, bytes(TRIAL_BYTES)):
                pass
        found = (obstacle(text, partition_by) for _, text in java_causes(error))
        if (said := next(filter(None, found), None)) is not None:
            raise RowsRejectedError(f"the rows have {said}") from None
        raise
