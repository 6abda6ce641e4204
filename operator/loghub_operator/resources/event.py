"""Builds the Event that reports something about a LogHubConsumerGroup."""

from datetime import UTC, datetime
from typing import Any

from loghub_operator.api.labels import MANAGER
from loghub_operator.api.v1alpha1 import API_VERSION, KIND, LogHubConsumerGroup
from loghub_operator.model import actions

Document = dict[str, Any]
LONGEST_NOTE_BYTES = 1024


def event_of(
    resource: LogHubConsumerGroup, event: actions.EmitEvent, *, instance: str, unix_s: float
) -> Document:
    """An Event about the CR, without a name; ``instance`` is the name of the operator's pod."""
    name, namespace = resource.metadata.name, resource.metadata.namespace
    regarding = {
        "apiVersion": API_VERSION,
        "kind": KIND,
        "name": name,
        "namespace": namespace,
        "uid": resource.metadata.uid,
    }
    return {
        "apiVersion": "events.k8s.io/v1",
        "kind": "Event",
        "metadata": {"namespace": namespace},
        "eventTime": datetime.fromtimestamp(unix_s, UTC).strftime("%Y-%m-%dT%H:%M:%S.%fZ"),
        "reportingController": f"loghub.dev/{MANAGER}",
        "reportingInstance": instance,
        "action": "Reconcile",
        "reason": event.reason,
        # The API server's limit is in bytes.
        "note": event.message.encode()[:LONGEST_NOTE_BYTES].decode(errors="ignore"),
        "type": event.type,
        "regarding": regarding,
    }


def series_of(count: int, last: Document) -> Document:
    """The series of an Event that happened so often, and last as the Event ``last`` says."""
    return {"count": count, "lastObservedTime": last["eventTime"]}
