"""The operator's own settings, read once from the environment.

``LOGHUB_EMBEDDED_ENDPOINT``  URL that ``endpoint: embedded`` refers to; default ``http://loghub.svc``.
                              With a host ``<namespace>.svc`` the operator creates one Service per
                              project in that namespace; with any other host it creates none
``LOGHUB_EMBEDDED_ADDRESS``   ``host:port`` of the embedded service's own Service, at which the operator
                              reaches every project whether or not the project has a Service; used with a
                              host ``<namespace>.svc`` only; default ``loghub-service.<namespace>.svc:8080``
``LOGHUB_MAX_PROJECT_SERVICES``  most Services of projects that the operator creates; default 1000
``LOGHUB_CLIENT``             client of the log service: ``sdk`` (the vendor's SDK), ``http`` (our own, the
                              only client that reads the extensions of the embedded service) or ``auto``,
                              the default: ``http`` for the embedded endpoint and for an IP address,
                              ``sdk`` for any other. It is ``http`` wherever ``LOGHUB_EMBEDDED_ADDRESS`` is
                              used, because the SDK connects to nothing but the project's own host name
``LOGHUB_ALLOWED_HTTP_HOSTS``  comma-separated hosts outside the cluster and its private network to which
                               objects may refer by ``http``; ``*.example.com`` allows all hosts below
                               a domain, ``*`` every host; default: none
``LOGHUB_WORKER_IMAGE``       image of workers whose object specifies none; default ``loghub-worker:dev``
``LOGHUB_WORKER_POD_TEMPLATE``  JSON with metadata and spec of a pod template for the workers of every
                                group, merged like ``spec.worker.podTemplate`` and under it; default: none
``LOGHUB_IP_FAMILY_POLICY``   ``ipFamilyPolicy`` of the Services that the operator creates; default: the
                              cluster's
``LOGHUB_EXECUTOR_ROLE``      ``ClusterRole/NAME`` or ``Role/NAME`` with the rights of workers that make
                              executors of Spark as pods; unset: the operator runs no such workers
``LOGHUB_LOG_LEVEL``          ``debug``, ``info`` (the default), ``warning`` or ``error``
``LOGHUB_HTTP_ADDRESS``       ``host:port`` that serves ``/healthz``, ``/readyz`` and ``/metrics``;
                              unset: not served. In this and other addresses, ``:port`` is every address of
                              the pod, of IPv6 and IPv4
``LOGHUB_RESYNC_SECONDS``     longest time between two reconciles of a group; default 30
``LOGHUB_STATUS_INTERVAL_SECONDS``  least time between two writes of a status in which nothing but numbers
                              changed (lag, checkpoints, rates); 0: no limit; default 60
``LOGHUB_WATCH_NAMESPACES``   comma-separated namespaces to watch; unset: all
``LOGHUB_LEASE_NAMESPACE``    namespace and name of the Lease for leader election; both or neither.
``LOGHUB_LEASE_NAME``         Neither: this operator is the only one and needs no election
``LOGHUB_POD_NAME``           this process's name in the Lease and in Events; default: the host's name
``LOGHUB_MAX_SHARD_SERIES``   how many shards, over all groups, have series of their own in
                              ``/metrics``; default 1000
``LOGHUB_KEDA_ADDRESS``       ``host:port`` of KEDA's external scaler (gRPC); unset: not served
``LOGHUB_KEDA_CERTS``         folder with its ``tls.crt`` and ``tls.key``, and a ``ca.crt`` if clients
                              must present a certificate; unset: no TLS
``LOGHUB_EXTERNAL_METRICS_ADDRESS``   ``host:port`` of ``external.metrics.k8s.io`` (HTTPS); unset: not
                                      served
``LOGHUB_EXTERNAL_METRICS_SERVICE``   ``namespace/name`` of the Service in front of it
``LOGHUB_EXTERNAL_METRICS_CERTS``     folder with its ``tls.crt`` and ``tls.key``; unset: the operator
                                      creates a key pair at each start and writes the certificate into
                                      the APIService
"""

import json
from collections.abc import Mapping
from dataclasses import dataclass, field
from enum import StrEnum
from typing import Any, TypeVar
from urllib.parse import urlsplit

from loghub.wire import names
from loghub_operator.api.labels import SERVICE
from loghub_operator.api.status import NUMBERS_EVERY_S
from loghub_operator.api.v1alpha1 import EMBEDDED

EMBEDDED_ENDPOINT = "http://loghub.svc"
WORKER_IMAGE = "loghub-worker:dev"
RESYNC_S = 30.0  # a missed event is corrected after this time; a resync of an unchanged group costs no write
STATUS_INTERVAL_S = NUMBERS_EVERY_S
MAX_STATUS_INTERVAL_S = 3600.0  # what is older does not help a reader any more
MAX_SHARD_SERIES = 1000  # shards of all groups, each with two series
MAX_PROJECT_SERVICES = 1000  # a quarter of the smallest usual range of cluster addresses, a /20
_SVC = ".svc"
_EMBEDDED_PORT = 8080  # of the service's Service (charts/loghub)
T = TypeVar("T", bound=StrEnum)


