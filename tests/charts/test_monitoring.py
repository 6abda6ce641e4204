"""Alerts, dashboard and scrape settings use only series, labels and ports that exist."""

import json
import re
from collections.abc import Iterator
from typing import Any

import pytest
from prometheus_client import CollectorRegistry, generate_latest
from prometheus_client.parser import text_string_to_metric_families

from loghub.worker_contract import WorkerStatus
from loghub_operator.api.conditions import ConditionType
from loghub_operator.api.labels import worker_selector
from loghub_operator.metrics.collector import Exposition
from loghub_operator.metrics.operator_metrics import OperatorMetrics
from loghub_operator.model.observed import Placement
from loghub_operator.resources.statefulset import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_worker.metrics import Figures
from tests.charts.chart import FOLDER, Chart, Object, only
from tests.charts.toggles import MONITORING, NAMESPACED
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
    return Exposition(operator_metrics, on, max_shard_series=10).text().decode()


@pytest.fixture(scope="module")
def series() -> dict[str, set[str]]:
    """Names of labels by name of series, as operator and worker really expose them."""
    result: dict[str, set[str]] = {}
    for family in text_string_to_metric_families(operator_text() + worker_text()):
        for sample in family.samples:
            result.setdefault(sample.name, set()).update(sample.labels)
    return result


def rules(chart: Chart) -> list[dict[str, Any]]:
    result: list[dict[str, Any]] = only(chart.render(MONITORING), "PrometheusRule")["spec"]["groups"][0][
        "rules"
    ]
    return result


def dashboard() -> dict[str, Any]:
    dashboard_: dict[str, Any] = json.loads((FOLDER / "files" / "dashboard.json").read_text())
    return dashboard_


def queries(chart: Chart) -> Iterator[str]:
    yield from (rule["expr"] for rule in rules(chart))
    yield from (target["expr"] for panel in dashboard()["panels"] for target in panel["targets"])
    yield from (one["query"]["query"] for one in dashboard()["templating"]["list"] if one["type"] == "query")


def test_every_query_uses_existing_series(chart: Chart, series: dict[str, set[str]]) -> None:
    for query in queries(chart):
        named = SERIES.findall(query)
        assert named, query
        for name, selector in named:
            assert name in series, query
            assert {label for label, _, _ in LABEL.findall(selector)} <= series[name] | OFTEN_USED, query
        assert query.count("(") == query.count(")"), query


def test_every_condition_in_a_query_exists(chart: Chart) -> None:
    named = {value for query in queries(chart) for value in re.findall(r'type="(\w+)"', query)}
    assert named >= {"Ready", "HotShard", "Degraded"}
    assert named <= {str(kind) for kind in ConditionType}


def test_every_alert_has_a_summary_and_a_description(chart: Chart) -> None:
    for rule in rules(chart):
        assert rule["annotations"].keys() == {"summary", "description"}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    values = {"metrics": {"prometheusRule": {"enabled": True, "lagSeconds": 77}}}
    text = json.dumps(only(chart.render(values), "PrometheusRule"))
    assert "loghub_operator_group_lag_seconds > 77" in text


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


def test_the_dashboard_is_included_unchanged(chart: Chart) -> None:
    loaded = only(chart.render(MONITORING), "ConfigMap", "loghub-operator-dashboard")
    assert json.loads(loaded["data"]["loghub.json"]) == dashboard()
    assert loaded["metadata"]["labels"]["grafana_dashboard"] == "1"
    numbers = [panel["id"] for panel in dashboard()["panels"]]
    assert len(set(numbers)) == len(numbers) > 10
