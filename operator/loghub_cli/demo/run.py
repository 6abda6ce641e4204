"""One run of the demo: the service, the producer, the consumer group, the scenario and the final count.

The run starts all of them, in parallel where possible, and ends all of them. It empties the demo's own state
folder first. `loghub up` and `loghub serve` have an option of the same name, and keep a user's logs and
tables in folders of the same names. So a demo removes only what stands in a folder with its mark, and they
remove the mark: from then on the folder is the user's.
"""

import asyncio
import contextlib
import os
import shutil
import sys
from contextlib import AsyncExitStack
from dataclasses import dataclass
from pathlib import Path

import msgspec

from loghub.clock import SystemClock
from loghub.contract.worker import ENV_CREDENTIALS_DIR
from loghub_cli.demo.ground_truth import GENERATED, read_record
from loghub_cli.demo.producer import ProducerProgress
from loghub_cli.demo.scenario import ScenarioContext, first_row, play, with_a_line_of_replicas
from loghub_cli.demo.verify import SinkCounter, Verdict, compare, read_sink
from loghub_cli.up.commands import StartFailed, create_sources, run_context
from loghub_cli.up.credentials import read_folder, without_keys
from loghub_cli.up.live_view import Screen
from loghub_cli.up.manifest import CrFile
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import DEMO_MARK, Root, is_locked, locked, process_that_uses
from loghub_cli.up.runner import LocalGroup, RunContext, connect
from loghub_cli.up.snapshot import GroupSnapshot
from loghub_cli.up.stopping import Stopping, stopped_by_signals
from loghub_cli.up.supervisor import end_orphans
from loghub_cli.up.worker_process import ChildProgram
from loghub_operator.api import LogHubConsumerGroup, Phase, parse_resource
from loghub_operator.api.v1alpha1 import EMBEDDED

_OWN_PATHS = ("service", "volumes", "groups", "producer", "cr.yaml", "cr.new")


class NotOfTheDemo(Exception):  # noqa: N818 - says what is so
    """The folder has what no demo made, or what is in use; the message says what to do."""


def reject_foreign(folder: Path) -> None:
    """Raises `NotOfTheDemo` if the demo would remove what it has not made."""
    if (folder / DEMO_MARK).exists():
        return
    foreign = [name for name in _OWN_PATHS if (folder / name).exists() or (folder / name).is_symlink()]
    if foreign:
        raise NotOfTheDemo(
            f"{folder} has {', '.join(foreign)}, which no demo made, or which `loghub up` or `loghub serve`"
            " has used since; nothing is removed. Choose another --state-dir, or remove them yourself"
        )


def empty(folder: Path) -> None:
    """Removes what the previous demo left, and nothing else; the caller holds the demo's lock. Raises
    `NotOfTheDemo`."""
    reject_foreign(folder)
    root = Root(folder)
    used = [path.name for path in root.groups.glob("*") if is_locked(root.group(path.name).lock)]
    process = process_that_uses(root.service / "data")
    if used or process:
        what = f"process {process} serves its data" if process else f"group {used[0]} is up"
        raise NotOfTheDemo(f"{folder} is in use: {what}; end it first")
    end_orphans(root.groups)
    for name in _OWN_PATHS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    (folder / DEMO_MARK).touch()


SHARDS = 4  # two for each of the first two workers, so that each step of the scenario moves shards
PRODUCER_GRACE_S = 90.0  # a call in flight ends by its own timeout
COUNT_EVERY_S = 0.5  # the footers of new files are read each time
# A guard: the start of two Sparks takes minutes on a machine with too much to do.
FIRST_ROW_GUARD_S = 600.0
# After this long without a new row, missing lines are lost; longer while not every worker is ready.
DRAIN_GUARD_S, UNREADY_GUARD_S = 120.0, 600.0


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoOptions:
    """``limit_s`` bounds the scenario from the first row on; ``pause_s`` is the time between its steps."""

    folder: Path
    cr: Path
    logs: Path | None
    rate: float
    keep: bool
    pause_s: float
    limit_s: float
    live: bool


@dataclass(frozen=True, slots=True, kw_only=True)
class DemoResult:
    """The values of the final summary."""

    verdict: Verdict
    sink: Path
    record: Path
    first_row_s: float | None
    elapsed_s: float
    producer_failed: str  # "" if it did not fail


async def run(options: DemoOptions) -> DemoResult:
    """Run the whole demo. Raises `NotOfTheDemo`, `InUseError`, `InvalidResourceError`, `ServiceStartError`,
    `StartFailed`."""
    root = Root(options.folder)
    cr = _checked(options.cr)
    reject_foreign(options.folder)
    with locked(options.folder / "lock"):
        _prepare(options, cr)
        demo = _Demo(options, root)
        with demo.screen:
            await demo.perform()
        return demo.outcome()


