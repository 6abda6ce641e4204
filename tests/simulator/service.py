"""The production service core on a simulated machine: the engine and the API actions, without HTTP.

Log data is on a disk that loses what was not synced. Metadata is in a real SQLite file, whose commits are
durable; after a crash its write-ahead log is left as it was. A crash may happen before each write and sync
of the disk and before and after each commit, which are all the places where the service waits for something.
A sync of the disk may fail, which ends the service; the machine goes on with what is in its cache.
`tests.simulator.damage` is what may happen to the data while the service is down.
"""

import errno
from collections.abc import Callable, Coroutine, Sequence
from pathlib import Path
from typing import Any, TypeVar

from loghub.client.transport import HttpCall
from loghub.wire.errors import LogHubError
from loghub_service.access_keys import AccessKey
from loghub_service.diagnosis import DataRefused
from loghub_service.engine import Engine
from loghub_service.errors import InvalidInput, WriteFailed, refusal
from loghub_service.http import routes
from loghub_service.messages import Head, MemoryBudget, Request, ServiceResponse, error_response
from loghub_service.ports import Platform
from loghub_service.settings import ServiceSettings
from loghub_service.start import open_engine
from loghub_service.storage.data_folder import DATABASE_NAME
from loghub_service.storage.database import Database
from loghub_service.storage.group_commit import Commit, StorageFailed
from tests.loghub_service.inline_batches import InlineBatches
from tests.loghub_service.simdisk import SimDisk
from tests.simulator.damage import Copy, Damage, flip_a_bit, log_data, lose_a_tail
from tests.simulator.faults import Dice, Fault, ServiceCrashed
from tests.simulator.loop import SimLoop

T = TypeVar("T")
PROJECT = "proj"
TICK_S = 0.5
KEY = AccessKey(key_id="id", secret="secret")


class VirtualClock:
    """A clock that the simulation moves."""

    def __init__(self) -> None:
        self.now_s = 1000.0

    def monotonic_s(self) -> float:
        return self.now_s

    def unix_s(self) -> float:
        return 1_700_000_000.0 + self.now_s


class CrashingDisk(SimDisk):
    """Each call that changes durable state may be the last one of the process; a dead one changes nothing."""

    def __init__(self, dice: Dice) -> None:
        super().__init__()
        self._dice, self.dice = dice, dice.random
        self.is_dead = False

    def step(self, what: str) -> None:
        super().step(what)
        self.may_die(Fault.DISK_CRASH)
        if "sync" in what and self._dice.happens(Fault.SYNC_FAILED):
            raise OSError(errno.EIO, "the sync fails")

    def may_die(self, fault: Fault) -> None:
        self.is_dead = self.is_dead or self._dice.happens(fault)
        self.raise_if_dead()

    def raise_if_dead(self) -> None:
        if self.is_dead:
            raise ServiceCrashed


class CrashableDatabase(Database):
    """A database on the same machine: once that is dead, the file stays as it is."""

    def __init__(self, path: str, disk: CrashingDisk) -> None:
        self._disk = disk
        super().__init__(path)

    def merge_write_ahead_log(self) -> None:
        self._disk.raise_if_dead()
        super().merge_write_ahead_log()


