"""The Kafka consumer groups of a project, with their lag in logs: an extension for operators.

Kafka's own tools see lag in offsets, which jump (docs/kafka.md 2). The field names are the ones of
`loghub.client.port.KafkaGroupStatus`.
"""

import asyncio
from collections.abc import Iterator

from loghub_service.api import parse
from loghub_service.api import parse as lookup
from loghub_service.catalog import Logstore
from loghub_service.engine import Engine
from loghub_service.kafka.coordinator.consumer_metadata import CONSUMER, logstore_of, subscribed_topics
from loghub_service.kafka.coordinator.group import CommittedOffset, Group, GroupMember, TopicPartition
from loghub_service.kafka.shard_bounds import logs_after
from loghub_service.kafka.wire.errors import MalformedFrame
from loghub_service.kafka.wire.groups import decode_assignment
from loghub_service.messages import Request, ServiceResponse, json_response

_PAGE = 100  # each group is listed with its members and offsets


async def list_kafka_groups(engine: Engine, request: Request) -> ServiceResponse:
    """The groups by name, ``size`` of them from ``offset`` on, or the one that ``group`` names.

    With ``logstore``, only the groups that read it, and only their members and offsets there.
    """
    project = lookup.project(engine, request)
    offset = parse.number_query(request, "offset", minimum=0, maximum=1 << 31, default=0)
    size = parse.number_query(request, "size", minimum=0, maximum=_PAGE, default=_PAGE)
    wanted, name = request.query.get("group"), request.query.get("logstore")
    only = None if name is None else lookup.logstore_of(project, name)
    groups = sorted(
        (
            group
            for key, group in engine.kafka_groups.of(project.saved.name)
            if wanted in (None, key.group_id) and (only is None or _reads(group, only))
        ),
        key=lambda group: group.group_id,
    )
    page = [await _described(engine, group, only) for group in groups[offset : offset + size]]
    return json_response({"count": len(page), "total": len(groups), "groups": page})


def _reads(group: Group, store: Logstore) -> bool:
    """Whether the group has committed offsets in the logstore, or a member is subscribed to it."""
    if any(place.logstore == store.saved.id for place in group.offsets):
        return True
    return any(
        logstore_of(topic) == store.saved.name
        for member in group.members.values()
        for topic in _subscribed(group, member)
    )


def _subscribed(group: Group, member: GroupMember) -> frozenset[str]:
    """The topics of a member. They are the same for each of its assignors, one of which the group has perhaps
    not chosen yet."""
    if group.protocol_type != CONSUMER or not member.info.protocols:
        return frozenset()
    return subscribed_topics(member.info.protocols[0].metadata) or frozenset()


async def _described(engine: Engine, group: Group, only: Logstore | None) -> dict[str, object]:
    offsets = [
        await _offset(engine, place, saved)
        for place, saved in sorted(group.offsets.items())
        if only is None or place.logstore == only.saved.id
    ]
    return {
        "name": group.group_id,
        "state": group.state.value,
        "generation": group.generation,
        "assignor": group.protocol or "",
        "members": [_member(member, only) for member in group.members.values()],
        "offsets": offsets,
    }


def _member(member: GroupMember, only: Logstore | None) -> dict[str, object]:
    return {
        "member_id": member.member_id,
        "instance_id": member.info.group_instance_id or "",
        "client_id": member.info.client_id,
        "client_host": member.info.client_host,
        "assigned": [
            {"logstore": logstore, "shard": shard}
            for logstore, shard in _assigned(member)
            if only is None or logstore == only.saved.name
        ],
    }


def _assigned(member: GroupMember) -> Iterator[tuple[str, int]]:
    try:
        assigned = decode_assignment(member.info.assignment).assigned_partitions
    except MalformedFrame:  # the group does not consume, and only its members understand the bytes
        return
    for partition in assigned:
        for shard in partition.partitions:
            yield logstore_of(partition.topic), shard


async def _offset(engine: Engine, place: TopicPartition, saved: CommittedOffset) -> dict[str, object]:
    logstore = engine.catalog.logstores_by_id.get(place.logstore)
    return {
        "logstore": "" if logstore is None else logstore.saved.name,
        "shard": place.shard,
        "offset": saved.offset,
        "committed_unix_s": saved.commit_unix_ms // 1000,
        "lag_logs": await lag_logs(engine, place, saved.offset),
    }


async def lag_logs(engine: Engine, place: TopicPartition, offset: int) -> int | None:
    """The logs that a group has yet to read of one shard; 0 for a deleted shard, None if they cannot be
    counted."""
    log = engine.logs.get((place.logstore, place.shard))
    if log is None:
        return 0
    return await asyncio.to_thread(logs_after, log, offset, now_us=engine.now_us())
