"""Kopf's login, from the configuration of our own client.

Both then talk to the same cluster as the same user, and both see a rotated token: our client takes the
configuration's current credentials for each call, and Kopf logs in again when a login is `LOGIN_S` old or was
rejected.
"""

import asyncio
from collections.abc import Awaitable, Callable
from datetime import UTC, datetime, timedelta
from typing import Any

import kopf
import structlog

from loghub.clock import Clock
from loghub_operator.clients.kube import Connection

log = structlog.get_logger()

# A token of a pod is valid for an hour at least, and replaced after four fifths of that.
LOGIN_S = 300.0
PAUSE_S = 5.0  # least time between two logins: credentials that are rejected again cause no storm


class Login:
    """A login handler of Kopf's; asks ``connection`` for the present credentials at each login."""

    def __init__(self, connection: Callable[[], Awaitable[Connection]], clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._next_s = float("-inf")

    async def login(self, **_: Any) -> kopf.ConnectionInfo:
        """Returns the credentials. Raises `kopf.TemporaryError` if they cannot be read now."""
        await asyncio.sleep(max(0.0, self._next_s - self._clock.monotonic_s()))
        self._next_s = self._clock.monotonic_s() + PAUSE_S
        try:
            return connection_info(await self._connection(), now_unix_s=self._clock.unix_s())
        except (OSError, ValueError) as error:
            log.error("credentials not read", error=str(error))
            raise kopf.TemporaryError(str(error), delay=PAUSE_S) from error


def connection_info(connection: Connection, *, now_unix_s: float) -> kopf.ConnectionInfo:
    """The same in Kopf's terms, to be replaced after `LOGIN_S`."""
    scheme, _, token = (connection.authorization or "").strip().partition(" ")
    return kopf.ConnectionInfo(
        server=connection.server,
        insecure=not connection.verify_tls,
        ca_path=connection.ca_file,
        certificate_path=connection.cert_file,
        private_key_path=connection.key_file,
        proxy_url=connection.proxy,
        scheme=scheme or None,
        token=token or None,
        expiration=datetime.fromtimestamp(now_unix_s, UTC) + timedelta(seconds=LOGIN_S),
    )
