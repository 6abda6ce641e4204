"""``external.metrics.k8s.io/v1beta1``: the documents that HPAs and kubectl read.

Each value has the label ``consumerGroup``, the name of the LogHubConsumerGroup. An HPA adds up the values
that its selector matches, so if any of them is unknown, the whole request fails.
"""

import math
from typing import Any

from loghub_operator.api.conditions import rfc3339
from loghub_operator.autoscaling.external_metrics import label_selector as selectors
from loghub_operator.autoscaling.metric_catalog import BY_METRIC, METRICS, AutoscalingMetric, current_value
from loghub_operator.metrics.store import MetricsStore, UnknownGroupError
from loghub_operator.model.group_metrics import GroupMetrics

GROUP = "external.metrics.k8s.io"
VERSION = "v1beta1"
GROUP_VERSION = f"{GROUP}/{VERSION}"
LABEL = "consumerGroup"
Document = dict[str, Any]
REASONS = {400: "BadRequest", 403: "Forbidden", 404: "NotFound", 503: "ServiceUnavailable", 504: "Timeout"}


MAX_QUANTITY = 2**63 // 1000 - 1


def quantity(value: float) -> str:
    """The value as a Kubernetes quantity in thousandths, rounded up: "1500m" for 1.5, "3" for 3. A value
    beyond the range of quantities becomes the end of the range."""
    thousandths = math.ceil(round(min(max(value, -MAX_QUANTITY), MAX_QUANTITY) * 1000, 6))
    units, remainder = divmod(thousandths, 1000)
    return f"{thousandths}m" if remainder else str(units)


class UnknownMetricError(LookupError):
    """No metric has this name; the message lists those that exist."""


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
    requirements = selectors.parse(selector)
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
