"""The operator's own settings, read once from the environment.

``LOGHUB_EMBEDDED_ENDPOINT``  URL that ``endpoint: embedded`` refers to; default ``http://loghub.svc``.
                              With a host ``<namespace>.svc`` the operator creates one Service per
                              project in that namespace; with any other host it creates none
``LOGHUB_CLIENT``             client of the log service: ``sdk`` (the vendor's SDK), ``http`` (our own, the
                              only client that reads the extensions of the embedded service) or ``auto``,
                              the default: ``http`` for the embedded endpoint and for an IP address,
                              ``sdk`` for any other
``LOGHUB_WORKER_IMAGE``       image of workers whose object specifies none; default ``loghub-worker:dev``
``LOGHUB_HTTP_ADDRESS``       ``host:port`` that serves ``/healthz``, ``/readyz`` and ``/metrics``;
                              unset: not served
``LOGHUB_RESYNC_SECONDS``     longest time between two reconciles of a group; default 30
``LOGHUB_WATCH_NAMESPACES``   comma-separated namespaces to watch; unset: all
``LOGHUB_LEASE_NAMESPACE``    namespace and name of the Lease for leader election; both or neither.
``LOGHUB_LEASE_NAME``         Neither: this operator is the only one and needs no election
``LOGHUB_POD_NAME``           this process's identity in the Lease; default: the host's name
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

from collections.abc import Mapping
from dataclasses import dataclass
from enum import StrEnum
from urllib.parse import urlsplit

from loghub.wire import hosts
from loghub_operator.api.v1alpha1 import EMBEDDED

EMBEDDED_ENDPOINT = "http://loghub.svc"
WORKER_IMAGE = "loghub-worker:dev"
RESYNC_S = 30.0
MAX_SHARD_SERIES = 1000
_SVC = ".svc"


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


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's own settings."""

    embedded_endpoint: str = EMBEDDED_ENDPOINT
    client: Client = Client.AUTO
    worker_image: str = WORKER_IMAGE
    http_address: str | None = None
    resync_s: float = RESYNC_S
    namespaces: tuple[str, ...] = ()
    lease: LeaseRef | None = None
    pod_name: str = ""
    max_shard_series: int = MAX_SHARD_SERIES
    keda_address: str | None = None
    keda_certs: str | None = None
    external_metrics_address: str | None = None
    external_metrics_service: str = ""
    external_metrics_certs: str | None = None

    def endpoint(self, given: str) -> str:
        """The URL that ``spec.endpoint`` refers to."""
        return self.embedded_endpoint if given == EMBEDDED else given

    def uses_sdk(self, endpoint: str) -> bool:
        """Whether the vendor's SDK is used for this URL. The endpoints of SLS are host names, and the SDK
        cannot prefix an IP address with a project."""
        if self.client is not Client.AUTO:
            return self.client is Client.SDK
        if hosts.log_service(endpoint) == hosts.log_service(self.embedded_endpoint):
            return False
        try:
            host = urlsplit(endpoint).hostname or ""
        except ValueError:  # not a URL; our own adapter reports the error
            return False
        return not hosts.is_direct(host)

    @property
    def project_namespace(self) -> str | None:
        """The namespace of the projects' Services; None for an endpoint outside the cluster."""
        host = urlsplit(self.embedded_endpoint).hostname or ""
        namespace = host.removesuffix(_SVC)
        return namespace if host.endswith(_SVC) and namespace and "." not in namespace else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Raises ValueError for a number out of range, half a Lease, or an address without a port."""
        resync_s = float(environment.get("LOGHUB_RESYNC_SECONDS", RESYNC_S))
        if not resync_s > 0:
            raise ValueError(f"LOGHUB_RESYNC_SECONDS is {resync_s} but must be greater than 0")
        names = environment.get("LOGHUB_WATCH_NAMESPACES", "").split(",")
        return cls(
            embedded_endpoint=environment.get("LOGHUB_EMBEDDED_ENDPOINT", EMBEDDED_ENDPOINT),
            client=_client(environment),
            worker_image=environment.get("LOGHUB_WORKER_IMAGE", WORKER_IMAGE),
            http_address=environment.get("LOGHUB_HTTP_ADDRESS") or None,
            resync_s=resync_s,
            namespaces=tuple(name.strip() for name in names if name.strip()),
            lease=_lease(environment),
            pod_name=environment.get("LOGHUB_POD_NAME", ""),
            max_shard_series=_max_shard_series(environment),
            keda_address=_address(environment, "LOGHUB_KEDA_ADDRESS"),
            keda_certs=environment.get("LOGHUB_KEDA_CERTS") or None,
            external_metrics_address=_address(environment, "LOGHUB_EXTERNAL_METRICS_ADDRESS"),
            external_metrics_service=_external_metrics_service(environment),
            external_metrics_certs=environment.get("LOGHUB_EXTERNAL_METRICS_CERTS") or None,
        )


def _lease(environment: Mapping[str, str]) -> LeaseRef | None:
    namespace = environment.get("LOGHUB_LEASE_NAMESPACE", "")
    name = environment.get("LOGHUB_LEASE_NAME", "")
    if bool(namespace) != bool(name):
        raise ValueError("set both LOGHUB_LEASE_NAMESPACE and LOGHUB_LEASE_NAME, or neither")
    return LeaseRef(namespace=namespace, name=name) if name else None


def _client(environment: Mapping[str, str]) -> Client:
    given = environment.get("LOGHUB_CLIENT") or Client.AUTO
    try:
        return Client(given)
    except ValueError as error:
        raise ValueError(f"LOGHUB_CLIENT is {given}, and must be one of {', '.join(Client)}") from error


def _max_shard_series(environment: Mapping[str, str]) -> int:
    most = int(environment.get("LOGHUB_MAX_SHARD_SERIES", MAX_SHARD_SERIES))
    if most < 0:
        raise ValueError(f"LOGHUB_MAX_SHARD_SERIES is {most} but must be at least 0")
    return most


def _address(environment: Mapping[str, str], key: str) -> str | None:
    address = environment.get(key)
    host, _, port = (address or "").rpartition(":")
    if address and not (host and port.isdecimal()):
        raise ValueError(f"{key} is {address} but must be host:port")
    return address or None


def _external_metrics_service(environment: Mapping[str, str]) -> str:
    service = environment.get("LOGHUB_EXTERNAL_METRICS_SERVICE", "")
    if environment.get("LOGHUB_EXTERNAL_METRICS_ADDRESS") and service.count("/") != 1:
        raise ValueError(f"LOGHUB_EXTERNAL_METRICS_SERVICE is {service!r} but must be namespace/name")
    return service
