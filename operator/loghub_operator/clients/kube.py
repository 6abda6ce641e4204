"""The part of the Kubernetes API that the operator uses, behind one small port.

`loghub_operator.observe.observer` and `loghub_operator.apply.applier` work with objects as dicts and the
few verbs of `Kube`, so that tests can supply their own implementation. Objects that the operator owns are
written by server-side apply with a single field manager. Every call is bounded in time. If the API server
rejects a call, a `KubeError` carries its message.
"""

import builtins
import json
import os
from collections.abc import AsyncIterator, Awaitable, Callable, Mapping
from dataclasses import dataclass
from types import TracebackType
from typing import Any, Protocol, Self, cast

import aiohttp
from kubernetes.aio import config as kube_config
from kubernetes.aio.client import ApiClient, Configuration

from loghub.clock import Clock, SystemClock
from loghub_operator.api.labels import MANAGER

Document = dict[str, Any]
CALL_TIMEOUT_S = 15.0  # a page of a list takes a second or two on a busy API server
CREDENTIALS_S = 60.0  # age at which credentials are read again, in a pod as well as from a kubeconfig
PAGE = 500  # client-go's page: an answer of a few megabytes
MAX_PAGES = 200  # 100,000 objects, a guard against a list that never ends
_OK = range(200, 300)  # RFC 9110, section 15.3
FORBIDDEN = 403  # RFC 9110, section 15.5.4
_JSON = "application/json"
_METADATA_ONLY = "application/json;as=PartialObjectMetadataList;g=meta.k8s.io;v=v1"


@dataclass(frozen=True, slots=True)
class Kind:
    """A kind of object: its group and version as in ``apiVersion``, and its plural for URL paths."""

    api_version: str
    kind: str
    plural: str


CONSUMER_GROUP = Kind("loghub.dev/v1alpha1", "LogHubConsumerGroup", "loghubconsumergroups")
STATEFUL_SET = Kind("apps/v1", "StatefulSet", "statefulsets")
POD = Kind("v1", "Pod", "pods")
SERVICE = Kind("v1", "Service", "services")
CONFIG_MAP = Kind("v1", "ConfigMap", "configmaps")
SECRET = Kind("v1", "Secret", "secrets")
EVENT = Kind("events.k8s.io/v1", "Event", "events")
LEASE = Kind("coordination.k8s.io/v1", "Lease", "leases")
SERVICE_ACCOUNT = Kind("v1", "ServiceAccount", "serviceaccounts")
DISRUPTION_BUDGET = Kind("policy/v1", "PodDisruptionBudget", "poddisruptionbudgets")
ROLE_BINDING = Kind("rbac.authorization.k8s.io/v1", "RoleBinding", "rolebindings")
# Cluster-scoped kinds; their namespace is "".
API_SERVICE = Kind("apiregistration.k8s.io/v1", "APIService", "apiservices")
SUBJECT_ACCESS_REVIEW = Kind("authorization.k8s.io/v1", "SubjectAccessReview", "subjectaccessreviews")
_NAMESPACED = (
    CONSUMER_GROUP, STATEFUL_SET, POD, SERVICE, CONFIG_MAP, SECRET, EVENT, LEASE,
    SERVICE_ACCOUNT, DISRUPTION_BUDGET, ROLE_BINDING,
)  # fmt: skip
KINDS = {kind.kind: kind for kind in (*_NAMESPACED, API_SERVICE, SUBJECT_ACCESS_REVIEW)}


class KubeError(Exception):
    """The API server rejected the call (``status`` is the HTTP status) or did not answer (``status`` 0)."""

    def __init__(self, status: int, reason: str, message: str) -> None:
        super().__init__(f"{reason}: {message}")
        self.status = status
        self.reason = reason
        self.message = message


class Kube(Protocol):
    """The calls that the operator makes to an API server. "Not found" is None or False, never an error."""

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None: ...
    async def list(
        self, kind: Kind, namespace: str, labels: Mapping[str, str]
    ) -> builtins.list[Document]: ...
    async def versions(self, kind: Kind, namespace: str) -> dict[tuple[str, str, str], str]: ...
    async def warnings(self, namespace: str, uid: str) -> builtins.list[Document]: ...
    async def create(self, document: Document) -> Document: ...
    async def apply(self, document: Document, *, subresource: str = "") -> Document: ...
    async def patch(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document | None: ...
    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str = "") -> bool: ...


