"""The consumer group at the start of a consumer: its timeout, or its creation; and the name of a shard."""

from loghub.client.port import GroupInfo, LogHub
from loghub.wire.errors import Code, LogHubError
from loghub_worker.consumer.checkpoint_store import StoredShard
from loghub_worker.consumer.settings import ConsumerSettings


def group_timeout_s(client: LogHub, settings: ConsumerSettings) -> int:
    """The timeout of the group, which is created if the settings say so. Raises `LogHubException`."""
    timeout_s = present_timeout_s(client, settings)
    if timeout_s is None and settings.create_group:
        timeout_s = _create(client, settings)
    if timeout_s is None:
        raise LogHubError(
            Code.CONSUMER_GROUP_NOT_EXIST,
            404,
            f"logstore {settings.project}/{settings.logstore} has no consumer group"
            f" {settings.consumer_group}; create it, or set create_group",
        )
    return timeout_s


def stored_shard(client: LogHub, settings: ConsumerSettings, shard: int) -> StoredShard:
    """What a shard is called in a checkpoint store. Raises `LogHubException`."""
    created = {info.shard: info.created_unix_s for info in client.list_shards(settings.logstore)}
    if shard not in created:
        raise LogHubError(Code.SHARD_NOT_EXIST, 400, f"the logstore no longer has shard {shard}")
    return StoredShard(
        project=settings.project,
        logstore=settings.logstore,
        consumer_group=settings.consumer_group,
        shard=shard,
        created_unix_s=created[shard],
    )


def present_timeout_s(client: LogHub, settings: ConsumerSettings) -> int | None:
    """The timeout of the group; None if it does not exist. Raises `LogHubException`."""
    groups = client.list_groups(settings.logstore)
    return next((group.timeout_s for group in groups if group.name == settings.consumer_group), None)


def _create(client: LogHub, settings: ConsumerSettings) -> int | None:
    group = GroupInfo(name=settings.consumer_group, timeout_s=settings.timeout_s, order=settings.in_order)
    try:
        client.create_group(settings.logstore, group)
    except LogHubError as error:
        if error.code != Code.CONSUMER_GROUP_ALREADY_EXIST:
            raise
        return present_timeout_s(client, settings)  # another consumer has just created it
    return group.timeout_s
