"""How this worker reaches its LogHub endpoint, and what an error of it means to a person.

What for: the driver, Spark's reader process and its data readers each open their own connection
from the same few values, which hold no secret. What it must not know: Spark, files of the worker.
Read next: `loghub.client.port`.
"""

from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path

from loghub.client.credentials_dir import read_key
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials, LogHub
from loghub.client.transport import Timeouts
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import EndpointUnreachable, LogHubError

__all__ = ["Address", "ServiceError", "connect", "decode_cursor", "encode_cursor", "shared", "trouble_of"]


@dataclass(frozen=True, slots=True, kw_only=True)
class Address:
    """Endpoint, project, and the folder of the access key."""

    endpoint: str
    project: str
    credentials_dir: str


@dataclass(frozen=True, slots=True)
class ServiceError:
    """What is wrong, for the status: one CamelCase word and a sentence. Both empty: nothing."""

    reason: str = ""
    message: str = ""


def connect(address: Address, *, agent: str = "", timeout_s: float | None = None) -> LogHub:
    """A connection of one's own; close it when done. Keys are read again for every request, so
    that they may rotate. Raises `ValueError` for an endpoint that is none."""
    timeouts = Timeouts()
    if timeout_s is not None:
        timeouts = Timeouts(connect_s=min(timeout_s, timeouts.connect_s), read_s=timeout_s, total_s=timeout_s)
    return HttpLogHub(
        address.endpoint,
        address.project,
        credentials=partial(read_credentials, Path(address.credentials_dir)),
        agent=agent,
        timeouts=timeouts,
    )


def read_credentials(folder: Path) -> Credentials:
    """The access key in a folder; raises `LogHubError` ``Unauthorized`` where there is none."""
    try:
        return read_key(folder)
    except OSError as error:
        raise LogHubError("Unauthorized", 401, f"no access key can be read: {error}") from error


@cache
def shared(address: Address) -> LogHub:
    """This process's connection, kept for its life (Spark reuses its reader processes)."""
    return connect(address)


_REASONS = {
    "ProjectNotExist": "ProjectNotFound",
    "LogStoreNotExist": "LogstoreNotFound",
    "ConsumerGroupNotExist": "ConsumerGroupNotFound",
    "SignatureNotMatch": "AuthenticationFailed",
    "Unauthorized": "AuthenticationFailed",
    "RequestTimeExpired": "ClockSkewed",
}


def trouble_of(error: Exception) -> ServiceError:
    """The reason word of an error from the client; the error's own code where there is no better."""
    if isinstance(error, EndpointUnreachable):
        return ServiceError("EndpointUnreachable", str(error))
    if isinstance(error, LogHubError):
        known = error.code in _REASONS or error.status != HTTPStatus.UNAUTHORIZED
        return ServiceError(reason_of_code(error.code) if known else "AuthenticationFailed", error.message)
    return ServiceError(type(error).__name__, str(error))


def reason_of_code(code: str) -> str:
    """A code of the service as a reason word; itself where there is no better."""
    return _REASONS.get(code, code)
