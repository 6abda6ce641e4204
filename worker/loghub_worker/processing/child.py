"""``python -m loghub_worker.processing.child FD``: runs processors for the worker that started this process.

The worker pulls, saves and decides; this process only calls the user's code. `FD` is its end of the channel,
and the process ends when the worker's end is closed, whatever the user's code does.
"""

import ctypes
import inspect
import itertools
import os
import queue
import signal
import socket
import sys
import threading
import traceback
from pathlib import Path
from typing import Any

from loghub.wire.compression import Packed
from loghub.wire.errors import EndpointUnreachable, LogHubError, LogHubException, MalformedCursor
from loghub_worker.consumer.batch import BodySlice, LogBatch, PulledBody
from loghub_worker.consumer.processor import OUTAGES, Processor, ProcessorFactory, ShardLostError
from loghub_worker.consumer.user_code import UserCode
from loghub_worker.fatal_error import FatalError
from loghub_worker.log_service import decode_cursor
from loghub_worker.processing.batch_parts import decoded_logs
from loghub_worker.processing.freed_memory import return_freed_memory
from loghub_worker.processing.messages import (
    Answer,
    Channel,
    Initialize,
    Load,
    Loaded,
    LoadFailed,
    Process,
    SaveAnswer,
    SaveError,
    SaveRequest,
    ShutDown,
    ToChild,
)
from loghub_worker.user_code import import_named, user_message

PR_SET_PDEATHSIG = 1
Request = Initialize | Process | ShutDown


def main(descriptor: int) -> None:
    """Serve until the channel ends."""
    _end_with_the_worker()
    return_freed_memory()
    signal.signal(signal.SIGINT, signal.SIG_IGN)  # of a terminal: the worker drains first
    channel = Channel(socket.socket(fileno=descriptor), ToChild)
    received = channel.receive()
    if received is None:
        return
    load, _ = received
    assert isinstance(load, Load)
    folder = Path(load.folder) if load.folder is not None else None
    try:
        factory = load_factory(load.factory, folder)
    except FatalError as error:
        channel.send(LoadFailed(error.message))
        return
    channel.send(Loaded())
    Child(channel, factory, folder).serve()


def _end_with_the_worker() -> None:
    """Also if the worker is killed while user code keeps every other thread from running."""
    if sys.platform == "linux":
        ctypes.CDLL(None).prctl(PR_SET_PDEATHSIG, signal.SIGKILL, 0, 0, 0)


