"""Which function answers which request after the login.

Produce is not here: `session` puts the requests of a connection in order before they are answered.
"""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loghub_service.kafka.broker import fetch, group_calls, produce, topics
from loghub_service.kafka.broker.answer import Answer
from loghub_service.kafka.broker.call import KafkaCall
from loghub_service.kafka.wire.apis import ApiKey

# Each function takes the class of its request, which the API determines.
Handler = Callable[[KafkaCall, Any], Awaitable[Answer]]

HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.FETCH: fetch.fetch,
    ApiKey.LIST_OFFSETS: fetch.list_offsets,
    ApiKey.METADATA: topics.metadata,
    ApiKey.FIND_COORDINATOR: group_calls.find_coordinator,
    ApiKey.INIT_PRODUCER_ID: produce.init_producer_id,
    ApiKey.OFFSET_COMMIT: group_calls.offset_commit,
    ApiKey.OFFSET_FETCH: group_calls.offset_fetch,
    ApiKey.JOIN_GROUP: group_calls.join_group,
    ApiKey.HEARTBEAT: group_calls.heartbeat,
    ApiKey.LEAVE_GROUP: group_calls.leave_group,
    ApiKey.SYNC_GROUP: group_calls.sync_group,
    ApiKey.DESCRIBE_GROUPS: group_calls.describe_groups,
    ApiKey.LIST_GROUPS: group_calls.list_groups,
    ApiKey.DELETE_GROUPS: group_calls.delete_groups,
    ApiKey.OFFSET_DELETE: group_calls.offset_delete,
    ApiKey.CREATE_TOPICS: topics.create_topics,
    ApiKey.DELETE_TOPICS: topics.delete_topics,
    ApiKey.CREATE_PARTITIONS: topics.create_partitions,
    ApiKey.DESCRIBE_CONFIGS: topics.describe_configs,
}
