"""Errors as the service raises them: a code of the registry and what to say.

What for: the status belongs to the code, so no action names one; input that the wire or the
domain refuses becomes an answer here. What it must not know: HTTP. Read next:
`loghub.wire.errors` (the registry).
"""

from loghub.domain.hashrange import BadHashKey
from loghub.domain.shards import ShardError, ShardNotFound
from loghub.wire.errors import Code, LogHubError, MalformedInput

Refusable = (MalformedInput, BadHashKey, ShardError)


def failure(code: Code, message: str) -> LogHubError:
    """An error to raise; the frame adds the request id to the answer."""
    return LogHubError.of(code, message)


def refusal(error: Exception) -> LogHubError:
    """The answer to one of `Refusable`."""
    if isinstance(error, MalformedInput):
        return failure(error.code, str(error))
    code = Code.SHARD_NOT_EXIST if isinstance(error, ShardNotFound) else Code.PARAMETER_INVALID
    return failure(code, str(error))
