"""Errors that the service returns to a client, and the base of the exceptions that it raises internally.

Each error for a client has a code of the registry in `loghub.wire.errors` and a message. The HTTP status
belongs to the code, so no action names a status. This module also translates exceptions of the wire and the
domain that reject a client's input. A `ServiceFault` is no response to a client: `__main__` prints one line
for it and exits.

    ServiceFault
    ├── DataDirInUse         datadir: another process owns the data
    ├── CredentialsMissing   credentials: no key to check requests against
    ├── DatabaseUnusable     storage.database: damaged, or of a newer release
    ├── LogDamaged           storage.segment: acknowledged log data is missing or damaged
    ├── DamagedRecord        storage.segment_format: the bytes are not a whole record
    ├── WriteFailed          here: a write or sync failed, which is final
    ├── StorageFailed        storage.group_commit: the outcome of each request that waits after such a failure
    ├── StorageStopped       server: the process ended because of such a failure
    └── ClientGone           http.body: the client closed the connection
"""

import errno
from collections.abc import Iterator
from contextlib import contextmanager

from loghub.domain.shards import BadHashKey, ShardError, ShardNotFound
from loghub.wire.errors import Code, LogHubError, MalformedInput

_DISK_FULL = (errno.ENOSPC, errno.EDQUOT, errno.EFBIG)


class ServiceFault(Exception):  # noqa: N818 - "error" is reserved for responses on the wire
    """Raised deliberately, with a message for the operator of the service."""


class WriteFailed(ServiceFault):
    """A write or sync failed: the content of the file, or of the folder's names, on stable storage is
    unknown.

    The kernel reports a failed sync once and marks the pages that it could not write as clean, so a later
    sync succeeds without writing them. Only a new start, which reads the disk, may continue. It is no
    OSError, so that no code that handles a full disk catches it.
    """


def is_disk_full(error: OSError) -> bool:
    """Whether the error means a full disk, which passes; other errors of a disk may stay."""
    return error.errno in _DISK_FULL


InvalidInput = (MalformedInput, BadHashKey, ShardError)


def failure(code: Code, message: str) -> LogHubError:
    """The error to raise; `loghub_service.http` adds the request id to the response."""
    return LogHubError.of(code, message)


def refusal(error: Exception) -> LogHubError:
    """The error to return for one of the `InvalidInput` exceptions."""
    if isinstance(error, MalformedInput):
        return failure(error.code, str(error))
    code = Code.SHARD_NOT_EXIST if isinstance(error, ShardNotFound) else Code.PARAMETER_INVALID
    return failure(code, str(error))


@contextmanager
def needs_room(what: str) -> Iterator[None]:
    """Raise what `without_room` says instead of an OSError."""
    try:
        yield
    except OSError as error:
        answer = without_room(what, error)
        if answer is error:
            raise
        raise answer from error


def without_room(what: str, error: BaseException) -> BaseException:
    """ServerBusy, which clients repeat, instead of the OSError of a full disk, with ``what`` had no room; any
    other error unchanged."""
    if not isinstance(error, OSError) or not is_disk_full(error):
        return error
    return failure(Code.SERVER_BUSY, f"no disk space for {what}: {error.strerror}")
