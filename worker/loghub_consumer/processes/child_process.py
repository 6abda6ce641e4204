"""The processes that run processors, as the worker sees them: started, called, killed, and started again; and
which shard is in which process.

A shard is in one process at a time, so its logs stay in order. It goes to the process with the fewest shards;
among several such processes its number decides, so that a shard that is assigned again usually gets the same
process. When shards have left another process, it moves between two batches. A process is started when its
first shard comes.
"""

import contextlib
import itertools
import os
import signal
import socket
import struct
import subprocess
import sys
import threading
import time
from collections.abc import Callable, Mapping, Sequence
from dataclasses import dataclass, field

import structlog

from loghub.backoff import Backoff
from loghub.contract.worker import ProcessProgress, WorkerReason
from loghub_consumer.errors import FatalError
from loghub_consumer.log_context import inherited
from loghub_consumer.processes.messages import (
    Acknowledge,
    AcknowledgeUpTo,
    CallAnswer,
    Channel,
    FromChild,
    Get,
    Initialize,
    Load,
    Loaded,
    LoadFailed,
    Pause,
    ProcessBatch,
    Refuse,
    Save,
    Seek,
    ShutDown,
    StandBy,
    TrackerAnswer,
    TrackerCall,
)
from loghub_consumer.processes.session_trackers import SessionTrackers, may_block
from loghub_consumer.shard_runner import RemoteError

log = structlog.get_logger()


CLOSE_S = 5.0  # for a process to end by itself after its shards were given up


class CallFailedError(RemoteError):
    """A call had no answer."""


class ProcessEndedError(CallFailedError):
    """The process ended during the call, by itself or killed by something else."""


class ProcessUnavailableError(CallFailedError):
    """The process is being started, or ended because of another shard."""


class CallTimedOutError(CallFailedError):
    """The call took too long, nothing else ran in the process, and the process was killed."""


class CallSuspectedError(CallFailedError):
    """The call took too long, and the process was killed; but another running call may be the cause, because
    it kept every thread from running."""


def end(process: subprocess.Popen[bytes]) -> None:
    """Kill the process if it does not end by itself soon, now that its channel has ended."""
    try:
        process.wait(CLOSE_S)
    except subprocess.TimeoutExpired:
        process.kill()


def reap(process: subprocess.Popen[bytes]) -> int:
    """Wait for the end of the process, end the processes that the user's code has started, and return the
    exit status. While there are any, the id names their process group and nothing else."""
    status = process.wait()
    with contextlib.suppress(ProcessLookupError, PermissionError):
        os.killpg(process.pid, signal.SIGKILL)
    return status


def ended_message(status: int, why_killed: str) -> str:
    if why_killed:
        return f"killed by the worker: {why_killed}"
    if status >= 0:
        return f"exit status {status}"
    return f"killed by signal {-status}" + (", perhaps because memory ran out" if status == -9 else "")


FIRST_RESTART_S, MAX_RESTART_S = 0.1, 10.0
MAX_FAILED_STARTS = 10  # in a row, without a start that could load the user's code
LOOK_S = 0.2  # how often a thread that waits for a process to start checks whether it still must wait
MAX_KILL_S = 30.0  # how long a killed process may take to end, for example at a disk that does not answer
CHILD = "loghub_consumer.processes.child"  # the program of the process
NO_CALL = -1  # calls are numbered from 0
Call = Callable[[int], Initialize | ProcessBatch | ShutDown]


@dataclass(slots=True)
class _Pending:
    generation: int
    answered: threading.Event = field(default_factory=threading.Event)
    answer: CallAnswer | None = None
    error: CallFailedError | None = None


@dataclass(frozen=True, slots=True, kw_only=True)
class ProcessSettings:
    """The settings of every process of a worker. `load_timeout_s`: how long it may take to load the user's
    code; `load_setting` is the name of that setting; `send_timeout_s`: how long it may read nothing."""

    load: Load
    load_timeout_s: float
    load_setting: str
    environment: Mapping[str, str]
    send_timeout_s: float
    random: Callable[[], float]