class AioKube:
    """`Kube` by the official asyncio client, without its generated models.

    ``on_response`` is called after each call with the method and the HTTP status (0: no response).
    """

    def __init__(
        self,
        configuration: Configuration,
        *,
        manager: str = MANAGER,
        on_response: Callable[[str, int], None] = lambda _method, _status: None,
    ) -> None:
        self._client = ApiClient(configuration)
        self._manager = manager
        self._on_response = on_response

    async def __aenter__(self) -> Self:
        return self

    async def __aexit__(
        self, kind: type[BaseException] | None, error: BaseException | None, trace: TracebackType | None
    ) -> None:
        await self._client.close()

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        """Returns the object, or None if it does not exist."""
        return await self._call_or_none("GET", _path(kind, namespace, name))

    async def list(self, kind: Kind, namespace: str, labels: Mapping[str, str]) -> builtins.list[Document]:
        """Lists all objects with these labels, page by page; ``namespace`` "" means all namespaces."""
        selector = ",".join(f"{key}={value}" for key, value in sorted(labels.items()))
        query = [("labelSelector", selector)]
        return [document async for page in self._pages(kind, namespace, query) for document in page]

    async def versions(self, kind: Kind, namespace: str) -> dict[tuple[str, str, str], str]:
        """Returns the resource version of each object by namespace, name and UID, without its content."""
        pages = self._pages(kind, namespace, [], accept=_METADATA_ONLY)
        listed = [document["metadata"] async for page in pages for document in page]
        return {(one["namespace"], one["name"], one["uid"]): one["resourceVersion"] for one in listed}

    async def warnings(self, namespace: str, uid: str) -> builtins.list[Document]:
        """Lists the events of type Warning about the object with this UID."""
        query = [("fieldSelector", f"regarding.uid={uid},type=Warning")]
        return [document async for page in self._pages(EVENT, namespace, query) for document in page]

    async def _pages(
        self, kind: Kind, namespace: str, query: builtins.list[tuple[str, str]], *, accept: str = _JSON
    ) -> AsyncIterator[builtins.list[Document]]:
        query = [*query, ("limit", str(PAGE))]
        following = ""
        for _ in range(MAX_PAGES):
            page = [*query, ("continue", following)] if following else query
            answer = await self._call("GET", _path(kind, namespace), query=page, accept=accept)
            yield answer.get("items") or []  # null if the list is empty
            following = answer.get("metadata", {}).get("continue", "")
            if not following:
                return
        raise KubeError(0, "TooMany", f"more than {PAGE * MAX_PAGES} {kind.plural}")

    async def create(self, document: Document) -> Document:
        """Creates an object."""
        kind, namespace, _ = _identity(document)
        query = [("fieldManager", self._manager)]
        return await self._call("POST", _path(kind, namespace), query=query, body=document)

    async def apply(self, document: Document, *, subresource: str = "") -> Document:
        """Server-side apply: takes ownership of these fields even from other managers, and removes fields
        that we own and that are no longer in the document."""
        kind, namespace, name = _identity(document)
        path = _path(kind, namespace, name) + (f"/{subresource}" if subresource else "")
        query = [("fieldManager", self._manager), ("force", "true")]
        kind_of_body = "application/apply-patch+yaml"
        return await self._call("PATCH", path, query=query, body=document, content_type=kind_of_body)

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document | None:
        """JSON merge patch of an object that another client owns; None if it does not exist."""
        query = [("fieldManager", self._manager)]
        path, body_type = _path(kind, namespace, name), "application/merge-patch+json"
        return await self._call_or_none("PATCH", path, query=query, body=patch, content_type=body_type)

    async def delete(self, kind: Kind, namespace: str, name: str, *, uid: str = "") -> bool:
        """Requests the deletion; ``uid`` restricts it to the object with that UID. False if there is none."""
        body: Document = {"propagationPolicy": "Background"}
        if uid:
            body["preconditions"] = {"uid": uid}
        return await self._call_or_none("DELETE", _path(kind, namespace, name), body=body) is not None

    async def _call_or_none(
        self,
        method: str,
        path: str,
        *,
        query: builtins.list[tuple[str, str]] | None = None,
        body: Document | None = None,
        content_type: str = _JSON,
    ) -> Document | None:
        try:
            return await self._call(method, path, query=query, body=body, content_type=content_type)
        except KubeError as error:
            if error.status == 404:
                return None
            raise

    async def _call(
        self,
        method: str,
        path: str,
        *,
        query: builtins.list[tuple[str, str]] | None = None,
        body: Document | None = None,
        content_type: str = _JSON,
        accept: str = _JSON,
    ) -> Document:
        try:
            prepared = await self._client.param_serialize(
                method,
                path,
                query_params=query or [],
                header_params={"Accept": accept, "Content-Type": content_type},
                body=body,
                auth_settings=["BearerToken"],
            )
            answer = await self._client.call_api(*prepared, _request_timeout=CALL_TIMEOUT_S)
            raw: bytes = await answer.read()
            text = raw.decode()
        except (aiohttp.ClientError, TimeoutError, OSError) as error:
            self._on_response(method, 0)
            why = str(error) or type(error).__name__
            raise KubeError(0, "Unreachable", f"{method} {path}: {why}") from error
        except kube_config.ConfigException as error:
            raise KubeError(0, "NoCredentials", f"{method} {path}: {error}") from error
        self._on_response(method, answer.status)
        if answer.status not in _OK:
            raise _error_from(answer.status, text)
        return cast(Document, json.loads(text))


