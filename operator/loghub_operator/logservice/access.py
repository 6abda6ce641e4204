"""Resolves the placement of a group's workers, and opens a client of its log service."""

import base64

from loghub.client.port import Credentials, LogHub
from loghub.client.target import BadEndpoint
from loghub.worker_contract import ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE, SECURITY_TOKEN_FILE
from loghub_operator.api.v1alpha1 import EMBEDDED, LogHubConsumerGroup
from loghub_operator.clients.kube import FORBIDDEN, SECRET, Kube, KubeError
from loghub_operator.clients.log_service_pool import LogServicePool
from loghub_operator.model.observed import Placement, ServiceError, ServiceErrorReason
from loghub_operator.resources.pod_paths import CODE_ROOT, SINK_ROOT
from loghub_operator.settings import Settings


def site_of(resource: LogHubConsumerGroup, settings: Settings) -> Placement:
    """The placement of this group's workers in a cluster."""
    embedded = resource.spec.endpoint == EMBEDDED
    return Placement(
        endpoint=settings.endpoint(resource.spec.endpoint),
        sink_root=SINK_ROOT,
        code_root=CODE_ROOT,
        needs_project_address=embedded and settings.project_namespace is not None,
    )


class LogServiceAccess:
    """Access to the log service for each group: its Secret, and a client of its project."""

    def __init__(self, *, kube: Kube, hubs: LogServicePool, settings: Settings) -> None:
        self._kube = kube
        self._hubs = hubs
        self._settings = settings

    async def client(self, resource: LogHubConsumerGroup) -> LogHub | ServiceError:
        """Returns the client of the group's project, or the error that prevents it."""
        return self.client_with(resource, await self.credentials(resource))

    def client_with(
        self, resource: LogHubConsumerGroup, credentials: Credentials | ServiceError
    ) -> LogHub | ServiceError:
        if isinstance(credentials, ServiceError):
            return credentials
        site = site_of(resource, self._settings)
        try:
            return self._hubs.client(site.endpoint, resource.spec.project, credentials)
        except BadEndpoint as error:  # for example a port out of range
            return ServiceError(reason=ServiceErrorReason.ENDPOINT_UNREACHABLE, message=str(error))

    async def credentials(self, resource: LogHubConsumerGroup) -> Credentials | ServiceError:
        name, namespace = resource.spec.credentials_secret.name, resource.metadata.namespace
        try:
            secret = await self._kube.get(SECRET, namespace, name)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            words = f"the operator has no right to read Secret {name} in namespace {namespace}"
            return _missing(f"{words}; is it among rbac.secretNames of its chart?")
        if secret is None:
            return _missing(
                f"there is no Secret {name} in namespace {namespace}; "
                f"make it with the keys {ACCESS_KEY_ID_FILE} and {ACCESS_KEY_SECRET_FILE}"
            )
        data = {key: _decoded(value) for key, value in (secret.get("data") or {}).items()}
        absent = [key for key in (ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE) if not data.get(key)]
        if absent:
            return _missing(f"Secret {name} in namespace {namespace} has no {' and no '.join(absent)}")
        return Credentials(
            access_key_id=data[ACCESS_KEY_ID_FILE],
            access_key_secret=data[ACCESS_KEY_SECRET_FILE],
            security_token=data.get(SECURITY_TOKEN_FILE, ""),
        )


def _decoded(value: str) -> str:
    # A key that was created from a file often ends with a newline.
    return base64.b64decode(value).decode(errors="replace").strip()


def _missing(message: str) -> ServiceError:
    return ServiceError(reason=ServiceErrorReason.CREDENTIALS_MISSING, message=message)
