"""``python -m loghub_consumer.processes.child FD``: runs processors for the worker or the program that
started this process.

The parent pulls, saves and decides; this process only calls the user's code, which it loads by the names of
the factory and the listener. `FD` is its end of the channel. It ends when the other end is closed, whatever
the user's code does.
"""

import ctypes
import inspect
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable, Iterable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from loghub.freed_memory import limit_freed_memory
from loghub.wire.compression import Packed
from loghub.wire.cursor import decode as decode_cursor
from loghub_consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_consumer.errors import FatalError
from loghub_consumer.failure.outage import decisive, is_outage
from loghub_consumer.log_context import inherited
from loghub_consumer.log_threads import FanOutFactory
from loghub_consumer.processes.messages import (
    CallAnswer,
    Channel,
    Initialize,
    Load,
    Loaded,
    LoadFailed,
    ProcessBatch,
    ShutDown,
    StandBy,
    ToChild,
    TrackerAnswer,
)
from loghub_consumer.processes.trackers import ChildTracker, TrackerCalls
from loghub_consumer.processor import (
    Listener,
    NotAssignedError,
    Processor,
    ProcessorFactory,
    ShardControl,
    Tracker,
)
from loghub_consumer.user_calls import UserCalls
from loghub_consumer.user_code import import_named, user_message


class ProcessShards:
    """A `loghub_consumer.processor.ShardControl`."""

    def __init__(self) -> None:
        self._lock = threading.Lock()
        self._trackers: dict[int, Tracker] = {}

    def add(self, tracker: Tracker) -> None:
        with self._lock:
            self._trackers[tracker.shard] = tracker

    def remove(self, tracker: Tracker) -> None:
        """Remove the shard, unless it was assigned again since."""
        with self._lock:
            if self._trackers.get(tracker.shard) is tracker:
                del self._trackers[tracker.shard]

    def assignment(self) -> tuple[int, ...]:
        with self._lock:
            return tuple(sorted(self._trackers))

    def seek(self, shard: int, to: str | int) -> None:
        self._find(shard).seek(to)

    def pause(self, shards: Iterable[int]) -> None:
        for tracker in [self._find(shard) for shard in shards]:
            tracker.pause()

    def resume(self, shards: Iterable[int]) -> None:
        for tracker in [self._find(shard) for shard in shards]:
            tracker.resume()

    def _find(self, shard: int) -> Tracker:
        with self._lock:
            tracker = self._trackers.get(shard)
        if tracker is None:
            raise NotAssignedError(f"shard {shard} is not in this process")
        return tracker


@dataclass(frozen=True, slots=True, kw_only=True)
class SettingWords:
    """The names of settings where the user writes them."""

    acknowledge_by_log: str
    ack_timeout: str


OF_OBJECT = SettingWords(
    acknowledge_by_log="pipeline.processor.acknowledge: Log",
    ack_timeout="pipeline.processor.redelivery.ackTimeoutSeconds",
)
OF_PROGRAM = SettingWords(
    acknowledge_by_log="ConsumerSettings.acknowledge to 'log'", ack_timeout="ConsumerSettings.ack_timeout_s"
)


def load_factory(
    name: str,
    folder: Path | None,
    words: SettingWords = OF_OBJECT,
    *,
    by_log: bool = False,
    times_out: bool = False,
) -> ProcessorFactory:
    """The class or function that ``module:name`` names. Raises `FatalError` ``InvalidPipeline``."""
    factory = import_named(name, folder)
    if isinstance(factory, FanOutFactory) and not by_log:
        raise FatalError(
            "InvalidPipeline",
            f"{name} is made by fan_out, whose threads end after process has returned; set"
            f" {words.acknowledge_by_log}",
        )
    if isinstance(factory, FanOutFactory) and times_out:
        raise FatalError(
            "InvalidPipeline",
            f"{name} is made by fan_out, which keeps each log until handle has returned; leave out"
            f" {words.ack_timeout}, with which it would come again meanwhile",
        )
    if isinstance(factory, type) and not issubclass(factory, Processor):
        raise FatalError(
            "InvalidPipeline", f"{name}: the class is not derived from loghub_consumer.Processor"
        )
    if not callable(factory):
        raise FatalError(
            "InvalidPipeline",
            f"{name} is neither a class nor a function but {type(factory).__name__}; name a class derived"
            " from loghub_consumer.Processor, or a function that returns such an object",
        )
    missing: frozenset[str] = getattr(factory, "__abstractmethods__", frozenset())
    if missing:
        raise FatalError("InvalidPipeline", f"{name}: the class does not define {', '.join(sorted(missing))}")
    try:
        inspect.signature(factory).bind()
    except TypeError as error:
        raise FatalError("InvalidPipeline", f"{name} must take no arguments: {error}") from error
    except ValueError:
        pass  # a callable without a known signature
    checked: ProcessorFactory = factory
    return checked


