"""Kopf's credentials, and how often they are read. `tests.loghub_operator.clients.test_kube` rotates the
token.
"""

import asyncio
from dataclasses import replace

import kopf
import pytest

from loghub_operator.clients.kube import KubeConnection
from loghub_operator.controller import handlers
from loghub_operator.controller.handlers import KopfLogin
from tests.loghub_operator.support import virtual_time

EGRESS = "http://10.0.0.2:3128"
GIVEN = KubeConnection(
    server="https://10.0.0.1:6443",
    verify_tls=False,
    ca_file="/ca",
    cert_file="/cert",
    key_file="/key",
    proxy=EGRESS,
    authorization="Basic dTpw",
)


def test_kopf_receives_everything_in_a_kubeconfig() -> None:
    info = handlers.connection_info(GIVEN, now_unix_s=1000.0)
    assert (info.server, info.insecure, info.ca_path) == ("https://10.0.0.1:6443", True, "/ca")
    assert (info.certificate_path, info.private_key_path) == ("/cert", "/key")
    assert (info.proxy_url, info.trust_env) == (EGRESS, False)
    assert info.as_http_headers() == {"Authorization": "Basic dTpw"}
    assert info.expiration is not None
    assert info.expiration.timestamp() == 1000.0 + handlers.LOGIN_S
    plain = handlers.connection_info(replace(GIVEN, authorization=None), now_unix_s=0.0)
    assert plain.as_http_headers() == {}


def test_credentials_rejected_repeatedly_are_retried_at_a_bounded_rate() -> None:
    async def connection() -> KubeConnection:
        return GIVEN

    async def story() -> list[float]:
        clock, times = virtual_time.LoopClock(), []
        handler = KopfLogin(connection, clock)
        for _ in range(3):
            await handler.login()
            times.append(clock.monotonic_s())
        await asyncio.sleep(handlers.LOGIN_S)
        await handler.login()
        return [*times, clock.monotonic_s()]

    pause_s = handlers.PAUSE_S
    assert virtual_time.run(story()) == [0.0, pause_s, 2 * pause_s, 2 * pause_s + handlers.LOGIN_S]


@pytest.mark.parametrize("error", [OSError("no such file"), ValueError("the token file is empty")])
def test_unreadable_credentials_are_retried(error: Exception) -> None:
    async def connection() -> KubeConnection:
        raise error

    with pytest.raises(kopf.TemporaryError, match=str(error)) as caught:
        virtual_time.run(KopfLogin(connection, virtual_time.LoopClock()).login())
    assert caught.value.delay == handlers.PAUSE_S
