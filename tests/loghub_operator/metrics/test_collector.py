"""``/metrics``: the text as Prometheus parses it, its names and its bounds."""

import re

import pytest
from prometheus_client.parser import text_string_to_metric_families

from loghub.client.port import Credentials
from loghub.wire.errors import EndpointUnreachable, LogHubError
from loghub_operator.metrics.collector import CONTENT_TYPE, OperatorExposition
from loghub_operator.metrics.operator_metrics import OperatorMetrics, metered_connect
from loghub_operator.metrics.store import MetricsStore
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_operator.support.group_metrics import (
    HandClock,
    condition,
    readings,
    store,
    subscription_readings,
)

Labels = dict[str, str]
HERE = {"namespace": "shop", "consumer_group": "access"}
UNITS = ("_seconds", "_bytes", "_total", "_info", "_per_second")
# A number of something, said in the name.
COUNTED = (
    "_log_groups", "_logs", "_shards", "_groups", "_condition", "_suspended", "_leader", "_dropped", "_hot",
    "_fds", "_uncapped", "_recommended", "_desired", "_ready", "_consumers", "_withheld",
)  # fmt: skip


def text(
    on: MetricsStore, operator_metrics: OperatorMetrics | None = None, *, max_shard_series: int = 1000
) -> str:
    return (
        OperatorExposition(operator_metrics or OperatorMetrics(), on, max_shard_series=max_shard_series)
        .text()
        .decode()
    )


def samples(exposition: str) -> dict[str, list[tuple[Labels, float]]]:
    series: dict[str, list[tuple[Labels, float]]] = {}
    for family in text_string_to_metric_families(exposition):
        for sample in family.samples:
            series.setdefault(sample.name, []).append((sample.labels, sample.value))
    return series


def of(exposition: str, name: str, **labels: str) -> float:
    (value,) = [value for have, value in samples(exposition)[name] if have == HERE | labels]
    return value


def test_a_subscription_has_series_in_logs_and_none_in_log_groups() -> None:
    exposition = text(store(subscription_readings()))
    prefix = "loghub_operator_group_"
    assert of(exposition, f"{prefix}subscription_backlog_logs") == 700
    assert of(exposition, f"{prefix}subscription_unacked_logs") == 50
    assert of(exposition, f"{prefix}subscription_redelivered_logs") == 3
    assert of(exposition, f"{prefix}subscription_consumers") == 6
    assert of(exposition, f"{prefix}subscription_withheld") == 0
    assert of(exposition, f"{prefix}subscription_arrival_logs_per_second") == 90.0
    assert of(exposition, f"{prefix}subscription_acknowledged_logs_per_second") == 80.0
    assert of(exposition, f"{prefix}subscription_worker_logs_per_second") == 20.0
    assert f"{prefix}lag_log_groups" not in samples(exposition)
    assert f"{prefix}subscription_backlog_logs" not in samples(text(store(readings())))


def test_each_group_has_its_series() -> None:
    on = store()
    on.update(
        readings(wanted=4, recommended=3),
        (condition("Ready", "True"), condition("Degraded", "False"), condition("X", "Unknown")),
    )
    exposition = text(on)
    prefix = "loghub_operator_group_"
    assert of(exposition, f"{prefix}lag_seconds") == 42.25
    assert of(exposition, f"{prefix}lag_log_groups") == 1200
    assert of(exposition, f"{prefix}lag_logs") == 60_000
    assert of(exposition, f"{prefix}arrival_log_groups_per_second") == 12.5
    assert of(exposition, f"{prefix}consumed_log_groups_per_second") == 10.0
    assert of(exposition, f"{prefix}worker_log_groups_per_second") == 5.0
    assert of(exposition, f"{prefix}assignable_shards") == 2
    assert of(exposition, f"{prefix}suspended") == 0
    assert of(exposition, f"{prefix}observed_timestamp_seconds") == 1_800_000_000.0
    assert of(exposition, f"{prefix}replicas_uncapped") == 4
    assert of(exposition, f"{prefix}replicas_recommended") == 3
    assert of(exposition, f"{prefix}replicas_desired") == 2
    assert of(exposition, f"{prefix}replicas_ready") == 1
    states = {labels["state"]: value for labels, value in samples(exposition)[f"{prefix}shards"]}
    assert states == {"not_alloc": 0, "already_alloc": 1, "wait": 0, "transfer": 1, "over": 0, "unknown": 0}
    conditions = {labels["type"]: value for labels, value in samples(exposition)[f"{prefix}condition"]}
    assert conditions == {"Ready": 1, "Degraded": 0}
    assert of(exposition, "loghub_operator_shard_lag_seconds", shard="0") == 42.25
    assert {labels["shard"]: value for labels, value in samples(exposition)["loghub_operator_shard_hot"]} == {
        "0": 1, "1": 0,
    }  # fmt: skip


def test_an_unknown_value_has_no_series() -> None:
    exposition = text(store(readings(lag_seconds=None, lag_groups=None, wanted=None, arrival_per_s=None)))
    assert "loghub_operator_group_lag_seconds" not in samples(exposition)
    assert "# TYPE loghub_operator_group_lag_seconds gauge" in exposition
    replicas = {name.rpartition("_")[2] for name in samples(exposition) if "_group_replicas_" in name}
    assert replicas == {"recommended", "desired", "ready"}


def test_a_stale_group_keeps_only_the_time_of_its_last_observation() -> None:
    clock = HandClock()
    on = store(readings(), clock=clock)
    clock.now += 61.0
    exposition = text(on)
    named = {
        name for name, series in samples(exposition).items() if any("namespace" in have for have, _ in series)
    }
    assert named == {"loghub_operator_group_observed_timestamp_seconds"}
    assert samples(exposition)["loghub_operator_groups"] == [({}, 1.0)]


