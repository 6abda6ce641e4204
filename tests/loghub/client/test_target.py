"""The address, host header and proxy of a request (docs/sls-protocol.md 1.1)."""

import pytest

from loghub.client.target import BadEndpoint, parse, split_endpoint


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
