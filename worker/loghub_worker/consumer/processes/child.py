"""``python -m loghub_worker.consumer.processes.child FD``: runs processors for the worker or the program that
started this process.

That one pulls, saves and decides; this process only calls the user's code. `FD` is its end of the channel.
It ends when the other end is closed, whatever the user's code does.
"""

import ctypes
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from collections.abc import Callable
from contextlib import suppress
from dataclasses import dataclass
from pathlib import Path
from typing import Any, NoReturn

from loghub.freed_memory import limit_freed_memory
from loghub.wire.compression import Packed
from loghub_worker.consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_worker.consumer.processes.child_shards import ProcessShards
from loghub_worker.consumer.processes.child_tracker import ChildTracker, TrackerCalls
from loghub_worker.consumer.processes.load import OF_OBJECT, OF_PROGRAM, load_factory, load_listener
from loghub_worker.consumer.processes.messages import (
    Answer,
    Channel,
    Initialize,
    Load,
    Loaded,
    LoadFailed,
    Process,
    ShutDown,
    ToChild,
    TrackerAnswer,
)
from loghub_worker.consumer.processor import Listener, Processor, ProcessorFactory
from loghub_worker.consumer.user_code import UserCode
from loghub_worker.failure.outage import decisive, is_outage
from loghub_worker.fatal_error import FatalError
from loghub_worker.log_context import inherited
from loghub_worker.log_service import decode_cursor
from loghub_worker.user_code import user_message

PR_SET_PDEATHSIG = 1
Request = Initialize | Process | ShutDown


def main(descriptor: int) -> None:
    """Serve until the channel ends."""
    _end_with_the_worker()
    limit_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the worker drains first
    channel = Channel(socket.socket(fileno=descriptor), ToChild)
    os.register_at_fork(after_in_child=channel.drop)  # a fork neither answers nor keeps it open
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
    Child(channel, UserParts(factory, listener, shards, folder)).serve()


def _end_with_the_worker() -> None:
    """Also if the worker is killed while user code keeps every other thread from running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


@dataclass(frozen=True, slots=True)
class UserParts:
    """The user's code as it was loaded, and the shards of the process for the listener."""

    factory: ProcessorFactory
    listener: Listener | None
    shards: ProcessShards
    folder: Path | None


class Child:
    """The sessions of this process."""

    def __init__(self, channel: Channel, parts: UserParts) -> None:
        self.channel = channel
        self.factory = parts.factory
        self.listener = parts.listener
        self.shards = parts.shards
        self.folder = parts.folder
        self.listening = threading.Lock()  # the listener is called once at a time
        self.calls = TrackerCalls(channel)
        self._sessions: dict[int, Session] = {}

    def serve(self) -> None:
        """Pass each request to its session. This thread calls no code of the user."""
        while (received := self.channel.receive()) is not None:
            message, bodies = received
            if isinstance(message, TrackerAnswer):
                self.calls.answered(message)
                continue
            if isinstance(message, Initialize) and message.session not in self._sessions:
                self._sessions[message.session] = Session(self, message)
            session = self._sessions[message.session]
            if isinstance(message, ShutDown):
                del self._sessions[message.session]
            session.requests.put((message, bodies))


class Session:
    """One shard in this process: a thread that makes the calls, one after the other."""

    def __init__(self, child: Child, begin: Initialize) -> None:
        self.requests: queue.SimpleQueue[tuple[Request, list[bytes]]] = queue.SimpleQueue()
        self._child = child
        self._shard = begin.shard
        self._tracker = ChildTracker(child.calls, begin)
        self._code = UserCode()
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

    def _answer(self, request: Request, bodies: list[bytes]) -> Answer:
        try:
            match request:
                case Initialize():
                    self._initialize(request)
                    return Answer(request.call, is_known=self._is_known)
                case Process():
                    return self._process(request, bodies)
                case ShutDown():
                    self._shut_down(request)
        except BaseException as error:  # noqa: BLE001 - user code; SystemExit and CancelledError, too
            return self._failed(request, error)
        return Answer(request.call)

    def _failed(self, request: Request, error: BaseException) -> Answer:
        message = user_message(decisive(error), self._child.folder)
        if message != self._last_error:  # it comes again with each attempt
            with suppress(OSError, ValueError):  # user code may have closed it
                traceback.print_exception(error)
                sys.stderr.flush()
        self._last_error = message
        return Answer(request.call, error=message, is_outage=is_outage(error), is_known=self._is_known)

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
                    f"the factory returned {type(made).__name__}, not a loghub_worker.api.Processor"
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

    def _process(self, request: Process, bodies: list[bytes]) -> Answer:
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
        return Answer(request.call, cursor=cursor, logs=sum(one.decoded_logs for one in slices))


def _end(status: int) -> NoReturn:
    """End the process, whatever threads of the user still run. An exception that is being handled is
    printed."""
    with suppress(OSError, ValueError):  # user code may have closed them
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
