"""``external.metrics.k8s.io/v1beta1``: who asks, what is selected, and the documents that HPAs and kubectl
read.

Each value has the label ``consumerGroup``, the name of the LogHubConsumerGroup. An HPA's metric selects
groups by a label selector, in the grammar of Kubernetes: ``a=b``, ``a==b``, ``a!=b``, ``a in (b,c)``, ``a
notin (b,c)``, ``a`` and ``!a``, joined by commas. A missing label matches ``!=``, ``notin`` and ``!``. The
HPA adds up the values that its selector matches, so if any of them is unknown, the whole request fails.

Requests come through the API server's aggregation layer, which has authenticated the user. As "Configure the
Aggregation Layer" in the Kubernetes documentation says, a request counts only if its client certificate is
signed by the request-header CA and has one of the allowed names, or any name if none is listed; its headers
then identify the user. The ConfigMap ``kube-system/extension-apiserver-authentication`` has the configuration
of that proxy.
"""

import math
import re
from collections.abc import Iterable, Mapping
from dataclasses import dataclass
from typing import Any
from urllib.parse import unquote

import msgspec

from loghub_operator.api.conditions import rfc3339
from loghub_operator.autoscaling.metric_catalog import BY_METRIC, METRICS, AutoscalingMetric, current_value
from loghub_operator.metrics.store import MetricsStore, UnknownGroupError
from loghub_operator.model.group_metrics import GroupMetrics

MAX_LENGTH = 4096  # a selector of an HPA has a few labels of 63 characters
_KEY = r"[A-Za-z0-9]([A-Za-z0-9_./-]{0,315}[A-Za-z0-9])?"
_VALUE = r"[A-Za-z0-9_.-]{0,63}"
_REQUIREMENT = re.compile(
    rf"\s*(?:(?P<key>{_KEY})\s*(?:(?P<sign>==|=|!=)\s*(?P<value>{_VALUE})"
    rf"|\s(?P<set>in|notin)\s*\((?P<values>[A-Za-z0-9_.,\s-]*)\))?|!\s*(?P<absent>{_KEY}))\s*(?:,|$)"
)


class BadSelectorError(ValueError):
    """The text is not a label selector; the message shows where parsing failed."""


@dataclass(frozen=True, slots=True)
class Requirement:
    """One requirement: the label has one of ``values``, or exists if ``values`` is None. ``expected`` False
    negates it."""

    key: str
    values: frozenset[str] | None
    expected: bool

    def matches(self, labels: Mapping[str, str]) -> bool:
        """Whether these labels meet the requirement."""
        present = self.key in labels and (self.values is None or labels[self.key] in self.values)
        return present == self.expected


def parse(text: str) -> tuple[Requirement, ...]:
    """The requirements, all of which must be met; an empty text has none. Raises `BadSelectorError`."""
    if len(text) > MAX_LENGTH:
        raise BadSelectorError(f"a label selector has at most {MAX_LENGTH} characters")
    requirements, position = [], 0
    while position < len(text):
        match = _REQUIREMENT.match(text, position)
        if match is None:
            raise BadSelectorError(f"not a label selector: {text[position:]!r:.80}")
        requirements.append(_requirement(match))
        position = match.end()
    return tuple(requirements)


def _requirement(match: "re.Match[str]") -> Requirement:
    if match["absent"]:
        return Requirement(match["absent"], None, expected=False)
    if match["sign"]:
        return Requirement(match["key"], frozenset((match["value"],)), expected=match["sign"] != "!=")
    if match["set"]:
        values = frozenset(value.strip() for value in match["values"].split(","))
        return Requirement(match["key"], values, expected=match["set"] == "in")
    return Requirement(match["key"], None, expected=True)


AUTHENTICATION_CONFIG_MAP = ("kube-system", "extension-apiserver-authentication")
MAX_VALUES = 256  # more than any user has groups; bounds the SubjectAccessReview that follows
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
    extra: dict[str, list[str]] = {}
    for name, value in lower[:MAX_VALUES]:
        for prefix in proxy.extra_prefixes:
            if name.startswith(prefix):
                extra.setdefault(unquote(name.removeprefix(prefix)), []).append(value)
    return tuple(sorted((key, tuple(values)) for key, values in extra.items()))


GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
LABEL = "consumerGroup"
Document = dict[str, Any]
REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 503: "ServiceUnavailable", 504: "Timeout"}


MAX_QUANTITY = 2**63 // 1000 - 1  # thousandths of a quantity are a signed 64-bit number


def quantity(value: float) -> str:
    """The value as a Kubernetes quantity in thousandths, rounded up: "1500m" for 1.5, "3" for 3. A value
    beyond the range of quantities becomes the end of the range."""
    thousandths = math.ceil(round(min(max(value, -MAX_QUANTITY), MAX_QUANTITY) * 1000, 6))
    units, remainder = divmod(thousandths, 1000)
    return f"{thousandths}m" if remainder else str(units)


class UnknownMetricError(LookupError):
    """No metric has this name; the message lists the metrics that exist."""


def group_list() -> Document:
    """The response of ``/apis``."""
    return {"kind": "APIGroupList", "apiVersion": "v1", "groups": [_group()]}


def group() -> Document:
    """The response of ``/apis/external.metrics.k8s.io``."""
    return {"kind": "APIGroup", "apiVersion": "v1", **_group()}


def _group() -> Document:
    version = {"groupVersion": GROUP_VERSION, "version": VERSION}
    return {"name": GROUP, "versions": [version], "preferredVersion": version}


def resource_list() -> Document:
    """The response of ``/apis/external.metrics.k8s.io/v1beta1``."""
    attributes = {"singularName": "", "namespaced": True, "kind": "ExternalMetricValueList", "verbs": ["get"]}
    resources = [{"name": definition.metric, **attributes} for definition in METRICS]
    return {
        "kind": "APIResourceList",
        "apiVersion": "v1",
        "groupVersion": GROUP_VERSION,
        "resources": resources,
    }


def value_list(store: MetricsStore, *, namespace: str, metric: str, selector: str) -> Document:
    """The values of a metric for the groups that the selector matches.

    Raises `UnknownMetricError`, `BadSelectorError`, `UnknownGroupError` if no group matches, and
    `UnknownValueError` if the value of any matching group is currently unknown, or if it is not known which
    groups there are.
    """
    definition = BY_METRIC.get(metric)
    if definition is None:
        raise UnknownMetricError(f"unknown metric {metric!r:.80}; the metrics are {', '.join(BY_METRIC)}")
    requirements = parse(selector)
    names = [
        name
        for name in store.names(namespace)
        if all(requirement.matches({LABEL: name}) for requirement in requirements)
    ]
    if not names:
        raise UnknownGroupError(f"no LogHubConsumerGroup in namespace {namespace} matches {selector!r:.200}")
    items = [_value(definition, store.read(namespace, name)) for name in names]
    return {"kind": "ExternalMetricValueList", "apiVersion": GROUP_VERSION, "metadata": {}, "items": items}


def _value(definition: AutoscalingMetric, readings: GroupMetrics) -> Document:
    return {
        "metricName": definition.metric,
        "metricLabels": {LABEL: readings.name},
        "timestamp": rfc3339(readings.at_unix_s),
        "value": quantity(current_value(definition, readings)),
    }


def failure(status: int, message: str) -> Document:
    """A Kubernetes ``Status``; an HPA shows its message in a condition."""
    return {
        "kind": "Status",
        "apiVersion": "v1",
        "metadata": {},
        "status": "Failure",
        "message": message,
        "reason": REASONS[status],
        "code": status,
    }
