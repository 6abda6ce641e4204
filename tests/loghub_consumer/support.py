"""Consumers on a real service: a logstore and a group for each test, and processors that record."""

import itertools
import json
import os
import signal
import subprocess
import sys
import threading
import traceback
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from typing import Any, ClassVar

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer import (
    Consumer,
    ConsumerSettings,
    Listener,
    LogBatch,
    MultiLogstoreConsumer,
    Processor,
    Tracker,
)
from loghub_consumer.assignment import GroupAssignment
from tests.support import PYTHON_PATH, ROOT, START_GUARD_S, STOP_GUARD_S, ServiceProcess, wait_until

PROJECT, GROUP = "demo", "readers"
_NUMBERS = itertools.count()


class Site:
    """A logstore of its own with a consumer group, on a service that other tests use too."""

    def __init__(self, service: ServiceProcess, client: HttpLogHub) -> None:
        self.service = service
        self.client = client
        self.logstore = f"ls-{next(_NUMBERS)}"
        self.sent: Counter[str] = Counter()

    def prepare(self, *, shards: int = 1, timeout_s: int = 30, order: bool = False) -> None:
        self.client.create_logstore(self.logstore, shards=shards)
        self.create_group(timeout_s=timeout_s, order=order)

    def create_group(self, *, timeout_s: int = 30, order: bool = False) -> None:
        self.client.create_group(self.logstore, GroupInfo(name=GROUP, timeout_s=timeout_s, order=order))

    def put(self, groups: int = 1, *, logs: int = 2, shard: int = 0) -> list[str]:
        """Write log groups with new ids into a shard; the ids in order."""
        key = next(one.begin_key for one in self.client.list_shards(self.logstore) if one.shard == shard)
        ids: list[str] = []
        for _ in range(groups):
            batch = [f"{shard}-{len(self.sent) + n}" for n in range(logs)]
            written = tuple(Log(time=1_700_000_000, contents=(("id", name),)) for name in batch)
            self.client.put_logs(self.logstore, encode(LogGroup(logs=written)), hash_key=key)
            self.sent.update(batch)
            ids += batch
        return ids

    def settings(self, name: str = "c-0", **changes: Any) -> ConsumerSettings:
        return ConsumerSettings(credentials=self.service.credentials, **self.plain_settings(name, **changes))

    def plain_settings(self, name: str = "c-0", **changes: Any) -> dict[str, Any]:
        settings: dict[str, Any] = {
            "endpoint": self.service.endpoint,
            "project": PROJECT,
            "logstore": self.logstore,
            "consumer_group": GROUP,
            "consumer": name,
            "heartbeat_interval_s": 0.3,
        }
        return settings | changes

    def saved(self) -> dict[int, str]:
        """Shard -> checkpoint."""
        return self.checkpoints(GROUP)

    def checkpoints(self, group: str) -> dict[int, str]:
        return {one.shard: one.cursor for one in self.client.get_checkpoints(self.logstore, group)}

    def ends(self) -> dict[int, str]:
        shards = [one.shard for one in self.client.list_shards(self.logstore)]
        return {shard: self.client.get_cursor(self.logstore, shard, "end") for shard in shards}

    def begin(self, shard: int = 0) -> str:
        return self.client.get_cursor(self.logstore, shard, "begin")


class Seen:
    """What all processors of a test have got. Thread-safe; `ids` are those of batches in order."""

    def __init__(self, hook: "Hook | None" = None) -> None:
        self.hook = hook or save
        self._lock = threading.Lock()
        self.batches: list[tuple[int, list[str]]] = []
        self.calls: list[str] = []

    def add(self, shard: int, ids: list[str]) -> None:
        with self._lock:
            self.batches.append((shard, ids))

    def note(self, call: str) -> None:
        with self._lock:
            self.calls.append(call)

    def ids(self, shard: int | None = None) -> list[str]:
        with self._lock:
            return [name for of, ids in self.batches if shard in (None, of) for name in ids]

    def factory(self) -> Processor:
        return Recorder(self)


Hook = Callable[[LogBatch, Tracker], str | None]


def save(_: LogBatch, tracker: Tracker) -> None:
    tracker.save()


def ids_of(logs: LogBatch) -> list[str]:
    return [str(log.get("id")) for group in logs.groups for log in group.logs]


class Recorder(Processor):
    """Records a batch, then does what the hook of the test says."""

    def __init__(self, seen: Seen) -> None:
        self._seen = seen

    def initialize(self, shard: int) -> None:
        self._seen.note(f"initialize {shard}")

    def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        self._seen.add(logs.shard, ids_of(logs))
        return self._seen.hook(logs, tracker)

    def shutdown(self, tracker: Tracker) -> None:
        self._seen.note(f"shutdown {tracker.shard}")


