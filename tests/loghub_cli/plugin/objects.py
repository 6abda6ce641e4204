"""A LogHubConsumerGroup with troubles, as `kubectl get -o json` prints one; the model takes it."""

import copy
from typing import Any

from tests.loghub_operator.support.examples import Document, document, merge

AT = "2026-11-26T18:49:24Z"
AT_UNIX_S = 1_795_718_964
CAST = "shard 7 waits at cursor MTc5NTcxODk2NDAwMDAwMDAwMA== (PipelineFailed, CAST_INVALID_INPUT, 4 attempts)"


def condition(kind: str, status: str, reason: str, message: str = "") -> Document:
    return {
        "type": kind,
        "status": status,
        "reason": reason,
        "message": message,
        "lastTransitionTime": AT,
        "observedGeneration": 2,
    }


WELL = (
    condition("Ready", "True", "Running"),
    condition("GroupSynced", "True", "UpToDate"),
    condition("WorkersAvailable", "True", "AllWorkersReady"),
    condition("Rebalancing", "False", "Balanced"),
    condition("LagAvailable", "True", "Available"),
    condition("ScalingActive", "False", "ScalingDisabled", "spec.replicas decides"),
    condition("ScalingLimited", "False", "DesiredWithinRange"),
    condition("HotShard", "False", "NoHotShard"),
    condition("ShardFailing", "False", "NoShardFailing"),
    condition("GroupWasLost", "False", "HasCheckpoints"),
    condition("StateIncomplete", "False", "NoState"),
    condition("LogsDroppedAsLate", "False", "NothingLate"),
    condition("Suspended", "False", "NotSuspended"),
    condition("Stalled", "False", "Progressing"),
    condition("Degraded", "False", "AsExpected"),
)


def shard(number: int, consumer: str | None = None, **fields: Any) -> Document:
    held = {} if consumer is None else {"consumer": consumer}
    state = "not_alloc" if consumer is None else "already_alloc"
    lag = {"lagLogs": 10 * number, "lagSeconds": number}
    return {"id": number, "state": state, "observedAt": AT, **lag, **held, **fields}


def group(*changed: Document, spec: Document | None = None, **status: Any) -> Document:
    """Well, with two workers and four shards, but for the conditions and the fields of the status that
    change."""
    of = {one["type"]: one for one in (*WELL, *changed)}
    report: Document = {
        "phase": "Running",
        "observedGeneration": 2,
        "replicas": 2,
        "readyReplicas": 2,
        "updatedReplicas": 2,
        "workers": "2/2",
        "shardSummary": {"total": 4, "assignable": 4, "waiting": 0, "completed": 0},
        "lag": {"seconds": 3, "logs": 60},
        "shards": [shard(0, "access-0"), shard(1, "access-1"), shard(2, "access-0"), shard(3, "access-1")],
        "conditions": list(of.values()),
    }
    merge(report, copy.deepcopy(status))
    scaling = {"mode": "Fixed", "minReplicas": 0, "maxReplicas": 10}
    return {**document({"scaling": scaling, **(spec or {})}), "status": report}


def pod(name: str, *, ready: bool = True, restarts: int = 0, **status: Any) -> Document:
    container = {"name": "worker", "ready": ready, "restartCount": restarts, "state": {"running": {}}}
    report: Document = {
        "conditions": [{"type": "Ready", "status": str(ready)}],
        "containerStatuses": [container],
    }
    merge(container, status.pop("container", {}))
    return {"metadata": {"name": name, "namespace": "default"}, "status": {**report, **status}}