def _checked(cr: Path) -> str:
    """The CR as text, if the scenario can run with it. Raises `InvalidResourceError`, `StartFailed`."""
    document = CrFile(cr, None).read()
    spec = parse_resource(document).spec
    if spec.endpoint != EMBEDDED:
        raise StartFailed(f"{cr}: the demo runs on the embedded service; its endpoint is {spec.endpoint}")
    sink = spec.pipeline.sink
    if sink is None or sink.parquet is None or sink.volume_claim is None:
        raise StartFailed(f"{cr}: the demo counts Parquet files in a folder; its sink is another one")
    return with_a_line_of_replicas(cr.read_text(), document)


def _prepare(options: DemoOptions, cr: str) -> None:
    """An empty folder with the user's CR."""
    empty(options.folder)
    (options.folder / "producer").mkdir()
    (options.folder / "cr.yaml").write_text(cr)


class _Demo:
    """Runs in one event loop, in the main thread."""

    def __init__(self, options: DemoOptions, root: Root) -> None:
        self._options = options
        self._root = root
        self._clock = SystemClock()
        self._file = CrFile(options.folder / "cr.yaml", None)
        document = self._file.read()
        self._record = LocalObject.accept(root.group(document["metadata"]["name"]), document)
        self._resource: LogHubConsumerGroup = self._record.resource()
        sink = self._resource.spec.pipeline.sink
        assert sink is not None and sink.parquet is not None  # noqa: PT018 - `_checked` has verified it
        self.sink = root.volumes / str(sink.volume_claim) / str(sink.parquet.path)
        self.record_file = options.folder / "producer" / "record"
        self._progress_file = options.folder / "producer" / "progress"
        self._counter = SinkCounter(self.sink)
        self._rows = 0
        self._producer: ChildProgram | None = None
        self._producer_failed = ""
        self._ending = False
        self.screen = Screen(title="LogHub demo", clock=self._clock, notes=self._notes, live=options.live)
        self._scenario = ScenarioContext(
            name=self._resource.metadata.name,
            cr_file=options.folder / "cr.yaml",
            latest_snapshot=lambda: self.screen.last,
            rows=lambda: self._rows,
            clock_s=lambda: self.screen.elapsed_s,
            say=self.screen.say,
        )

    async def perform(self) -> None:
        """Run everything from the first process to the last."""
        self.screen.say("the embedded log service starts")
        self.screen.refresh()
        with stopped_by_signals() as stopping:
            async with AsyncExitStack() as stack:
                context = await stopping.unless_requested(
                    stack.enter_async_context(run_context(self._root, self._resource, say=self.screen.say))
                )
                self.screen.say(f"it listens on {context.endpoint}")
                await stopping.unless_requested(self._create(context))
                await self._run_with(context, stopping)

    async def _run_with(self, context: RunContext, stopping: Stopping) -> None:
        self._start_producer(context)
        group = LocalGroup(self._record, file=self._file, context=context, observer=self.screen)
        stopping.on_force(group.supervisor.kill)
        stop = asyncio.Event()
        running = asyncio.create_task(group.run(stop))
        counting = asyncio.create_task(self._count())
        try:
            await self._run_scenario(stopping.requested, running, stopping.forced)
        finally:
            await self._end_producer()
            stop.set()
            counting.cancel()
            await running

    async def _run_scenario(
        self, interrupted: asyncio.Event, running: "asyncio.Task[None]", forced_stop: asyncio.Event
    ) -> None:
        """Run the scenario, then stop the producer, then wait until every line is in the sink."""
        scenario = asyncio.create_task(self._play_scenario())
        waits = [scenario, running, asyncio.create_task(interrupted.wait())]
        await asyncio.wait(waits, return_when=asyncio.FIRST_COMPLETED)
        for task in (scenario, waits[2]):
            task.cancel()
        if scenario.done() and not scenario.cancelled():
            scenario.result()
        await self._end_producer()
        if not running.done():
            self.screen.say(f"no more lines; {self._progress().sent} were sent, waiting for the rest of them")
            await self._drain(running, forced_stop)

    async def _play_scenario(self) -> None:
        # A slow start must not use up the scenario's time: its own bound begins with the first row.
        if not await first_row(self._scenario, bound_s=FIRST_ROW_GUARD_S):
            return
        try:
            async with asyncio.timeout(self._options.limit_s):
                await play(
                    self._scenario,
                    pause_s=self._options.pause_s,
                    bound_s=self._options.limit_s / 2,
                )
        except TimeoutError:
            self.screen.say(f"DEMO: {self._options.limit_s:.0f} s are over, the story ends here")
        if self._options.keep:
            self.screen.say("DEMO: goes on until Ctrl-C (--keep)")
            await asyncio.Event().wait()

    async def _create(self, context: RunContext) -> None:
        credentials = read_folder(context.credentials_dir)
        with contextlib.closing(
            connect(context.endpoint, self._resource.spec.project, credentials)
        ) as client:
            created = await asyncio.to_thread(create_sources, client, self._resource, shards=SHARDS)
        self.screen.say("created " + ", ".join(created))

    def _start_producer(self, context: RunContext) -> None:
        spec, options = self._resource.spec, self._options
        command = [
            *(sys.executable, "-P", "-m", "loghub_cli.demo.producer", "--endpoint", context.endpoint),
            *("--project", spec.project, "--logstore", spec.logstore, "--rate", str(options.rate)),
            *("--record", str(self.record_file), "--progress", str(self._progress_file)),
        ]
        if options.logs is not None:
            command += ["--logs", str(options.logs)]
        self._producer = ChildProgram(
            command,
            environment={**without_keys(os.environ), ENV_CREDENTIALS_DIR: str(context.credentials_dir)},
            log=self._options.folder / "producer" / "log",
            on_exit=self._producer_ended,
        )

    def _producer_ended(self, child: ChildProgram) -> None:
        if child.exit_status != 0 or not self._ending:
            log = (self._options.folder / "producer" / "log").read_text(errors="replace").strip()
            self._producer_failed = log.rpartition("\n")[2] or f"exit status {child.exit_status}"
            self.screen.say(f"the producer ended: {self._producer_failed}")

    async def _end_producer(self) -> None:
        self._ending = True
        if self._producer is not None:
            await self._producer.end(PRODUCER_GRACE_S)

    async def _drain(self, running: "asyncio.Task[None]", forced_stop: asyncio.Event) -> None:
        """Wait until no shard has any lag after the last line was sent; the wait is bounded while no row
        arrives."""
        since, rows, moved = self._clock.unix_s(), self._rows, self._clock.monotonic_s()
        while not (running.done() or forced_stop.is_set() or _drained(self.screen.last, since)):
            await asyncio.sleep(COUNT_EVERY_S)
            if self._rows != rows:
                rows, moved = self._rows, self._clock.monotonic_s()
            running_all = self.screen.last is not None and self.screen.last.status.phase is Phase.RUNNING
            guard_s = DRAIN_GUARD_S if running_all else UNREADY_GUARD_S
            if self._clock.monotonic_s() - moved > guard_s:
                self.screen.say(f"nothing came into the sink for {guard_s:.0f} s")
                return

    async def _count(self) -> None:
        while True:
            self._rows = await asyncio.to_thread(self._counter.count)
            await asyncio.sleep(COUNT_EVERY_S)

    def _progress(self) -> ProducerProgress:
        try:
            return msgspec.json.decode(self._progress_file.read_bytes(), type=ProducerProgress)
        except (OSError, msgspec.MsgspecError):
            return ProducerProgress(sent=0, unsure=0, turn=1, replaced=0, cut=0, error="")

    def _notes(self) -> tuple[str, ...]:
        progress, logs = self._progress(), self._options.logs
        name = logs.name if logs is not None else f"{GENERATED} (generated)"
        notes = [f"sent {progress.sent} lines of {name}, pass {progress.turn}; in the sink {self._rows}"]
        if progress.replaced:
            notes.append(f"{progress.replaced} lines had bytes that are not UTF-8; they are written as \\xNN")
        if progress.cut:
            notes.append(f"{progress.cut} lines were longer than 256 KiB; the rest of them was left out")
        return (*notes, progress.error) if progress.error else tuple(notes)

    def outcome(self) -> DemoResult:
        """The outcome, once nothing runs any more."""
        return DemoResult(
            verdict=compare(read_record(self.record_file), read_sink(self.sink)),
            sink=self.sink,
            record=self.record_file,
            first_row_s=self._scenario.first_row_s,
            elapsed_s=self.screen.elapsed_s,
            producer_failed=self._producer_failed,
        )


def _drained(snapshot: GroupSnapshot | None, since_unix_s: float) -> bool:
    lag = snapshot.status.lag if snapshot is not None and snapshot.at_unix_s >= since_unix_s else None
    return lag is not None and lag.logs == 0