class ChildProcess:
    """A slot for a process. `generation` counts its starts: a session belongs to one of them."""

    def __init__(self, number: int, settings: ProcessSettings, trackers: SessionTrackers) -> None:
        self.number = number
        self._settings = settings
        self._trackers = trackers
        self._restarts = Backoff(first_s=FIRST_RESTART_S, max_s=MAX_RESTART_S, random=settings.random)
        self._calls = itertools.count()
        self._changed = threading.Condition()
        self._process: subprocess.Popen[bytes] | None = None
        self._channel: Channel | None = None
        self._pending: dict[int, _Pending] = {}
        self._guilty: int | None = None  # the call for which the process is killed
        self._why_killed = ""
        self._is_alone = False  # a call runs that must run alone
        self._waiting_alone = 0
        self._closing = False
        self._is_cut = False  # the channel has ended
        self._standby: tuple[int, ...] = ()
        # Keeps reports in order, so that the last one is the latest; taken before the lock of `_changed`.
        self._telling = threading.Lock()
        self.generation = 0
        self.loaded = False
        self.ended_message = ""
        self.shards: dict[int, int | None] = {}  # session -> shard; None: a shard of the retry logstore
        self.failure: FatalError | None = None
        # The kernel kills the process when the thread that started it ends, so one thread makes all starts.
        self._thread = threading.Thread(target=inherited(self._run), name=f"process-{number}", daemon=True)

    def start(self) -> None:
        self._thread.start()

    def progress(self) -> ProcessProgress:
        with self._changed:
            return ProcessProgress(
                number=self.number,
                pid=None if self._process is None else self._process.pid,
                starts=self.generation,
                shards=sorted(one for one in self.shards.copy().values() if one is not None),
                message=self.ended_message,
            )

    # -- calls

    def call(
        self,
        make: Call,
        bodies: Sequence[bytes] = (),
        *,
        generation: int | None,
        timeout_s: float,
        alone: bool = False,
    ) -> tuple[CallAnswer, int]:
        """Send a request and wait for its answer; also returns the generation that answered. The session
        belongs to `generation`; None begins a session. With `alone`, the process does nothing else meanwhile.
        Raises `CallFailedError`."""
        with self._changed:
            self._await_turn(alone, timeout_s)
            if not self.loaded or self._channel is None:
                raise ProcessUnavailableError(self._unavailable())
            if generation not in (None, self.generation):
                raise ProcessUnavailableError(f"process {self.number} was started again")
            channel, pending = self._channel, _Pending(self.generation)
            number = next(self._calls)
            self._pending[number] = pending
            self._is_alone = alone
        try:
            channel.send(make(number), bodies)
        except BlockingIOError:  # the process reads nothing; which call is the cause is unknown
            why = f"it read nothing for {self._settings.send_timeout_s:g} s"
            self._kill(NO_CALL, pending.generation, why)
        except OSError:
            pass  # it has ended
        if not pending.answered.wait(timeout_s):
            self._kill(number, pending.generation, f"a call took longer than {timeout_s:g} s")
            if not pending.answered.wait(MAX_KILL_S):
                message = f"process {self.number} did not end within {MAX_KILL_S:.0f} s after it was killed"
                self._fail(FatalError(WorkerReason.BATCH_TIMED_OUT.value, message))
                raise CallTimedOutError(message)
        if pending.error is not None:
            raise pending.error
        assert pending.answer is not None
        return pending.answer, pending.generation

    def tell_standby(self, shards: tuple[int, ...]) -> None:
        """In these shards another consumer is active. A process that is started later learns it, too."""
        with self._changed:
            self._standby = shards
        self._tell_standby()

    def _tell_standby(self) -> None:
        with self._telling:
            with self._changed:
                channel = self._channel if self.loaded else None
                generation, shards = self.generation, self._standby
            if channel is None or self._settings.load.listener is None:
                return
            try:
                channel.send(StandBy(shards))
            except BlockingIOError:  # a part of the message may have been sent
                self._kill(NO_CALL, generation, f"it read nothing for {self._settings.send_timeout_s:g} s")
            except OSError:
                pass  # it has ended

    def await_loaded(self, may_wait: Callable[[], bool]) -> None:
        """Wait for a process that is being started, as long as `may_wait` and as its code may take to be
        loaded. Raises `ProcessUnavailableError` if it cannot be."""
        until_s = time.monotonic() + self._settings.load_timeout_s + MAX_RESTART_S
        with self._changed:
            while not self.loaded:
                is_over = self.failure is not None or self._closing or time.monotonic() >= until_s
                if is_over or not may_wait():
                    raise ProcessUnavailableError(self._unavailable())
                self._changed.wait(LOOK_S)

    def _unavailable(self) -> str:
        ended = f"; it ended before: {self.ended_message}" if self.ended_message else ""
        return f"process {self.number} is being started{ended}"

    def _await_turn(self, alone: bool, timeout_s: float) -> None:
        """Wait for a call that runs alone. Calls that must run alone go first, because the other calls would
        never leave a gap."""

        def is_free() -> bool:
            if not self.loaded:
                return True  # the caller finds out
            return not self._pending if alone else not self._is_alone and not self._waiting_alone

        self._waiting_alone += alone
        try:
            if not self._changed.wait_for(is_free, timeout_s):
                raise ProcessUnavailableError(f"process {self.number} is busy with other shards")
        finally:
            self._waiting_alone -= alone
            self._changed.notify_all()

    def _kill(self, call: int, generation: int, why: str) -> None:
        with self._changed:
            if self.generation == generation and self._process is not None:
                self._guilty, self._why_killed = call, why
                self._process.kill()

    def _fail(self, failure: FatalError) -> None:
        with self._changed:
            self.failure = self.failure or failure
            self._changed.notify_all()

    # -- the process

    def _run(self) -> None:
        failed_starts = 0
        while not self._closing:
            was_loaded = self._serve_one()
            if self._closing or self.failure is not None:
                return
            failed_starts = 0 if was_loaded else failed_starts + 1
            if failed_starts >= MAX_FAILED_STARTS:
                message = f"process {self.number} does not start: {self.ended_message}"
                self._fail(FatalError(WorkerReason.PROCESS_ENDED.value, message))
                return
            with self._changed:
                pause_s = self._restarts.pause_s(failed_starts + 1)
                self._changed.wait_for(lambda: self._closing, pause_s)

    def _serve_one(self) -> bool:
        """Start the process and wait until it has ended; whether it could load the user's code."""
        ours, theirs = socket.socketpair()
        seconds = self._settings.send_timeout_s
        ours.setsockopt(socket.SOL_SOCKET, socket.SO_SNDTIMEO, struct.pack("ll", int(seconds) + 1, 0))
        try:
            with theirs:
                process = subprocess.Popen(
                    # -P: the current folder may have files with the names of modules.
                    [sys.executable, "-P", "-m", CHILD, str(theirs.fileno())],
                    env=dict(self._settings.environment),
                    stdin=subprocess.DEVNULL,
                    pass_fds=(theirs.fileno(),),
                    process_group=0,  # with the processes that the user's code starts
                )
        except OSError as error:
            ours.close()
            self.ended_message = f"it cannot be started: {error}"
            return False
        channel = Channel(ours, FromChild)
        reader = threading.Thread(
            target=inherited(self._read), args=(channel,), name=f"process-{self.number}-answers", daemon=True
        )
        with self._changed:
            self._process, self._channel = process, channel
            self._is_cut, self._why_killed = False, ""
            self.generation += 1
            closing = self._closing
        if closing:
            channel.close()
        reader.start()
        with contextlib.suppress(OSError):  # it has ended
            channel.send(self._settings.load)
        load_s = self._settings.load_timeout_s
        with self._changed:
            if not self._changed.wait_for(lambda: self.loaded or self._is_cut or self._closing, load_s):
                self._why_killed = (
                    f"its code was not loaded within {load_s:g} s; raise {self._settings.load_setting}"
                )
                process.kill()
        if not self.loaded:
            end(process)
        status = reap(process)
        channel.close()  # a process that the user's code has started may keep the other end open
        reader.join()
        return self._ended(status)

    def _ended(self, status: int) -> bool:
        with self._changed:
            was_loaded, self.loaded = self.loaded, False
            self._process = self._channel = None
            self._is_alone = False
            guilty, self._guilty = self._guilty, None
            pending, self._pending = self._pending, {}
            message = ended_message(status, self._why_killed)
            if not self._closing:
                self.ended_message = message
            self._changed.notify_all()
        if not self._closing:
            log.warning("a process of processors ended", process=self.number, message=message)
        for number, call in pending.items():
            call.error = self._error(number, guilty, message, is_only=len(pending) == 1)
            call.answered.set()
        if was_loaded and not self._closing:
            self._trackers.process_ended(tuple(self.shards.copy()), message)
        return was_loaded

    def _error(self, number: int, guilty: int | None, message: str, *, is_only: bool) -> CallFailedError:
        place = f"process {self.number}"
        if guilty is None:
            return ProcessEndedError(f"{place} ended: {message}")
        if number == guilty and is_only:
            return CallTimedOutError(f"{place} was killed because the call took too long")
        if number == guilty:
            return CallSuspectedError(f"{place} was killed because this call or another one took too long")
        return ProcessUnavailableError(f"{place} was killed because of another shard")

    def _read(self, channel: Channel) -> None:
        try:
            self._read_messages(channel)
        except Exception as error:  # noqa: BLE001 - user code may have written into the channel
            log.error(
                "a process sent what is no message; it is ended", process=self.number, message=str(error)
            )
            with self._changed:
                if self._channel is channel and self._process is not None:
                    self._process.kill()
        with self._changed:
            self._is_cut = True
            self._changed.notify_all()

    def _read_messages(self, channel: Channel) -> None:
        while (received := channel.receive()) is not None:
            message, _ = received
            match message:
                case CallAnswer():
                    with self._changed:
                        pending = self._pending.pop(message.call)
                        self._is_alone = False
                        self._changed.notify_all()
                    pending.answer = message
                    pending.answered.set()
                case Save() | Seek() if may_block(message):
                    self._begin(channel, message)
                case Save() | Get() | Refuse() | Acknowledge() | AcknowledgeUpTo() | Pause():
                    self._carry_out(channel, message)
                case Loaded():
                    with self._changed:
                        self.loaded = True
                        self._changed.notify_all()
                    if self._standby:
                        self._tell_standby()
                case LoadFailed():
                    self._fail(FatalError(WorkerReason.INVALID_PIPELINE.value, message.message))

    def _begin(self, channel: Channel, call: Save | Seek) -> None:
        """Carry out what may block in a thread of its own, which may come later than the next messages."""
        refusal = self._trackers.note(call) if isinstance(call, Save) else None
        if refusal is not None:
            self._send(channel, refusal)
            return
        threading.Thread(
            target=inherited(self._carry_out), args=(channel, call), name="save", daemon=True
        ).start()

    def _carry_out(self, channel: Channel, call: TrackerCall) -> None:
        answer = self._trackers.carry_out(call)
        if answer is not None:
            self._send(channel, answer)

    def _send(self, channel: Channel, answer: TrackerAnswer) -> None:
        with contextlib.suppress(OSError):  # the process has ended
            channel.send(answer)

    def close(self) -> None:
        """End the process: by itself for a while, then killed."""
        with self._changed:
            self._closing = True
            self._changed.notify_all()
            process, channel = self._process, self._channel
        if process is not None and channel is not None:
            channel.close()
            end(process)
        self._thread.join(CLOSE_S)


