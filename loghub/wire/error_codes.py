"""The registry of the error codes that the service sends: HTTP status, meaning and remedy.

The service selects its answers from this registry and the clients interpret answers by it; `markdown`
renders it for the documentation. maelstrom's errors.edn is the model. `client_quirks` describes how the
real client libraries react to some codes.

"Definite" is maelstrom's term: the request was surely not done, so it can be sent again without being
done twice.
"""

from dataclasses import dataclass
from enum import StrEnum
from typing import Literal


class Code(StrEnum):
    """The codes that our service sends or that our clients know, spelled exactly as on the wire."""

    # The envelope
    REQUEST_TIME_EXPIRED = "RequestTimeExpired"
    INVALID_REQUEST_TIME = "InvalidRequestTime"
    MISSING_DATE = "MissingDate"
    INVALID_DATE_FORMAT = "InvalidDateFormat"
    MISSING_HOST = "MissingHost"
    MISSING_CONTENT_TYPE = "MissingContentType"
    INVALID_CONTENT_TYPE = "InvalidContentType"
    MISSING_CONTENT_LENGTH = "MissingContentLength"
    MISSING_BODY_RAW_SIZE = "MissingBodyRawSize"
    INVALID_BODY_RAW_SIZE = "InvalidBodyRawSize"
    INVALID_COMPRESS_TYPE = "InvalidCompressType"
    MISSING_API_VERSION = "MissingAPIVersion"
    INVALID_API_VERSION = "InvalidAPIVersion"
    INVALID_METHOD = "InvalidMethod"
    NOT_IMPLEMENTED = "NotImplemented"
    # The caller
    SIGNATURE_NOT_MATCH = "SignatureNotMatch"
    UNAUTHORIZED = "Unauthorized"
    INVALID_ACCESS_KEY_ID = "InvalidAccessKeyId"
    # The request
    PARAMETER_INVALID = "ParameterInvalid"
    JSON_INFO_INVALID = "JsonInfoInvalid"
    POST_BODY_INVALID = "PostBodyInvalid"
    POST_BODY_UNCOMPRESS_ERROR = "PostBodyUncompressError"
    POST_BODY_TOO_LARGE = "PostBodyTooLarge"
    INVALID_CURSOR = "InvalidCursor"
    # The resource
    PROJECT_NOT_EXIST = "ProjectNotExist"
    PROJECT_ALREADY_EXIST = "ProjectAlreadyExist"
    LOG_STORE_NOT_EXIST = "LogStoreNotExist"
    LOG_STORE_ALREADY_EXIST = "LogStoreAlreadyExist"
    LOG_STORE_WITHOUT_SHARD = "LogStoreWithoutShard"
    SHARD_NOT_EXIST = "ShardNotExist"
    CONSUMER_GROUP_NOT_EXIST = "ConsumerGroupNotExist"
    CONSUMER_GROUP_ALREADY_EXIST = "ConsumerGroupAlreadyExist"
    CONSUMER_NOT_EXIST = "ConsumerNotExist"
    CONSUMER_NOT_MATCH = "ConsumerNotMatch"
    # Quotas
    PROJECT_QUOTA_EXCEED = "ProjectQuotaExceed"
    CONSUMER_GROUP_QUOTA_EXCEED = "ConsumerGroupQuotaExceed"
    WRITE_QUOTA_EXCEED = "WriteQuotaExceed"
    READ_QUOTA_EXCEED = "ReadQuotaExceed"
    SHARD_WRITE_QUOTA_EXCEED = "ShardWriteQuotaExceed"
    SHARD_READ_QUOTA_EXCEED = "ShardReadQuotaExceed"
    # The service
    INTERNAL_SERVER_ERROR = "InternalServerError"
    SERVER_BUSY = "ServerBusy"
    # Never sent: our clients report it for an answer that does not have SLS's form
    BAD_RESPONSE = "BadResponse"


# doc: the vendor documents code and status. unverified: we remember or infer them.
# own: the code is ours, and the real SLS never sends it.
Mark = Literal["doc", "unverified", "own"]


