"""The error codes of the Kafka protocol with which the endpoint answers, each with its meaning, and the
exceptions for malformed bytes and values.

The list is closed: https://kafka.apache.org/protocol.html#protocol_error_codes has all codes. ``retriable``
is how Kafka's clients treat a code: they repeat the request, some after they have refreshed their metadata or
found the coordinator again.

A broker closes the connection after a MalformedFrame, as Kafka does: the peers no longer agree about where a
field begins. A BadBatch concerns one partition of a Produce request, and its code is the answer for that
partition.
"""

from enum import IntEnum


class ErrorCode(IntEnum):
    """A code on the wire, whether it is ``retriable``, and a sentence about it."""

    retriable: bool
    meaning: str

    def __new__(cls, number: int, retriable: bool, meaning: str) -> "ErrorCode":
        """A member whose value is the number alone."""
        member = int.__new__(cls, number)
        member._value_ = number
        member.retriable = retriable
        member.meaning = meaning
        return member

    UNKNOWN_SERVER_ERROR = -1, False, "The service failed in a way that it did not expect."
    NONE = 0, False, "No error."
    OFFSET_OUT_OF_RANGE = 1, False, "The offset is before the start or after the end of the partition."
    CORRUPT_MESSAGE = 2, True, "The checksum of a record batch is wrong, or its sizes contradict each other."
    UNKNOWN_TOPIC_OR_PARTITION = 3, True, "There is no such topic, or it has no such partition."
    LEADER_NOT_AVAILABLE = 5, True, "The partition has no leader at the moment."
    NOT_LEADER_OR_FOLLOWER = 6, True, "This broker does not lead the partition."
    REQUEST_TIMED_OUT = 7, True, "The request was not done within its time."
    MESSAGE_TOO_LARGE = 10, False, "The record batch is larger than the service accepts."
    OFFSET_METADATA_TOO_LARGE = 12, False, "The text next to a committed offset is too long."
    COORDINATOR_LOAD_IN_PROGRESS = 14, True, "The coordinator is still reading its groups."
    COORDINATOR_NOT_AVAILABLE = 15, True, "There is no coordinator at the moment."
    NOT_COORDINATOR = 16, True, "This broker does not coordinate the group."
    INVALID_TOPIC_EXCEPTION = 17, False, "The name is not one that a topic can have."
    RECORD_LIST_TOO_LARGE = 18, False, "The request has more record batches than allowed."
    INVALID_REQUIRED_ACKS = 21, False, "The number of acknowledgements is none of -1, 0 and 1."
    ILLEGAL_GENERATION = 22, False, "The generation is not the current one of the group."
    INCONSISTENT_GROUP_PROTOCOL = 23, False, "The members have no assignor in common."
    INVALID_GROUP_ID = 24, False, "The id is not one that a group can have."
    UNKNOWN_MEMBER_ID = 25, False, "The group has no such member."
    INVALID_SESSION_TIMEOUT = 26, False, "The session timeout is shorter or longer than allowed."
    REBALANCE_IN_PROGRESS = 27, False, "The group is rebalancing, and the member has to join again."
    INVALID_COMMIT_OFFSET_SIZE = 28, False, "The offset is not committed because of its size."
    TOPIC_AUTHORIZATION_FAILED = 29, False, "The access key may not use the topic."
    GROUP_AUTHORIZATION_FAILED = 30, False, "The access key may not use the group."
    CLUSTER_AUTHORIZATION_FAILED = 31, False, "The access key may not do this at all."
    INVALID_TIMESTAMP = 32, False, "The time of a record cannot be the time of a log."
    UNSUPPORTED_SASL_MECHANISM = 33, False, "The mechanism of the login is not offered."
    ILLEGAL_SASL_STATE = 34, False, "The request does not fit the state of the login."
    UNSUPPORTED_VERSION = 35, False, "The version of the request is not offered."
    TOPIC_ALREADY_EXISTS = 36, False, "There is a topic of this name."
    INVALID_PARTITIONS = 37, False, "The number of partitions is not possible."
    INVALID_REPLICATION_FACTOR = 38, False, "The replication factor is not possible."
    INVALID_REPLICA_ASSIGNMENT = 39, False, "The assignment of replicas is not possible."
    INVALID_CONFIG = 40, False, "A setting is unknown, or its value is not possible."
    NOT_CONTROLLER = 41, True, "This broker is not the controller."
    INVALID_REQUEST = 42, False, "The request contradicts itself, or something in it is missing."
    UNSUPPORTED_FOR_MESSAGE_FORMAT = 43, False, "The records are of message format 0 or 1."
    POLICY_VIOLATION = 44, False, "The request is correct and a rule of the service forbids it."
    OUT_OF_ORDER_SEQUENCE_NUMBER = 45, False, "A batch is missing before this one of the producer."
    DUPLICATE_SEQUENCE_NUMBER = 46, False, "The batch was stored before, too long ago to know its offset."
    INVALID_PRODUCER_EPOCH = 47, False, "A newer producer has taken over the producer id."
    TRANSACTIONAL_ID_AUTHORIZATION_FAILED = 53, False, "Transactions are not offered."
    KAFKA_STORAGE_ERROR = 56, True, "The service could not read or write its files."
    SASL_AUTHENTICATION_FAILED = 58, False, "User or password is wrong."
    UNKNOWN_PRODUCER_ID = 59, False, "The producer id is not known for the partition."
    NON_EMPTY_GROUP = 68, False, "The group has members."
    GROUP_ID_NOT_FOUND = 69, False, "There is no such group."
    FETCH_SESSION_ID_NOT_FOUND = 70, True, "There is no such fetch session."
    INVALID_FETCH_SESSION_EPOCH = 71, True, "The epoch is not the next one of the fetch session."
    FENCED_LEADER_EPOCH = 74, True, "The leader epoch is older than the broker's."
    UNKNOWN_LEADER_EPOCH = 75, True, "The leader epoch is newer than the broker's."
    UNSUPPORTED_COMPRESSION_TYPE = 76, False, "The compression of the record batch is not known."
    MEMBER_ID_REQUIRED = 79, False, "The member has to join again with the id in this answer."
    GROUP_MAX_SIZE_REACHED = 81, False, "The group has as many members as allowed."
    FENCED_INSTANCE_ID = 82, False, "Another member has taken over the instance id."
    GROUP_SUBSCRIBED_TO_TOPIC = 86, False, "The group is subscribed to the topic."
    INVALID_RECORD = 87, False, "A record cannot be stored as a log."
    THROTTLING_QUOTA_EXCEEDED = 89, True, "The quota is used up for the moment."


class MalformedFrame(ValueError):  # noqa: N818 - says what, like its branches
    """Bytes that are not a message of the protocol, or not a message in an offered version."""


class UnsupportedRequest(MalformedFrame):
    """A request with an API key or in a version that is not offered. Kafka closes the connection, too."""

    def __init__(self, api_key: int, api_version: int) -> None:
        super().__init__(f"version {api_version} of the API {api_key} is not offered")
        self.api_key = api_key
        self.api_version = api_version


class UnencodableValue(ValueError):  # noqa: N818 - says what, like the others
    """A value that the message cannot carry in this version, such as null where null is not allowed."""


class BadBatch(ValueError):  # noqa: N818 - says what, like the others
    """A record batch that is not stored. ``code`` is the error of its partition in the answer."""

    def __init__(self, code: ErrorCode, message: str) -> None:
        super().__init__(message)
        self.code = code
