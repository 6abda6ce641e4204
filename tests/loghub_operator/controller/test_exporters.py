"""The whole operator over a real apiserver, and its metrics read in all three ways.

The apiserver's aggregation layer, its authorizer and its built-in role of the HPA controller are real, and
the operator has the permissions of its manifests only. There is no network of Services: the Service before
the operator is an ExternalName of the loopback interface.
"""

import asyncio
import contextlib
import dataclasses
import json
import time
from collections.abc import AsyncIterator
from pathlib import Path
from typing import Any

import aiohttp
import grpc
import yaml

from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_operator.autoscaling.metric_catalog import METRICS
from loghub_operator.controller import app as program
from loghub_operator.settings import Settings
from tests.cluster.apiserver import Standing
from tests.loghub_operator.autoscaling.keda.test_scaler import NO, YES, once, ref, stream
from tests.loghub_operator.metrics.test_collector import samples
from tests.loghub_operator.support.apiserver import ROOT, Apiserver
from tests.loghub_operator.support.harness import GROUP, GUARD_S, LOGSTORE, Stage, stage
from tests.ports import free_port

API = "v1beta1.external.metrics.k8s.io"
MANIFEST = ROOT / "deploy" / "external-metrics" / "external-metrics.yaml"
HPA_CONTROLLER = "system:serviceaccount:kube-system:horizontal-pod-autoscaler"