@dataclass(frozen=True, slots=True, kw_only=True)
class LeaseRef:
    """The Lease for leader election."""

    namespace: str
    name: str


class Client(StrEnum):
    """Which client the operator uses for log services."""

    AUTO = "auto"
    SDK = "sdk"
    HTTP = "http"


class OperatorLogLevel(StrEnum):
    """The least severe messages that are logged."""

    DEBUG = "debug"
    INFO = "info"
    WARNING = "warning"
    ERROR = "error"


class IpFamilyPolicy(StrEnum):
    """The values of the field in a Service; DEFAULT leaves the field to the cluster."""

    DEFAULT = ""
    SINGLE_STACK = "SingleStack"
    PREFER_DUAL_STACK = "PreferDualStack"
    REQUIRE_DUAL_STACK = "RequireDualStack"


@dataclass(frozen=True, slots=True)
class ExecutorRole:
    """The role whose rights a worker needs to make executors as pods."""

    kind: str  # ClusterRole, or Role of that name in each namespace
    name: str


@dataclass(frozen=True, slots=True, kw_only=True)
class WorkerDefaults:
    """What the administrator sets for the workers of every group. ``pod_template`` has metadata and spec; it
    is merged over the operator's, and the object's own over both. Without ``executor_role``, no worker may
    make pods."""

    pod_template: dict[str, Any] = field(default_factory=dict)
    ip_family_policy: str = ""
    executor_role: ExecutorRole | None = None


