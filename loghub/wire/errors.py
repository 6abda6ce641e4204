"""The errors of the wire, as one tree of exceptions.

The service answers with them and the clients raise them. Which request is retried is decided in
`loghub.client.retry`.

The tree::

    LogHubException
    ├── LogHubError              an answer of the service that is not a success
    ├── EndpointUnreachable      no answer; `definite` means that the request was surely not done
    ├── ExtensionMissing         the endpoint lacks the requested extension of the embedded service
    └── MalformedInput           bytes or text that break the wire's rules; `code` is the answer
        ├── MalformedLogGroup      not a LogGroup or LogGroupList (docs/sls-protocol.md 3)
        ├── MalformedCompression   cannot be decompressed, or not to the announced size (1.6)
        ├── TooLarge               longer than a fixed bound
        ├── MalformedCursor        not base64 of a decimal 64-bit integer (2.1)
        ├── MalformedName          not a project, logstore, group or consumer name (2.5)
        ├── MalformedSignature     an Authorization header that is not of version 1 (1.3)
        └── UnknownHost            the Host names no project (1.1)

`REGISTRY` has the codes that the service sends, with HTTP status, meaning and remedy, and the clients
interpret answers by it. Its model is errors.edn of maelstrom, from which the word "definite" is, too: the
request was surely not done, so it can be sent again without being done twice.

Some codes depend on the client, because the client libraries react differently to them: the service chooses a
code by the effect on the client, not by how well its name fits. docs/sls-protocol.md 2.4 lists the effects.
"""

from dataclasses import KW_ONLY, dataclass
from enum import StrEnum
from http import HTTPStatus
from typing import ClassVar, Literal


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
    NOT_EXIST_CONSUMER_WITH_BODY = "NotExistConsumerWithBody"
    INVALID_SHARD_CHECK_POINT = "InvalidShardCheckPoint"
    INDEX_CONFIG_NOT_EXIST = "IndexConfigNotExist"
    SUBSCRIPTION_NOT_EXIST = "SubscriptionNotExist"
    SUBSCRIPTION_ALREADY_EXIST = "SubscriptionAlreadyExist"
    SUBSCRIPTION_BUSY = "SubscriptionBusy"
    SUBSCRIPTION_FENCED = "SubscriptionFenced"
    SUBSCRIPTION_MISMATCH = "SubscriptionMismatch"
    # Quotas
    PROJECT_QUOTA_EXCEED = "ProjectQuotaExceed"
    CONSUMER_GROUP_QUOTA_EXCEED = "ConsumerGroupQuotaExceed"
    SUBSCRIPTION_QUOTA_EXCEED = "SubscriptionQuotaExceed"
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
Evidence = Literal["doc", "unverified", "own"]


@dataclass(frozen=True, slots=True)
class ErrorEntry:
    """One row of the registry. ``definite``: the request was surely not done."""

    code: Code
    status: int
    meaning: str
    remedy: str  # what the caller can do
    _: KW_ONLY
    evidence: Evidence = "doc"
    definite: bool = True
    source: str = "docs/sls-protocol.md 2.4"


_SEND_IT = "Send the header that docs/sls-protocol.md 1.2 describes."
_SLOWER = "Send fewer requests; request a higher quota if the error persists."