def load_listener(name: str, folder: Path | None, shards: ShardControl) -> Listener:
    """The listener that the class or function named by ``module:name`` makes for the shards of this process.
    Raises `FatalError` ``InvalidPipeline``."""
    make: Any = import_named(name, folder)
    if not callable(make):
        raise FatalError(
            "InvalidPipeline",
            f"{name} is neither a class nor a function; name a class derived from"
            " loghub_consumer.Listener that takes the shards of the process as its argument",
        )
    try:
        listener = make(shards)
    except Exception as error:
        raise FatalError("InvalidPipeline", f"{name}: {user_message(error, folder)}") from error
    if not isinstance(listener, Listener):
        kind = type(listener).__name__
        raise FatalError("InvalidPipeline", f"{name} made {kind}, not a loghub_consumer.Listener")
    return listener


PR_SET_PDEATHSIG = 1  # from linux/prctl.h
Request = Initialize | ProcessBatch | ShutDown


def main(descriptor: int) -> None:
    """Serve until the channel ends."""
    _end_with_the_worker()
    limit_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # from a terminal: the worker drains first
    channel = Channel(socket.socket(fileno=descriptor), ToChild)
    os.register_at_fork(after_in_child=channel.drop)  # a fork neither answers nor keeps the channel open
    received = channel.receive()
    if received is None:
        return
    load, _ = received
    assert isinstance(load, Load)
    folder = Path(load.folder) if load.folder is not None else None
    if load.path is not None:
        sys.path[:] = load.path
    try:
        words = OF_OBJECT if load.path is None else OF_PROGRAM
        factory = load_factory(load.factory, folder, words, by_log=load.by_log, times_out=load.times_out)
        shards = ProcessShards()
        listener = None if load.listener is None else load_listener(load.listener, folder, shards)
    except FatalError as error:
        channel.send(LoadFailed(error.message))
        return
    channel.send(Loaded())
    ChildSessions(channel, UserParts(factory, listener, shards, folder)).serve()


def _end_with_the_worker() -> None:
    """Let the kernel end this process with the worker, even if the worker is killed while user code keeps
    every other thread from running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class UserParts:
    """The user's loaded code, and the shards of the process for the listener."""

    factory: ProcessorFactory
    listener: Listener | None
    shards: ProcessShards
    folder: Path | None


class ChildSessions:
    """The sessions of this process."""

    def __init__(self, channel: Channel, parts: UserParts) -> None:
        self.channel = channel
        self.factory = parts.factory
        self.listener = parts.listener
        self.shards = parts.shards
        self.folder = parts.folder
        self.listening = threading.Lock()  # the listener is called once at a time
        self.calls = TrackerCalls(channel)
        self._sessions: dict[int, ShardSession] = {}
        self._standby: queue.SimpleQueue[tuple[int, ...]] = queue.SimpleQueue()
        if self.listener is not None:
            threading.Thread(
                target=inherited(self._tell_standby), args=(self.listener,), name="standby", daemon=True
            ).start()

    def serve(self) -> None:
        """Pass each request to its session. This thread calls no code of the user."""
        while (received := self.channel.receive()) is not None:
            message, bodies = received
            if isinstance(message, TrackerAnswer):
                self.calls.answered(message)
                continue
            if isinstance(message, StandBy):
                self._standby.put(message.shards)
                continue
            if isinstance(message, Initialize) and message.session not in self._sessions:
                self._sessions[message.session] = ShardSession(self, message)
            session = self._sessions[message.session]
            if isinstance(message, ShutDown):
                del self._sessions[message.session]
            session.requests.put((message, bodies))

    def _tell_standby(self, listener: Listener) -> None:
        while True:
            shards = self._standby.get()
            try:
                with self.listening:
                    listener.on_standby(shards)
            except BaseException as error:  # noqa: BLE001 - user code: no call waits for it
                with suppress(OSError, ValueError):  # it may have closed standard error
                    traceback.print_exception(error)
                    sys.stderr.flush()


