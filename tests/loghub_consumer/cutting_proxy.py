"""A proxy in front of a service that takes some answers away: the request has gone through, and the
connection ends instead of the answer."""

import socket
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager, suppress

PIECE_BYTES = 1 << 16


class CuttingProxy:
    """``endpoint`` is where clients connect. ``cuts`` counts the answers that were taken away."""

    def __init__(self, host: str, port: int, is_cut: Callable[[], bool]) -> None:
        """`is_cut` is asked at the begin of each answer, by one thread at a time."""
        self._target = (host, port)
        self._is_cut = is_cut
        self._lock = threading.Lock()
        self._listener = socket.create_server(("127.0.0.1", 0))
        self._open: set[socket.socket] = set()
        self.endpoint = f"http://127.0.0.1:{self._listener.getsockname()[1]}"
        self.cuts = 0
        threading.Thread(target=self._accept, daemon=True).start()

    def close(self) -> None:
        """End all connections."""
        with suppress(OSError):
            self._listener.shutdown(socket.SHUT_RDWR)
        self._listener.close()
        with self._lock:
            for one in self._open:
                _end(one)

    def _accept(self) -> None:
        with suppress(OSError):  # closed
            while True:
                client, _ = self._listener.accept()
                server = socket.create_connection(self._target)
                with self._lock:
                    self._open |= {client, server}
                for pair, is_answer in (((client, server), False), ((server, client), True)):
                    threading.Thread(target=self._relay, args=(*pair, is_answer), daemon=True).start()

    def _relay(self, source: socket.socket, target: socket.socket, is_answer: bool) -> None:
        with suppress(OSError):  # the other direction has ended both
            while piece := source.recv(PIECE_BYTES):
                if is_answer and piece.startswith(b"HTTP/") and self._takes():
                    break
                target.sendall(piece)
        _end(source)
        _end(target)

    def _takes(self) -> bool:
        with self._lock:
            is_cut = self._is_cut()
            self.cuts += is_cut
            return is_cut


def _end(one: socket.socket) -> None:
    with suppress(OSError):
        one.shutdown(socket.SHUT_RDWR)
    one.close()


@contextmanager
def cutting(host: str, port: int, is_cut: Callable[[], bool]) -> Iterator[CuttingProxy]:
    proxy = CuttingProxy(host, port, is_cut)
    try:
        yield proxy
    finally:
        proxy.close()
