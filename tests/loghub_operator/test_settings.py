"""The operator's environment."""

import pytest

from loghub_operator.settings import Client, ExecutorRole, LeaseRef, Settings


def test_an_empty_environment_gives_the_defaults() -> None:
    assert Settings.from_environment({}) == Settings()


def test_all_settings_are_read() -> None:
    given = {
        "LOGHUB_EMBEDDED_ENDPOINT": "http://logs.svc",
        "LOGHUB_EMBEDDED_ADDRESS": "logs.logs.svc:80",
        "LOGHUB_MAX_PROJECT_SERVICES": "3",
        "LOGHUB_CLIENT": "sdk",
        "LOGHUB_WORKER_IMAGE": "w:1",
        "LOGHUB_HTTP_ADDRESS": ":8081",
        "LOGHUB_RESYNC_SECONDS": "2.5",
        "LOGHUB_STATUS_INTERVAL_SECONDS": "7.5",
        "LOGHUB_WATCH_NAMESPACES": "a, b,",
        "LOGHUB_LEASE_NAMESPACE": "loghub-system",
        "LOGHUB_LEASE_NAME": "loghub-operator",
        "LOGHUB_POD_NAME": "loghub-operator-0",
    }
    assert Settings.from_environment(given) == Settings(
        embedded_endpoint="http://logs.svc",
        embedded_address="logs.logs.svc:80",
        max_project_services=3,
        client=Client.SDK,
        worker_image="w:1",
        http_address=":8081",
        resync_s=2.5,
        status_interval_s=7.5,
        namespaces=("a", "b"),
        lease=LeaseRef(namespace="loghub-system", name="loghub-operator"),
        pod_name="loghub-operator-0",
    )


def test_the_role_of_workers_that_make_pods_is_read() -> None:
    def role(text: str) -> ExecutorRole | None:
        return Settings.from_environment({"LOGHUB_EXECUTOR_ROLE": text}).worker_defaults.executor_role

    assert role("") is None
    assert role("ClusterRole/a") == ExecutorRole("ClusterRole", "a")
    assert role("Role/b") == ExecutorRole("Role", "b")
    for wrong in ("a", "Role/", "User/a"):
        with pytest.raises(ValueError, match="must be ClusterRole/NAME or Role/NAME"):
            role(wrong)


@pytest.mark.parametrize("text", ["soon", "0", "-1", "nan"])
def test_an_invalid_resync_interval_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"RESYNC|could not convert"):
        Settings.from_environment({"LOGHUB_RESYNC_SECONDS": text})


@pytest.mark.parametrize("text", ["soon", "-1", "3601", "inf", "nan"])
def test_an_invalid_interval_of_the_status_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match=r"must be from 0 to 3600|could not convert"):
        Settings.from_environment({"LOGHUB_STATUS_INTERVAL_SECONDS": text})


@pytest.mark.parametrize("name", ["LOGHUB_LEASE_NAMESPACE", "LOGHUB_LEASE_NAME"])
def test_an_incomplete_lease_reference_is_rejected(name: str) -> None:
    with pytest.raises(ValueError, match="or neither"):
        Settings.from_environment({name: "x"})


def test_settings_of_the_metrics_servers_are_read() -> None:
    given = {
        "LOGHUB_MAX_SHARD_SERIES": "0",
        "LOGHUB_KEDA_ADDRESS": ":9090",
        "LOGHUB_KEDA_CERTS": "/keda",
        "LOGHUB_EXTERNAL_METRICS_ADDRESS": ":8443",
        "LOGHUB_EXTERNAL_METRICS_SERVICE": "loghub-system/numbers",
        "LOGHUB_EXTERNAL_METRICS_CERTS": "/external",
    }
    result = Settings.from_environment(given)
    assert (result.max_shard_series, result.keda_address, result.keda_certs) == (0, ":9090", "/keda")
    assert result.external_metrics_address == ":8443"
    assert result.external_metrics_service == "loghub-system/numbers"
    assert result.external_metrics_certs == "/external"


@pytest.mark.parametrize(
    ("given", "message"),
    [
        ({"LOGHUB_MAX_SHARD_SERIES": "-1"}, "must be at least 0"),
        ({"LOGHUB_MAX_SHARD_SERIES": "few"}, "invalid literal"),
        ({"LOGHUB_KEDA_ADDRESS": "9090x"}, "must be host:port"),
        ({"LOGHUB_KEDA_ADDRESS": "host"}, "must be host:port"),
        ({"LOGHUB_EXTERNAL_METRICS_ADDRESS": ":8443"}, "must be namespace/name"),
    ],
)
def test_invalid_settings_of_the_metrics_servers_are_rejected(given: dict[str, str], message: str) -> None:
    with pytest.raises(ValueError, match=message):
        Settings.from_environment(given)


@pytest.mark.parametrize(
    ("endpoint", "sdk"),
    [
        ("https://cn-hangzhou.log.aliyuncs.com", True),
        ("http://cn-hangzhou-intranet.log.aliyuncs.com", True),
        ("https://sls.example.com", True),
        ("http://loghub.svc", False),  # the embedded service, whatever its spelling
        ("http://LOGHUB.svc:80/", False),
        ("http://10.0.0.7:8080", False),  # SLS has names only
        ("https://[fd00::7]:8443", False),
        ("http://localhost:8080", False),
        ("http://[no-address", False),
    ],
)
def test_each_endpoint_gets_the_right_client(endpoint: str, sdk: bool) -> None:
    assert Settings().uses_sdk(endpoint) is sdk
    assert Settings(client=Client.SDK).uses_sdk(endpoint) is (Settings().address_of(endpoint) == "")
    assert not Settings(client=Client.HTTP).uses_sdk(endpoint)


@pytest.mark.parametrize(
    ("embedded", "given", "endpoint", "address"),
    [
        ("http://loghub.svc", None, "http://loghub.svc", "loghub-service.loghub.svc:8080"),
        ("https://logs.svc:8443", None, "HTTPS://logs.svc:8443/", "loghub-service.logs.svc:8080"),
        ("http://loghub.svc", "x.y.svc:81", "http://loghub.svc:80", "x.y.svc:81"),
        ("http://loghub.svc", None, "http://other.svc", ""),
        ("http://127.0.0.1:8080", "x.y.svc:81", "http://127.0.0.1:8080", ""),
    ],
)
def test_the_embedded_service_is_reached_at_its_own_service(
    embedded: str, given: str | None, endpoint: str, address: str
) -> None:
    assert Settings(embedded_endpoint=embedded, embedded_address=given).address_of(endpoint) == address


def test_an_unknown_client_is_rejected() -> None:
    assert Settings.from_environment({"LOGHUB_CLIENT": ""}).client is Client.AUTO
    with pytest.raises(ValueError, match="LOGHUB_CLIENT is java, and must be one of auto, sdk, http"):
        Settings.from_environment({"LOGHUB_CLIENT": "java"})
