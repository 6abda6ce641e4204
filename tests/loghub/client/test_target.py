"""The address, host header and proxy of a request (docs/sls-protocol.md 1.1). A project is reached also at an
address that needs no name of the project, over TLS with its own certificate.
"""

import ssl
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from loghub.client.target import BadEndpoint, EndpointAt, parse, split_endpoint
from loghub.wire.errors import EndpointUnreachable
from tests.loghub_operator.support.certificates import Authority
from tests.support import running_service


@pytest.mark.parametrize(
    ("endpoint", "url", "host"),
    [
        ("http://127.0.0.1:18080", "http://127.0.0.1:18080", "demo.127.0.0.1"),
        ("127.0.0.1:18080", "http://127.0.0.1:18080", "demo.127.0.0.1"),
        ("http://localhost:80/", "http://localhost:80", "demo.localhost"),
        ("http://[::1]:8080", "http://[::1]:8080", "demo.[::1]"),
        ("http://loghub.svc", "http://demo.loghub.svc:80", "demo.loghub.svc"),
        ("loghub.ns.svc:8080", "http://demo.loghub.ns.svc:8080", "demo.loghub.ns.svc"),
        ("[fd00::1]:8080", "http://[fd00::1]:8080", "demo.[fd00::1]"),
        ("CN-hangzhou.log.example.com", "https://demo.cn-hangzhou.log.example.com:443", None),
        ("https://CN-hangzhou.log.example.com", "https://demo.cn-hangzhou.log.example.com:443", None),
    ],
)
def test_target_of_an_endpoint(endpoint: str, url: str, host: str | None) -> None:
    target = parse(endpoint, "demo")
    assert target.url == url
    assert target.host_header == (host or "demo.cn-hangzhou.log.example.com")


@pytest.mark.parametrize(
    "endpoint",
    [
        "",
        "http://",
        "ftp://x",
        "http://host:port",
        "http://host:99999",
        "http://host/path",
        "http://a@b",
        "h?q",
        "http://[::1",
        "http://[::1::]",
        "http://[host]",
    ],
)
def test_other_texts_are_no_endpoint(endpoint: str) -> None:
    with pytest.raises(BadEndpoint):
        split_endpoint(endpoint)


def test_proxy_of_the_environment_unless_named_in_no_proxy(monkeypatch: pytest.MonkeyPatch) -> None:
    for name in ("HTTP_PROXY", "http_proxy", "ALL_PROXY", "all_proxy", "no_proxy", "NO_PROXY"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setenv("https_proxy", "http://proxy.example.com:3128")
    monkeypatch.setenv("no_proxy", ".svc")
    assert parse("https://sls.example.com", "demo").proxy == "http://proxy.example.com:3128"
    assert parse("http://sls.example.com", "demo").proxy == ""
    assert parse("https://loghub.svc", "demo").proxy == ""
    assert parse("https://127.0.0.1", "demo").proxy == ""


@pytest.mark.parametrize("listed", ["fd00::7", "[fd00::7]"])
def test_an_ipv6_address_is_named_in_no_proxy_with_or_without_brackets(
    listed: str, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.setenv("http_proxy", "http://proxy.example.com:3128")
    monkeypatch.setenv("no_proxy", listed)
    assert parse("http://[fd00::7]:8080", "demo").proxy == ""
    assert parse("http://[fd00::8]:8080", "demo").proxy == "http://proxy.example.com:3128"


BASE_NAME = "loghub.svc"  # nothing resolves it here


def client_of(service_port: int, credentials: Credentials, scheme: str = "http") -> HttpLogHub:
    endpoint = EndpointAt(url=f"{scheme}://{BASE_NAME}", address=f"127.0.0.1:{service_port}")
    return HttpLogHub(endpoint, "demo", credentials=credentials)


def test_a_project_without_a_name_in_dns_is_created_and_found(tmp_path: Path) -> None:
    with running_service(tmp_path, extra=("--base-name", BASE_NAME)) as service:
        client = client_of(service.port, service.credentials)
        assert not client.project_exists()
        client.create_project()
        assert client.project_exists()
        assert client.has_extensions()
        client.close()


@pytest.mark.long
@pytest.mark.parametrize(("name", "valid"), [("demo.loghub.svc", True), ("localhost", False)])
def test_the_certificate_must_be_that_of_the_projects_host(
    name: str, valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority("test")
    authority.write_pair(tmp_path, name)
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(authority.pem)
    monkeypatch.setenv(ssl.get_default_verify_paths().openssl_cafile_env, str(trusted))
    extra = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with running_service(tmp_path, extra=("--base-name", BASE_NAME, *extra)) as service:
        client = client_of(service.port, service.credentials, "https")
        if valid:
            assert not client.project_exists()
        else:
            with pytest.raises(EndpointUnreachable, match=r"loghub\.svc.*demo\.loghub\.svc"):
                client.project_exists()
        client.close()
