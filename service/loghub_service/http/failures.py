"""The response to a request that has failed, and the id by which a client names it."""

import structlog

from loghub.wire.errors import Code, LogHubError
from loghub_service.errors import InvalidInput, failure, refusal
from loghub_service.messages import ServiceResponse, error_response
from loghub_service.ports import Random
from loghub_service.storage.group_commit import StorageFailed

_log = structlog.get_logger("loghub_service.http")
_ID_DIGITS = 24  # the length of SLS's own request ids


def new_id(random: Random) -> str:
    return random.hex(_ID_DIGITS)


def failed(error: BaseException, request_id: str, path: str) -> ServiceResponse:
    """The only place at which an error becomes a response."""
    match error:
        case LogHubError():
            return error_response(error)
        case error if isinstance(error, InvalidInput):
            return error_response(refusal(error))
        case StorageFailed():
            return error_response(failure(Code.INTERNAL_SERVER_ERROR, "storage failed, the service stops"))
    _log.error("request failed", request_id=request_id, path=path[:256], exc_info=error)
    return error_response(
        failure(Code.INTERNAL_SERVER_ERROR, "the request failed because of an internal error")
    )
