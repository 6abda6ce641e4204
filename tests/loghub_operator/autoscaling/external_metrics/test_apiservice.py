"""The certificate, the owner of the APIService, restarts of the server, and the label of the leader."""

import asyncio
import base64
import builtins
from collections.abc import Callable, Mapping
from pathlib import Path
from types import SimpleNamespace
from typing import Any, cast

import pytest

from loghub_operator.autoscaling import external_metrics_server
from loghub_operator.autoscaling.certificates import KeyFolder, KeyPair, self_signed
from loghub_operator.autoscaling.external_metrics import FrontProxy
from loghub_operator.autoscaling.external_metrics_server import (
    NAME,
    ExternalMetricsServer,
    NotOursError,
    ServingEndpoint,
)
from loghub_operator.clients.kube import Document, Kind, Kube, KubeError
from loghub_operator.leader import leader_label
from loghub_operator.leader.leader_label import LeaderLabel
from loghub_operator.settings import LeaseRef
from tests.loghub_operator.autoscaling.external_metrics.test_request_header_auth import DATA
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_operator.support.group_metrics import HandClock, store

GUARD_S = 120.0
OURS = {"namespace": "loghub-system", "name": "numbers"}


class Cluster:
    """A Kubernetes API of a few objects by kind and name."""

    def __init__(self, objects: dict[tuple[str, str], Document]) -> None:
        self.objects = objects
        self.written: list[tuple[str, Document]] = []
        self.away = 0
        self.observations = 0
        self.heard = asyncio.Event()

    async def get(self, kind: Kind, _namespace: str, name: str) -> Document | None:
        if self.away:
            self.away -= 1
            raise KubeError(0, "Unreachable", "no answer")
        return self.objects.get((kind.kind, name))

    async def list(self, kind: Kind, _namespace: str, labels: Mapping[str, str]) -> builtins.list[Document]:
        await self.get(kind, "", "")
        self.observations += 1
        return [
            one
            for (what, _), one in self.objects.items()
            if what == kind.kind and labels.items() <= one["metadata"].get("labels", {}).items()
        ]

    async def patch(self, kind: Kind, _namespace: str, name: str, patch: Document) -> Document | None:
        self.written.append((name, patch))
        if kind.kind == "Pod":
            self.label(name, patch["metadata"]["labels"])
        self.heard.set()
        return patch

    def label(self, pod: str, changed: Mapping[str, str | None]) -> None:
        metadata = self.objects["Pod", pod]["metadata"]
        both = {**metadata["labels"], **changed}
        metadata["labels"] = {key: value for key, value in both.items() if value is not None}


def api_service(**service: str) -> dict[tuple[str, str], Document]:
    return {
        ("APIService", NAME): {"spec": {"service": {"port": 443, **(OURS | service)}}},
        ("ConfigMap", "extension-apiserver-authentication"): {
            "data": DATA | {"requestheader-client-ca-file": Authority("proxy").pem.decode()}
        },
    }


def part(
    cluster: Cluster, *, clock: HandClock | None = None, keys: KeyFolder | None = None
) -> ExternalMetricsServer:
    endpoint = ServingEndpoint(address="127.0.0.1:0", namespace="loghub-system", service="numbers", keys=keys)
    assert endpoint.host == "numbers.loghub-system.svc"
    return ExternalMetricsServer(
        endpoint, store=store(), kube=cast(Kube, cluster), clock=clock or HandClock()
    )


def test_a_different_certificate_is_written_to_the_api_service() -> None:
    async def story() -> None:
        cluster = Cluster(api_service())
        pair = self_signed("numbers.loghub-system.svc", now_unix_s=1_800_000_000.0)
        await part(cluster)._publish_certificate(pair)
        bundle = base64.b64encode(pair.certificate).decode()
        assert cluster.written == [(NAME, {"spec": {"caBundle": bundle}})]
        cluster.objects["APIService", NAME]["spec"]["caBundle"] = bundle
        await part(cluster)._publish_certificate(pair)
        assert len(cluster.written) == 1

    asyncio.run(story())


