"""Requests the statuses of workers over HTTP (`loghub.worker_contract`, ``/status``).

A worker runs the user's code, so its answer is not trusted: time and size are bounded, no redirect is
followed, no proxy of the environment is used, and whatever is not a `WorkerStatus` counts as no answer.
Connections are not kept, since the next request to a worker comes seconds later at the earliest.
"""

import asyncio
from collections.abc import Mapping

import aiohttp
import msgspec

from loghub.worker_contract import STATUS_PATH, WorkerStatus

TIMEOUT_S = 2.0  # for all workers of a group together
MOST_BYTES = 256 * 1024  # a shard takes about 200
MOST_AT_ONCE = 100
_HEADERS = {"Accept": "application/json", "Accept-Encoding": "identity"}


async def read_statuses(
    addresses: Mapping[str, str], *, timeout_s: float = TIMEOUT_S
) -> dict[str, WorkerStatus | None]:
    """The status of each worker by its ``host:port``; None for each that returns none within ``timeout_s``.
    Raises nothing."""
    if not addresses:
        return {}
    session = aiohttp.ClientSession(
        connector=aiohttp.TCPConnector(limit=MOST_AT_ONCE, force_close=True),
        timeout=aiohttp.ClientTimeout(total=timeout_s),  # includes the wait for one of the connections
        cookie_jar=aiohttp.DummyCookieJar(),
        headers=_HEADERS,
        auto_decompress=False,
        trust_env=False,
    )
    async with session:
        statuses = await asyncio.gather(*(_read(session, one) for one in addresses.values()))
    return dict(zip(addresses, statuses, strict=True))


async def _read(session: aiohttp.ClientSession, address: str) -> WorkerStatus | None:
    try:
        async with session.get(f"http://{address}{STATUS_PATH}", allow_redirects=False) as response:
            body = await _body(response) if response.status == 200 else None
        return None if body is None else msgspec.json.decode(body, type=WorkerStatus)
    except (aiohttp.ClientError, TimeoutError, OSError, msgspec.MsgspecError, RecursionError):
        return None


async def _body(response: aiohttp.ClientResponse) -> bytes | None:
    """The whole body; None if it is larger than `MOST_BYTES`."""
    body = bytearray()
    async for chunk in response.content.iter_any():
        body += chunk
        if len(body) > MOST_BYTES:
            return None
    return bytes(body)
