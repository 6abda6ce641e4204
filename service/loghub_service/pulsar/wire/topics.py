"""The commands about topics: their partitions, the broker to go to, lists of names, and schemas.

https://pulsar.apache.org/docs/4.0.x/developing-binary-protocol/#topic-lookup, PIP-145 (lists that are
watched), PIP-344 (the count of partitions of a topic that is not there).
"""

from enum import IntEnum
from typing import Annotated

from msgspec import Struct

from loghub_service.pulsar.wire.codec import Bool, Bytes, String, UInt32, UInt64
from loghub_service.pulsar.wire.errors import ServerError
from loghub_service.pulsar.wire.values import KeyValue, Schema


class PartitionsResult(IntEnum):
    """Whether a count of partitions follows."""

    SUCCESS = 0
    FAILED = 1


class LookupResult(IntEnum):
    """What a client does next: ask elsewhere, connect, or give up."""

    REDIRECT = 0
    CONNECT = 1
    FAILED = 2


class TopicsMode(IntEnum):
    """Which topics a list has."""

    PERSISTENT = 0
    NON_PERSISTENT = 1
    ALL = 2


class CommandPartitionedTopicMetadata(Struct, frozen=True, kw_only=True):
    """How many partitions does this topic have?"""

    topic: Annotated[String, 1]
    request_id: Annotated[UInt64, 2]
    metadata_auto_creation_enabled: Annotated[Bool, 6] = True


class CommandPartitionedTopicMetadataResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandPartitionedTopicMetadata."""

    partitions: Annotated[UInt32 | None, 1] = None
    request_id: Annotated[UInt64, 2]
    response: Annotated[PartitionsResult, 3]
    error: Annotated[ServerError | None, 4] = None
    message: Annotated[String | None, 5] = None


class CommandLookupTopic(Struct, frozen=True, kw_only=True):
    """Which broker serves this topic?"""

    topic: Annotated[String, 1]
    request_id: Annotated[UInt64, 2]
    authoritative: Annotated[Bool, 3] = False
    advertised_listener_name: Annotated[String | None, 7] = None
    properties: Annotated[tuple[KeyValue, ...], 8] = ()


class CommandLookupTopicResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandLookupTopic."""

    broker_service_url: Annotated[String | None, 1] = None
    broker_service_url_tls: Annotated[String | None, 2] = None
    response: Annotated[LookupResult, 3]
    request_id: Annotated[UInt64, 4]
    authoritative: Annotated[Bool, 5] = True
    error: Annotated[ServerError | None, 6] = None
    message: Annotated[String | None, 7] = None
    proxy_through_service_url: Annotated[Bool, 8] = False


class CommandGetTopicsOfNamespace(Struct, frozen=True, kw_only=True):
    """Which topics are there?"""

    request_id: Annotated[UInt64, 1]
    namespace: Annotated[String, 2]
    mode: Annotated[TopicsMode, 3] = TopicsMode.PERSISTENT
    topics_pattern: Annotated[String | None, 4] = None
    topics_hash: Annotated[String | None, 5] = None


class CommandGetTopicsOfNamespaceResponse(Struct, frozen=True, kw_only=True):
    """``filtered`` says that the names match the pattern of the request; ``changed`` False that they have the
    hash of the request, and are left out."""

    request_id: Annotated[UInt64, 1]
    topics: Annotated[tuple[String, ...], 2] = ()
    filtered: Annotated[Bool, 3] = False
    topics_hash: Annotated[String | None, 4] = None
    changed: Annotated[Bool, 5] = True


class CommandWatchTopicList(Struct, frozen=True, kw_only=True):
    """Which topics are there, and which come and go from now on?"""

    request_id: Annotated[UInt64, 1]
    watcher_id: Annotated[UInt64, 2]
    namespace: Annotated[String, 3]
    topics_pattern: Annotated[String, 4]
    topics_hash: Annotated[String | None, 5] = None


class CommandWatchTopicListSuccess(Struct, frozen=True, kw_only=True):
    """The topics that exist."""

    request_id: Annotated[UInt64, 1]
    watcher_id: Annotated[UInt64, 2]
    topic: Annotated[tuple[String, ...], 3] = ()
    topics_hash: Annotated[String, 4]


class CommandWatchTopicUpdate(Struct, frozen=True, kw_only=True):
    """The topics that were created and deleted since."""

    watcher_id: Annotated[UInt64, 1]
    new_topics: Annotated[tuple[String, ...], 2] = ()
    deleted_topics: Annotated[tuple[String, ...], 3] = ()
    topics_hash: Annotated[String, 4]


class CommandWatchTopicListClose(Struct, frozen=True, kw_only=True):
    """The client stops watching topics."""

    request_id: Annotated[UInt64, 1]
    watcher_id: Annotated[UInt64, 2]


class CommandGetSchema(Struct, frozen=True, kw_only=True):
    """Asks for a schema; without a version, for the newest schema of the topic."""

    request_id: Annotated[UInt64, 1]
    topic: Annotated[String, 2]
    schema_version: Annotated[Bytes | None, 3] = None


class CommandGetSchemaResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandGetSchema."""

    request_id: Annotated[UInt64, 1]
    error_code: Annotated[ServerError | None, 2] = None
    error_message: Annotated[String | None, 3] = None
    schema: Annotated[Schema | None, 4] = None
    schema_version: Annotated[Bytes | None, 5] = None


class CommandGetOrCreateSchema(Struct, frozen=True, kw_only=True):
    """Which version does this schema have? It becomes the next one of the topic if it is new."""

    request_id: Annotated[UInt64, 1]
    topic: Annotated[String, 2]
    schema: Annotated[Schema, 3]


class CommandGetOrCreateSchemaResponse(Struct, frozen=True, kw_only=True):
    """Answers a CommandGetOrCreateSchema."""

    request_id: Annotated[UInt64, 1]
    error_code: Annotated[ServerError | None, 2] = None
    error_message: Annotated[String | None, 3] = None
    schema_version: Annotated[Bytes | None, 4] = None
