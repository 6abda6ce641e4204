"""The messages between a worker and the processes of its processors, and the channel between them.

A message is a frame: a header of msgpack, and the bodies of log groups as they were pulled. Each process has
a channel of its own, and a session in it for each shard. Requests about one shard follow one another;
requests about other shards may be in between.
"""

import contextlib
import os
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any, TypeAlias, TypeVar

import msgspec

from loghub.wire.compression import Compression

_LENGTHS = struct.Struct(">II")  # of the header, and the number of bodies
_SIZE = struct.Struct(">Q")  # of a body


class Load(msgspec.Struct, tag=True, frozen=True):
    """The first message: load the user's code. `by_log`: logs are acknowledged one by one. `times_out`: logs
    that are not acknowledged in time are redelivered. `path`: where a program imports from; None: `folder`,
    and the installed packages."""

    factory: str  # module:name
    folder: str | None
    by_log: bool = False
    listener: str | None = None  # module:name
    times_out: bool = False
    path: list[str] | None = None


class Initialize(msgspec.Struct, tag=True, frozen=True):
    """Begin a session: make a processor for a shard, and initialize it. `is_listened`: the listener learns of
    the shard; `is_assigned`: the listener does not know it, since this is the first session of the
    assignment."""

    call: int
    session: int
    shard: int
    is_listened: bool
    is_assigned: bool


class BodyMessage(msgspec.Struct, frozen=True, array_like=True):
    """Log groups as they were pulled, whose bytes follow the message: the cursor of the first, their number,
    their decompressed size, and their compression. `only` as in `loghub_consumer.batch.BodySlice`."""

    first: int
    count: int
    only: tuple[int, ...] | None
    size: int
    how: Compression | None


class ProcessBatch(msgspec.Struct, tag=True, frozen=True):
    """Process a batch, which was handed over `delivery` times."""

    call: int
    session: int
    bodies: list[BodyMessage]
    delivery: int


class ShutDown(msgspec.Struct, tag=True, frozen=True):
    """End a session. `is_moved`: the shard stays assigned, and continues in another process."""

    call: int
    session: int
    is_lost: bool
    is_moved: bool = False


class StandBy(msgspec.Struct, tag=True, frozen=True):
    """Another consumer is active in these shards, and no others. There is no answer."""

    shards: tuple[int, ...]


class TrackerAnswer(msgspec.Struct, tag=True, frozen=True):
    """The result of a call of the tracker: the noted checkpoint, or why the call failed."""

    number: int
    noted: str
    error: "TrackerError | None"


class TrackerError(msgspec.Struct, frozen=True):
    """`kind` is ``lost`` (`ShardLostError`), ``unassigned`` (`NotAssignedError`), ``invalid`` (`ValueError`),
    ``refused`` (`LogHubError`), ``unreachable``, ``malformed`` or ``other``."""

    kind: str
    message: str
    code: str = ""
    status: int = 0
    endpoint: str = ""
    is_definite: bool = False  # whether an unreachable log service surely did nothing


class Loaded(msgspec.Struct, tag=True, frozen=True):
    """The user's code is loaded."""


class LoadFailed(msgspec.Struct, tag=True, frozen=True):
    """The user's code cannot be loaded."""

    message: str


class CallAnswer(msgspec.Struct, tag=True, frozen=True):
    """A method has returned, or raised."""

    call: int
    cursor: str | None = None  # the cursor that `process` returned
    error: str | None = None  # the exception of `process`, for the user
    is_outage: bool = False  # the error is an outage, so the logs are not to blame
    logs: int = 0  # logs of the batch, as far as it was decoded
    is_known: bool = False  # the listener knows the shard


class Save(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.save` was called."""

    number: int
    session: int
    persist: bool
    cursor: str | None


class Get(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.get` was called."""

    number: int
    session: int


Place: TypeAlias = tuple[int, int | None]  # the cursor and the index of a `LogPlace`
Places: TypeAlias = list[Place]


class Refuse(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.nack` was called, `Tracker.reject` if it is final, or `Tracker.nack_up_to` with one place."""

    number: int
    session: int
    places: Places
    delay_s: float | None
    reason: str
    is_final: bool = False
    is_up_to: bool = False


class Acknowledge(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.ack` was called. There is no answer: logs whose message is lost are redelivered."""

    session: int
    places: Places


class AcknowledgeUpTo(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.ack_up_to` was called with this place."""

    number: int
    session: int
    last: Place


class Seek(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.seek` was called."""

    number: int
    session: int
    to: str | int


class Pause(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.pause` was called, or `Tracker.resume`."""

    number: int
    session: int
    is_paused: bool


AnsweredCall = Save | Get | Refuse | AcknowledgeUpTo | Seek | Pause
TrackerCall = AnsweredCall | Acknowledge
ToChild = Load | Initialize | ProcessBatch | ShutDown | StandBy | TrackerAnswer
Message = TypeVar("Message", bound=msgspec.Struct)
FromChild = Loaded | LoadFailed | CallAnswer | TrackerCall


def checked(message: Message) -> Message:
    """The message itself. Raises `TypeError` or `ValueError` if the other end could not read it, because user
    code passed a value of another type."""
    try:
        msgspec.msgpack.decode(msgspec.msgpack.encode(message), type=type(message))
    except msgspec.ValidationError as error:
        raise TypeError(str(error)) from None
    return message


class Channel:
    """One end of a connection. Any thread may send; one thread receives."""

    def __init__(self, connection: socket.socket, kind: Any) -> None:
        """`kind` is the union of the received messages."""
        self._connection = connection
        self._input = connection.makefile("rb", buffering=1 << 16)
        self._decoder = msgspec.msgpack.Decoder(kind)
        self._sending = threading.Lock()

    def send(self, message: ToChild | FromChild, bodies: Sequence[bytes | memoryview] = ()) -> None:
        """Raises `OSError` if the other end is gone, or reads nothing for the connection's timeout."""
        header = msgspec.msgpack.encode(message)
        sizes = b"".join(_SIZE.pack(len(body)) for body in bodies)
        with self._sending:
            self._connection.sendall(_LENGTHS.pack(len(header), len(bodies)) + sizes + header)
            for body in bodies:
                self._connection.sendall(body)

    def receive(self) -> tuple[Any, list[bytes]] | None:
        """The next message with its bodies; None once the other end is gone."""
        try:
            lengths = self._read(_LENGTHS.size)
            header_size, count = _LENGTHS.unpack(lengths)
            sizes = [_SIZE.unpack(self._read(_SIZE.size))[0] for _ in range(count)]
            header = self._read(header_size)
            return self._decoder.decode(header), [self._read(size) for size in sizes]
        except (OSError, EOFError):
            return None

    def _read(self, size: int) -> bytes:
        content: bytes = self._input.read(size)
        if len(content) < size:
            raise EOFError
        return content

    def drop(self) -> None:
        """Close this process's copy, which another process uses, too."""
        with contextlib.suppress(OSError):
            os.close(self._connection.detach())

    def close(self) -> None:
        """End both directions, even if another process has a copy of the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
