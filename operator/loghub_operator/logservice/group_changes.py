"""Changes of a consumer group at the log service: created, updated and deleted, its shards split and merged,
its checkpoints reset. A subscription is created, updated and deleted like a group.

All of it is the same in a cluster and for `loghub up`. A checkpoint reset needs only cursors and forced
checkpoints, so it works with the real SLS and with the embedded service. Whether a reset is valid is decided
in `loghub_operator.plan.checkpoint_reset`.
"""

from collections.abc import Iterable
from typing import cast

from loghub.client.port import GroupInfo, LogHub, Position
from loghub.clock import Clock
from loghub.contract.worker import first_position
from loghub.wire.errors import Code, EndpointUnreachable, LogHubError, LogHubException
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_operator.api.fetch import ResetTarget
from loghub_operator.api.fields import unix_s
from loghub_operator.api.v1alpha1 import LogHubConsumerGroup
from loghub_operator.logservice.group_state import GROUP_MISSING, ConsumerGroupKey
from loghub_operator.logservice.shard_cursors import Deadline
from loghub_operator.model.actions import (
    ActionRefused,
    CommitCheckpoints,
    CreateGroup,
    DeleteGroup,
    GroupChange,
    ReshardRefused,
    ShardChange,
    SplitShard,
    UpdateGroup,
)
from loghub_operator.model.observed import GroupSettings, ResetObserved, ShardObserved, StoredCheckpoints
from loghub_operator.model.subscription import SubscriptionKind

AHEAD_S = 45.0  # together with the observation before it, below the bound of liveness
# With the observation before it, below the bound of liveness; the next reconcile forces the rest.
FORCE_S = 30.0
TOO_SLOW = f"the log service did not return the target cursors of all shards within {AHEAD_S:.0f} s"


def resolve_targets(
    client: LogHub,
    resource: LogHubConsumerGroup,
    shards: Iterable[ShardObserved],
    stored: StoredCheckpoints,
    *,
    last_initial_shard: int | None,
    clock: Clock,
) -> ResetObserved:
    """Returns the value of `ObservedState.reset`; positions are requested only until a backup contains them.
    Never raises for a response of the log service."""
    requested, source = resource.spec.reset_checkpoints, stored.source
    if stored.backup is not None or requested is None:
        return ResetObserved(backup=stored.backup, source=source)
    chosen = [shard.shard for shard in shards if requested.shards is None or shard.shard in requested.shards]
    logstore = resource.spec.logstore
    undo, deadline = requested.to is ResetTarget.CONFIG_MAP, Deadline(clock, AHEAD_S)
    positions, ends = dict[int, str](), dict[int, str]()
    try:
        for shard in chosen:
            if deadline.is_over():
                return ResetObserved(source=source, error=TOO_SLOW)
            positions[shard] = client.get_cursor(
                logstore, shard, _position(resource, shard, last_initial_shard)
            )
            if undo:
                ends[shard] = client.get_cursor(logstore, shard, "end")
    except LogHubException as error:
        return ResetObserved(source=source, error=f"the log service returned no cursor: {error}")
    return ResetObserved(positions=positions, ends=ends, source=source)


def _position(resource: LogHubConsumerGroup, shard: int, last_initial_shard: int | None) -> Position:
    requested = resource.spec.reset_checkpoints
    assert requested is not None
    match requested.to:
        case ResetTarget.BEGIN:
            return "begin"
        case ResetTarget.END:
            return "end"
        case ResetTarget.TIMESTAMP:
            return unix_s(cast(str, requested.timestamp))
        case ResetTarget.CONFIG_MAP:
            start = resource.spec.start_position.begin_end_or_unix_s()
            return first_position(shard, start, last_initial_shard=last_initial_shard)


