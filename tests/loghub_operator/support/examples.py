"""A complete consumer group for tests, and ways to vary it."""

import copy
from typing import Any

from loghub_operator.api import LogHubConsumerGroup, parse_resource

Document = dict[str, Any]

MINIMAL: Document = {
    "apiVersion": "loghub.dev/v1alpha1",
    "kind": "LogHubConsumerGroup",
    "metadata": {"name": "access", "namespace": "default"},
    "spec": {
        "project": "demo",
        "logstore": "access",
        "pipeline": {
            "sql": "SELECT contents['line'] AS line FROM logs",
            "sink": {"parquet": {"path": "access", "volumeClaim": "sink"}},
        },
    },
}


def document(spec: Document | None = None, **metadata: Any) -> Document:
    """`MINIMAL` with parts of the spec merged in (None removes) and metadata set."""
    result = copy.deepcopy(MINIMAL)
    merge(result["spec"], spec or {})
    result["metadata"].update(metadata)
    return result


def resource(
    spec: Document | None = None, status: Document | None = None, **metadata: Any
) -> LogHubConsumerGroup:
    """The same, parsed."""
    return parse_resource({**document(spec, **metadata), "status": status or {}})


def merge(target: Document, patch: Document) -> None:
    """JSON merge patch: a list replaces, None removes."""
    for key, value in patch.items():
        if value is None:
            target.pop(key, None)
        elif isinstance(value, dict):
            if not isinstance(target.get(key), dict):
                target[key] = {}
            merge(target[key], value)
        else:
            target[key] = copy.deepcopy(value)


def subscribed(kind: str, patch: Document | None = None) -> Document:
    """The patch of a spec that consumes a subscription of this type with a processor."""
    result: Document = {
        "subscription": {"type": kind},
        "pipeline": {
            "sql": None,
            "sink": None,
            "processor": {"factory": "calls:Call", "acknowledge": "Log"},
        },
    }
    for key, value in (patch or {}).items():
        if isinstance(value, dict) and isinstance(result.get(key), dict):
            merge(result[key], value)
        else:
            result[key] = value
    return result
