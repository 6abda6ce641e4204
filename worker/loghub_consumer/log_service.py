"""Connections to the worker's LogHub endpoint, and the reasons under which their errors are reported.

The driver, Spark's reader process and its data readers each open a connection of their own from the same
`LogServiceAddress`, which contains no secret.
"""

from dataclasses import dataclass
from functools import cache, partial
from http import HTTPStatus
from pathlib import Path

from loghub.client.choice import ClientKind, open_client
from loghub.client.credentials_dir import read_key
from loghub.client.port import LogHub, Timeouts
from loghub.contract.worker import WorkerReason
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError

__all__ = [
    "PIPELINE_FAILED",
    "ConsumerIdentity",
    "LogServiceAddress",
    "ReportedError",
    "connect",
    "decode_cursor",
    "encode_cursor",
    "put_log_group",
    "reason_of_code",
    "shared_client",
    "shared_shard_keys",
    "to_reported_error",
]


@dataclass(frozen=True, slots=True, kw_only=True)
class LogServiceAddress:
    """The endpoint, the project, the folder of the access key, and the client."""

    endpoint: str
    project: str
    credentials_dir: str
    client: ClientKind = "http"


@dataclass(frozen=True, slots=True, kw_only=True)
class ConsumerIdentity:
    """The consumer that this worker is: one member of one consumer group of a logstore."""

    logstore: str
    group: str
    consumer: str


@dataclass(frozen=True, slots=True)
class ReportedError:
    """An error for the status: a CamelCase reason and a sentence. Both are empty if there is no error."""

    reason: str = ""
    message: str = ""


def connect(address: LogServiceAddress, *, agent: str = "", timeout_s: float | None = None) -> LogHub:
    """A connection for the caller's use only, which the caller closes. The access key is read again for every
    request, so that it can rotate. Raises `ValueError` for an invalid endpoint."""
    timeouts = Timeouts()
    if timeout_s is not None:
        timeouts = Timeouts(connect_s=min(timeout_s, timeouts.connect_s), read_s=timeout_s, total_s=timeout_s)
    return open_client(
        address.client,
        address.endpoint,
        address.project,
        credentials=partial(read_key, Path(address.credentials_dir)),
        agent=agent,
        timeouts=timeouts,
    )


@cache
def shared_client(address: LogServiceAddress) -> LogHub:
    """The connection of this process, open until the process ends (Spark reuses its reader processes)."""
    return connect(address)


def put_log_group(client: LogHub, logstore: str, log_group: bytes, *, hash_key: str | None) -> None:
    """Write one log group. An error of the service names its size and the logstore."""
    try:
        client.put_logs(logstore, log_group, hash_key=hash_key)
    except LogHubError as error:
        message = (
            f"{error.message}; a log group of {len(log_group)} bytes for logstore {client.project}/{logstore}"
        )
        raise LogHubError(error.code, error.status, message, error.request_id) from error


class ShardKeys:
    """The first hash keys of the shards of a logstore, which never change. Thread-safe."""

    def __init__(self, client: LogHub, logstore: str) -> None:
        self._client = client
        self._logstore = logstore
        self._begin_keys: dict[int, str] = {}

    def begin_key(self, shard: int) -> str:
        """32 hex digits. Raises `LogHubError` ``ShardNotExist`` for a shard that the logstore lacks."""
        if shard not in self._begin_keys:
            shards = self._client.list_shards(self._logstore)
            self._begin_keys = {info.shard: info.begin_key for info in shards}
        if shard not in self._begin_keys:
            raise LogHubError(
                Code.SHARD_NOT_EXIST, 400, f"logstore {self._logstore} no longer has shard {shard}"
            )
        return self._begin_keys[shard]


@cache
def shared_shard_keys(address: LogServiceAddress, logstore: str) -> ShardKeys:
    """The keys of a logstore, requested once by each process."""
    return ShardKeys(shared_client(address), logstore)


PIPELINE_FAILED = WorkerReason.PIPELINE_FAILED.value
_REASONS = {
    "ProjectNotExist": "ProjectNotFound",
    "LogStoreNotExist": "LogstoreNotFound",
    "ConsumerGroupNotExist": "ConsumerGroupNotFound",
    "SubscriptionNotExist": "SubscriptionNotFound",
    "SignatureNotMatch": "AuthenticationFailed",
    "Unauthorized": "AuthenticationFailed",
    "RequestTimeExpired": "ClockSkewed",
}


def to_reported_error(error: Exception) -> ReportedError:
    """An error of the client as a reason and a message. The reason is the error's own code if no other reason
    fits."""
    if isinstance(error, EndpointUnreachable):
        return ReportedError("EndpointUnreachable", str(error))
    if isinstance(error, LogHubError):
        has_reason = error.code in _REASONS or error.status != HTTPStatus.UNAUTHORIZED
        return ReportedError(
            reason_of_code(error.code) if has_reason else "AuthenticationFailed", error.message
        )
    return ReportedError(type(error).__name__, str(error))


def reason_of_code(code: str) -> str:
    """The reason for a code of the service; the code itself if no other reason fits."""
    return _REASONS.get(code, code)
