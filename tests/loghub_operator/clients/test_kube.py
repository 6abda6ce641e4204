"""The Kubernetes port without an answer, and the credentials that it shares with Kopf."""

import asyncio
import socket
import ssl
from functools import partial
from pathlib import Path

import kopf
import pytest
import yaml
from kubernetes.aio.client import Configuration
from kubernetes.aio.config import incluster_config

from loghub_operator.clients import kube as kube_module
from loghub_operator.clients.kube import CREDENTIALS_S, POD, AioKube, KubeError, configured, connection
from loghub_operator.controller import handlers
from loghub_operator.controller.handlers import KopfLogin
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_operator.support.watched_apiserver import WatchedApiserver
from tests.support import HandClock


def test_a_timeout_of_the_apiserver_is_reported_as_unreachable(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(kube_module, "CALL_TIMEOUT_S", 0.2)

    async def ask(address: str) -> None:
        result = Configuration()
        result.host = f"http://{address}"
        result.client_session_kwargs = {"trust_env": False}
        async with AioKube(result) as kube:
            await kube.get(POD, "here", "access-0")

    with socket.create_server(("127.0.0.1", 0)) as silent:
        message = r"^Unreachable: GET /api/v1/namespaces/here/pods/access-0: TimeoutError$"
        with pytest.raises(KubeError, match=message) as caught:
            asyncio.run(ask(f"127.0.0.1:{silent.getsockname()[1]}"))
    assert caught.value.status == 0


class InCluster:
    """A pod's environment: host, CA and token file."""

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        authority = Authority("test")
        self.token, self._patch, ca = folder / "token", patch, folder / "ca.crt"
        ca.write_bytes(authority.pem)
        patch.setattr(incluster_config, "SERVICE_TOKEN_FILENAME", str(self.token))
        patch.setattr(incluster_config, "SERVICE_CERT_FILENAME", str(ca))
        patch.delenv("KUBECONFIG", raising=False)
        patch.setenv("KUBERNETES_SERVICE_HOST", "localhost")
        patch.setenv("KUBERNETES_SERVICE_PORT", "443")
        pair = folder / "pair.pem"
        result = authority.pair("localhost")
        pair.write_bytes(result.key + result.certificate)
        self.tls: ssl.SSLContext | None = ssl.create_default_context(ssl.Purpose.CLIENT_AUTH)
        self.tls.load_cert_chain(pair)

    def point_to(self, port: int) -> str:
        """Sets the port; returns the server."""
        self._patch.setenv("KUBERNETES_SERVICE_PORT", str(port))
        return f"https://localhost:{port}"


class Kubeconfig:
    """A kubeconfig with a token file, in a pod: KUBECONFIG goes first, for Kopf as for our client."""

    tls: ssl.SSLContext | None = None

    def __init__(self, folder: Path, patch: pytest.MonkeyPatch) -> None:
        self.token, self._path = folder / "token", folder / "config"
        patch.setenv("KUBECONFIG", str(self._path))
        patch.setenv("KUBERNETES_SERVICE_HOST", "localhost")

    def point_to(self, port: int) -> str:
        """Writes the file; returns the server."""
        server = f"http://127.0.0.1:{port}"
        config = {
            "current-context": "c",
            "contexts": [{"name": "c", "context": {"cluster": "c", "user": "u"}}],
            "clusters": [{"name": "c", "cluster": {"server": server}}],
            "users": [{"name": "u", "user": {"tokenFile": str(self.token)}}],
        }
        self._path.write_text(yaml.safe_dump(config))
        return server


@pytest.mark.parametrize("source", [InCluster, Kubeconfig])
def test_our_client_and_kopf_both_use_a_rotated_token(
    source: type[InCluster] | type[Kubeconfig], tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, clock, server = source(tmp_path, monkeypatch), HandClock(0.0), WatchedApiserver("one")
    monkeypatch.setattr(handlers, "PAUSE_S", 0.0)

    async def story() -> tuple[kopf.ConnectionInfo, kopf.ConnectionInfo]:
        async with server.serving(given.tls) as port:
            given.token.write_text("one")
            host = given.point_to(port)
            configuration = await configured(clock=clock)
            assert configuration.host == host
            for_kopf = KopfLogin(partial(connection, configuration), clock)
            async with AioKube(configuration) as kube:
                assert await kube.list(POD, "ns", {}) == []
                before = await for_kopf.login()
                given.token.write_text("two")
                server.tokens = {"two"}
                clock.now += CREDENTIALS_S
                assert await kube.list(POD, "ns", {}) == []
                return before, await for_kopf.login()

    before, after = asyncio.run(story())
    assert (before.token, after.token) == ("one", "two")
    assert (before.server, before.ca_path) == (after.server, after.ca_path)
    assert server.rejected == 0


def test_a_token_that_cannot_be_read_fails_the_call_and_the_login_is_repeated(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    given, clock, server = InCluster(tmp_path, monkeypatch), HandClock(0.0), WatchedApiserver("two")

    async def story() -> None:
        async with server.serving(given.tls) as port:
            given.token.write_text("one")
            given.point_to(port)
            configuration = await configured(clock=clock)
            given.token.write_text("")
            clock.now += CREDENTIALS_S
            async with AioKube(configuration) as kube:
                with pytest.raises(KubeError, match=r"^NoCredentials: GET /api/v1/namespaces/ns/pods: "):
                    await kube.list(POD, "ns", {})
                with pytest.raises(kopf.TemporaryError, match="empty"):
                    await KopfLogin(partial(connection, configuration), clock).login()
                given.token.write_text("two")
                assert await kube.list(POD, "ns", {}) == []

    asyncio.run(story())
    assert server.rejected == 0