_ENTRIES = (
    ErrorEntry(
        Code.REQUEST_TIME_EXPIRED,
        400,
        "The request's time differs by more than 15 minutes from the service's clock.",
        "Correct the clock of the machine that sends the request.",
        source="docs/sls-protocol.md 1.5",
    ),
    ErrorEntry(Code.INVALID_REQUEST_TIME, 400, "The request's time is not valid.", "Send the current time."),
    ErrorEntry(Code.MISSING_DATE, 400, "A signed request has no Date header.", _SEND_IT),
    ErrorEntry(Code.INVALID_DATE_FORMAT, 400, "Date is not RFC 1123 in GMT.", _SEND_IT),
    ErrorEntry(
        Code.MISSING_HOST,
        400,
        "The Host header does not name a project.",
        "Address the endpoint as <project>.<endpoint>.",
        source="docs/sls-protocol.md 1.1, 2.4",
    ),
    ErrorEntry(Code.MISSING_CONTENT_TYPE, 400, "A request with a body has no Content-Type.", _SEND_IT),
    ErrorEntry(Code.INVALID_CONTENT_TYPE, 415, "The content type of PutLogs is not protobuf.", _SEND_IT),
    ErrorEntry(Code.MISSING_CONTENT_LENGTH, 411, "A request with a body has no Content-Length.", _SEND_IT),
    ErrorEntry(Code.MISSING_BODY_RAW_SIZE, 400, "A compressed body has no x-log-bodyrawsize.", _SEND_IT),
    ErrorEntry(Code.INVALID_BODY_RAW_SIZE, 400, "x-log-bodyrawsize is not the size of the body.", _SEND_IT),
    ErrorEntry(
        Code.INVALID_COMPRESS_TYPE,
        400,
        "x-log-compresstype is not supported.",
        "Use lz4, zstd or deflate.",
        source="docs/sls-protocol.md 1.6, 2.4",
    ),
    ErrorEntry(Code.MISSING_API_VERSION, 400, "The request has no x-log-apiversion.", _SEND_IT),
    ErrorEntry(Code.INVALID_API_VERSION, 400, "x-log-apiversion is not 0.6.0.", _SEND_IT),
    ErrorEntry(
        Code.INVALID_METHOD,
        405,
        "No API has this method and path.",
        "Check whether a name in the path is empty.",
    ),
    ErrorEntry(
        Code.NOT_IMPLEMENTED,
        501,
        "The embedded service does not have this API of SLS.",
        "Use the real SLS for it.",
        evidence="own",
        source="docs/decisions/wire.md",
    ),
    ErrorEntry(
        Code.SIGNATURE_NOT_MATCH,
        401,
        "The signature does not match the request and this key's secret.",
        "Check the secret; a proxy may have changed signed headers.",
        source="docs/sls-protocol.md 1.3, 2.4",
    ),
    ErrorEntry(
        Code.UNAUTHORIZED,
        401,
        "The request names no access key, or the key lacks the permission.",
        "Send Authorization; check the key's permissions.",
    ),
    ErrorEntry(
        Code.INVALID_ACCESS_KEY_ID,
        401,
        "The access key is unknown.",
        "Check the key id; the key may have been rotated.",
        evidence="unverified",
    ),
    ErrorEntry(
        Code.PARAMETER_INVALID,
        400,
        "A parameter or a name is not valid; the message names it.",
        "Correct the request.",
    ),
    ErrorEntry(
        Code.JSON_INFO_INVALID, 400, "The body is not the JSON that this API expects.", "Correct the request."
    ),
    ErrorEntry(
        Code.POST_BODY_INVALID,
        400,
        "The body of PutLogs is not a LogGroup.",
        "Correct the request; a retry does not help.",
        evidence="unverified",
        source="docs/sls-protocol.md 3",
    ),
    ErrorEntry(
        Code.POST_BODY_UNCOMPRESS_ERROR,
        400,
        "The body cannot be decompressed to the announced size.",
        "Correct the request; a retry does not help.",
        evidence="unverified",
        source="docs/sls-protocol.md 1.6",
    ),
    ErrorEntry(
        Code.POST_BODY_TOO_LARGE,
        400,
        "The body is larger than the service accepts.",
        "Put fewer logs into a log group.",
        evidence="unverified",
        source="docs/sls-protocol.md 2.4, 5",
    ),
    ErrorEntry(
        Code.INVALID_CURSOR,
        400,
        "The cursor does not belong to this shard.",
        "Get a cursor by time. Some clients lose or repeat data on it (2.4).",
        evidence="unverified",
    ),
    ErrorEntry(
        Code.PROJECT_NOT_EXIST, 404, "The project does not exist.", "Create it, or check the endpoint."
    ),
    ErrorEntry(Code.PROJECT_ALREADY_EXIST, 400, "The project exists already.", "Use the existing one."),
    ErrorEntry(Code.LOG_STORE_NOT_EXIST, 404, "The logstore does not exist in the project.", "Create it."),
    ErrorEntry(
        Code.LOG_STORE_ALREADY_EXIST,
        400,
        "The logstore exists already.",
        "Use the existing one.",
        evidence="unverified",
    ),
    ErrorEntry(
        Code.LOG_STORE_WITHOUT_SHARD, 400, "The logstore has no shard that accepts writes.", "Split a shard."
    ),
    ErrorEntry(
        Code.SHARD_NOT_EXIST,
        400,
        "The shard does not exist, or no longer exists.",
        "List the shards; release the shard if this was a checkpoint.",
    ),
    ErrorEntry(
        Code.CONSUMER_GROUP_NOT_EXIST,
        404,
        "The consumer group does not exist in the logstore.",
        "Create it; the Go client does that only at its start.",
        evidence="unverified",
    ),
    ErrorEntry(
        Code.CONSUMER_GROUP_ALREADY_EXIST,
        400,
        "The consumer group exists already.",
        "Use it, and update its settings.",
    ),
    ErrorEntry(
        Code.CONSUMER_NOT_EXIST,
        404,
        "The consumer is not in the group. The embedded service sends ConsumerNotMatch instead.",
        "Release the shard.",
        evidence="unverified",
    ),
    ErrorEntry(
        Code.CONSUMER_NOT_MATCH,
        400,
        "The consumer does not hold the shard, so its checkpoint was not saved.",
        "Release the shard; it is assigned to another consumer.",
        evidence="unverified",
    ),
    ErrorEntry(
        Code.NOT_EXIST_CONSUMER_WITH_BODY,
        400,
        "The group does not know the consumer, whose heartbeat reports shards.",
        "Give up the shards, then send a heartbeat that reports none.",
        source="docs/sls-protocol.md 2.4, 4.3",
    ),
    ErrorEntry(
        Code.INVALID_SHARD_CHECK_POINT,
        400,
        "The checkpoint is not a cursor of the shard.",
        "Save a cursor that the service has returned for this shard.",
    ),
    ErrorEntry(
        Code.INDEX_CONFIG_NOT_EXIST,
        404,
        "The logstore has no index.",
        "Read the logs by cursors; the embedded service has no index.",
    ),
    ErrorEntry(
        Code.SUBSCRIPTION_NOT_EXIST,
        404,
        "The subscription does not exist in the logstore.",
        "Create it.",
        evidence="own",
        source="docs/subscriptions-protocol.md 4",
    ),
    ErrorEntry(
        Code.SUBSCRIPTION_ALREADY_EXIST,
        409,
        "The subscription exists already, and was to be a new one.",
        "Use it, or take another name.",
        evidence="own",
        source="docs/subscriptions-protocol.md 4",
    ),
    ErrorEntry(
        Code.SUBSCRIPTION_BUSY,
        409,
        "Consumers are connected to the subscription that exclude this one, or this change.",
        "Stop them first, or wait until their leases are over.",
        evidence="own",
        source="docs/subscriptions-protocol.md 4",
    ),
    ErrorEntry(
        Code.SUBSCRIPTION_FENCED,
        409,
        "The session of the consumer has ended.",
        "Join again: what was out is delivered again.",
        evidence="own",
        source="docs/subscriptions-protocol.md 4",
    ),
    ErrorEntry(
        Code.SUBSCRIPTION_MISMATCH,
        409,
        "The subscription has another type than the consumer.",
        "Use the type of the subscription, or change the subscription.",
        evidence="own",
        source="docs/subscriptions-protocol.md 4",
    ),
    ErrorEntry(
        Code.PROJECT_QUOTA_EXCEED,
        403,
        "The project or the account has reached the limit for this kind of resource.",
        "Delete some, or request a higher quota.",
    ),
    ErrorEntry(
        Code.CONSUMER_GROUP_QUOTA_EXCEED,
        403,
        "The logstore has reached the limit of 30 consumer groups.",
        "Delete some.",
        evidence="unverified",
        source="docs/sls-protocol.md 5",
    ),
    ErrorEntry(
        Code.SUBSCRIPTION_QUOTA_EXCEED,
        400,
        "The logstore or the service has the most subscriptions, or the subscription the most consumers.",
        "Delete what is not used any more.",
        evidence="own",
        source="docs/subscriptions-protocol.md 4",
    ),
    ErrorEntry(Code.WRITE_QUOTA_EXCEED, 403, "The project exceeds its write quota.", _SLOWER),
    ErrorEntry(Code.READ_QUOTA_EXCEED, 403, "The project exceeds its read quota.", _SLOWER),
    ErrorEntry(Code.SHARD_WRITE_QUOTA_EXCEED, 403, "The shard exceeds its write quota.", "Split it."),
    ErrorEntry(Code.SHARD_READ_QUOTA_EXCEED, 403, "The shard exceeds its read quota.", _SLOWER),
    ErrorEntry(
        Code.INTERNAL_SERVER_ERROR,
        500,
        "The service failed; it is not known whether the request was done.",
        "Check whether it was done before sending it again.",
        definite=False,
    ),
    ErrorEntry(
        Code.SERVER_BUSY,
        503,
        "The service did not process the request.",
        "Send it again later.",
        evidence="unverified",
    ),
    ErrorEntry(
        Code.BAD_RESPONSE,
        502,
        "The answer is not one of SLS; another server answered.",
        "Check the endpoint and any proxy in between.",
        evidence="own",
        definite=False,
        source="docs/sls-protocol.md 1.7",
    ),
)

