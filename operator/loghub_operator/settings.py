"""What the operator itself is told at its start.

What for: the environment, read once. What it must not know: any one consumer group. Read
next: `loghub_operator.__main__`.

``LOGHUB_EMBEDDED_ENDPOINT``  URL that ``endpoint: embedded`` stands for; default ``http://loghub.svc``.
                              With a host ``<namespace>.svc`` the operator makes one Service per
                              project in that namespace; with any other it makes none.
``LOGHUB_WORKER_IMAGE``       image of workers whose CR names none; default ``loghub-worker:dev``
``LOGHUB_LIVENESS_ADDRESS``   ``host:port`` of ``/healthz`` and ``/readyz``; absent: none
``LOGHUB_RESYNC_SECONDS``     longest time between two looks at a group; default 10
``LOGHUB_NAMESPACES``         comma-separated namespaces to watch; absent: all
``LOGHUB_LEASE_NAMESPACE``    namespace and name of the Lease whose holder acts, one of several
``LOGHUB_LEASE_NAME``         operators; both or none. None: this operator is the only one.
``LOGHUB_POD_NAME``           who we are in the Lease; default: the host's name
"""

from collections.abc import Mapping
from dataclasses import dataclass
from urllib.parse import urlsplit

from loghub_operator.lease import Place

SINK_ROOT = "/sink"
EMBEDDED_ENDPOINT = "http://loghub.svc"
WORKER_IMAGE = "loghub-worker:dev"
RESYNC_S = 10.0
_SVC = ".svc"


@dataclass(frozen=True, slots=True, kw_only=True)
class Settings:
    """The operator's own settings."""

    embedded_endpoint: str = EMBEDDED_ENDPOINT
    worker_image: str = WORKER_IMAGE
    liveness_address: str | None = None
    resync_s: float = RESYNC_S
    namespaces: tuple[str, ...] = ()
    lease: Place | None = None
    pod_name: str = ""

    @property
    def project_namespace(self) -> str | None:
        """Where the projects' Services are made; None where the endpoint is not one of a cluster."""
        host = urlsplit(self.embedded_endpoint).hostname or ""
        namespace = host.removesuffix(_SVC)
        return namespace if host.endswith(_SVC) and namespace and "." not in namespace else None

    @classmethod
    def from_environment(cls, environment: Mapping[str, str]) -> "Settings":
        """Raises ValueError for a resync that is no number of seconds above 0, or half a Lease."""
        resync_s = float(environment.get("LOGHUB_RESYNC_SECONDS", RESYNC_S))
        if not resync_s > 0:
            raise ValueError(f"LOGHUB_RESYNC_SECONDS is {resync_s}, and must be above 0")
        names = environment.get("LOGHUB_NAMESPACES", "").split(",")
        return cls(
            embedded_endpoint=environment.get("LOGHUB_EMBEDDED_ENDPOINT", EMBEDDED_ENDPOINT),
            worker_image=environment.get("LOGHUB_WORKER_IMAGE", WORKER_IMAGE),
            liveness_address=environment.get("LOGHUB_LIVENESS_ADDRESS") or None,
            resync_s=resync_s,
            namespaces=tuple(name.strip() for name in names if name.strip()),
            lease=_lease(environment),
            pod_name=environment.get("LOGHUB_POD_NAME", ""),
        )


def _lease(environment: Mapping[str, str]) -> Place | None:
    namespace = environment.get("LOGHUB_LEASE_NAMESPACE", "")
    name = environment.get("LOGHUB_LEASE_NAME", "")
    if bool(namespace) != bool(name):
        raise ValueError("LOGHUB_LEASE_NAMESPACE and LOGHUB_LEASE_NAME are given together or not at all")
    return Place(namespace=namespace, name=name) if name else None
