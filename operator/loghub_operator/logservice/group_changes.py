"""Creates, updates and deletes the consumer group; splits and merges shards."""

from loghub.client.port import GroupInfo, LogHub
from loghub.wire.error_codes import Code
from loghub.wire.errors import EndpointUnreachable, LogHubError
from loghub_operator.logservice.group_key import GroupKey
from loghub_operator.logservice.group_state import GROUP_MISSING
from loghub_operator.model.actions import (
    ActionRefused,
    CreateGroup,
    DeleteGroup,
    GroupChange,
    ReshardRefused,
    ShardChange,
    SplitShard,
    UpdateGroup,
)

_GROUP_EXISTS = (Code.CONSUMER_GROUP_ALREADY_EXIST, "GroupAlreadyExist")


class GroupExists(ActionRefused):
    """Another client has created the group since it was observed."""

    def __init__(self, group: str) -> None:
        super().__init__(f"consumer group {group} was created by another client")


def surely_not_created(error: Exception) -> bool:
    """Whether the group was surely not created by the request, or the lack of one, that raised this."""
    if isinstance(error, LogHubError | EndpointUnreachable):
        return error.definite
    return isinstance(error, ActionRefused)


def change_group(client: LogHub, key: GroupKey, action: GroupChange) -> None:
    """Carries out the change. Raises `GroupExists`."""
    match action:
        case CreateGroup():
            create_group(client, key, action)
        case UpdateGroup():
            update_group(client, key, action)
        case DeleteGroup():
            delete_group(client, key)


def change_shards(client: LogHub, logstore: str, action: ShardChange) -> bool:
    """Carries out the change; False if another client, or an interrupted reconcile of ours, already did.

    Raises `ReshardRefused` if the change definitely did not happen.
    """
    known = {one.shard: one for one in client.list_shards(logstore)}
    if action.shard not in known or known[action.shard].read_only:
        return False
    try:
        if isinstance(action, SplitShard):
            client.split_shard(logstore, action.shard)
        else:
            client.merge_shards(logstore, action.shard)
    except LogHubError as error:
        if not error.definite:
            raise
        raise ReshardRefused(action, f"{error.code}, HTTP {error.status}: {error.message}") from error
    return True


def create_group(client: LogHub, key: GroupKey, action: CreateGroup) -> None:
    """Creates the group. Raises `GroupExists`."""
    try:
        client.create_group(
            key.logstore, GroupInfo(name=key.group, timeout_s=action.timeout_s, order=action.order)
        )
    except LogHubError as error:
        if error.code in _GROUP_EXISTS:
            raise GroupExists(key.group) from error
        raise


def update_group(client: LogHub, key: GroupKey, action: UpdateGroup) -> None:
    """Updates the group's settings."""
    client.update_group(
        key.logstore, GroupInfo(name=key.group, timeout_s=action.timeout_s, order=action.order)
    )


def delete_group(client: LogHub, key: GroupKey) -> None:
    """Deletes the group if it exists."""
    try:
        client.delete_group(key.logstore, key.group)
    except LogHubError as error:
        if error.code not in (*GROUP_MISSING, Code.LOG_STORE_NOT_EXIST, Code.PROJECT_NOT_EXIST):
            raise