def lead_here(server: Apiserver, port: int) -> None:
    """The manifest, but for where the Service leads."""
    documents = list(yaml.safe_load_all(MANIFEST.read_text()))
    for one in documents:
        if one["kind"] == "Service":
            one["spec"] = {"type": "ExternalName", "externalName": "localhost"}
        if one["kind"] == "APIService":
            one["spec"]["service"]["port"] = port
    server.must("create", "serviceaccount", "horizontal-pod-autoscaler", "-n", "kube-system")
    done = server.run("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(documents))
    assert done.returncode == 0, done.stderr


class Readers:
    """The readers of this operator's metrics."""

    def __init__(self, server: Apiserver, on: Stage) -> None:
        self._server = server
        self.on = on
        self.settings: Settings = dataclasses.replace(
            on.settings,
            http_address=f"127.0.0.1:{free_port()}",
            keda_address=f"127.0.0.1:{free_port()}",
            external_metrics_address=f"localhost:{free_port()}",
            external_metrics_service="loghub-system/loghub-operator-external-metrics",
        )

    @property
    def api_port(self) -> int:
        return int((self.settings.external_metrics_address or "").rpartition(":")[2])

    @contextlib.asynccontextmanager
    async def operator(self) -> AsyncIterator[None]:
        stop = asyncio.Event()
        running = asyncio.create_task(program.run(self.settings, stop, connect=self.on.connect))
        try:
            yield
        finally:
            stop.set()
            await asyncio.wait_for(running, GUARD_S)

    async def prometheus(self) -> dict[str, float]:
        """This group's plain series by name."""
        url = f"http://{self.settings.http_address}/metrics"
        async with aiohttp.ClientSession() as session, session.get(url) as answer:
            assert answer.headers["Content-Type"].startswith("text/plain; version=0.0.4")
            reported = samples(await answer.text())
        here = {"namespace": self.on.namespace, "consumer_group": GROUP}
        plain = {
            name: value
            for name, result in reported.items()
            for labels, value in result
            if labels in ({}, here)
        }
        for labels, value in reported.get("loghub_operator_reconcile_total", []):
            plain[f"reconcile {labels['result']}"] = value
        return plain

    async def kubectl(self, metric: str, *, who: str = "", selector: str = f"consumerGroup={GROUP}") -> Any:
        """The list that the apiserver passes on, or the message of its rejection."""
        path = f"/apis/external.metrics.k8s.io/v1beta1/namespaces/{self.on.namespace}/{metric}"
        arguments = ["get", "--raw", f"{path}?labelSelector={selector.replace('=', '%3D')}"]
        done = await asyncio.to_thread(self._server.run, *arguments, *(["--as", who] if who else []))
        return json.loads(done.stdout) if done.returncode == 0 else done.stderr

    async def until_answered(self, metric: str, value: str) -> None:
        result: Any = None

        async def holds() -> bool:
            nonlocal result
            result = await self.kubectl(metric)
            return isinstance(result, dict) and [one["value"] for one in result["items"]] == [value]

        await self.on.until(f"{metric} {value}", holds)

    async def bundle(self) -> str:
        result = await asyncio.to_thread(self._server.must, "get", "apiservice", API, "-o", "json")
        return str(json.loads(result)["spec"].get("caBundle", ""))


def put(on: Stage, groups: int) -> None:
    for _ in range(groups):
        log = Log(time=int(time.time()), contents=(("line", "x"),))
        on.client.put_logs(LOGSTORE, encode(LogGroup(logs=(log,))), hash_key="0" * 32)


def begin_to_consume(on: Stage) -> None:
    """A checkpoint before the first log; the players take shards and consume nothing."""
    begin = on.client.get_cursor(LOGSTORE, 0, "begin")
    on.client.update_checkpoint(LOGSTORE, GROUP, shard=0, cursor=begin, consumer="", force=True)


def test_one_group_read_by_prometheus_keda_and_an_hpa(apiserver_of_its_own: Standing, tmp_path: Path) -> None:
    server = Apiserver(apiserver_of_its_own.kubeconfig)

    async def story(on: Stage) -> None:
        readers = Readers(server, on)
        lead_here(server, readers.api_port)
        async with readers.operator():
            await on.apply({"replicas": 1, "scaling": {"mode": "External"}})
            await on.until_phase("Running", "1/1")
            await keda_hears_of_the_first_log(readers)
            await everybody_reads_the_same(readers)
            await discovery_finds_the_metrics(readers)
            await only_who_may_reads(readers)
            first = await readers.bundle()
        async with readers.operator():
            await readers.until_answered("loghub_lag_log_groups", "3")
            assert await readers.bundle() != first

    async def keda_hears_of_the_first_log(readers: Readers) -> None:
        address = readers.settings.keda_address or ""
        here = ref(readers.on.namespace)
        async with (
            asyncio.timeout(GUARD_S),
            grpc.aio.insecure_channel(address, options=[("grpc.enable_http_proxy", 0)]) as channel,
        ):
            assert await once(channel, "IsActive", here) == NO
            pushed = stream(channel, here)
            assert await pushed.read() == NO
            put(readers.on, 3)
            assert await pushed.read() == YES

    async def everybody_reads_the_same(readers: Readers) -> None:
        begin_to_consume(readers.on)
        await readers.until_answered("loghub_lag_log_groups", "3")
        reported = await readers.prometheus()
        assert reported["loghub_operator_group_lag_log_groups"] == 3
        assert (reported["loghub_operator_groups"], reported["loghub_operator_leader"]) == (1, 1)
        assert reported["reconcile success"] >= 1
        assert reported["loghub_operator_group_lag_seconds"] >= 0

    async def discovery_finds_the_metrics(readers: Readers) -> None:
        arguments = ("api-resources", "--api-group=external.metrics.k8s.io", "--cached=false", "-o", "name")
        names = {f"{definition.metric}.external.metrics.k8s.io" for definition in METRICS}

        async def holds() -> bool:
            done = await asyncio.to_thread(server.run, *arguments)
            return set(done.stdout.split()) == names

        await readers.on.until("the metrics among the API's resources", holds)

    async def only_who_may_reads(readers: Readers) -> None:
        arguments = await readers.kubectl("loghub_lag_log_groups", who="joe")
        assert 'User "joe" cannot list resource "loghub_lag_log_groups"' in arguments
        result = await readers.kubectl("loghub_lag_log_groups", who=HPA_CONTROLLER)
        assert result["items"][0]["metricLabels"] == {"consumerGroup": GROUP}
        arguments = await readers.kubectl("loghub_lag_log_groups", selector="consumerGroup=other")
        assert "no LogHubConsumerGroup in namespace" in arguments
        assert "NotFound" in arguments

    stage(server, tmp_path, story, operator=False)
