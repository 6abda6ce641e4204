"""Reads the access key of a group from its Secret."""

import base64

from loghub.client.port import Credentials
from loghub.contract.worker import (
    ACCESS_KEY_ID_FILE,
    ACCESS_KEY_SECRET_FILE,
    REGION_FILE,
    SECURITY_TOKEN_FILE,
)
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.clients.kube import FORBIDDEN, SECRET, Kube, KubeError
from loghub_operator.logservice.access import LogServiceUnavailable
from loghub_operator.model.observed import ServiceErrorReason, Unavailable


class SecretCredentials:
    """Returns the access key of a group, read again at each call, because it may have been rotated."""

    def __init__(self, kube: Kube) -> None:
        self._kube = kube

    async def __call__(self, resource: LogHubConsumerGroup) -> Credentials:
        """Raises `LogServiceUnavailable` if the Secret or a key in it is missing, and `KubeError`."""
        name, namespace = resource.spec.credentials_secret.name, resource.metadata.namespace
        try:
            secret = await self._kube.get(SECRET, namespace, name)
        except KubeError as error:
            if error.status != FORBIDDEN:
                raise
            message = f"the operator has no right to read Secret {name} in namespace {namespace}"
            raise _missing(f"{message}; is it among rbac.secretNames of its chart?") from error
        if secret is None:
            raise _missing(
                f"there is no Secret {name} in namespace {namespace}; "
                f"make it with the keys {ACCESS_KEY_ID_FILE} and {ACCESS_KEY_SECRET_FILE}"
            )
        data = {key: _decoded(value) for key, value in (secret.get("data") or {}).items()}
        absent = [key for key in (ACCESS_KEY_ID_FILE, ACCESS_KEY_SECRET_FILE) if not data.get(key)]
        if absent:
            raise _missing(f"Secret {name} in namespace {namespace} has no {' and no '.join(absent)}")
        return Credentials(
            access_key_id=data[ACCESS_KEY_ID_FILE],
            access_key_secret=data[ACCESS_KEY_SECRET_FILE],
            security_token=data.get(SECURITY_TOKEN_FILE, ""),
            region=data.get(REGION_FILE, ""),
        )


def _decoded(value: str) -> str:
    # A key that was created from a file often ends with a newline.
    return base64.b64decode(value).decode(errors="replace").strip()


def _missing(message: str) -> LogServiceUnavailable:
    return LogServiceUnavailable(Unavailable(reason=ServiceErrorReason.CREDENTIALS_MISSING, message=message))
