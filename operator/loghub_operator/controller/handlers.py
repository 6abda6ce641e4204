"""Kopf handlers: each watch event enqueues a reconcile of the affected groups.

The handlers watch the groups and their StatefulSets. They pass on no details of a change, because
`loghub_operator.controller.reconciler` observes the group itself.

The operator uses event handlers only. Kopf's own finalizer, annotations and progress records are not used, so
nothing is written to an idle object, and a group whose deletion began before this process started is handled
like any other (docs/decisions/operator.md).
"""

from collections.abc import Iterator
from itertools import chain, repeat
from typing import Any

import kopf

from loghub_operator.api.labels import LABEL_INSTANCE, LABEL_MANAGED_BY, LABEL_NAME, MANAGER, WORKER
from loghub_operator.api.v1alpha1 import GROUP, PLURAL, VERSION
from loghub_operator.controller.reconciler import Key, Reconciler
from loghub_operator.controller.watch_check import WatchCheck
from loghub_operator.observe.group_index import GroupIndex

BACKOFFS_S = (0.5, 1.0, 2.0, 5.0)
_OURS = {LABEL_MANAGED_BY: MANAGER, LABEL_NAME: WORKER}


def register(registry: kopf.OperatorRegistry) -> None:
    """Registers the handlers; their ``memo`` must have ``reconciler``, ``roll_call`` (a `WatchCheck`) and
    ``claims`` (a `GroupIndex`)."""
    kopf.on.login(registry=registry)(login)
    kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(on_group_event)
    kopf.on.event("apps", "v1", "statefulsets", labels=_OURS, registry=registry)(on_statefulset_event)


def login(**details: Any) -> kopf.ConnectionInfo | None:
    """Logs in with the pod's service account, or with a kubeconfig outside a cluster."""
    return kopf.login_with_service_account(**details) or kopf.login_with_kubeconfig(**details)


async def on_group_event(
    *,
    namespace: str | None,
    name: str | None,
    uid: str | None,
    type: str | None,
    meta: kopf.Meta,
    body: kopf.Body,
    memo: kopf.Memo,
    **_: Any,
) -> None:
    """Enqueues an object that was created, changed or deleted, and those that share its consumer group."""
    known = (namespace or "default", name or "", uid or "")
    roll_call = memo.roll_call
    assert isinstance(roll_call, WatchCheck)
    claims = memo.claims
    assert isinstance(claims, GroupIndex)
    version = ""
    if type == "DELETED":
        roll_call.told_gone(known)
        concerned = claims.gone(*known)
    else:
        version = meta.get("resourceVersion", "")
        roll_call.told(known, version)
        concerned = claims.seen(body)
    _reconciler(memo).enqueue(Key(*known[:2]), version=version)
    for other in concerned:
        _reconciler(memo).enqueue(Key(*other))


async def on_statefulset_event(
    *, namespace: str | None, labels: kopf.Labels, memo: kopf.Memo, **_: Any
) -> None:
    """Enqueues the group of a worker StatefulSet that changed, for example its number of ready pods."""
    _reconciler(memo).enqueue_known(Key(namespace or "default", labels[LABEL_INSTANCE]))


def _reconciler(memo: kopf.Memo) -> Reconciler:
    reconciler = memo.reconciler
    assert isinstance(reconciler, Reconciler)
    return reconciler


class Backoffs:
    """Endless sequence of seconds between retries, so that an outage of the API server causes no restart."""

    def __iter__(self) -> Iterator[float]:
        return chain(BACKOFFS_S, repeat(BACKOFFS_S[-1]))


def settings() -> kopf.OperatorSettings:
    """Settings with which Kopf writes nothing to the cluster and needs no further permissions."""
    made = kopf.OperatorSettings()
    made.posting.enabled = False
    made.scanning.disabled = True
    made.watching.server_timeout = 300  # an integer, because the API server rejects fractions
    made.watching.client_timeout = 330
    made.queueing.exit_timeout = 0.5  # our handlers only enqueue a reconcile
    made.execution.max_workers = 1
    made.networking.error_backoffs = Backoffs()
    return made
