"""Alerts, dashboard and scrape settings use only series, labels and ports that exist."""

import asyncio
import json
import re
import socket
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from loghub.service.__main__ import parse
from loghub.service.disk import usage_of
from loghub.service.http.connections import Connections
from loghub.service.http.metrics import Exposition, Process, Serving
from loghub.service.kafka.endpoint import KafkaEndpoint
from loghub.service.kafka.lag import LogstoreLag
from loghub.service.kafka.opening import Shared, endpoint_of
from loghub.service.settings import KafkaSettings
from loghub.service.start import Progress
from loghub.worker_contract import WorkerStatus
from loghub_operator.api.conditions import ConditionType
from loghub_operator.api.labels import worker_selector
from loghub_operator.metrics.collector import Exposition as OperatorExposition
from loghub_operator.metrics.operator_metrics import OperatorMetrics
from loghub_operator.model.observed import Placement
from loghub_operator.resources.statefulset import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_worker.metrics import Figures
from tests.charts.chart import FOLDER, ROOT, Chart, Object, Values, only
from tests.charts.toggles import MONITORING, NAMESPACED, SERVICE
from tests.house.test_citations import anchors
from tests.loghub.service.inprocess import InProcess, in_process
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.group_metrics import condition, readings, store

PLACEMENT = Placement(endpoint="http://x", sink_root="/sink", needs_project_address=False)
OFTEN_USED = {"le", "namespace", "consumer_group", "job", "instance", "pod"}
SERIES = re.compile(r"(loghub_\w+)(\{[^}]*\})?")
LABEL = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


def worker_text() -> str:
    status = WorkerStatus(
        consumer="access-0",
        phase="running",
        reason="",
        message="",
        rows_written=1,
        last_heartbeat_age_s=0.5,
        shards=[],
        written_at=0.0,
    )
    registry = CollectorRegistry()
    registry.register(Figures(lambda: status, lambda: {}))
    return generate_latest(registry).decode()


def operator_text() -> str:
    operator_metrics, on = OperatorMetrics(), store()
    operator_metrics.reconciled("success", 0.1)
    operator_metrics.count_kubernetes_request("GET", 200)
    operator_metrics.count_log_service_request("list_groups", "OK")
    on.update(readings(), tuple(condition(str(kind), "True") for kind in ConditionType))
    on.update_elsewhere("shop", "other", "team-a/loghub-operator")
    return OperatorExposition(operator_metrics, on, max_shard_series=10).text().decode()


async def service_text(folder: Path) -> str:
    async with in_process(folder) as service:
        process = Process(
            lost_lines=lambda: {"repeated": 3},
            progress=Progress(),
            connections=Connections(9),
            problems=lambda: {"access keys": ""},
        )
        exposition = Exposition(service.metrics, process)
        exposition.serving = Serving(engine=service.engine, budgets=service.app.budgets)
        exposition.kafka = await kafka_endpoint(service)
        return exposition.text(usage_of(str(folder))).decode()


async def kafka_endpoint(service: InProcess) -> KafkaEndpoint:
    """One that has answered an error, so that every series is there."""
    shared = Shared(find_key=lambda _: None, tls=None)
    with socket.create_server(("127.0.0.1", 0)) as listening:
        endpoint = endpoint_of(service.engine, KafkaSettings(host="", port=0), listening, shared)
    endpoint.broker.counts.requests["FETCH"] += 1
    endpoint.broker.counts.errors["FETCH", "NONE"] += 1
    await endpoint.lag.refresh()
    endpoint.lag.largest = (LogstoreLag(project="demo", group="g", logstore="access", logs=1),)
    return endpoint


@pytest.fixture(scope="module")
def series(tmp_path_factory: pytest.TempPathFactory) -> dict[str, set[str]]:
    """Names of labels by name of series, as operator, worker and service really expose them."""
    result: dict[str, set[str]] = {}
    of_service = asyncio.run(service_text(tmp_path_factory.mktemp("service")))
    for family in text_string_to_metric_families(operator_text() + worker_text() + of_service):
        for sample in family.samples:
            result.setdefault(sample.name, set()).update(sample.labels)
    return result


WITH_SERVICE = MONITORING | SERVICE
RUNBOOKS = ROOT / "docs" / "runbooks.md"


def rules(chart: Chart, values: Values = WITH_SERVICE) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = only(chart.render(values), "PrometheusRule")["spec"]["groups"][0]["rules"]
    return result