class RecordingListener(Listener):
    def __init__(self, on_assigned: Callable[[tuple[int, ...]], None] = lambda _: None) -> None:
        self.calls: list[tuple[str, tuple[int, ...]]] = []
        self._on_assigned = on_assigned

    def on_assigned(self, shards: tuple[int, ...]) -> None:
        self.calls.append(("assigned", shards))
        self._on_assigned(shards)

    def on_revoked(self, shards: tuple[int, ...]) -> None:
        self.calls.append(("revoked", shards))

    def on_lost(self, shards: tuple[int, ...]) -> None:
        self.calls.append(("lost", shards))

    def shards(self, call: str) -> set[int]:
        return {shard for name, shards in tuple(self.calls) if name == call for shard in shards}


class Running:
    """`Consumer.run` in a thread, with what it raised."""

    active: ClassVar[list["Running"]] = []  # of `running`

    def __init__(self, consumer: Consumer | MultiLogstoreConsumer) -> None:
        self.consumer = consumer
        self.error: BaseException | None = None
        self._thread = threading.Thread(target=self._run, daemon=True)
        self._thread.start()

    def _run(self) -> None:
        try:
            self.consumer.run()
        except BaseException as error:  # noqa: BLE001 - the test looks at it
            self.error = error

    def join(self) -> None:
        self._thread.join(STOP_GUARD_S)
        assert not self._thread.is_alive(), "the consumer did not end"

    def state(self) -> str:
        """What it does. Takes no lock: the test may wait in vain for who has it."""
        one = self.consumer
        several = [one] if isinstance(one, Consumer) else [run.consumer for run in tuple(one._runs.values())]
        what = "runs" if self._thread.is_alive() else f"has ended with {self.error!r}"
        return "\n".join([f"the consumer {what}", *map(_state_of, several)])


def _state_of(consumer: Consumer) -> str:
    table, puller, assignment = consumer._table, consumer._puller, consumer._assignment
    lines = [f"{consumer._settings.logstore}: failure {table.failure!r}"]
    for entry in tuple(table._entries.values()):
        lines += [
            str(entry.state),
            f"  {entry.buffer.summary}",
            f"  kept {entry.kept}, errors {entry.errors}",
        ]
    lines.append(f"  pulls: on duty {puller._on_duty}, off duty {puller._off_duty}")
    if isinstance(assignment, GroupAssignment) and assignment._parts is not None:
        membership = assignment._parts[0]._membership
        lines.append(f"  {membership.state}: {membership.shards}")
    return "\n".join(lines)


@contextmanager
def running(consumer: Consumer | MultiLogstoreConsumer) -> Iterator[Running]:
    """A consumer that runs; always ended. Its error is raised, and a failure of the test has what it did."""
    run = Running(consumer)
    Running.active.append(run)
    try:
        yield run
    except BaseException as failure:
        failure.add_note(run.state())
        raise
    finally:
        Running.active.remove(run)
        consumer.wakeup()
        run.join()
    if run.error is not None:
        raise run.error


@contextmanager
def released(event: threading.Event) -> Iterator[None]:
    """Set the event at the end in any case, so that a processor that waits for it does not keep its consumer
    from ending."""
    try:
        yield
    finally:
        event.set()


class Program:
    """`tests.loghub_consumer.program` in a process of its own."""

    def __init__(self, site: Site, name: str, **settings: Any) -> None:
        command = [sys.executable, "-m", "tests.loghub_consumer.program"]
        plain = json.dumps(site.plain_settings(name, **settings) | settings)
        self.process = subprocess.Popen(
            [*command, str(site.service.credentials_dir), plain],
            cwd=ROOT,
            env=os.environ | {"PYTHONPATH": PYTHON_PATH},
            stdout=subprocess.PIPE,
            text=True,
        )
        self.events: list[dict[str, Any]] = []
        self._reader = threading.Thread(target=self._read, daemon=True)
        self._reader.start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            self.events.append(json.loads(line))

    def of(self, event: str) -> list[dict[str, Any]]:
        return [one for one in tuple(self.events) if one["event"] == event]

    def ids(self) -> Counter[str]:
        return Counter(name for one in self.of("process") for name in one["ids"])

    def end(self, how: signal.Signals) -> int:
        """Send the signal and wait until all that it wrote is read; the exit status."""
        self.process.send_signal(how)
        status = self.process.wait(STOP_GUARD_S)
        self._reader.join(STOP_GUARD_S)
        return status


@contextmanager
def programs() -> Iterator[Callable[..., Program]]:
    """Starts programs; those that still run at the end are killed."""
    started: list[Program] = []

    def start(site: Site, name: str, **settings: Any) -> Program:
        started.append(Program(site, name, **settings))
        return started[-1]

    try:
        yield start
    finally:
        for program in started:
            if program.process.poll() is None:
                program.end(signal.SIGKILL)


def wait_for(condition: Callable[[], bool], what: str, *, guard_s: float = START_GUARD_S) -> None:
    """As `wait_until`, but not for a consumer of `running` that has ended with an error."""

    def is_met() -> bool:
        if condition():
            return True
        for run in Running.active:
            if run.error is not None:
                # pytest shows the frames of tests only.
                whole = "".join(traceback.format_exception(run.error))
                message = f"a consumer ended while a test waited for {what}:\n{whole}"
                raise AssertionError(message) from run.error
        return False

    wait_until(is_met, what, guard_s=guard_s)
