"""The project from the Host (docs/sls-protocol.md 1.1)."""

import pytest

from loghub.wire import names
from loghub.wire.errors import UnknownHost

BASES = ("127.0.0.1", "localhost", "loghub.svc", "loghub.svc.cluster.local", "[::1]")


@pytest.mark.parametrize(
    ("host", "project"),
    [
        ("demo.127.0.0.1", "demo"),  # Python and Java: no port
        ("demo.127.0.0.1:18080", "demo"),  # Go: with it
        ("demo.localhost", "demo"),
        ("DEMO.LogHub.SVC", "demo"),
        ("demo.loghub.svc.", "demo"),
        ("demo.loghub.svc.cluster.local:80", "demo"),
        ("a-b_c.loghub.svc", "a-b_c"),
        ("127.0.0.1:8080", None),
        ("localhost", None),
        ("[::1]:8080", None),
        ("demo.[::1]", "demo"),
        ("demo.[::1]:8080", "demo"),
    ],
)
def test_project_of_host(host: str, project: str | None) -> None:
    assert names.project_of(host, BASES) == project


@pytest.mark.parametrize(
    "host",
    [
        "",
        "demo",
        "demo.example.com",
        "xlocalhost",
        "a.b.loghub.svc",
        ".loghub.svc",
        "-.loghub.svc",
        "de mo.loghub.svc",
        "demo.127.0.0.2",
        "[::2]",
        "demo.[::2]",
        "demo.::1",
    ],
)
def test_other_hosts_are_unknown(host: str) -> None:
    with pytest.raises(UnknownHost):
        names.project_of(host, BASES)


def test_longest_base_name_wins() -> None:
    assert names.project_of("demo.loghub.svc", ["svc", "loghub.svc"]) == "demo"


@pytest.mark.parametrize(
    ("name", "direct", "loopback"),
    [
        ("127.0.0.1", True, True),
        ("127.8.8.8", True, True),
        ("10.0.0.1", True, False),
        ("localhost", True, True),
        ("::1", True, True),
        ("[::1]", True, True),
        ("loghub.svc", False, False),
        ("1.2.3", False, False),
    ],
)
def test_addresses_and_localhost_are_connected_to_directly(name: str, direct: bool, loopback: bool) -> None:
    assert names.is_direct(name) is direct
    assert names.is_loopback(name) is loopback


@pytest.mark.parametrize(
    ("name", "internal"),
    [
        ("loghub.svc", True),
        ("logs.team.svc.cluster.local", True),
        ("LOGHUB.SVC", True),
        ("localhost", True),
        ("127.0.0.1", True),
        ("[::1]", True),
        ("10.0.0.1", True),
        ("192.168.7.7", True),
        ("100.64.0.9", True),
        ("[fd00::7]", True),
        ("cn-hangzhou.log.aliyuncs.com", False),
        ("8.8.8.8", False),
        ("[2001:4860:4860::8888]", False),
        ("::ffff:8.8.8.8", False),
        ("loghub", False),  # with a project before it, a name below a public top-level domain
        ("svc", False),
        ("example.svc.example.com", False),
        ("examplesvc", False),
        ("", False),
    ],
)
def test_internal_hosts_are_in_the_cluster_or_have_private_addresses(name: str, internal: bool) -> None:
    assert names.is_internal(name) is internal


@pytest.mark.parametrize(
    ("endpoint", "allowed", "exposed"),
    [
        ("http://cn-hangzhou.log.aliyuncs.com", (), True),
        ("HTTP://cn-hangzhou.log.aliyuncs.com:8080", (), True),
        ("cn-hangzhou.log.aliyuncs.com", (), False),  # https, as clients read it
        ("10.0.0.1:8080", (), False),
        ("https://cn-hangzhou.log.aliyuncs.com", (), False),
        ("http://loghub.svc", (), False),
        ("http://10.0.0.1:8080", (), False),
        ("http://logs.example.com", ("logs.example.com",), False),
        ("http://Logs.Example.com:81", ("*.example.com",), False),
        ("http://logs.example.com.evil.org", ("*.example.com",), True),
        ("http://example.com", ("*.example.com",), True),
        ("http://8.8.8.8", ("*",), False),
        ("http://logs.example.org", ("logs.example.com", "*.example.com"), True),
        ("http://[::1", (), True),
    ],
)
def test_http_to_a_public_host_is_exposed_unless_it_is_allowed(
    endpoint: str, allowed: tuple[str, ...], exposed: bool
) -> None:
    assert names.is_exposed(endpoint, allowed) is exposed


def test_host_of_a_project() -> None:
    assert names.host_of("demo", "loghub.svc") == "demo.loghub.svc"
    assert names.host_of("", "loghub.svc") == "loghub.svc"
    assert names.project_of(names.host_of("demo", "127.0.0.1"), BASES) == "demo"


@pytest.mark.parametrize(
    "same",
    [
        ("http://loghub.svc", "http://loghub.svc/", "HTTP://LogHub.SVC:80", "http://loghub.svc.:80/"),
        ("https://host", "https://host:443", "https://HOST/", "https://host:0443"),
        (
            "http://127.0.0.1:8080",
            "http://127.0.0.1:8080/",
            "HTTP://LocalHost:8080",
            "http://localhost.:8080/",
            "http://[::1]:8080",
            "http://[0:0:0:0:0:0:0:1]:8080/",
            "http://[::ffff:127.0.0.1]:8080",
            "http://0.0.0.0:8080",
            "http://[::]:8080",
        ),
        ("http://[fd00::7]", "http://[FD00:0::7]:80/"),
        (
            "https://cn-hangzhou.log.aliyuncs.com",
            "http://cn-hangzhou.log.aliyuncs.com:80/",
            "https://CN-Hangzhou-intranet.log.aliyuncs.com",
            "http://cn-hangzhou-internal.log.aliyuncs.com",
        ),
        ("embedded", "embedded"),
    ],
)
def test_different_urls_of_one_log_service_have_one_key(same: tuple[str, ...]) -> None:
    assert len({names.log_service(one) for one in same}) == 1


def test_log_services_that_differ_or_may() -> None:
    endpoints = (
        "http://host",
        "https://host",
        "http://host:443",
        "http://host-internal",
        "http://host:99999",
        "http://localhost",
        "http://localhost:81",
        "https://localhost",
        "http://127.0.0.2",
        "http://localhost.example",
        "http://[fd00::7]",
        "http://embedded",
        "embedded",
        "",
        "https://cn-hangzhou.log.aliyuncs.com",
        "https://cn-hangzhou-finance.log.aliyuncs.com",
        "https://cn-shanghai-internal.log.aliyuncs.com",
        "https://cn-hangzhou.log.aliyuncs.com.example.org",
    )
    assert len({names.log_service(one) for one in endpoints}) == len(endpoints)