def choose(shard: int, loads: Sequence[int]) -> int:
    """The number of the process for a shard. `loads` are the numbers of shards in the processes."""
    return min(range(len(loads)), key=lambda number: (loads[number], (number - shard) % len(loads)))


class ProcessPool:
    """All processes. Thread-safe."""

    def __init__(self, count: int, settings: ProcessSettings) -> None:
        self.trackers = SessionTrackers()
        self._processes = [ChildProcess(number, settings, self.trackers) for number in range(count)]
        self._started: set[int] = set()
        self._lock = threading.Lock()

    def start_first(self) -> ChildProcess:
        """Start one process, which shows whether the user's code can be loaded."""
        with self._lock:
            return self._start(0)

    def _start(self, number: int) -> ChildProcess:
        process = self._processes[number]
        if number not in self._started:
            self._started.add(number)
            process.start()
        return process

    def take(self, session: int, shard: int, *, is_of_retries: bool = False) -> ChildProcess:
        """The process of a session, which keeps it until `give_back`. Shards of the retry logstore are not
        reported."""
        with self._lock:
            process = self._start(choose(shard, [len(one.shards) for one in self._processes]))
            process.shards[session] = None if is_of_retries else shard
            return process

    def move(self, session: int, shard: int) -> ChildProcess | None:
        """The process to which a session moves, because shards have left it so that it has at least two
        fewer; None: the session stays."""
        with self._lock:
            loads = [len(one.shards) for one in self._processes]
            here = next(one for one in self._processes if session in one.shards)
            number = choose(shard, loads)
            if len(here.shards) - loads[number] < 2:
                return None
            there = self._start(number)
            there.shards[session] = here.shards.pop(session)
            return there

    def give_back(self, session: int) -> None:
        """The session has ended."""
        self.trackers.close(session)
        with self._lock:
            for process in self._processes:
                process.shards.pop(session, None)

    def tell_standby(self, shards: tuple[int, ...]) -> None:
        """Tell the listeners in which shards another consumer is active."""
        for process in self._processes:
            process.tell_standby(shards)

    @property
    def failure(self) -> FatalError | None:
        """Why the worker cannot go on."""
        return next((one.failure for one in self._processes if one.failure is not None), None)

    def progress(self) -> list[ProcessProgress]:
        with self._lock:
            started = sorted(self._started)
        return [self._processes[number].progress() for number in started]

    def close(self) -> None:
        """End all processes."""
        with self._lock:
            started = [self._processes[number] for number in sorted(self._started)]
        threads = [threading.Thread(target=inherited(one.close), daemon=True) for one in started]
        for thread in threads:
            thread.start()
        for thread in threads:
            thread.join()