@dataclass(frozen=True, slots=True, kw_only=True)
class ErrorEntry:
    """One row of the registry. ``definite``: the request was surely not done."""

    code: Code
    status: int
    meaning: str
    remedy: str  # what the caller can do
    definite: bool
    source: str
    mark: Mark


def _entry(
    code: Code,
    status: int,
    meaning: str,
    remedy: str,
    *,
    mark: Mark = "doc",
    definite: bool = True,
    source: str = "docs/sls-protocol.md 2.4",
) -> ErrorEntry:
    return ErrorEntry(
        code=code,
        status=status,
        meaning=meaning,
        remedy=remedy,
        definite=definite,
        source=source,
        mark=mark,
    )


_SEND_IT = "Send the header as docs/sls-protocol.md 1.2 has it."
_SLOWER = "Slow down and send again; ask for a higher quota if it lasts."

_ENTRIES = (
    _entry(
        Code.REQUEST_TIME_EXPIRED,
        400,
        "The request's time is more than 15 minutes off the service's.",
        "Set the clock of the machine that sends.",
        source="docs/sls-protocol.md 1.5",
    ),
    _entry(Code.INVALID_REQUEST_TIME, 400, "The request's time makes no sense.", "Send the current time."),
    _entry(Code.MISSING_DATE, 400, "A signed request without Date.", _SEND_IT),
    _entry(Code.INVALID_DATE_FORMAT, 400, "Date is not RFC 1123 in GMT.", _SEND_IT),
    _entry(
        Code.MISSING_HOST,
        400,
        "No project can be read from the Host header.",
        "Address the endpoint as <project>.<endpoint>.",
        source="docs/sls-protocol.md 1.1, 2.4",
    ),
    _entry(Code.MISSING_CONTENT_TYPE, 400, "A body without Content-Type.", _SEND_IT),
    _entry(Code.INVALID_CONTENT_TYPE, 415, "PutLogs with a type that is not protobuf.", _SEND_IT),
    _entry(Code.MISSING_CONTENT_LENGTH, 411, "A body without Content-Length.", _SEND_IT),
    _entry(Code.MISSING_BODY_RAW_SIZE, 400, "A compressed body without x-log-bodyrawsize.", _SEND_IT),
    _entry(Code.INVALID_BODY_RAW_SIZE, 400, "x-log-bodyrawsize is not the body's size.", _SEND_IT),
    _entry(
        Code.INVALID_COMPRESS_TYPE,
        400,
        "x-log-compresstype is none of those known here.",
        "Use lz4 or zstd.",
        source="docs/sls-protocol.md 1.6, 2.4",
    ),
    _entry(Code.MISSING_API_VERSION, 400, "No x-log-apiversion.", _SEND_IT),
    _entry(Code.INVALID_API_VERSION, 400, "x-log-apiversion is not 0.6.0.", _SEND_IT),
    _entry(
        Code.INVALID_METHOD,
        405,
        "No API has this method and path.",
        "Look whether a name in the path is empty.",
    ),
    _entry(
        Code.NOT_IMPLEMENTED,
        501,
        "An API of SLS that the embedded service does not have.",
        "Use the real SLS for it.",
        mark="own",
        source="docs/decisions/wire.md",
    ),
    _entry(
        Code.SIGNATURE_NOT_MATCH,
        401,
        "The signature is not that of the request under this key's secret.",
        "Check the secret; a proxy may have changed signed headers.",
        source="docs/sls-protocol.md 1.3, 2.4",
    ),
    _entry(
        Code.UNAUTHORIZED,
        401,
        "No access key is named, or it may not do this.",
        "Send Authorization; look at the key's permissions.",
    ),
    _entry(
        Code.INVALID_ACCESS_KEY_ID,
        401,
        "The access key is not known.",
        "Check the key id; keys may have been rotated.",
        mark="unverified",
    ),
    _entry(
        Code.PARAMETER_INVALID,
        400,
        "A parameter or a name breaks its rule; the message says which.",
        "Correct it.",
    ),
    _entry(Code.JSON_INFO_INVALID, 400, "The body is not the JSON that this API takes.", "Correct it."),
    _entry(
        Code.POST_BODY_INVALID,
        400,
        "The body of PutLogs is not a LogGroup.",
        "Correct it; sending it again changes nothing.",
        mark="unverified",
        source="docs/sls-protocol.md 3",
    ),
    _entry(
        Code.POST_BODY_UNCOMPRESS_ERROR,
        400,
        "The body cannot be decompressed to the announced size.",
        "Correct it; sending it again changes nothing.",
        mark="unverified",
        source="docs/sls-protocol.md 1.6",
    ),
    _entry(
        Code.POST_BODY_TOO_LARGE,
        400,
        "The body is larger than the service takes.",
        "Put fewer logs into a group.",
        mark="unverified",
        source="docs/sls-protocol.md 2.4, 5",
    ),
    _entry(
        Code.INVALID_CURSOR,
        400,
        "The cursor is not one of this shard.",
        "Get a cursor by time. Some clients lose or repeat data on it (2.4).",
        mark="unverified",
    ),
    _entry(Code.PROJECT_NOT_EXIST, 404, "No such project here.", "Create it, or check the endpoint."),
    _entry(Code.PROJECT_ALREADY_EXIST, 400, "A project of this name exists.", "Go on with it."),
    _entry(Code.LOG_STORE_NOT_EXIST, 404, "No such logstore in the project.", "Create it."),
    _entry(
        Code.LOG_STORE_ALREADY_EXIST,
        400,
        "A logstore of this name exists.",
        "Go on with it.",
        mark="unverified",
    ),
    _entry(Code.LOG_STORE_WITHOUT_SHARD, 400, "The logstore has no shard to write to.", "Split one."),
    _entry(
        Code.SHARD_NOT_EXIST,
        400,
        "No such shard, or no longer.",
        "List the shards; on a checkpoint, drop it.",
    ),
    _entry(
        Code.CONSUMER_GROUP_NOT_EXIST,
        404,
        "No such consumer group in the logstore.",
        "Create it; Go's client never does so after its start.",
        mark="unverified",
    ),
    _entry(
        Code.CONSUMER_GROUP_ALREADY_EXIST,
        400,
        "A consumer group of this name exists.",
        "Go on with it, and update its settings.",
    ),
    _entry(
        Code.CONSUMER_NOT_EXIST,
        404,
        "The consumer is not in the group. We send ConsumerNotMatch in its place.",
        "Release the shard.",
        mark="unverified",
    ),
    _entry(
        Code.CONSUMER_NOT_MATCH,
        400,
        "The consumer does not hold the shard, so its checkpoint was not taken.",
        "Release the shard; another consumer has it or gets it.",
        mark="unverified",
    ),
    _entry(
        Code.PROJECT_QUOTA_EXCEED,
        403,
        "The project or the account has as many of these as it may.",
        "Delete some, or ask for a higher quota.",
    ),
    _entry(
        Code.CONSUMER_GROUP_QUOTA_EXCEED,
        403,
        "The logstore has as many consumer groups as it may (30).",
        "Delete some.",
        mark="unverified",
        source="docs/sls-protocol.md 5",
    ),
    _entry(Code.WRITE_QUOTA_EXCEED, 403, "The project is written to too fast.", _SLOWER),
    _entry(Code.READ_QUOTA_EXCEED, 403, "The project is read too fast.", _SLOWER),
    _entry(Code.SHARD_WRITE_QUOTA_EXCEED, 403, "The shard is written to too fast.", "Split it."),
    _entry(Code.SHARD_READ_QUOTA_EXCEED, 403, "The shard is read too fast.", _SLOWER),
    _entry(
        Code.INTERNAL_SERVER_ERROR,
        500,
        "The service failed; whether the request was done is not known.",
        "Look whether it was done before sending it again.",
        definite=False,
    ),
    _entry(
        Code.SERVER_BUSY,
        503,
        "The service did not take the request up.",
        "Send it again a little later.",
        mark="unverified",
    ),
    _entry(
        Code.BAD_RESPONSE,
        502,
        "An answer that SLS does not give; something else answered.",
        "Check the endpoint and the proxies on the way.",
        mark="own",
        definite=False,
        source="docs/sls-protocol.md 1.7",
    ),
)

REGISTRY: dict[str, ErrorEntry] = {entry.code.value: entry for entry in _ENTRIES}
