"""Alerts, dashboard and scrape settings use only series, labels and ports that exist."""

import json
import re
from collections.abc import Iterable, Iterator
from typing import Any

import pytest

from loghub_operator.api.conditions import ConditionType
from loghub_operator.api.labels import worker_selector
from loghub_operator.model.observed import Placement
from loghub_operator.resources.statefulset import worker_spec
from loghub_operator.resources.worker_config import worker_config
from loghub_service.__main__ import parse
from tests import exposed_metrics
from tests.charts.chart import FOLDER, ROOT, Chart, Object, Values, only
from tests.charts.toggles import MONITORING, NAMESPACED, SERVICE
from tests.exposed_metrics import Series, samples
from tests.house.test_citations import anchors
from tests.loghub_operator.support.examples import resource

PLACEMENT = Placement(endpoint="http://x", sink_root="/sink", needs_project_address=False)
OFTEN_USED = {"le", "namespace", "consumer_group", "job", "instance", "pod"}
SERIES = re.compile(r"(loghub_\w+)(\{[^}]*\})?")
COUNTED = re.compile(r"(?:increase|rate)\([^)]*\)")
LABEL = re.compile(r'(\w+)\s*(=~|!~|!=|=)\s*"([^"]*)"')


Selector = list[tuple[str, str, str]]


@pytest.fixture(scope="module")
def in_use(tmp_path_factory: pytest.TempPathFactory) -> list[Series]:
    return list(samples(exposed_metrics.in_use(tmp_path_factory.mktemp("in-use"))))


@pytest.fixture(scope="module")
def at_start(tmp_path_factory: pytest.TempPathFactory) -> list[Series]:
    return list(samples(exposed_metrics.at_start(tmp_path_factory.mktemp("at-start"))))


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
        yield from (annotation["expr"] for annotation in dashboard["annotations"]["list"])


def test_each_panel_says_what_it_shows() -> None:
    for dashboard in dashboards().values():
        assert [panel["title"] for panel in dashboard["panels"] if not panel.get("description")] == []


def test_every_query_uses_existing_series(chart: Chart, in_use: list[Series]) -> None:
    labels: dict[str, set[str]] = {}
    for name, of_one in in_use:
        labels.setdefault(name, set()).update(of_one)
    for query in queries(chart):
        named = SERIES.findall(query)
        assert named, query
        for name, selector in named:
            assert name in labels, query
            assert {label for label, _, _ in LABEL.findall(selector)} <= labels[name] | OFTEN_USED, query
        assert query.count("(") == query.count(")"), query


def test_an_alert_on_a_counter_sees_its_first_count(
    chart: Chart, at_start: list[Series], in_use: list[Series]
) -> None:
    """``increase`` and ``rate`` do not see the value that a series begins with, so their series must be there
    before the process has counted anything. What is compared may begin at any time."""
    for rule in rules(chart):
        counted = [found.span() for found in COUNTED.finditer(rule["expr"])]
        for found in SERIES.finditer(rule["expr"]):
            is_counted = any(begin <= found.start() < end for begin, end in counted)
            exposed = at_start if is_counted else in_use
            assert selects(found[1], LABEL.findall(found[2] or ""), exposed), f"{rule['alert']}: {found[0]}"


def selects(name: str, selector: Selector, exposed: Iterable[Series]) -> bool:
    wanted = {label: value for label, _, value in selector if label not in OFTEN_USED}
    assert all(operator == "=" for label, operator, _ in selector), selector
    return any(name == one and wanted.items() <= labels.items() for one, labels in exposed)


def test_a_panel_rates_over_the_interval_that_it_shows(chart: Chart) -> None:
    """A fixed one is empty where scrapes are rarer, and leaves out what lies between the steps of a month."""
    ranges = {
        found
        for dashboard in dashboards().values()
        for panel in dashboard["panels"]
        for target in panel["targets"]
        for found in re.findall(r"\[([^]]*)\]", target["expr"])
    }
    assert ranges == {"$__rate_interval"}


def test_a_panel_shows_what_is_selected_above_it() -> None:
    """An operator is a release: the labels namespace and job of its target. A group has names of its own."""
    for dashboard in dashboards().values():
        variables = {one["name"] for one in dashboard["templating"]["list"]}
        for panel in dashboard["panels"]:
            expressions = " ".join(target["expr"] for target in panel["targets"])
            for name, selector in SERIES.findall(expressions):
                chosen = {value.removeprefix("$") for _, _, value in LABEL.findall(selector) if "$" in value}
                assert chosen <= variables
                assert chosen == expected_choice(name), f"{panel['title']}: {name}"


def expected_choice(name: str) -> set[str]:
    if name.startswith("loghub_service_"):
        return {"namespace"}
    if name.startswith(("loghub_operator_group_", "loghub_operator_shard_", "loghub_worker_")):
        return {"namespace", "consumer_group"}
    return {"operator_namespace", "operator"}


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


@pytest.mark.parametrize("page", ["", "https://docs.example.com/runbooks"])
def test_every_alert_has_a_summary_a_description_and_where_there_is_a_page_its_runbook(
    chart: Chart, page: str
) -> None:
    values = SERVICE | {"metrics": {"prometheusRule": {"enabled": True, "runbookUrl": page}}}
    for rule in rules(chart, values):
        runbook = {"runbook_url": f"{page}#{rule['alert'].lower()}"} if page else {}
        assert rule["annotations"].items() >= runbook.items()
        assert rule["annotations"].keys() == {"summary", "description", *runbook}
        assert rule["labels"]["severity"] in ("critical", "warning", "info")
    assert {rule["alert"].lower() for rule in rules(chart)} == anchors(RUNBOOKS) - {"runbooks"}


def test_the_bounds_of_alerts_are_values(chart: Chart) -> None:
    chosen = {"lagSeconds": 77, "diskFreePercent": 5, "commitSeconds": 0.25}
    values = SERVICE | {"metrics": {"prometheusRule": {"enabled": True, **chosen}}}
    text = json.dumps(only(chart.render(values), "PrometheusRule"))
    assert "loghub_operator_group_lag_seconds > 77" in text
    assert "loghub_service_disk_size_bytes < 5" in text
    assert "> 0.25" in text


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
