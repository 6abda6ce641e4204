"""Errors of the service's actions as those of Kafka's protocol."""

from collections.abc import Iterator
from contextlib import contextmanager

from loghub.kafka.broker.store import StoreError
from loghub.kafka.wire.error_codes import ErrorCode
from loghub.service.api_errors import InvalidInput, refusal
from loghub.service.storage.batches import StorageFailed
from loghub.wire.errors import Code, LogHubError

# What is not here is an error that no action behind the endpoint raises.
_CODES = {
    Code.PROJECT_NOT_EXIST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LOG_STORE_NOT_EXIST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.SHARD_NOT_EXIST: ErrorCode.UNKNOWN_TOPIC_OR_PARTITION,
    Code.LOG_STORE_ALREADY_EXIST: ErrorCode.TOPIC_ALREADY_EXISTS,
    Code.LOG_STORE_WITHOUT_SHARD: ErrorCode.LEADER_NOT_AVAILABLE,
    Code.PROJECT_QUOTA_EXCEED: ErrorCode.POLICY_VIOLATION,
    Code.PARAMETER_INVALID: ErrorCode.INVALID_REQUEST,
    Code.UNAUTHORIZED: ErrorCode.TOPIC_AUTHORIZATION_FAILED,
    Code.POST_BODY_TOO_LARGE: ErrorCode.MESSAGE_TOO_LARGE,
    Code.SERVER_BUSY: ErrorCode.KAFKA_STORAGE_ERROR,  # clients repeat it
}


@contextmanager
def as_store_errors() -> Iterator[None]:
    """Raise StoreError in place of the errors that HTTP would answer with."""
    try:
        yield
    except LogHubError as error:
        raise _store_error(error) from error
    except InvalidInput as error:
        raise _store_error(refusal(error)) from error


def _store_error(error: LogHubError) -> StoreError:
    return StoreError(_CODES.get(Code(error.code), ErrorCode.UNKNOWN_SERVER_ERROR), error.message)


def of_append(error: BaseException) -> StoreError:
    """For an append that failed."""
    if isinstance(error, StorageFailed):
        return StoreError(ErrorCode.UNKNOWN_SERVER_ERROR, "storage failed, the service stops")
    if isinstance(error, OSError):
        return StoreError(ErrorCode.KAFKA_STORAGE_ERROR, f"no disk space for the logs: {error.strerror}")
    return StoreError(ErrorCode.UNKNOWN_SERVER_ERROR, "the append failed")
