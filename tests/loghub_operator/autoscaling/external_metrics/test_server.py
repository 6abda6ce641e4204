"""The HTTPS server, queried as the aggregation layer does, and by clients that must be rejected."""

import asyncio
import ssl
import tempfile
import time
from collections.abc import Awaitable, Callable
from pathlib import Path
from typing import Any, cast

import aiohttp
import pytest

from loghub_operator import http_server
from loghub_operator.autoscaling import external_metrics_server
from loghub_operator.autoscaling.certificates import KeyPair, self_signed, server_context
from loghub_operator.autoscaling.external_metrics import FrontProxy, User
from loghub_operator.autoscaling.external_metrics_server import AccessReviewer, ExternalMetrics
from loghub_operator.clients.kube import Document, Kube, KubeError
from loghub_operator.http_server import serving_application
from loghub_operator.metrics.store import MetricsStore
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_operator.support.group_metrics import HandClock, readings, store

GUARD_S = 120.0
HOST = "loghub-operator-external-metrics.loghub-system.svc"
BASE = "/apis/external.metrics.k8s.io/v1beta1"
LAG = f"{BASE}/namespaces/shop/loghub_lag_seconds"
JANE = {"X-Remote-User": "jane", "X-Remote-Group": "shop-keepers"}
Get = Callable[..., Awaitable[tuple[int, Any]]]


class Reviews:
    """The apiserver's authorizer: jane may list anything in shop."""

    def __init__(self) -> None:
        self.requested: list[Document] = []
        self.away = False

    async def create(self, document: Document) -> Document:
        if self.away:
            raise KubeError(0, "Unreachable", "no answer")
        self.requested.append(document["spec"])
        spec = document["spec"]
        allowed = spec["user"] == "jane" and spec["resourceAttributes"]["namespace"] == "shop"
        return {"status": {"allowed": allowed}}


class Site:
    """One server, and clients of it."""

    def __init__(self, on: MetricsStore) -> None:
        self.ca = Authority("front-proxy-ca")
        self.pair = self_signed(HOST, now_unix_s=time.time())
        self.reviews = Reviews()
        self.clock = HandClock()
        self.address = ""
        self._store = on

    async def play(self, story: Callable[["Site"], Awaitable[None]]) -> None:
        proxy = FrontProxy(
            ca=self.ca.pem.decode(),
            allowed_names=("front-proxy-client",),
            user_headers=("x-remote-user",),
            group_headers=("x-remote-group",),
            extra_prefixes=("x-remote-extra-",),
        )
        reviewer = AccessReviewer(cast(Kube, self.reviews), self.clock)
        application = ExternalMetrics(self._store, reviewer, proxy).application()
        context = server_context(self.pair, clients_ca=proxy.ca)
        async with (
            asyncio.timeout(GUARD_S),
            serving_application("127.0.0.1:0", application, context) as self.address,
        ):
            await story(self)

    def tls(self, client: KeyPair | None) -> ssl.SSLContext:
        context = ssl.create_default_context(cadata=self.pair.certificate.decode())
        if client is not None:
            with tempfile.TemporaryDirectory() as folder:
                both = Path(folder) / "both"
                both.write_bytes(client.certificate + client.key)
                context.load_cert_chain(both)
        return context

    async def get(
        self, path: str, *, client: KeyPair | None = None, headers: dict[str, str] | None = None, **query: str
    ) -> tuple[int, Any]:
        """As the front proxy, unless another client is given."""
        context = self.tls(client or self.ca.pair("front-proxy-client"))
        async with (
            aiohttp.ClientSession() as session,
            session.get(
                f"https://{self.address}{path}",
                params=query,
                headers=JANE if headers is None else headers,
                ssl=context,
                server_hostname=HOST,
            ) as answer,
        ):
            return answer.status, await answer.json()


def play(story: Callable[[Site], Awaitable[None]], on: MetricsStore | None = None) -> None:
    asyncio.run(Site(on or store(readings())).play(story))


def test_an_authorized_user_gets_a_value() -> None:
    async def story(site: Site) -> None:
        status, result = await site.get(LAG, labelSelector="consumerGroup=access")
        assert status == 200
        assert [one["value"] for one in result["items"]] == ["42250m"]
        assert site.reviews.requested == [
            {
                "user": "jane",
                "groups": ["shop-keepers"],
                "extra": {},
                "resourceAttributes": {
                    "namespace": "shop",
                    "verb": "list",
                    "group": "external.metrics.k8s.io",
                    "version": "v1beta1",
                    "resource": "loghub_lag_seconds",
                },
            }
        ]

    play(story)


