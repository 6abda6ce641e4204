"""Request header authentication: identifies the user of a request from the API server's aggregation layer.

The module reads the configuration of the API server's front proxy from the ConfigMap
``kube-system/extension-apiserver-authentication``, and the user from the headers of a proxied request.

The rules are those of Kubernetes ("Configure the Aggregation Layer"): a request is authenticated only if its
client certificate is signed by the request-header CA and has one of the allowed names, or any name if none is
listed. The headers then identify the user.
"""

from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

AUTHENTICATION_CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")
MAX_VALUES = 256
Headers = Iterable[tuple[str, str]]


class NotAggregatedError(LookupError):
    """The front proxy's configuration is missing or invalid; the message says what is wrong."""


@dataclass(frozen=True, slots=True, kw_only=True)
class FrontProxy:
    """Which client certificates are trusted, and which headers identify the user, with lower-case names."""

    ca: str
    allowed_names: tuple[str, ...]
    user_headers: tuple[str, ...]
    group_headers: tuple[str, ...]
    extra_prefixes: tuple[str, ...]


@dataclass(frozen=True, slots=True)
class User:
    """The user who sent the request to the API server."""

    name: str
    groups: tuple[str, ...] = ()
    extra: tuple[tuple[str, tuple[str, ...]], ...] = ()


def front_proxy_of(config_map: Mapping[str, Any]) -> FrontProxy:
    """The front proxy's configuration in the ConfigMap. Raises `NotAggregatedError`."""
    data = config_map.get("data") or {}
    ca = data.get("requestheader-client-ca-file", "")
    if not ca:
        raise NotAggregatedError("the apiserver runs without --requestheader-client-ca-file")
    if not ca.isascii():
        raise NotAggregatedError("requestheader-client-ca-file of the front proxy is no PEM")
    return FrontProxy(
        ca=ca,
        allowed_names=_listed(data, "requestheader-allowed-names"),
        user_headers=_lower(_listed(data, "requestheader-username-headers")),
        group_headers=_lower(_listed(data, "requestheader-group-headers")),
        extra_prefixes=_lower(_listed(data, "requestheader-extra-headers-prefix")),
    )


def _listed(data: Mapping[str, str], key: str) -> tuple[str, ...]:
    """A list of strings in JSON. Anything else is an error: an invalid list of allowed names must not be
    treated as empty, which allows any name."""
    try:
        return msgspec.json.decode(data.get(key, "[]"), type=tuple[str, ...])
    except ValueError as error:
        raise NotAggregatedError(f"{key} of the front proxy is no list of texts in JSON") from error


def _lower(names: tuple[str, ...]) -> tuple[str, ...]:
    return tuple(name.lower() for name in names)


def is_front_proxy(proxy: FrontProxy, certificate: Mapping[str, Any] | None) -> bool:
    """Whether the certificate is the front proxy's. It is signed by the CA and has the form that `ssl`
    returns."""
    parts = (part for name in (certificate or {}).get("subject", ()) for part in name)
    names = [value for kind, value in parts if kind == "commonName"]
    return bool(names) and (
        not proxy.allowed_names or any(common_name in proxy.allowed_names for common_name in names)
    )


def user_of(proxy: FrontProxy, headers: Headers) -> User | None:
    """The user that the headers identify, or None if they name no user."""
    lower = [(name.lower(), value) for name, value in headers]
    names = [value for name, value in lower if name in proxy.user_headers and value]
    if not names:
        return None
    groups = tuple(value for name, value in lower if name in proxy.group_headers)
    return User(names[0], groups[:MAX_VALUES], _extra(proxy, lower))


def _extra(proxy: FrontProxy, lower: list[tuple[str, str]]) -> tuple[tuple[str, tuple[str, ...]], ...]:
    found: dict[str, list[str]] = {}
    for name, value in lower[:MAX_VALUES]:
        for prefix in proxy.extra_prefixes:
            if name.startswith(prefix):
                found.setdefault(unquote(name.removeprefix(prefix)), []).append(value)
    return tuple(sorted((key, tuple(values)) for key, values in found.items()))
