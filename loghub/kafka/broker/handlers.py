"""Which function answers which API after the login."""

from collections.abc import Awaitable, Callable, Mapping
from typing import Any

from loghub.kafka.broker import admin, fetch, group_calls, list_offsets, metadata, produce
from loghub.kafka.broker.calls import Call
from loghub.kafka.broker.reply import Reply
from loghub.kafka.wire.apis import ApiKey

# Each takes the class of its request, which the API determines.
Handler = Callable[[Call, Any], Awaitable[Reply]]

HANDLERS: Mapping[ApiKey, Handler] = {
    ApiKey.FETCH: fetch.fetch,
    ApiKey.LIST_OFFSETS: list_offsets.list_offsets,
    ApiKey.METADATA: metadata.metadata,
    ApiKey.FIND_COORDINATOR: metadata.find_coordinator,
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
    ApiKey.CREATE_TOPICS: admin.create_topics,
    ApiKey.DELETE_TOPICS: admin.delete_topics,
    ApiKey.CREATE_PARTITIONS: admin.create_partitions,
    ApiKey.DESCRIBE_CONFIGS: admin.describe_configs,
}