def dashboards() -> dict[str, dict[str, Any]]:
    """By the names of their files."""
    return {path.name: json.loads(path.read_text()) for path in (FOLDER / "files").glob("dashboard*.json")}


def queries(chart: Chart) -> Iterator[str]:
    yield from (rule["expr"] for rule in rules(chart))
    for dashboard in dashboards().values():
        yield from (target["expr"] for panel in dashboard["panels"] for target in panel["targets"])
        yield from (
            one["query"]["query"] for one in dashboard["templating"]["list"] if one["type"] == "query"
        )


def test_every_query_uses_existing_series(chart: Chart, series: dict[str, set[str]]) -> None:
    for query in queries(chart):
        named = SERIES.findall(query)
        assert named, query
        for name, selector in named:
            assert name in series, query
            assert {label for label, _, _ in LABEL.findall(selector)} <= series[name] | OFTEN_USED, query
        assert query.count("(") == query.count(")"), query


@pytest.mark.parametrize("service_namespace", ["", "chart-team-a"])
def test_that_something_is_absent_is_asked_of_this_release_only(chart: Chart, service_namespace: str) -> None:
    """The series of another release in the cluster would hide that this one has no leader, or no service."""
    values = MONITORING | {"embeddedService": {"enabled": True, "namespace": service_namespace}}
    objects = chart.render(values, release="second", namespace="chart-home")
    absent = [
        LABEL.findall(selector)
        for rule in only(objects, "PrometheusRule")["spec"]["groups"][0]["rules"]
        if rule["expr"].startswith("absent(")
        for _, selector in SERIES.findall(rule["expr"])
    ]
    named = {(job, namespace) for (_, _, namespace), (_, _, job) in map(sorted_by_label, absent)}
    # The Prometheus Operator gives a target the name and namespace of its Service.
    scraped = {
        (service["metadata"]["name"], service["metadata"]["namespace"])
        for monitor in objects
        if monitor["kind"] == "ServiceMonitor"
        for service in objects
        if service["kind"] == "Service" and _scrapes(monitor, service)
    }
    assert len(absent) == 2
    assert named == scraped


def sorted_by_label(selector: list[tuple[str, str, str]]) -> list[tuple[str, str, str]]:
    """First the namespace, then the job."""
    found = sorted(selector, reverse=True)
    assert [(label, operator) for label, operator, _ in found] == [("namespace", "="), ("job", "=")]
    return found