def test_a_rejection_is_a_kubernetes_status() -> None:
    async def story(site: Site) -> None:
        status, reported = await site.get(LAG, headers={"X-Remote-User": "joe"})
        assert (status, reported["reason"]) == (403, "Forbidden")
        assert reported["message"] == (
            'User "joe" cannot list resource "loghub_lag_seconds" in API group "external.metrics.k8s.io" '
            'in the namespace "shop"'
        )
        status, reported = await site.get(LAG.replace("/shop/", "/other/"))
        assert (status, reported["code"]) == (403, 403)
        status, reported = await site.get(LAG, headers={})
        assert (status, reported["message"]) == (403, "the request has no user header")

    play(story)


@pytest.mark.parametrize(
    ("path", "query", "code", "message"),
    [
        (LAG, {"labelSelector": "consumerGroup=b"}, 404, "no LogHubConsumerGroup in namespace shop"),
        (LAG, {"labelSelector": "a=b;"}, 400, "not a label selector"),
        (f"{BASE}/namespaces/shop/cpu", {}, 404, "unknown metric 'cpu'"),
        (f"{BASE}/namespaces/shop/loghub_desired_workers", {}, 503, "is currently unknown"),
        (f"{BASE}/namespaces/shop", {}, 404, "path not found"),
        ("/", {}, 404, "path not found"),
    ],
)
def test_an_unanswerable_request_gets_a_status(
    path: str, query: dict[str, str], code: int, message: str
) -> None:
    async def story(site: Site) -> None:
        status, reported = await site.get(path, **query)
        assert (status, reported["kind"], reported["status"], reported["code"]) == (
            code,
            "Status",
            "Failure",
            code,
        )
        assert message in reported["message"]

    play(story, store(readings(wanted=None)))


def test_discovery() -> None:
    async def story(site: Site) -> None:
        kinds = [
            (await site.get(path))[1]["kind"] for path in ("/apis", "/apis/external.metrics.k8s.io", BASE)
        ]
        assert kinds == ["APIGroupList", "APIGroup", "APIResourceList"]

    play(story)


def test_only_the_front_proxy_can_read() -> None:
    async def story(site: Site) -> None:
        status, reported = await site.get(BASE, client=site.ca.pair("another-client"))
        assert (status, reported["message"]) == (
            403,
            "only requests from the API server's front proxy are accepted",
        )
        for stranger in (Authority("front-proxy-ca").pair("front-proxy-client"), None):
            async with aiohttp.ClientSession() as session:
                with pytest.raises((aiohttp.ClientError, ConnectionError)):
                    async with session.get(
                        f"https://{site.address}{BASE}", ssl=site.tls(stranger), server_hostname=HOST
                    ) as answer:
                        await answer.read()
        assert site.reviews.requested == []

    play(story)


def test_an_authorization_is_cached_for_seconds_only() -> None:
    async def story(site: Site) -> None:
        for _ in range(3):
            assert (await site.get(LAG))[0] == 200
        assert len(site.reviews.requested) == 1
        site.clock.now += 10.0
        site.reviews.away = True
        status, reported = await site.get(LAG)
        assert (status, reported["reason"]) == (503, "ServiceUnavailable")
        site.reviews.away = False
        assert (await site.get(LAG))[0] == 200
        assert len(site.reviews.requested) == 2

    play(story)


def test_the_authorization_cache_is_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        reviews = Reviews()
        reviewer = AccessReviewer(cast(Kube, reviews), HandClock())
        for name in ("a", "b", "c", "b", "a"):
            await reviewer.allows(User(name), namespace="shop", metric="m")
        assert [one["user"] for one in reviews.requested] == ["a", "b", "c", "a"]
        assert len(reviewer._cache) == 2

    monkeypatch.setattr(external_metrics_server, "MAX_CACHED_REVIEWS", 2)
    asyncio.run(story())


def test_connections_are_bounded(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story(site: Site) -> None:
        host, port = site.address.split(":")
        context = site.tls(site.ca.pair("front-proxy-client"))
        held = [
            await asyncio.open_connection(host, int(port), ssl=context, server_hostname=HOST)
            for _ in range(2)
        ]
        for _, writer in held:
            writer.write(b"GET /apis HTTP/1.1\r\nHost: x\r\n\r\n")
        for reader, _ in held:
            assert (await reader.readline()).startswith(b"HTTP/1.1 200")
        reader, writer = await asyncio.open_connection(host, int(port), ssl=context, server_hostname=HOST)
        assert await reader.read() == b""
        for _, each in [*held, (reader, writer)]:
            each.close()

    monkeypatch.setattr(http_server, "MAX_CONNECTIONS", 2)
    play(story)


def test_no_key_is_written_to_files_or_logged() -> None:
    pair = self_signed(HOST, now_unix_s=1_800_000_000.0)
    assert b"PRIVATE" in pair.key
    assert "PRIVATE" not in repr(pair)
    before = set(Path(tempfile.gettempdir()).iterdir())
    server_context(pair, clients_ca=Authority("x").pem.decode())
    assert {
        one for one in set(Path(tempfile.gettempdir()).iterdir()) - before if (one / "tls.key").exists()
    } == set()