class ShardSession:
    """One shard in this process: a thread that makes its calls, one after the other."""

    def __init__(self, child: ChildSessions, begin: Initialize) -> None:
        self.requests: queue.SimpleQueue[tuple[Request, list[bytes]]] = queue.SimpleQueue()
        self._child = child
        self._shard = begin.shard
        self._tracker = ChildTracker(child.calls, begin)
        self._code = UserCalls()
        self._processor: Processor | None = None
        self._last_error = ""
        self._is_known = False  # the listener knows the shard
        self._is_initialized = False
        threading.Thread(target=inherited(self._run), name=f"shard-{begin.shard}", daemon=True).start()

    def _run(self) -> None:
        try:
            self._serve()
        except OSError:  # the worker is gone, or user code has closed the channel, or this is a fork
            os._exit(1)
        except BaseException:  # noqa: BLE001 - a call without an answer would last until its timeout
            _end(1)

    def _serve(self) -> None:
        while True:
            request, bodies = self._code.wait(self.requests.get)
            self._child.channel.send(self._answer(request, bodies))
            if isinstance(request, ShutDown):
                self._code.close()
                return

    def _answer(self, request: Request, bodies: list[bytes]) -> CallAnswer:
        try:
            match request:
                case Initialize():
                    self._initialize(request)
                    return CallAnswer(request.call, is_known=self._is_known)
                case ProcessBatch():
                    return self._process(request, bodies)
                case ShutDown():
                    self._shut_down(request)
        except BaseException as error:  # noqa: BLE001 - user code; SystemExit and CancelledError, too
            return self._failed(request, error)
        return CallAnswer(request.call)

    def _failed(self, request: Request, error: BaseException) -> CallAnswer:
        message = user_message(decisive(error), self._child.folder)
        if message != self._last_error:  # repeated attempts raise the same error
            with suppress(OSError, ValueError):  # user code may have closed standard error
                traceback.print_exception(error)
                sys.stderr.flush()
        self._last_error = message
        return CallAnswer(request.call, error=message, is_outage=is_outage(error), is_known=self._is_known)

    def _initialize(self, request: Initialize) -> None:
        if request.is_listened and not self._is_known:
            self._child.shards.add(self._tracker)
            if request.is_assigned and self._child.listener is not None:
                self._listen(self._child.listener.on_assigned)
            self._is_known = True
        if self._processor is None:
            made: Any = self._child.factory()
            if not isinstance(made, Processor):
                raise TypeError(
                    f"the factory returned {type(made).__name__}, not a loghub_consumer.Processor"
                )
            self._processor = made
        self._code.call(self._processor.initialize, self._shard)
        self._is_initialized = True

    def _shut_down(self, request: ShutDown) -> None:
        try:
            listener = self._child.listener
            if listener is not None and self._is_known and not request.is_moved:
                self._listen(listener.on_lost if request.is_lost else listener.on_revoked)
        finally:
            try:
                if self._processor is not None and self._is_initialized:
                    self._code.call(self._processor.shutdown, self._tracker)
            finally:
                self._child.shards.remove(self._tracker)

    def _listen(self, method: Callable[[tuple[int, ...]], None]) -> None:
        with self._child.listening:
            method((self._shard,))

    def _process(self, request: ProcessBatch, bodies: list[bytes]) -> CallAnswer:
        assert self._processor is not None
        slices = []
        for body, content in zip(request.bodies, bodies, strict=True):
            packed = Packed(content, body.size, body.how)
            pulled = PulledBody(packed, shard=self._shard, first=body.first, count=body.count)
            slices.append(BodySlice(pulled, 0, body.count, body.only))
        batch = LogBatch(self._shard, tuple(slices), delivery=request.delivery)
        with self._tracker.running(batch):
            cursor = self._code.call(self._processor.process, batch, self._tracker)
        if not isinstance(cursor, str | None):
            raise TypeError(f"process returned {type(cursor).__name__}; return None, or a cursor as a text")
        if cursor is not None:
            decode_cursor(cursor)
        return CallAnswer(request.call, cursor=cursor, logs=sum(one.decoded_logs for one in slices))


def _end(status: int) -> NoReturn:
    """End the process even if threads of the user still run. An exception that is being handled is
    printed."""
    with suppress(OSError, ValueError):  # user code may have closed the streams
        if sys.exc_info()[1] is not None:
            traceback.print_exc()
        sys.stderr.flush()
        sys.stdout.flush()
    os._exit(status)


if __name__ == "__main__":
    try:
        main(int(sys.argv[1]))
    except BaseException:  # noqa: BLE001 - the end of the process
        _end(1)
    _end(0)