REGISTRY: dict[str, ErrorEntry] = {entry.code.value: entry for entry in _ENTRIES}


# Java and Go have no common code for a deleted shard. Go's own misspelling is sent only to Go.
CHECKPOINT_OF_NO_SHARD = Code.SHARD_NOT_EXIST
CHECKPOINT_OF_NO_SHARD_FOR_GO = "ShardNotExsit"

# The prefixes of the User-Agents of the Python and Java clients and of our own.
_NOT_GO = ("log-python-sdk", "Consumer-Library", "aliyun-log", "loghub-client/")


def checkpoint_of_no_shard(user_agent: str) -> str:
    """The code that answers a checkpoint of a deleted shard, depending on the client.

    Go's consumer sends ``<group>_<consumer>`` as its User-Agent, while the others begin with the name
    of their library (docs/sls-protocol.md 1.2). A User-Agent without such a name is treated as Go,
    which loops at its shutdown unless it gets its own spelling (4.4).
    """
    return CHECKPOINT_OF_NO_SHARD if user_agent.startswith(_NOT_GO) else CHECKPOINT_OF_NO_SHARD_FOR_GO


class LogHubException(Exception):  # noqa: N818 - LogHubError is one of its branches
    """The root of every error that this package raises on purpose."""


class LogHubError(LogHubException):
    """An answer of the service that is not 200 (docs/sls-protocol.md 1.7).

    ``code`` is spelled as the service sent it, and may be missing from the registry.
    """

    def __init__(self, code: str, status: int, message: str, request_id: str = "") -> None:
        request_note = f", request {request_id}" if request_id else ""
        super().__init__(f"{code} (HTTP {status}{request_note}): {message}")
        self.code = str(code)
        self.status = status
        self.message = message
        self.request_id = request_id

    @classmethod
    def of(cls, code: Code, message: str = "", request_id: str = "") -> "LogHubError":
        """The error with its registered status; an empty message is replaced by the meaning of the code."""
        entry = REGISTRY[code]
        return cls(code, entry.status, message or entry.meaning, request_id)

    @property
    def definite(self) -> bool:
        """Whether the request was surely not done. The status decides for a code that is not registered."""
        entry = REGISTRY.get(self.code)
        if entry is not None and entry.status == self.status:
            return entry.definite
        return HTTPStatus.BAD_REQUEST <= self.status < HTTPStatus.INTERNAL_SERVER_ERROR