def _error_from(status: int, text: str) -> KubeError:
    try:
        error = json.loads(text)
    except ValueError:
        return KubeError(status, f"HTTP {status}", text[:500])
    return KubeError(
        status, str(error.get("reason", f"HTTP {status}")), str(error.get("message", text[:500]))
    )


def _identity(document: Document) -> tuple[Kind, str, str]:
    metadata = document["metadata"]
    return KINDS[document["kind"]], metadata["namespace"], metadata.get("name", "")


def _path(kind: Kind, namespace: str, name: str = "") -> str:
    root = "/apis" if "/" in kind.api_version else "/api"
    inside = f"/namespaces/{namespace}" if namespace else ""
    return f"{root}/{kind.api_version}{inside}/{kind.plural}" + (f"/{name}" if name else "")


@dataclass(frozen=True, slots=True, kw_only=True)
class KubeConnection:
    """What any HTTP client needs to reach the API server now. Paths name PEM files; ``authorization`` is the
    header's value."""

    server: str
    verify_tls: bool
    ca_file: str | None
    cert_file: str | None
    key_file: str | None
    proxy: str | None
    authorization: str | None


async def connection(configuration: Configuration) -> KubeConnection:
    """The configuration with its present credentials. Raises OSError or ValueError if they cannot be read."""
    try:
        authorization = await configuration.get_api_key_with_prefix("BearerToken")
    except kube_config.ConfigException as error:
        raise ValueError(str(error)) from error
    return KubeConnection(
        server=configuration.host,
        verify_tls=configuration.verify_ssl,
        ca_file=configuration.ssl_ca_cert,
        cert_file=configuration.cert_file,
        key_file=configuration.key_file,
        proxy=configuration.proxy,
        authorization=authorization,
    )


async def configured(kubeconfig: str | None = None, *, clock: Clock | None = None) -> Configuration:
    """The configuration of the given kubeconfig, else of ``KUBECONFIG``, else of the cluster that this
    process runs in, else of ``~/.kube/config``. Its credentials stay current: tokens rotate."""
    configuration = Configuration()
    # Like Kopf, use no proxy from the environment: it would be read for each call, and so would ~/.netrc.
    configuration.client_session_kwargs = {"trust_env": False}
    path = kubeconfig or os.environ.get("KUBECONFIG")
    load = _load_incluster
    if path is None and os.environ.get("KUBERNETES_SERVICE_HOST"):
        await load(configuration)
    else:
        loader = await kube_config.load_kube_config(config_file=path, client_configuration=configuration)
        load = loader.load_and_set
    configuration.refresh_api_key_hook = _refresh(load, clock or SystemClock())
    return configuration


async def _load_incluster(configuration: Configuration) -> None:
    # Its own refresh goes by the wall clock, which may be set back by more than a token lives.
    kube_config.load_incluster_config(configuration, try_refresh_token=False)


def _refresh(
    load: Callable[[Configuration], Awaitable[None]], clock: Clock
) -> Callable[[Configuration], Awaitable[None]]:
    """A hook that reads a token file or asks a credential plugin again; if that fails, at the next call."""
    due_s = clock.monotonic_s() + CREDENTIALS_S

    async def refresh(configuration: Configuration) -> None:
        nonlocal due_s
        if clock.monotonic_s() < due_s:
            return
        due_s = clock.monotonic_s() + CREDENTIALS_S  # first: concurrent calls must not load it too
        try:
            await load(configuration)
        except BaseException:
            due_s = clock.monotonic_s()
            raise

    return refresh