class SimService:
    """One service, which may be down, and its machine, which stays.

    ``folder`` is real, for the metadata. ``damage`` is what happened to the data since the last run.
    """

    def __init__(self, clock: VirtualClock, dice: Dice, folder: Path) -> None:
        self.clock = clock
        self.dice = dice
        self.folder = folder
        self.disk = CrashingDisk(dice)
        self.engine: Engine | None = None
        self.ran_s = 0.0  # for how long the service has run, without pauses
        self.on_start: Callable[[], None] = lambda: None
        self.damage: Damage | None = None
        self._database: CrashableDatabase | None = None
        self._storage_failed = False
        self._metadata_before: Copy = {}  # as it was before the last start
        self._loop = SimLoop(clock.monotonic_s)
        self._ticked_s = self._ends_saved_s = clock.now_s
        self._settings = ServiceSettings(
            data=str(folder), host="", port=0, segment_bytes=2048, tick_interval_s=TICK_S
        )

    def close(self) -> None:
        if self._database is not None:
            self._database.close()

    def open_database(self, path: str) -> CrashableDatabase:
        """Instead of `Database` in `loghub_service.start`."""
        self._database = CrashableDatabase(path, self.disk)
        return self._database

    def start(self) -> None:
        """Restore everything. Raises ServiceCrashed if the service crashes or ends meanwhile.

        Damaged data is refused, without changing it, and then repaired; the service is still down.
        """
        segments, metadata = self._segments(), self._copy_metadata()
        before = log_data(self.disk)
        platform = Platform(clock=self.clock, disk=self.disk, random=self.dice)
        opening = open_engine(
            self._settings, platform, on_failed=self._failed, start_batches=self._start_batches
        )
        try:
            self.engine = self._run(opening)
        except DataRefused as error:
            if self.damage is None:
                raise AssertionError(f"undamaged data was refused: {error}") from error
            self._repair(before)
            return
        removed = segments - self._segments()
        assert not removed, f"a start removed log data: {sorted(removed)}"
        self._metadata_before = metadata
        self._ticked_s = self._ends_saved_s = self.clock.now_s
        self.on_start()

    def _repair(self, damaged: Copy) -> None:
        """Put back what was damaged, after a start that was refused and must not have changed anything."""
        assert self.damage is not None
        assert log_data(self.disk) == damaged, "a refused start changed log data"
        self.damage.undo()
        self.damage = None

    def stop(self) -> None:
        """As on SIGTERM. Raises ServiceCrashed if the service crashes meanwhile."""
        assert self.engine is not None
        self._run(self.engine.close())
        self.engine = None

    def crash(self) -> None:
        """The process alone, if a sync has failed; otherwise the machine, too: of the changes that were not
        synced, any part survives."""
        if self._storage_failed and not self.disk.is_dead and self._ended():
            return
        self.engine = None
        self._loop.forget_timers()
        self.disk.is_dead = True
        if self._database is not None:
            self._database.close()
        if any(content.pending for content in self.disk.live.values()):
            self.dice.counts[Fault.UNSYNCED_LOST] += 1
        self.disk.lose_power(self.dice.random)
        self.disk.is_dead = False
        if self.damage is None:
            self.damage = self._damaged()

    def _ended(self) -> bool:
        """Whether the process has come to its end without a crash."""
        self._storage_failed, engine, self.engine = False, self.engine, None
        self._loop.forget_timers()
        try:
            if engine is not None:
                self._loop.run(engine.close())
        except ServiceCrashed:
            return False
        self.close()
        return True

    def _damaged(self) -> Damage | None:
        """At most one kind of damage at a time."""
        dice, data = self.dice, str(self.folder)
        if self._metadata_before and dice.happens(Fault.METADATA_OLDER):
            newest = self._copy_metadata()
            self._write_metadata(self._metadata_before)
            return Damage(Fault.METADATA_OLDER, undo=lambda: self._write_metadata(newest))
        for fault, inflict in ((Fault.TAIL_LOST, lose_a_tail), (Fault.BIT_FLIPPED, flip_a_bit)):
            if dice.happens(fault):
                undo = inflict(self.disk, data, self._copy_metadata(), dice.random)
                if undo is not None:
                    return Damage(fault, undo=undo)
                dice.counts[fault] -= 1  # there was nothing to damage
        return None

    def _copy_metadata(self) -> Copy:
        return {path.name: path.read_bytes() for path in self.folder.glob(f"{DATABASE_NAME}*")}

    def _write_metadata(self, copy: Copy) -> None:
        for path in self.folder.glob(f"{DATABASE_NAME}*"):
            path.unlink()
        for name, content in copy.items():
            (self.folder / name).write_bytes(content)

    def _segments(self) -> set[str]:
        return {path for path in self.disk.live if path.endswith(".seg")}

    def advance(self, seconds: float) -> None:
        """Let time pass; the running service ticks as often as in production."""
        end_s = self.clock.now_s + seconds
        while self.engine is not None and self._ticked_s + TICK_S <= end_s:
            self.clock.now_s = max(self.clock.now_s, self._ticked_s + TICK_S)
            self._tick(ran_s=TICK_S)
        self.clock.now_s = end_s

    def pause(self, seconds: float) -> None:
        """The process does not run for so long. Afterwards its timers come first."""
        self.clock.now_s += seconds
        if self.engine is not None:
            self._tick(ran_s=0.0)

    def _tick(self, *, ran_s: float) -> None:
        assert self.engine is not None
        self._ticked_s = self.clock.now_s
        self.ran_s += ran_s
        try:
            self._run(self._tick_on_loop(self.engine))
        except ServiceCrashed:
            self.crash()

    async def _tick_on_loop(self, engine: Engine) -> None:
        self._loop.call_due()
        engine.groups.tick()
        if self.clock.now_s - self._ends_saved_s >= self._settings.ends_interval_s:
            self._ends_saved_s = self.clock.now_s
            await engine.ends.save()

    def handle(self, call: HttpCall) -> ServiceResponse:
        """Serve one request. Raises ServiceCrashed; the service is down then."""
        try:
            return self.act(lambda engine: self._serve(engine, call))
        except LogHubError as error:
            return error_response(error)
        except InvalidInput as error:
            return error_response(refusal(error))

    def act(self, work: Callable[[Engine], Coroutine[Any, Any, T]]) -> T:
        """Do something that a client wants. Raises ServiceCrashed; the service is down then."""
        assert self.engine is not None
        try:
            return self._run(work(self.engine))
        except ServiceCrashed:
            self.crash()
            raise

    async def _serve(self, engine: Engine, call: HttpCall) -> ServiceResponse:
        open_action = routes.OPEN.get((call.method, call.path))
        if open_action is not None:
            return await open_action(engine)
        head = Head(
            method=call.method,
            path=call.path,
            parts=tuple(call.path.split("/")[1:]),
            query=dict(call.query),
            headers={name.lower(): value for name, value in call.headers.items()},
            project=PROJECT,
        )
        target = routes.find(head)
        assert target is not None, f"{call.method} {call.path} is not an API of the service"
        with MemoryBudget("simulated", limit=1 << 30).reservation() as memory:
            return await target.serve(engine, Request(head=head, key=KEY, body=call.body, memory=memory))

    def _run(self, work: Coroutine[Any, Any, T]) -> T:
        try:
            return self._loop.run(work)
        except (WriteFailed, StorageFailed):
            self._storage_failed = True
            raise
        finally:
            if self._storage_failed:
                raise ServiceCrashed

    def _failed(self, error: BaseException) -> None:
        assert isinstance(error, WriteFailed), error
        self._storage_failed = True

    def _start_batches(self, *, commit: Commit[T], **settings: Any) -> InlineBatches[T]:
        is_metadata = settings["name"] == "fact-commit"

        def crashing_commit(batch: Sequence[T]) -> Sequence[object]:
            if is_metadata:
                self.disk.may_die(Fault.COMMIT_CRASH)
            outcomes = commit(batch)
            if is_metadata:
                self.disk.may_die(Fault.COMMIT_CRASH)
            return outcomes

        return InlineBatches(commit=crashing_commit, **settings)
