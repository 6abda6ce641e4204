"""Kopf's handlers, which enqueue a reconcile of the affected groups for each watch event, and Kopf's login.

The handlers watch the groups, their StatefulSets and their workers' pods; of StatefulSets and pods the API
server sends only objects with our labels. They pass on no details of a change, because
`loghub_operator.controller.reconciler` observes the group itself. An event of a StatefulSet or pod counts
only if it changes what an observation reads; Kopf's memo of the object keeps a hash of that, never the
object.

The operator uses event handlers only. Kopf's own finalizer, annotations and progress records are not used, so
nothing is written to an idle object, and a group whose deletion began before this process started is handled
like any other (docs/decisions/operator.md).

Kopf logs in with the configuration of our own client, so both talk to the same cluster as the same user, and
both see a rotated token: our client takes the configuration's current credentials for each call, and Kopf
logs in again when a login is `LOGIN_S` old or was rejected.
"""

import asyncio
import json
from collections.abc import Awaitable, Callable, Iterator
from datetime import UTC, datetime, timedelta
from itertools import count
from typing import Any

import kopf
import structlog

from loghub.backoff import backoff_s
from loghub.clock import Clock
from loghub_operator.api.labels import LABEL_INSTANCE, LABEL_MANAGED_BY, LABEL_NAME, MANAGER, WORKER
from loghub_operator.api.v1alpha1 import GROUP, PLURAL, VERSION
from loghub_operator.clients.kube import PAGE, KubeConnection
from loghub_operator.controller.reconciler import Reconciler
from loghub_operator.controller.watch_check import WatchCheck
from loghub_operator.controller.workqueue import Key
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.observe.pods import worker_from_pod
from loghub_operator.resources import is_observed

log = structlog.get_logger()


# A token of a pod is valid for an hour at least, and replaced after four fifths of that.
LOGIN_S = 300.0
PAUSE_S = 5.0  # least time between two logins: credentials that are rejected again cause no storm


class KopfLogin:
    """A login handler of Kopf's; asks ``connection`` for the present credentials at each login."""

    def __init__(self, connection: Callable[[], Awaitable[KubeConnection]], clock: Clock) -> None:
        self._connection = connection
        self._clock = clock
        self._next_s = float("-inf")

    async def login(self, **_: Any) -> kopf.ConnectionInfo:
        """Returns the credentials. Raises `kopf.TemporaryError` if they cannot be read now."""
        await asyncio.sleep(max(0.0, self._next_s - self._clock.monotonic_s()))
        self._next_s = self._clock.monotonic_s() + PAUSE_S
        try:
            return connection_info(await self._connection(), now_unix_s=self._clock.unix_s())
        except (OSError, ValueError) as error:
            log.error("credentials not read", error=str(error))
            raise kopf.TemporaryError(str(error), delay=PAUSE_S) from error


def connection_info(connection: KubeConnection, *, now_unix_s: float) -> kopf.ConnectionInfo:
    """The same in Kopf's terms, to be replaced after `LOGIN_S`."""
    scheme, _, token = (connection.authorization or "").strip().partition(" ")
    return kopf.ConnectionInfo(
        server=connection.server,
        insecure=not connection.verify_tls,
        ca_path=connection.ca_file,
        certificate_path=connection.cert_file,
        private_key_path=connection.key_file,
        proxy_url=connection.proxy,
        scheme=scheme or None,
        token=token or None,
        expiration=datetime.fromtimestamp(now_unix_s, UTC) + timedelta(seconds=LOGIN_S),
    )


FIRST_BACKOFF_S, MAX_BACKOFF_S = 0.5, 5.0
STATEFUL_SETS = ("apps", "v1", "statefulsets")
PODS = ("v1", "pods")
# The instance is the group's name, so the handlers can rely on it.
SELECTOR = f"{LABEL_MANAGED_BY}={MANAGER},{LABEL_NAME}={WORKER},{LABEL_INSTANCE}"
_NOT_READ = ("managedFields", "resourceVersion")  # of a StatefulSet's metadata; they change with its status


