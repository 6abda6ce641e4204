"""What it costs to read log groups natively and in Python, in CPU time on one core.

``python -m tests.loghub_worker.bench_readers`` prints how many CPU seconds a million logs of ten fields take,
in log groups of 200, by either implementation of each reader: the check before they are stored, the records
of a Kafka batch, and rows in Arrow. So the last column is what a service or a worker without the wheel pays.
The shortest of several runs counts, since other programs can only lengthen one.
"""

import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager

from loghub.wire import native
from loghub.wire.loggroup import wrap
from loghub.wire.loggroup_validation import scan
from loghub_consumer.reading.decoding import EVERYTHING, Body, Selection, decode
from loghub_service.kafka.records.records import batch_of
from tests.loghub_worker.bench_logs import encoded_groups

RUNS, LOGS_OF_GROUP = 7, 200
GROUPS = 40  # 2 MB, about as much as a worker decodes in one step
MILLION = 1_000_000
FUNCTIONS = ("count_logs", "records_of", "decode_lists")
THREE_FIELDS = Selection(view=("__time__",), keys=("method", "path", "status"))


@contextmanager
def without_the_native_part() -> Iterator[None]:
    """As where the wheel is not installed."""
    before = {name: getattr(native, name) for name in FUNCTIONS}
    vars(native).update(dict.fromkeys(FUNCTIONS, native.left_to_python))
    try:
        yield
    finally:
        vars(native).update(before)


def cpu_s_per_million(work: Callable[[], object]) -> float:
    """The least CPU time of several runs, for a million logs."""
    work()
    best = float("inf")
    for _ in range(RUNS):
        begin = time.process_time()
        work()
        best = min(best, time.process_time() - begin)
    return best / (GROUPS * LOGS_OF_GROUP) * MILLION


def main() -> None:
    groups = encoded_groups(LOGS_OF_GROUP)[:GROUPS]
    bodies = [Body(1, wrap(groups))]
    readers: dict[str, Callable[[], object]] = {
        "check of PutLogs": lambda: [scan(group) for group in groups],
        "records of a Kafka batch": lambda: [batch_of(group, raw=False) for group in groups],
        "rows, all columns": lambda: decode(bodies, shard=0, selection=EVERYTHING),
        "rows, three of ten fields": lambda: decode(bodies, shard=0, selection=THREE_FIELDS),
    }
    print(f"{'CPU s per million logs':28} {'native':>8} {'Python':>8} {'ratio':>6}")
    for name, read in readers.items():
        natively = cpu_s_per_million(read) if native.is_installed else None
        with without_the_native_part():
            plainly = cpu_s_per_million(read)
        columns = "      no" if natively is None else f"{natively:8.2f}"
        ratio = "" if natively is None else f"{plainly / natively:6.0f}"
        print(f"{name:28} {columns} {plainly:8.1f} {ratio}")


if __name__ == "__main__":
    main()