class EndpointUnreachable(LogHubException):
    """No answer arrived. ``definite``: the request never reached the service, so it was not done."""

    def __init__(self, endpoint: str, reason: str, *, definite: bool) -> None:
        outcome_note = "" if definite else "; it is not known whether the request was done"
        super().__init__(f"{endpoint} did not answer: {reason}{outcome_note}")
        self.endpoint = endpoint
        self.reason = reason
        self.definite = definite


class ExtensionMissing(LogHubException):
    """The endpoint, or the adapter, lacks the requested extension of the embedded service."""


class MalformedInput(LogHubException, ValueError):  # noqa: N818 - says what, like its leaves
    """Bytes or text that break the wire's rules. A service answers with ``code``."""

    code: ClassVar[Code] = Code.PARAMETER_INVALID


class MalformedLogGroup(MalformedInput):
    """Not a LogGroup or LogGroupList: truncated, wrong wire types or impossible lengths."""

    code = Code.POST_BODY_INVALID


class MalformedCompression(MalformedInput):
    """Compressed bytes that cannot be decompressed, or not to the announced size."""

    code = Code.POST_BODY_UNCOMPRESS_ERROR


class TooLarge(MalformedInput):
    """Longer than a fixed bound; nothing of it was stored."""

    code = Code.POST_BODY_TOO_LARGE


class MalformedCursor(MalformedInput):
    """Not base64 of a decimal 64-bit integer."""

    code = Code.INVALID_CURSOR


class MalformedName(MalformedInput):
    """A name that breaks the rule for its kind; the message contains the rule."""


class MalformedSignature(MalformedInput):
    """An Authorization header that is not of signature version 1."""

    code = Code.UNAUTHORIZED


class UnknownHost(MalformedInput):
    """A Host that names no project."""

    code = Code.MISSING_HOST