def load_factory(name: str, folder: Path | None) -> ProcessorFactory:
    """The class or function that ``module:name`` names. Raises `FatalError` ``InvalidPipeline``."""
    factory = import_named(name, folder)
    if isinstance(factory, type) and not issubclass(factory, Processor):
        raise FatalError(
            "InvalidPipeline", f"{name}: the class is not derived from loghub_worker.api.Processor"
        )
    if not callable(factory):
        raise FatalError(
            "InvalidPipeline",
            f"{name} is neither a class nor a function but {type(factory).__name__}; name a class derived"
            " from loghub_worker.api.Processor, or a function that returns such an object",
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


class Child:
    """The sessions of this process."""

    def __init__(self, channel: Channel, factory: ProcessorFactory, folder: Path | None) -> None:
        self.channel = channel
        self.factory = factory
        self.folder = folder
        self.saves = Saves(channel)
        self._sessions: dict[int, Session] = {}

    def serve(self) -> None:
        """Pass each request to its session. This thread calls no code of the user."""
        while (received := self.channel.receive()) is not None:
            message, bodies = received
            if isinstance(message, SaveAnswer):
                self.saves.answered(message)
                continue
            if isinstance(message, Initialize) and message.session not in self._sessions:
                self._sessions[message.session] = Session(self, message)
            session = self._sessions[message.session]
            if isinstance(message, ShutDown):
                del self._sessions[message.session]
            session.requests.put((message, bodies))


class Saves:
    """Asks the worker to save, and waits for the answers."""

    def __init__(self, channel: Channel) -> None:
        self._channel = channel
        self._numbers = itertools.count()
        self._waiting: dict[int, queue.SimpleQueue[SaveAnswer]] = {}

    def save(self, session: int, *, persist: bool, cursor: str | None) -> SaveAnswer:
        number = next(self._numbers)
        answers: queue.SimpleQueue[SaveAnswer] = queue.SimpleQueue()
        self._waiting[number] = answers
        self._channel.send(SaveRequest(number, session, persist, cursor))
        return answers.get()

    def answered(self, answer: SaveAnswer) -> None:
        self._waiting.pop(answer.number).put(answer)


class ChildTracker:
    """The `loghub_worker.consumer.processor.Tracker` of a session. The worker has the checkpoint."""

    def __init__(self, saves: Saves, begin: Initialize) -> None:
        self.shard = begin.shard
        self._saves = saves
        self._session = begin.session
        self.noted = ""

    def save(self, *, persist: bool = True, cursor: str | None = None) -> None:
        if cursor is not None:
            decode_cursor(cursor)
        answer = self._saves.save(self._session, persist=persist, cursor=cursor)
        self.noted = answer.noted
        if answer.error is not None:
            raise _error_of(answer.error)

    def get(self) -> str:
        return self.noted

    def nack(self, *_: object, **__: object) -> None:
        """In a worker, logs that are not taken are the business of the object's failure policy."""
        raise NotImplementedError(
            "ack, nack and reject are for programs; in a LogHubConsumerGroup raise an error instead, and"
            " pipeline.onFailure says what happens to the log group"
        )

    ack = reject = nack


def _error_of(error: SaveError) -> Exception:
    match error.kind:
        case "lost":
            return ShardLostError(error.message)
        case "refused":
            return LogHubError(error.code, error.status, error.message)
        case "unreachable":
            return EndpointUnreachable(error.endpoint, error.message, definite=error.is_definite)
        case "malformed":
            return MalformedCursor(error.message)
        case _:
            return LogHubException(error.message)


class Session:
    """One shard in this process: a thread that makes the calls, one after the other."""

    def __init__(self, child: Child, begin: Initialize) -> None:
        self.requests: queue.SimpleQueue[tuple[Request, list[bytes]]] = queue.SimpleQueue()
        self._child = child
        self._shard = begin.shard
        self._tracker = ChildTracker(child.saves, begin)
        self._code = UserCode()
        self._processor: Processor | None = None
        self._last_error = ""
        threading.Thread(target=self._run, name=f"shard-{begin.shard}", daemon=True).start()

    def _run(self) -> None:
        while True:
            request, bodies = self.requests.get()
            self._child.channel.send(self._answer(request, bodies))
            if isinstance(request, ShutDown):
                self._code.close()
                return

    def _answer(self, request: Request, bodies: list[bytes]) -> Answer:
        try:
            match request:
                case Initialize():
                    self._initialize()
                case Process():
                    return self._process(request, bodies)
                case ShutDown():
                    assert self._processor is not None
                    self._code.call(self._processor.shutdown, self._tracker)
        except (Exception, SystemExit) as error:  # noqa: BLE001 - user code
            return self._failed(request, error)
        return Answer(request.call)

    def _failed(self, request: Request, error: BaseException) -> Answer:
        message = user_message(error, self._child.folder)
        if message != self._last_error:  # it comes again with each attempt
            traceback.print_exception(error)
            sys.stderr.flush()
        self._last_error = message
        # An error of the operating system or of the log service, such as ConnectionError.
        is_outage = isinstance(error, (*OUTAGES, OSError, ShardLostError))
        return Answer(request.call, error=message, is_outage=is_outage)

    def _initialize(self) -> None:
        if self._processor is None:
            made: Any = self._child.factory()
            if not isinstance(made, Processor):
                raise TypeError(
                    f"the factory returned {type(made).__name__}, not a loghub_worker.api.Processor"
                )
            self._processor = made
        self._code.call(self._processor.initialize, self._shard)

    def _process(self, request: Process, bodies: list[bytes]) -> Answer:
        assert self._processor is not None
        self._tracker.noted = request.noted
        pairs = zip(request.bodies, bodies, strict=True)
        pulled = (
            PulledBody(
                Packed(body, head.size, head.how), shard=self._shard, first=head.first, count=head.count
            )
            for head, body in pairs
        )
        batch = LogBatch(self._shard, tuple(BodySlice(one, 0, one.count) for one in pulled))
        cursor = self._code.call(self._processor.process, batch, self._tracker)
        if cursor is not None:
            decode_cursor(cursor)
        return Answer(request.call, cursor=cursor, logs=decoded_logs(batch))


if __name__ == "__main__":
    main(int(sys.argv[1]))
    sys.stdout.flush()
    sys.stderr.flush()
    os._exit(0)  # whatever threads of the user still run