NO_DEFAULTS = WorkerDefaults()


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's own settings."""

    embedded_endpoint: str = EMBEDDED_ENDPOINT
    embedded_address: str | None = None
    max_project_services: int = MAX_PROJECT_SERVICES
    client: Client = Client.AUTO
    allowed_http_hosts: tuple[str, ...] = ()
    worker_image: str = WORKER_IMAGE
    worker_defaults: WorkerDefaults = NO_DEFAULTS
    log_level: OperatorLogLevel = OperatorLogLevel.INFO
    http_address: str | None = None
    resync_s: float = RESYNC_S
    status_interval_s: float = STATUS_INTERVAL_S
    namespaces: tuple[str, ...] = ()
    lease: LeaseRef | None = None
    pod_name: str = ""
    max_shard_series: int = MAX_SHARD_SERIES
    keda_address: str | None = None
    keda_certs: str | None = None
    external_metrics_address: str | None = None
    external_metrics_service: str = ""
    external_metrics_certs: str | None = None

    def endpoint(self, spec_endpoint: str) -> str:
        """The URL that ``spec.endpoint`` refers to."""
        return self.embedded_endpoint if spec_endpoint == EMBEDDED else spec_endpoint

    def uses_sdk(self, endpoint: str) -> bool:
        """Whether the vendor's SDK is used for this URL. The endpoints of SLS are host names, and the SDK
        cannot prefix an IP address with a project."""
        if self.address_of(endpoint):
            return False
        if self.client is not Client.AUTO:
            return self.client is Client.SDK
        if self._is_embedded(endpoint):
            return False
        try:
            host = urlsplit(endpoint).hostname or ""
        except ValueError:  # not a URL; our own adapter reports the error
            return False
        return not names.is_direct(host)

    def address_of(self, endpoint: str) -> str:
        """The ``host:port`` to connect to for any project at this URL; "" if each project is reached by its
        own host name."""
        return self.service_address if self._is_embedded(endpoint) else ""

    def _is_embedded(self, endpoint: str) -> bool:
        return names.log_service(endpoint) == names.log_service(self.embedded_endpoint)

    @property
    def service_address(self) -> str:
        """The address of the embedded service's own Service; "" for an endpoint outside the cluster."""
        namespace = self.project_namespace
        if namespace is None:
            return ""
        return self.embedded_address or f"{SERVICE}.{namespace}{_SVC}:{_EMBEDDED_PORT}"

    @property
    def project_namespace(self) -> str | None:
        """The namespace of the projects' Services; None for an endpoint outside the cluster."""
        host = urlsplit(self.embedded_endpoint).hostname or ""
        namespace = host.removesuffix(_SVC)
        return namespace if host.endswith(_SVC) and namespace and "." not in namespace else None

    @property
    def project_port(self) -> int:
        """The port of the projects' Services, which is the port of the endpoint."""
        parts = urlsplit(self.embedded_endpoint)
        return parts.port or (443 if parts.scheme == "https" else 80)

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Raises ValueError for a number out of range, half a Lease, or an address without a port."""
        resync_s = float(environment.get("LOGHUB_RESYNC_SECONDS", RESYNC_S))
        if not resync_s > 0:
            raise ValueError(f"LOGHUB_RESYNC_SECONDS is {resync_s} but must be greater than 0")
        return cls(
            embedded_endpoint=environment.get("LOGHUB_EMBEDDED_ENDPOINT", EMBEDDED_ENDPOINT),
            embedded_address=_address(environment, "LOGHUB_EMBEDDED_ADDRESS"),
            max_project_services=_count(environment, "LOGHUB_MAX_PROJECT_SERVICES", MAX_PROJECT_SERVICES),
            client=_one_of(Client, environment, "LOGHUB_CLIENT", Client.AUTO),
            allowed_http_hosts=_names(environment, "LOGHUB_ALLOWED_HTTP_HOSTS"),
            worker_image=environment.get("LOGHUB_WORKER_IMAGE", WORKER_IMAGE),
            worker_defaults=WorkerDefaults(
                pod_template=_pod_template(environment),
                ip_family_policy=_one_of(
                    IpFamilyPolicy, environment, "LOGHUB_IP_FAMILY_POLICY", IpFamilyPolicy.DEFAULT
                ),
                executor_role=_executor_role(environment),
            ),
            log_level=_one_of(OperatorLogLevel, environment, "LOGHUB_LOG_LEVEL", OperatorLogLevel.INFO),
            http_address=environment.get("LOGHUB_HTTP_ADDRESS") or None,
            resync_s=resync_s,
            status_interval_s=_interval(environment),
            namespaces=_names(environment, "LOGHUB_WATCH_NAMESPACES"),
            lease=_lease(environment),
            pod_name=environment.get("LOGHUB_POD_NAME", ""),
            max_shard_series=_count(environment, "LOGHUB_MAX_SHARD_SERIES", MAX_SHARD_SERIES),
            keda_address=_address(environment, "LOGHUB_KEDA_ADDRESS"),
            keda_certs=environment.get("LOGHUB_KEDA_CERTS") or None,
            external_metrics_address=_address(environment, "LOGHUB_EXTERNAL_METRICS_ADDRESS"),
            external_metrics_service=_external_metrics_service(environment),
            external_metrics_certs=environment.get("LOGHUB_EXTERNAL_METRICS_CERTS") or None,
        )


def _interval(environment: Mapping[str, str]) -> float:
    key = "LOGHUB_STATUS_INTERVAL_SECONDS"
    interval_s = float(environment.get(key, STATUS_INTERVAL_S))
    if not 0 <= interval_s <= MAX_STATUS_INTERVAL_S:
        raise ValueError(f"{key} is {interval_s} but must be from 0 to {MAX_STATUS_INTERVAL_S:.0f}")
    return interval_s


def _names(environment: Mapping[str, str], key: str) -> tuple[str, ...]:
    return tuple(name.strip() for name in environment.get(key, "").split(",") if name.strip())


def _lease(environment: Mapping[str, str]) -> LeaseRef | None:
    namespace = environment.get("LOGHUB_LEASE_NAMESPACE", "")
    name = environment.get("LOGHUB_LEASE_NAME", "")
    if bool(namespace) != bool(name):
        raise ValueError("set both LOGHUB_LEASE_NAMESPACE and LOGHUB_LEASE_NAME, or neither")
    return LeaseRef(namespace=namespace, name=name) if name else None


def _one_of(values: type[T], environment: Mapping[str, str], key: str, default: T) -> T:
    text = environment.get(key) or default
    try:
        return values(text)
    except ValueError as error:
        possible = ", ".join(value for value in values if value)
        raise ValueError(f"{key} is {text}, and must be one of {possible}") from error


def _pod_template(environment: Mapping[str, str]) -> dict[str, Any]:
    key = "LOGHUB_WORKER_POD_TEMPLATE"
    try:
        template = json.loads(environment.get(key) or "{}")
    except ValueError as error:
        raise ValueError(f"{key} is not JSON: {error}") from error
    if not isinstance(template, dict) or not template.keys() <= {"metadata", "spec"}:
        raise ValueError(f"{key} must be a JSON object with metadata and spec only")
    if not all(isinstance(part, dict) for part in template.values()):
        raise ValueError(f"metadata and spec of {key} must be JSON objects")
    return template


def _executor_role(environment: Mapping[str, str]) -> ExecutorRole | None:
    text = environment.get("LOGHUB_EXECUTOR_ROLE", "")
    kind, _, name = text.partition("/")
    if text and (kind not in ("ClusterRole", "Role") or not name):
        raise ValueError(f"LOGHUB_EXECUTOR_ROLE is {text!r} but must be ClusterRole/NAME or Role/NAME")
    return ExecutorRole(kind, name) if text else None


def _count(environment: Mapping[str, str], key: str, default: int) -> int:
    maximum = int(environment.get(key, default))
    if maximum < 0:
        raise ValueError(f"{key} is {maximum} but must be at least 0")
    return maximum


def _address(environment: Mapping[str, str], key: str) -> str | None:
    address = environment.get(key)
    _, colon, port = (address or "").rpartition(":")
    if address and not (colon and port.isdecimal()):
        raise ValueError(f"{key} is {address} but must be host:port or :port")
    return address or None


def _external_metrics_service(environment: Mapping[str, str]) -> str:
    service = environment.get("LOGHUB_EXTERNAL_METRICS_SERVICE", "")
    if environment.get("LOGHUB_EXTERNAL_METRICS_ADDRESS") and service.count("/") != 1:
        raise ValueError(f"LOGHUB_EXTERNAL_METRICS_SERVICE is {service!r} but must be namespace/name")
    return service