def commit_checkpoints(
    client: LogHub, key: ConsumerGroupKey, action: CommitCheckpoints, clock: Clock
) -> None:
    """Forces the checkpoints one after the other until the deadline; the next reconcile forces the rest.
    Names no consumer, because none holds these shards."""
    deadline = Deadline(clock, FORCE_S)
    for shard, cursor in action.cursors:
        if deadline.is_over():
            return
        client.update_checkpoint(key.logstore, key.group, shard=shard, cursor=cursor, consumer="", force=True)


_GROUP_EXISTS = (Code.CONSUMER_GROUP_ALREADY_EXIST, "GroupAlreadyExist")


class GroupExists(ActionRefused):
    """Another client has created the group since it was observed."""

    def __init__(self, consumed: str) -> None:
        super().__init__(f"{consumed} was created by another client")


def surely_not_created(error: Exception) -> bool:
    """Whether the group was surely not created by the request, or the lack of one, that raised this."""
    if isinstance(error, LogHubError | EndpointUnreachable):
        return error.definite
    return isinstance(error, ActionRefused)


def change_group(client: LogHub, key: ConsumerGroupKey, action: GroupChange) -> None:
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
    shards = {one.shard: one for one in client.list_shards(logstore)}
    if action.shard not in shards or shards[action.shard].read_only:
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


def create_group(client: LogHub, key: ConsumerGroupKey, action: CreateGroup) -> None:
    """Creates the group. Raises `GroupExists`."""
    try:
        client.create_group(key.logstore, _group_info(key, action))
    except LogHubError as error:
        if error.code in _GROUP_EXISTS:
            raise GroupExists(f"consumer group {key.group}") from error
        raise


def update_group(client: LogHub, key: ConsumerGroupKey, action: UpdateGroup) -> None:
    """Updates the group's settings."""
    client.update_group(key.logstore, _group_info(key, action))


def _group_info(key: ConsumerGroupKey, action: CreateGroup | UpdateGroup) -> GroupInfo:
    settings = action.settings
    assert isinstance(settings, GroupSettings)  # `change_subscription` has the others
    return GroupInfo(name=key.group, timeout_s=settings.timeout_s, order=settings.order)


def delete_group(client: LogHub, key: ConsumerGroupKey) -> None:
    """Deletes the group if it exists."""
    try:
        client.delete_group(key.logstore, key.group)
    except LogHubError as error:
        if error.code not in (*GROUP_MISSING, Code.LOG_STORE_NOT_EXIST, Code.PROJECT_NOT_EXIST):
            raise


_WITHOUT_SUBSCRIPTION = (Code.SUBSCRIPTION_NOT_EXIST, Code.LOG_STORE_NOT_EXIST, Code.PROJECT_NOT_EXIST)


class SubscriptionInUse(ActionRefused):
    """Consumers are connected, and the change excludes them."""


def change_subscription(client: LogHub, resource: LogHubConsumerGroup, action: GroupChange) -> None:
    """Creates or deletes the subscription, or gives it other settings. Raises `GroupExists` and
    `SubscriptionInUse`."""
    logstore, name = resource.spec.logstore, resource.group
    if isinstance(action, DeleteGroup):
        try:
            client.delete_subscription(logstore, name)
        except LogHubError as error:
            if error.code not in _WITHOUT_SUBSCRIPTION:
                raise
        return
    settings = action.settings
    assert isinstance(settings, SubscriptionKind)  # `change_group` has the others
    start = resource.spec.start_position.begin_end_or_unix_s()
    spec = SubscriptionSpec(
        type=settings.type,
        start=start,
        in_order=settings.in_order,
        key=settings.key,
        must_be_new=isinstance(action, CreateGroup),
    )
    try:
        client.create_subscription(logstore, name, spec)
    except LogHubError as error:
        if error.code == Code.SUBSCRIPTION_ALREADY_EXIST:
            raise GroupExists(resource.consumed) from error
        if error.code != Code.SUBSCRIPTION_BUSY:
            raise
        message = (
            f"{resource.consumed} cannot become {settings} while consumers are connected: stop them first"
        )
        raise SubscriptionInUse(message) from error
