"""Lines to write, what was written, and what arrived, counted independently of the code under test.

A producer keeps its own record of every line, and the readers of the sinks know nothing of workers. A line's
identity is (file, pass, number), so that equal lines count.
"""

import os
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from pathlib import Path
from types import TracebackType

import msgspec
import pyarrow.dataset as ds

from loghub.client.port import LogHub
from loghub.wire import cursor, loggroup
from loghub.wire.loggroup import Log, LogGroup
from tests.cluster import paths
from tests.cluster.kubectl import eventually

Line = tuple[str, int, int, str]  # file, pass, number, text
LINES_A_GROUP = 20
PAUSE_S = 0.25
_PULL = 100


def endless() -> Iterator[Line]:
    """The real log files again and again, a pass number each; made-up lines where there are none."""
    files = _files()
    turn = 0
    while True:
        for name, texts in files:
            for number, text in enumerate(texts):
                yield (name, turn, number, text)
        turn += 1


def _files() -> list[tuple[str, list[str]]]:
    folder = Path(os.environ.get("LOGHUB_TEST_LOGS") or paths.REPOSITORY / "../shared/data/logs")
    result = sorted(folder.glob("*.log")) if folder.is_dir() else []
    if not result:
        return [
            ("made-up.log", [f'10.0.0.{n % 250} - - [x] "GET /{n} HTTP/1.1" 200 {n}' for n in range(1000)])
        ]
    # As the producer of the demo: a line is text up to a newline, not up to any other separator.
    return [(path.name, path.read_text(errors="replace").split("\n")[:400]) for path in result]


class Producer:
    """Writes lines in a thread of its own until it is left; ``sent`` has every line written.

    ``pause_s`` may be changed at any time. Give the next producer the same ``source``, so that
    no line comes twice.
    """

    def __init__(
        self, client: LogHub, logstore: str, *, source: Iterator[Line] | None = None, pause_s: float = PAUSE_S
    ) -> None:
        self._client = client
        self._logstore = logstore
        self._lines = source or endless()
        self.pause_s = pause_s
        self._stop = threading.Event()
        self._thread = threading.Thread(target=self._run)
        self.sent: Counter[Line] = Counter()
        self.error: Exception | None = None

    def __enter__(self) -> "Producer":
        self._thread.start()
        return self

    def __exit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        self.stop()

    def stop(self) -> None:
        """The last line has been taken by the service when this returns."""
        self._stop.set()
        self._thread.join()

    def _run(self) -> None:
        try:
            while not self._stop.wait(self.pause_s):
                self._put([next(self._lines) for _ in range(LINES_A_GROUP)])
        except Exception as error:  # noqa: BLE001 - reported to the test, which checks `error`
            self.error = error

    def _put(self, lines: list[Line]) -> None:
        group = LogGroup(logs=tuple(log_of(line) for line in lines), topic="access", source="producer")
        self._client.put_logs(self._logstore, loggroup.encode(group))
        self.sent.update(lines)


def log_of(line: Line) -> Log:
    """The log of a line, as of now."""
    name, turn, number, text = line
    contents = (("line", text), ("file", name), ("pass", str(turn)), ("number", str(number)))
    return Log(time=int(time.time()), contents=contents)


def in_parquet(folder: Path) -> Counter[Line]:
    """Every row of the Parquet files in the sink's folder."""
    # The folder's own listing would fail where Spark removes a folder of its own below it meanwhile.
    files = [str(file) for file in folder.glob("*.parquet")]
    if not files:
        return Counter()
    table = ds.dataset(files, format="parquet").to_table(columns=["file", "pass", "number", "line"])
    columns = (table.column(name).to_pylist() for name in ("file", "pass", "number", "line"))
    return Counter(zip(*columns, strict=True))


def in_files(folder: Path) -> Counter[Line]:
    """Every line that processors have written to files of the folder, each as a JSON list of four texts."""
    found: Counter[Line] = Counter()
    for path in folder.iterdir():
        # The last line may be one that is just being written.
        for text in path.read_bytes().splitlines(keepends=True):
            if text.endswith(b"\n"):
                file, turn, number, line = msgspec.json.decode(text, type=tuple[str, str, str, str])
                found[file, int(turn), int(number), line] += 1
    return found


def in_logstore(client: LogHub, logstore: str, *, until: dict[int, int] | None = None) -> Counter[Line]:
    """Every line of the logstore, from its beginning to ``until`` (shard: cursor) or its present end."""
    return Counter(_line(log) for log in logs_in(client, logstore, until=until))


def logs_in(client: LogHub, logstore: str, *, until: dict[int, int] | None = None) -> Iterator[Log]:
    """As `in_logstore`, whatever the logs' keys are."""
    for shard in client.list_shards(logstore):
        end = None if until is None else cursor.encode(until[shard.shard])
        for body in _bodies(client, logstore, shard.shard, end):
            for group in loggroup.split(body):
                yield from loggroup.decode(group).logs


def value(log: Log, key: str) -> str:
    """Of the log under this key; "" if it has none."""
    return {_text(name): _text(text) for name, text in log.contents}.get(key, "")


def _bodies(client: LogHub, logstore: str, shard: int, until: str | None) -> Iterator[bytes]:
    position = client.get_cursor(logstore, shard, "begin")
    end = until or client.get_cursor(logstore, shard, "end")
    while cursor.decode(position) < cursor.decode(end):
        pulled = client.pull_logs(logstore, shard, cursor=position, count=_PULL, end_cursor=end)
        yield pulled.body
        if pulled.next_cursor == position:
            return
        position = pulled.next_cursor


def _line(log: Log) -> Line:
    file, turn, number, text = (value(log, key) for key in ("file", "pass", "number", "line"))
    return (file, int(turn), int(number), text)


def _text(value: str | bytes) -> str:
    return value if isinstance(value, str) else value.decode()


def wait_equal(
    read: Callable[[], Counter[Line]], sent: Counter[Line], *, what: str, guard_s: float = 180
) -> None:
    """Wait until nothing is missing; then nothing may be there twice either."""
    try:
        eventually(lambda: not sent - read(), what=f"every line in the {what}", guard_s=guard_s)
    except TimeoutError as error:
        lost = sent - read()
        raise AssertionError(f"{what}: {lost.total()} lines lost, such as {list(lost)[:3]}") from error
    twice = read() - sent
    assert not twice, f"{what}: {twice.total()} lines too many, such as {list(twice)[:3]}"
