"""What a worker and the processes of its processors say to each other, and the channel between them.

A message is a frame: a header of msgpack, and the bodies of log groups as they were pulled. Each process has
a channel of its own, and a session in it for each shard. Requests about one shard follow one another; those
of other shards may be in between.
"""

import contextlib
import socket
import struct
import threading
from collections.abc import Sequence
from typing import Any

import msgspec

from loghub.wire.compression import Compression

_LENGTHS = struct.Struct(">II")  # of the header, and the number of bodies
_SIZE = struct.Struct(">Q")  # of a body


class Load(msgspec.Struct, tag=True, frozen=True):
    """The first message: load the user's code."""

    factory: str  # module:name
    folder: str | None


class Initialize(msgspec.Struct, tag=True, frozen=True):
    """Begin a session: make a processor for a shard, and initialize it."""

    call: int
    session: int
    shard: int


class BodyHead(msgspec.Struct, frozen=True, array_like=True):
    """What is known of a body that follows: the cursor of its first log group, their number, its size once it
    is decompressed, and how it is compressed."""

    first: int
    count: int
    size: int
    how: Compression | None


class Process(msgspec.Struct, tag=True, frozen=True):
    """Process a batch. The bodies follow, as they were pulled."""

    call: int
    session: int
    bodies: list[BodyHead]
    noted: str  # the checkpoint


class ShutDown(msgspec.Struct, tag=True, frozen=True):
    """End a session."""

    call: int
    session: int


class SaveAnswer(msgspec.Struct, tag=True, frozen=True):
    """The answer to `SaveRequest`: the checkpoint as it is noted now, or why it could not be saved."""

    number: int
    noted: str
    error: "SaveError | None"


class SaveError(msgspec.Struct, frozen=True):
    """`kind` is ``lost`` (`ShardLostError`), ``refused`` (`LogHubError`), ``unreachable``, ``malformed`` or
    ``other``."""

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


class Answer(msgspec.Struct, tag=True, frozen=True):
    """A method has returned, or raised."""

    call: int
    cursor: str | None = None  # that `process` returned
    error: str | None = None  # what it raised, for the user
    is_outage: bool = False  # of something that the processor needs, so the logs are not to blame
    logs: int = 0  # of the batch, as far as it was decoded


class SaveRequest(msgspec.Struct, tag=True, frozen=True):
    """`Tracker.save` was called."""

    number: int
    session: int
    persist: bool
    cursor: str | None


ToChild = Load | Initialize | Process | ShutDown | SaveAnswer
FromChild = Loaded | LoadFailed | Answer | SaveRequest


class Channel:
    """One end of a connection. Any thread may send; one thread receives."""

    def __init__(self, connection: socket.socket, kind: Any) -> None:
        """`kind` is the union of the messages that are received."""
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

    def close(self) -> None:
        """End both directions, also if another process has a copy of the connection."""
        with contextlib.suppress(OSError):
            self._connection.shutdown(socket.SHUT_RDWR)
        self._connection.close()
