"""Errors that the service raises in order to return them to a client.

Each error has a code of the registry in `loghub.wire.errors` and a message. The HTTP status belongs to the
code, so no action names a status. This module also translates exceptions of the wire and the domain that
reject a client's input.
"""

from collections.abc import Iterator
from contextlib import contextmanager

from loghub.domain.hashrange import BadHashKey
from loghub.domain.shards import ShardError, ShardNotFound
from loghub.service.faults import is_disk_full
from loghub.wire.errors import Code, LogHubError, MalformedInput

InvalidInput = (MalformedInput, BadHashKey, ShardError)


def failure(code: Code, message: str) -> LogHubError:
    """The error to raise; `loghub.service.http` adds the request id to the response."""
    return LogHubError.of(code, message)


def refusal(error: Exception) -> LogHubError:
    """The error to return for one of the `InvalidInput` exceptions."""
    if isinstance(error, MalformedInput):
        return failure(error.code, str(error))
    code = Code.SHARD_NOT_EXIST if isinstance(error, ShardNotFound) else Code.PARAMETER_INVALID
    return failure(code, str(error))


@contextmanager
def needs_room(what: str) -> Iterator[None]:
    """ServerBusy, which clients repeat, instead of the OSError of a full disk: no room for ``what``."""
    try:
        yield
    except OSError as error:
        if not is_disk_full(error):
            raise
        raise failure(Code.SERVER_BUSY, f"no disk space for {what}: {error.strerror}") from error