def _scrapes(monitor: Object, service: Object) -> bool:
    ports = {port["name"] for port in service["spec"]["ports"]}
    return (
        monitor["spec"]["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
        and monitor["spec"]["endpoints"][0]["port"] in ports
    )


def test_a_group_that_was_left_behind_is_reported(chart: Chart) -> None:
    (rule,) = (one for one in rules(chart) if "groups_left_behind_total" in one["expr"])
    assert rule["expr"] == "increase(loghub_operator_groups_left_behind_total[1h]) > 0"
    assert "for" not in rule  # it is over within the reconcile


def test_every_condition_in_a_query_exists(chart: Chart) -> None:
    named = {value for query in queries(chart) for value in re.findall(r'type="(\w+)"', query)}
    assert named >= {"Ready", "HotShard", "Degraded"}
    assert named <= {str(kind) for kind in ConditionType}


def test_every_alert_has_a_summary_a_description_and_a_runbook(chart: Chart) -> None:
    for rule in rules(chart):
        assert rule["annotations"].keys() == {"summary", "description", "runbook_url"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
        page, _, anchor = rule["annotations"]["runbook_url"].partition("#")
        assert page == "docs/runbooks.md"
        assert anchor == rule["alert"].lower()
    assert {rule["alert"].lower() for rule in rules(chart)} == anchors(RUNBOOKS) - {"runbooks"}


def test_the_bounds_of_alerts_and_the_page_of_runbooks_are_values(chart: Chart) -> None:
    chosen = {"lagSeconds": 77, "diskFreePercent": 5, "commitSeconds": 0.25, "runbookUrl": "https://x/y"}
    values = SERVICE | {"metrics": {"prometheusRule": {"enabled": True, **chosen}}}
    text = json.dumps(only(chart.render(values), "PrometheusRule"))
    assert "loghub_operator_group_lag_seconds > 77" in text
    assert "loghub_service_disk_size_bytes < 5" in text
    assert "> 0.25" in text
    assert "https://x/y#loghubservicedown" in text


def test_without_the_service_there_is_nothing_to_monitor_of_it(chart: Chart) -> None:
    assert not [rule for rule in rules(chart, MONITORING) if "Service" in rule["alert"]]
    objects = chart.render(MONITORING)
    assert len([one for one in objects if one["kind"] == "ServiceMonitor"]) == 1
    assert list(only(objects, "ConfigMap", "loghub-operator-dashboard")["data"]) == ["loghub.json"]


@pytest.mark.parametrize("namespace", ["", "chart-team-a"])
def test_prometheus_finds_the_service_by_label_and_port(chart: Chart, namespace: str) -> None:
    objects = chart.render(MONITORING | {"embeddedService": {"enabled": True, "namespace": namespace}})
    monitor = only(objects, "ServiceMonitor", "loghub-operator-service")["spec"]
    service = only(objects, "Service", "loghub-service")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    (endpoint,) = monitor["endpoints"]
    ports = {port["name"]: port["targetPort"] for port in service["spec"]["ports"]}
    assert ports[endpoint["port"]] in _ports(only(objects, "StatefulSet"))
    (container,) = only(objects, "StatefulSet")["spec"]["template"]["spec"]["containers"]
    settings = parse(container["args"])
    assert settings.admin == ("", _port_numbers(container)[endpoint["port"]])


def test_the_groups_namespaces_are_kept(chart: Chart) -> None:
    """Prometheus would put its target's namespace in the place of the group's."""
    (endpoint,) = only(chart.render(MONITORING), "ServiceMonitor")["spec"]["endpoints"]
    assert endpoint["honorLabels"] is True


def test_prometheus_finds_the_operator_by_service_and_port(chart: Chart) -> None:
    objects = chart.render(MONITORING)
    monitor = only(objects, "ServiceMonitor")["spec"]
    service = only(objects, "Service", "loghub-operator")
    assert monitor["selector"]["matchLabels"].items() <= service["metadata"]["labels"].items()
    assert monitor["namespaceSelector"]["matchNames"] == [service["metadata"]["namespace"]]
    assert monitor["endpoints"][0]["port"] in [port["name"] for port in service["spec"]["ports"]]
    assert service["spec"]["ports"][0]["targetPort"] in _ports(only(objects, "Deployment"))


@pytest.mark.parametrize("namespaces", [[], ["chart-team-a", "chart-team-b"]])
def test_prometheus_finds_the_workers_by_label_and_port(chart: Chart, namespaces: list[str]) -> None:
    values = MONITORING | (NAMESPACED if namespaces else {})
    monitor = only(chart.render(values), "PodMonitor")["spec"]
    workers = worker_spec(resource(), worker_config(resource(), PLACEMENT), image="i").stateful_set
    labels = workers["spec"]["template"]["metadata"]["labels"]
    assert monitor["selector"]["matchLabels"].items() <= labels.items()
    assert monitor["podMetricsEndpoints"][0]["port"] in _ports(workers)
    expected = {"matchNames": namespaces} if namespaces else {"any": True}
    assert monitor["namespaceSelector"] == expected
    (relabeling,) = monitor["podMetricsEndpoints"][0]["relabelings"]
    assert relabeling["targetLabel"] == "consumer_group"
    (instance,) = [key for key, value in worker_selector("g").items() if value == "g"]
    assert relabeling["sourceLabels"][0].endswith(re.sub(r"\W", "_", instance))


def _ports(workload: Object) -> list[str]:
    (container,) = workload["spec"]["template"]["spec"]["containers"]
    return [port["name"] for port in container["ports"]]


def _port_numbers(container: Object) -> dict[str, int]:
    return {port["name"]: port["containerPort"] for port in container["ports"]}


def test_the_dashboards_are_included_unchanged(chart: Chart) -> None:
    loaded = only(chart.render(WITH_SERVICE), "ConfigMap", "loghub-operator-dashboard")
    files = {"loghub.json": "dashboard.json", "loghub-service.json": "dashboard-service.json"}
    assert {name: json.loads(text) for name, text in loaded["data"].items()} == {
        name: dashboards()[file] for name, file in files.items()
    }
    assert loaded["metadata"]["labels"]["grafana_dashboard"] == "1"
    for dashboard in dashboards().values():
        numbers = [panel["id"] for panel in dashboard["panels"]]
        assert len(set(numbers)) == len(numbers) > 10
    assert len({dashboard["uid"] for dashboard in dashboards().values()}) == len(files)
