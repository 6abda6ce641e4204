"""The user of a request that comes through the aggregation layer."""

import json
from typing import Any

import pytest

from loghub_operator.autoscaling.external_metrics import (
    FrontProxy,
    NotAggregatedError,
    User,
    front_proxy_of,
    is_front_proxy,
    user_of,
)

# As kube-apiserver writes it.
DATA = {
    "client-ca-file": "another",
    "requestheader-allowed-names": '["front-proxy-client"]',
    "requestheader-client-ca-file": "PEM",
    "requestheader-extra-headers-prefix": '["X-Remote-Extra-"]',
    "requestheader-group-headers": '["X-Remote-Group"]',
    "requestheader-username-headers": '["X-Remote-User"]',
}


def proxy(**data: str) -> FrontProxy:
    return front_proxy_of(
        {"data": DATA | {f"requestheader-{key.replace('_', '-')}": text for key, text in data.items()}}
    )


def certificate(*names: str) -> dict[str, Any]:
    """As `ssl` reports it."""
    return {"subject": tuple((("commonName", name),) for name in names)}


def test_read_from_the_config_map() -> None:
    assert proxy() == FrontProxy(
        ca="PEM",
        allowed_names=("front-proxy-client",),
        user_headers=("x-remote-user",),
        group_headers=("x-remote-group",),
        extra_prefixes=("x-remote-extra-",),
    )


@pytest.mark.parametrize("result", [{}, {"data": None}, {"data": {"client-ca-file": "x"}}])
def test_an_apiserver_without_a_front_proxy(result: dict[str, Any]) -> None:
    with pytest.raises(NotAggregatedError, match="--requestheader-client-ca-file"):
        front_proxy_of(result)


@pytest.mark.parametrize(
    "text",
    ["front-proxy-client", "", "null", "{}", '"front-proxy-client"', "5", "true", "[1]", "[null]", '[["a"]]'],
)
def test_an_invalid_list_of_names_does_not_allow_any_name(text: str) -> None:
    with pytest.raises(NotAggregatedError, match="requestheader-allowed-names"):
        proxy(allowed_names=text)


def test_a_ca_that_contains_no_certificates_is_rejected() -> None:
    with pytest.raises(NotAggregatedError, match="no PEM"):
        proxy(client_ca_file="\N{SNOWMAN}")


def test_only_the_allowed_names() -> None:
    assert is_front_proxy(proxy(), certificate("front-proxy-client"))
    assert not is_front_proxy(proxy(), certificate("someone"))
    assert not is_front_proxy(proxy(), {})
    assert not is_front_proxy(proxy(), None)


def test_no_names_listed_allows_any_name_of_that_ca() -> None:
    assert is_front_proxy(proxy(allowed_names="[]"), certificate("someone"))
    assert not is_front_proxy(proxy(allowed_names="[]"), {"subject": ()})


def test_the_user_with_groups_and_extra() -> None:
    headers = [
        ("X-Remote-User", "jane"),
        ("x-remote-group", "a"),
        ("X-REMOTE-GROUP", "b"),
        ("X-Remote-Extra-Scopes", "one"),
        ("X-Remote-Extra-Scopes", "two"),
        ("X-Remote-Extra-Acme.com%2Fproject", "p"),
        ("Authorization", "Bearer x"),
    ]
    extra = (("acme.com/project", ("p",)), ("scopes", ("one", "two")))
    assert user_of(proxy(), headers) == User("jane", ("a", "b"), extra)


@pytest.mark.parametrize("headers", [[], [("X-Remote-User", "")], [("X-Remote-Group", "system:masters")]])
def test_a_request_without_a_user_is_rejected(headers: list[tuple[str, str]]) -> None:
    assert user_of(proxy(), headers) is None


def test_other_header_names_are_followed() -> None:
    names = json.dumps(["X-Other", "X-Second"])
    assert user_of(proxy(username_headers=names), [("x-second", "joe"), ("X-Remote-User", "jane")]) == User(
        "joe"
    )