def register(registry: kopf.OperatorRegistry, login: KopfLogin) -> None:
    """Registers the handlers. Their ``memo`` must have ``reconciler``, ``watch_check`` and
    ``group_index``."""
    kopf.on.login(registry=registry)(login.login)
    kopf.on.cleanup(registry=registry)(on_cleanup)
    kopf.on.event(GROUP, VERSION, PLURAL, registry=registry)(on_group_event)
    kopf.on.event(*STATEFUL_SETS, registry=registry)(on_statefulset_event)
    kopf.on.event(*PODS, registry=registry)(on_pod_event)


async def on_cleanup(*, memo: kopf.Memo, **_: Any) -> None:
    """Ends all reconciles when Kopf stops, which SIGTERM makes it do. It takes their tasks for its own and
    would wait five seconds for them, and the lease would be released as much later."""
    await _reconciler(memo).close()


async def on_group_event(*, type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Enqueues an object that was created, changed or deleted, and the objects that share its group."""
    metadata = body["metadata"]
    incarnation = (metadata["namespace"], metadata["name"], metadata["uid"])
    watch_check = memo.watch_check
    assert isinstance(watch_check, WatchCheck)
    group_index = memo.group_index
    assert isinstance(group_index, GroupIndex)
    version = ""
    if type == "DELETED":
        watch_check.deletion_reported(incarnation)
        affected = group_index.remove(*incarnation)
    else:
        version = metadata.get("resourceVersion", "")
        watch_check.reported(incarnation, version)
        affected = group_index.update(body)
    _reconciler(memo).enqueue(Key(*incarnation[:2]), version=version)
    for other in affected:
        _reconciler(memo).enqueue(Key(*other))


async def on_statefulset_event(*, type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Enqueues the group of a StatefulSet whose metadata or spec changed, or whose controller has observed
    that. The rest of its status is not read: the pods say more."""
    metadata = {key: value for key, value in body["metadata"].items() if key not in _NOT_READ}
    read = (type == "DELETED", json.dumps(metadata, sort_keys=True), is_observed(dict(body)))
    _enqueue_if_changed(memo, body, read)


async def on_pod_event(*, type: str | None, body: kopf.Body, memo: kopf.Memo, **_: Any) -> None:
    """Enqueues the group of a pod in which an observation would now see a different worker, for example one
    whose image cannot be pulled."""
    worker = worker_from_pod(dict(body), now=0.0)  # so early that no termination is overdue
    _enqueue_if_changed(memo, body, (type == "DELETED", worker))


def _enqueue_if_changed(memo: kopf.Memo, body: kopf.Body, read: object) -> None:
    """``read``: what an observation reads of the object."""
    digest = hash(read)
    if memo.get("digest") == digest:
        return
    memo.digest = digest
    metadata = body["metadata"]
    _reconciler(memo).enqueue_known(Key(metadata["namespace"], metadata["labels"][LABEL_INSTANCE]))


def _reconciler(memo: kopf.Memo) -> Reconciler:
    reconciler = memo.reconciler
    assert isinstance(reconciler, Reconciler)
    return reconciler


class Backoffs:
    """Endless sequence of seconds between retries, so that an outage of the API server causes no restart."""

    def __iter__(self) -> Iterator[float]:
        return (backoff_s(n, first_s=FIRST_BACKOFF_S, max_s=MAX_BACKOFF_S) for n in count(1))


def settings() -> kopf.OperatorSettings:
    """Settings with which Kopf writes nothing to the cluster and needs no further permissions."""
    result = kopf.OperatorSettings()
    result.posting.enabled = False
    result.scanning.disabled = True
    result.watching.server_timeout = 300  # an integer, because the API server rejects fractions
    result.watching.client_timeout = 330
    result.watching.label_selectors[STATEFUL_SETS] = SELECTOR
    result.watching.label_selectors[PODS] = SELECTOR
    # Bound what is in memory at once: a page of a list, and per object its last event for a moment.
    result.watching.chunk_size = PAGE
    result.queueing.idle_timeout = 0.1
    result.queueing.exit_timeout = 0.5  # our handlers only enqueue a reconcile
    result.execution.max_workers = 1
    result.networking.error_backoffs = Backoffs()
    return result