def test_a_deleted_group_has_no_series() -> None:
    on = store(readings())
    on.remove("shop", "access")
    assert "shop" not in text(on)


def test_shard_series_are_bounded_over_all_groups() -> None:
    on = store(readings("a"), readings("b", shards=readings().shards[:1]), readings("c"))
    exposition = samples(text(on, max_shard_series=3))
    shown = [
        (labels["consumer_group"], labels["shard"]) for labels, _ in exposition["loghub_operator_shard_hot"]
    ]
    assert shown == [("a", "0"), ("a", "1"), ("b", "0")]
    assert exposition["loghub_operator_shard_series_dropped"] == [({}, 2.0)]
    assert "loghub_operator_shard_hot" not in samples(text(on, max_shard_series=0))


def test_metric_names_follow_the_conventions() -> None:
    operator_metrics = OperatorMetrics()
    operator_metrics.reconciled("success", 0.2)
    operator_metrics.count_kubernetes_request("GET", 200)
    operator_metrics.count_log_service_request("list_shards", "OK")
    exposition = text(store(readings()), operator_metrics)
    families = list(text_string_to_metric_families(exposition))
    assert len({family.name for family in families}) == len(families)
    for family in families:
        assert re.fullmatch(r"(loghub_operator|process)_[a-z_]+", family.name)
        assert family.documentation.endswith("."), family.name
        counter = family.type == "counter"
        assert counter == any(sample.name.endswith("_total") for sample in family.samples), family.name
        name = f"{family.name}_total" if counter else family.name
        assert name.endswith(UNITS + COUNTED), name
        assert all(labels.keys() <= _LABELS for labels, _ in samples(exposition).get(family.name, []))
    assert exposition.endswith("\n")
    assert CONTENT_TYPE.startswith("text/plain; version=0.0.4")


_LABELS = {"namespace", "consumer_group", "state", "type", "shard"}


def test_reconciles_and_requests_are_counted() -> None:
    operator_metrics = OperatorMetrics()
    operator_metrics.leading()
    for result, seconds in (("success", 0.2), ("success", 0.3), ("error", 10.0)):
        operator_metrics.reconciled(result, seconds)
    operator_metrics.count_kubernetes_request("PATCH", 409)
    exposition = samples(text(store(), operator_metrics))
    assert exposition["loghub_operator_leader"] == [({}, 1.0)]
    counted = exposition["loghub_operator_reconcile_total"]
    assert counted == [({"result": "success"}, 2.0), ({"result": "error"}, 1.0), ({"result": "panic"}, 0.0)]
    assert exposition["loghub_operator_reconcile_duration_seconds_count"] == [({}, 3.0)]
    assert exposition["loghub_operator_reconcile_duration_seconds_sum"] == [({}, 10.5)]
    assert exposition["loghub_operator_kubernetes_requests_total"] == [
        ({"method": "PATCH", "code": "409"}, 1.0)
    ]


def test_requests_to_a_log_service_are_counted_by_operation_and_code() -> None:
    operator_metrics, server = OperatorMetrics(), MemoryServer()
    connect = metered_connect(lambda _endpoint, project, _key: server.client(project), operator_metrics)
    client = connect("http://x", "demo", Credentials(access_key_id="a", access_key_secret="b"))
    client.create_project()
    assert client.project_exists()
    with pytest.raises(LogHubError):
        client.list_shards("missing")
    server.unreachable = True
    with pytest.raises(EndpointUnreachable):
        client.list_shards("missing")
    exposition = samples(text(store(), operator_metrics))["loghub_operator_log_service_requests_total"]
    assert {(labels["operation"], labels["code"]): value for labels, value in exposition} == {
        ("create_project", "OK"): 1.0,
        ("project_exists", "OK"): 1.0,
        ("list_shards", "LogStoreNotExist"): 1.0,
        ("list_shards", "EndpointUnreachable"): 1.0,
    }


def test_a_cached_answer_of_a_client_is_not_counted_as_a_request() -> None:
    operator_metrics, server = OperatorMetrics(), MemoryServer()
    connect = metered_connect(lambda _endpoint, project, _key: server.client(project), operator_metrics)
    client = connect("http://x", "demo", Credentials(access_key_id="a", access_key_secret="b"))
    server.unreachable = True
    for _ in range(2):
        with pytest.raises(EndpointUnreachable):
            client.has_extensions()
    server.unreachable = False
    assert [client.has_extensions() for _ in range(5)] == [True] * 5
    exposition = samples(text(store(), operator_metrics))["loghub_operator_log_service_requests_total"]
    assert exposition == [
        ({"operation": "has_extensions", "code": "EndpointUnreachable"}, 2.0),
        ({"operation": "has_extensions", "code": "OK"}, 1.0),
    ]


def test_an_unknown_error_code_has_no_series_of_its_own() -> None:
    def refuses(*_: object) -> None:
        raise LogHubError(code="Made-up-7", status=500, message="m", request_id="r")

    class Client:
        list_shards = staticmethod(refuses)

    operator_metrics = OperatorMetrics()
    key = Credentials(access_key_id="a", access_key_secret="b")
    client = metered_connect(lambda *_: Client(), operator_metrics)("e", "p", key)  # type: ignore[arg-type,return-value]
    with pytest.raises(LogHubError):
        client.list_shards("x")
    exposition = samples(text(store(), operator_metrics))["loghub_operator_log_service_requests_total"]
    assert exposition == [({"operation": "list_shards", "code": "other"}, 1.0)]
