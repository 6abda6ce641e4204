"""A proxy before a place that knows the receipts which the place has sent.

It cuts the connection of a producer at chosen receipts: the messages are stored, and their producer does not
get to know it. And it notes the receipts of acknowledgements, since a library may answer without one.

Answers to look-ups have the proxy's address, so that clients come back through it, also after a restart.
"""

import socket
import threading
from collections.abc import Callable, Collection, Iterator
from contextlib import contextmanager, suppress
from functools import partial
from typing import BinaryIO, TypeAlias

from msgspec.structs import replace

from loghub_service.pulsar.wire.commands import COMMANDS
from loghub_service.pulsar.wire.consumers import CommandAck, CommandAckResponse
from loghub_service.pulsar.wire.frames import decode_frame, encode_frame
from loghub_service.pulsar.wire.producers import CommandSendReceipt
from loghub_service.pulsar.wire.topics import CommandLookupTopicResponse

# By the number of the request of an acknowledgement: the messages that it names.
_Asked: TypeAlias = dict[int, frozenset[tuple[int, int]]]
_TYPE = 5  # where the number of a command is, since all brokers write the type first


class CuttingProxy:
    """Serves clients at ``url``. ``receipts`` are the numbers, from 1 on, of the ones that it keeps;
    ``acknowledged`` are the ledgers and entries of messages whose acknowledgement has got its receipt."""

    def __init__(self, target: str, listening: socket.socket, receipts: Collection[int]) -> None:
        host, _, port = target.removeprefix("pulsar://").rpartition(":")
        self.url = f"pulsar://127.0.0.1:{listening.getsockname()[1]}"
        self.cuts = 0
        self.acknowledged = frozenset[tuple[int, int]]()
        self._target = host, int(port)
        self._listening = listening
        self._receipts = receipts
        self._seen = 0
        self._lock = threading.Lock()

    def serve(self) -> None:
        """Return once the socket is closed."""
        with suppress(OSError):
            while True:
                client, _ = self._listening.accept()
                try:
                    server = socket.create_connection(self._target)
                except ConnectionRefusedError:  # the place starts again, and so does the client
                    client.close()
                    continue
                asked: _Asked = {}
                self._start(partial(self._requests, asked), client, server)
                self._start(partial(self._answers, asked), client, server)

    def _start(
        self,
        pump: Callable[[socket.socket, socket.socket], None],
        client: socket.socket,
        server: socket.socket,
    ) -> None:
        def run() -> None:
            with suppress(OSError):  # one of the two has ended the connection
                pump(client, server)
            for each in (client, server):
                with suppress(OSError):
                    each.shutdown(socket.SHUT_RDWR)

        threading.Thread(target=run, daemon=True).start()

    def _requests(self, asked: _Asked, client: socket.socket, server: socket.socket) -> None:
        with client.makefile("rb") as incoming:
            while frame := _frame_of(incoming):
                if frame[4 + _TYPE] == COMMANDS[CommandAck]:
                    ack = decode_frame(frame[4:]).command
                    assert isinstance(ack, CommandAck)
                    if ack.request_id is not None:
                        named = ((message.ledger_id, message.entry_id) for message in ack.message_id)
                        asked[ack.request_id] = frozenset(named)
                server.sendall(frame)

    def _answers(self, asked: _Asked, client: socket.socket, server: socket.socket) -> None:
        with server.makefile("rb") as incoming:
            while frame := _frame_of(incoming):
                number = frame[4 + _TYPE]
                if number == COMMANDS[CommandSendReceipt] and self._is_kept():
                    return
                if number == COMMANDS[CommandAckResponse]:
                    self._note(asked, frame)
                if number == COMMANDS[CommandLookupTopicResponse]:
                    frame = self._with_our_address(frame)
                client.sendall(frame)

    def _is_kept(self) -> bool:
        with self._lock:
            self._seen += 1
            is_kept = self._seen in self._receipts
            self.cuts += is_kept
        return is_kept

    def _note(self, asked: _Asked, frame: bytes) -> None:
        receipt = decode_frame(frame[4:]).command
        assert isinstance(receipt, CommandAckResponse)
        if receipt.error is None:
            with self._lock:
                self.acknowledged |= asked[receipt.request_id]

    def _with_our_address(self, frame: bytes) -> bytes:
        answer = decode_frame(frame[4:]).command
        assert isinstance(answer, CommandLookupTopicResponse)
        return encode_frame(replace(answer, broker_service_url=self.url))


def _frame_of(incoming: BinaryIO) -> bytes:
    """The next frame with its length; empty at the end."""
    length = incoming.read(4)
    body = incoming.read(int.from_bytes(length, "big"))
    return length + body if body else b""


@contextmanager
def cutting_proxy(target: str, *, receipts: Collection[int] = ()) -> Iterator[CuttingProxy]:
    """A proxy before the address of a place, until the body ends."""
    with socket.create_server(("127.0.0.1", 0)) as listening:
        proxy = CuttingProxy(target, listening, receipts)
        serving = threading.Thread(target=proxy.serve, daemon=True)
        serving.start()
        try:
            yield proxy
        finally:
            listening.shutdown(socket.SHUT_RDWR)  # ends the waiting
            serving.join()
