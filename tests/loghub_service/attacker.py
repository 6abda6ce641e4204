"""A hostile client: a program that keeps many connections to a service busy in every way that costs it
something.

Run it with the service's host and port and a number of connections; the environment has an access key that
may write to the project ``tenant``. It runs until it is killed, and prints a line once all connections were
opened. What it does is chosen by a seeded generator.
"""

import asyncio
import contextlib
import os
import random
import sys
from collections.abc import Awaitable, Callable

from loghub.client.port import Credentials
from loghub.wire import compression, loggroup
from loghub.wire.compression import Compression
from tests.loghub_service.rawclient import signed_headers

PATH = "/logstores/access/shards/lb"
MIB = 1 << 20
PAUSE_S = 1.0
Connection = tuple[asyncio.StreamReader, asyncio.StreamWriter]


def bomb() -> tuple[bytes, dict[str, str]]:
    """A log group of 10 MiB that is 41 KB on the wire, and its headers."""
    logs = (loggroup.Log(time=1, contents=(("line", bytes(10 * MIB - 60)),)),)
    raw = loggroup.encode(loggroup.LogGroup(logs=logs))
    return compression.compress(raw, Compression.LZ4), {
        "x-log-bodyrawsize": str(len(raw)),
        "x-log-compresstype": "lz4",
    }


BOMB, BOMB_HEADERS = bomb()


class Attacker:
    """What one connection after the other does."""

    def __init__(self, host: str, port: int, key: Credentials, seed: int) -> None:
        self._address = (host, port)
        self._key = key
        self._dice = random.Random(seed)
        self.opened = 0

    async def run(self) -> None:
        """One connection at a time, until cancelled."""
        while True:
            act = self._dice.choice(ACTS)
            with contextlib.suppress(OSError, asyncio.IncompleteReadError):
                connection = await asyncio.open_connection(*self._address)
                self.opened += 1
                try:
                    await act(self, connection)
                finally:
                    connection[1].transport.abort()
            await asyncio.sleep(self._dice.random() * PAUSE_S)

    def head(self, *, signed: bool, body: bytes, headers: dict[str, str]) -> bytes:
        key = self._key if signed else Credentials(access_key_id="testKeyId", access_key_secret="guessed")
        sent = signed_headers(
            "POST",
            PATH,
            {},
            body=body,
            headers={"Host": "tenant.127.0.0.1", "Content-Type": "application/x-protobuf"} | headers,
            key=key,
        )
        lines = (f"{name}: {value}" for name, value in sent.items())
        return f"POST {PATH} HTTP/1.1\r\n".encode() + "\r\n".join([*lines, "", ""]).encode()

    async def silence(self, connection: Connection) -> None:
        await connection[0].read()

    async def half_a_head(self, connection: Connection) -> None:
        reader, writer = connection
        writer.write(b"POST / HTTP/1.1\r\nx: ")
        await self._drip(reader, writer, b"y")

    async def line_breaks(self, connection: Connection) -> None:
        await self._drip(*connection, b"\r\n")

    async def endless_head(self, connection: Connection) -> None:
        reader, writer = connection
        writer.write(b"GET / HTTP/1.1\r\n")
        while not reader.at_eof():
            writer.write(b"x: y\r\n" * 10_000)
            await writer.drain()

    async def many_requests_at_once(self, connection: Connection) -> None:
        reader, writer = connection
        while not reader.at_eof():
            writer.write(b"GET /healthz HTTP/1.1\r\nhost: x\r\n\r\n" * 1000)
            await writer.drain()

    async def declared_and_not_sent(self, connection: Connection) -> None:
        reader, writer = connection
        signed = self._dice.random() < 0.5
        headers = {"Content-Length": str(10 * MIB), "Content-MD5": "0" * 32}
        writer.write(self.head(signed=signed, body=b"", headers=headers))
        await reader.read()

    async def drip_of_a_body(self, connection: Connection) -> None:
        reader, writer = connection
        signed = self._dice.random() < 0.5
        headers = {"Content-Length": str(10 * MIB), "Content-MD5": "0" * 32}
        begun = bytes(self._dice.choice((1, MIB)))
        writer.write(self.head(signed=signed, body=b"", headers=headers) + begun)
        await self._drip(reader, writer, b"z")

    async def bombs(self, connection: Connection) -> None:
        """With a valid key."""
        reader, writer = connection
        for _ in range(5):
            writer.write(self.head(signed=True, body=BOMB, headers=BOMB_HEADERS) + BOMB)
            await reader.readuntil(b"\r\n\r\n")
            await asyncio.sleep(self._dice.random() * PAUSE_S)

    async def bad_signatures(self, connection: Connection) -> None:
        reader, writer = connection
        for _ in range(20):
            body = bytes(self._dice.choice((10, 1000, 100_000)))
            writer.write(self.head(signed=False, body=body, headers={}) + body)
            await reader.readuntil(b"\r\n\r\n")

    async def noise(self, connection: Connection) -> None:
        reader, writer = connection
        writer.write(self._dice.randbytes(5000))
        await reader.read()

    async def _drip(self, reader: asyncio.StreamReader, writer: asyncio.StreamWriter, piece: bytes) -> None:
        while not reader.at_eof():
            writer.write(piece)
            await writer.drain()
            await asyncio.sleep(self._dice.random() * PAUSE_S)


ACTS: tuple[Callable[[Attacker, Connection], Awaitable[None]], ...] = (
    Attacker.silence,
    Attacker.half_a_head,
    Attacker.line_breaks,
    Attacker.endless_head,
    Attacker.many_requests_at_once,
    Attacker.declared_and_not_sent,
    Attacker.drip_of_a_body,
    Attacker.bombs,
    Attacker.bad_signatures,
    Attacker.noise,
)


async def main(host: str, port: int, connections: int) -> None:
    key = Credentials(
        access_key_id=os.environ["ATTACKER_KEY_ID"], access_key_secret=os.environ["ATTACKER_KEY_SECRET"]
    )
    attackers = [Attacker(host, port, key, seed) for seed in range(connections)]
    async with asyncio.TaskGroup() as tasks:
        for attacker in attackers:
            tasks.create_task(attacker.run())
        while not all(attacker.opened for attacker in attackers):
            await asyncio.sleep(0.05)
        print("attacking", flush=True)


if __name__ == "__main__":
    asyncio.run(main(sys.argv[1], int(sys.argv[2]), int(sys.argv[3])))
