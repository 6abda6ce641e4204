"""Requests the statuses of workers over HTTP (`loghub.worker_contract`, ``/status``).

A worker runs the user's code, so its answer is not trusted: time and size are bounded, no redirect is
followed, no proxy of the environment is used, and whatever is not a `WorkerStatus` counts as no answer.

An HTTP library would interpret the answer while it arrives, and parse megabytes of headers, interim responses
or tiny chunks in the event loop before a limit of the body applies; a hundred such workers would stop the
loop for seconds. So the bytes are read up to a limit, to the end of the connection, and only then looked at.
"""

import asyncio
from collections.abc import Mapping

import msgspec

from loghub.worker_contract import STATUS_PATH, WorkerStatus

TIMEOUT_S = 2.0  # for all workers of a group together
# A connection within a cluster takes milliseconds. Where a network policy drops the requests of many groups,
# their reconciles wait for this, and the resyncs still keep up.
CONNECT_S = 0.5
MOST_BYTES = 256 * 1024  # of an answer with its headers; a shard takes about 200
MOST_AT_ONCE = 100
_OK = (b"HTTP/1.0 200 ", b"HTTP/1.1 200 ")


async def read_statuses(
    addresses: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
) -> dict[str, WorkerStatus | None]:
    """The status of each worker by its ``host:port``, the host being an IP address, in brackets if it is of
    version 6; None for each that returns none within ``timeout_s``. Raises nothing."""
    places = asyncio.Semaphore(MOST_AT_ONCE)
    deadline_s = asyncio.get_running_loop().time() + timeout_s
    statuses = await asyncio.gather(*(_read(one, places, deadline_s) for one in addresses.values()))
    return dict(zip(addresses, statuses, strict=True))


async def _read(address: str, places: asyncio.Semaphore, deadline_s: float) -> WorkerStatus | None:
    try:
        async with asyncio.timeout_at(deadline_s), places:
            answer = await _answer(address)
        head, _, body = answer.partition(b"\r\n\r\n")
        # ValueError: a text in the JSON is not UTF-8.
        return msgspec.json.decode(body, type=WorkerStatus) if head.startswith(_OK) else None
    except (TimeoutError, OSError, msgspec.MsgspecError, RecursionError, ValueError):
        return None


async def _answer(address: str) -> bytes:
    """The answer as it was sent; empty if it is larger than `MOST_BYTES`."""
    host, _, port = address.rpartition(":")
    async with asyncio.timeout(CONNECT_S):
        reader, writer = await asyncio.open_connection(host.strip("[]"), int(port))
    try:
        writer.write(_request(address))
        await reader.readexactly(MOST_BYTES + 1)
    except asyncio.IncompleteReadError as all_of_it:
        return all_of_it.partial
    finally:
        writer.transport.abort()
    return b""


def _request(address: str) -> bytes:
    lines = (
        f"GET {STATUS_PATH} HTTP/1.1",
        f"Host: {address}",
        "Accept: application/json",
        "Connection: close",
    )
    return "".join(f"{line}\r\n" for line in (*lines, "")).encode()