@pytest.mark.parametrize("service", [{"namespace": "keda"}, {"name": "keda-operator-metrics-apiserver"}])
def test_an_api_service_of_another_owner_is_not_changed(service: dict[str, str]) -> None:
    async def story() -> None:
        cluster = Cluster(api_service(**service))
        with pytest.raises(NotOursError, match="leads to"):
            await part(cluster)._publish_certificate(KeyPair(b"c", b"k"))
        assert cluster.written == []

    asyncio.run(story())


def test_a_missing_api_service_is_reported() -> None:
    with pytest.raises(NotOursError, match=f"no APIService {NAME}"):
        asyncio.run(part(Cluster({}))._publish_certificate(KeyPair(b"c", b"k")))


def test_a_configured_certificate_is_not_written_to_the_api_service(tmp_path: Path) -> None:
    cluster = Cluster(api_service())
    asyncio.run(part(cluster, keys=KeyFolder(tmp_path))._publish_certificate(KeyPair(b"c", b"k")))
    assert cluster.written == []


class RealUnix(HandClock):
    def unix_s(self) -> float:
        return 1_790_000_000.0


@pytest.mark.parametrize(
    "odd",
    [
        {"requestheader-allowed-names": "null"},
        {"requestheader-username-headers": "5"},
        {"requestheader-client-ca-file": "no certificate"},
        {"requestheader-client-ca-file": "\N{SNOWMAN}"},
    ],
)
def test_an_invalid_front_proxy_configuration_is_not_served_until_corrected(
    odd: dict[str, str], monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story() -> None:
        cluster = Cluster(api_service())
        place = ("ConfigMap", "extension-apiserver-authentication")
        good = cluster.objects[place]
        cluster.objects[place] = {"data": good["data"] | odd}
        observations = 0

        async def sleep(_: float) -> None:
            nonlocal observations
            if cluster.written:  # it is served
                await asyncio.Event().wait()
            observations += 1
            if observations == 3:
                cluster.objects[place] = good
            await asyncio.tasks.sleep(0)

        monkeypatch.setattr(external_metrics_server, "asyncio", SimpleNamespace(sleep=sleep))
        running = asyncio.create_task(part(cluster, clock=RealUnix()).run())
        heard = asyncio.create_task(cluster.heard.wait())
        done, _ = await asyncio.wait((running, heard), return_when=asyncio.FIRST_COMPLETED)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert done == {heard}
        assert observations == 3

    asyncio.run(asyncio.wait_for(story(), GUARD_S))


def test_a_failed_start_is_retried(monkeypatch: pytest.MonkeyPatch) -> None:
    async def story() -> None:
        cluster = Cluster(api_service())
        cluster.away = 2
        running = asyncio.create_task(part(cluster, clock=RealUnix()).run())
        await asyncio.wait_for(cluster.heard.wait(), GUARD_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        assert [name for name, _ in cluster.written] == [NAME]

    monkeypatch.setattr(external_metrics_server, "RETRY_S", 0.01)
    asyncio.run(story())


def test_serving_continues_with_the_same_certificate_while_the_apiserver_is_unreachable(
    monkeypatch: pytest.MonkeyPatch,
) -> None:
    async def story() -> None:
        cluster = Cluster(api_service())
        running = asyncio.create_task(part(cluster, clock=RealUnix()).run())
        for away in (0, 1, 2):
            cluster.away, cluster.heard = away, asyncio.Event()
            await asyncio.wait_for(cluster.heard.wait(), GUARD_S)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)
        reported = {patch["spec"]["caBundle"] for _, patch in cluster.written}
        assert (len(cluster.written), len(reported)) == (3, 1)

    monkeypatch.setattr(external_metrics_server, "CHECK_INTERVAL_S", 0.01)
    monkeypatch.setattr(external_metrics_server, "RETRY_S", 0.01)
    asyncio.run(story())


def test_the_server_restarts_for_another_front_proxy_or_certificate(tmp_path: Path) -> None:
    async def story() -> None:
        cluster, clock = Cluster(api_service()), HandClock()
        result, pair = part(cluster, clock=clock), KeyPair(b"c", b"k")
        proxy: FrontProxy = await result._proxy()
        assert not await result._changed(proxy, pair, clock.now)
        cluster.away = 1
        assert not await result._changed(proxy, pair, clock.now)
        cluster.objects["ConfigMap", "extension-apiserver-authentication"]["data"][
            "requestheader-client-ca-file"
        ] = "another"
        assert await result._changed(proxy, pair, clock.now)
        assert await result._changed(await result._proxy(), pair, clock.now - 31 * 86_400.0)
        keys = KeyFolder(tmp_path)
        given = part(cluster, clock=clock, keys=keys)
        Authority("a").write_pair(tmp_path, "x")
        before = keys.read()
        assert not await given._changed(await given._proxy(), before, clock.now - 31 * 86_400.0)
        Authority("a").write_pair(tmp_path, "x")
        assert await given._changed(await given._proxy(), before, clock.now)

    asyncio.run(story())


LEASE = LeaseRef(namespace="loghub-system", name="one")


def pod(name: str, value: str | None = None) -> dict[tuple[str, str], Document]:
    labels = {} if value is None else {leader_label.LABEL: value}
    return {("Pod", name): {"metadata": {"name": name, "labels": labels}}}


def labelled(value: str | None) -> dict[str, Any]:
    return {"metadata": {"labels": {"loghub.dev/leader": value}}}


def taking(cluster: Cluster, until: Callable[[], bool], monkeypatch: pytest.MonkeyPatch) -> None:
    """Pod b takes the label, until this holds."""

    async def story() -> None:
        label = LeaderLabel(kube=cast(Kube, cluster), lease=LEASE, pod="b")
        running = asyncio.create_task(label.take())
        while not until():
            await asyncio.sleep(0.01)
        running.cancel()
        await asyncio.gather(running, return_exceptions=True)

    monkeypatch.setattr(leader_label, "RETRY_S", 0.01)
    asyncio.run(asyncio.wait_for(story(), GUARD_S))


def test_the_label_is_removed_from_a_pod_that_could_not_remove_it(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(pod("a", "one") | pod("b") | pod("c"))
    cluster.away = 2
    taking(cluster, lambda: len(cluster.written) >= 2, monkeypatch)
    assert cluster.written == [("a", labelled(None)), ("b", labelled("one"))]


def test_the_label_of_another_release_is_kept(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(pod("a", "another") | pod("b"))
    taking(cluster, lambda: cluster.observations >= 5, monkeypatch)
    assert cluster.written == [("b", labelled("one"))]


def test_a_removed_label_is_set_again(monkeypatch: pytest.MonkeyPatch) -> None:
    cluster = Cluster(pod("b"))

    def twice() -> bool:
        if len(cluster.written) == 1:
            cluster.label("b", {leader_label.LABEL: None})
        return len(cluster.written) == 2

    taking(cluster, twice, monkeypatch)
    assert cluster.written == 2 * [("b", labelled("one"))]


@pytest.mark.parametrize(("lease", "value"), [("x" * 70, "x" * 63), ("x" * 62 + "-y", "x" * 62)])
def test_a_lease_with_a_name_too_long_for_a_label(lease: str, value: str) -> None:
    place = LeaseRef(namespace="loghub-system", name=lease)
    assert LeaderLabel(kube=cast(Kube, None), lease=place, pod="b").value == value


def test_a_waiting_pod_removes_the_label_of_its_previous_container() -> None:
    async def story() -> None:
        cluster = Cluster(pod("b", "one"))
        await LeaderLabel(kube=cast(Kube, cluster), lease=LEASE, pod="b").remove_stale()
        assert cluster.written == [("b", labelled(None))]

    asyncio.run(story())
