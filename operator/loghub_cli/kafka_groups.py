"""How far a consumer group is behind, and consumer groups of Kafka clients, as `loghub group`, `lag` and
`status` show both.

The embedded service reports the lag. For the real SLS it is worked out from the checkpoints and the cursors
of each shard, by the same rules (`loghub.domain.lag`); there the number of logs is not known, and is None.

A Kafka group belongs to a project. `group` and `lag` show it for one logstore: the shards of it that a member
is assigned or that have a committed offset, as Kafka's own tools do. `status` shows all groups of a service.
Their lag is in logs, since Kafka's offsets jump (docs/kafka.md 2).
"""

from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import closing
from dataclasses import dataclass, replace
from pathlib import Path
from typing import TypeVar

import click

from loghub.client.credentials_dir import read_key
from loghub.client.http import HttpLogHub
from loghub.client.port import (
    CheckpointInfo,
    Credentials,
    KafkaGroupStatus,
    LogHub,
    Position,
    ShardInfo,
    ShardStatus,
)
from loghub.domain.lag import NONE_LEFT, Lag, ShardMarks, shard_lag
from loghub.wire import cursor as wire_cursor
from loghub.wire import names
from loghub.wire.errors import Code, ExtensionMissing, LogHubError, LogHubException
from loghub_cli.output import Record, utc


@dataclass(frozen=True, slots=True, kw_only=True)
class GroupShardLag:
    """One shard of a group; ``checkpoint`` is a cursor, "" if none is saved."""

    shard: int
    consumer: str
    checkpoint: str
    lag: Lag


def lag_record(lag: Lag) -> Record:
    """Milliseconds are enough for an age."""
    seconds = None if lag.seconds is None else round(lag.seconds, 3)
    return {"lagGroups": lag.groups, "lagLogs": lag.logs, "lagSeconds": seconds}


def group_lag(client: LogHub, logstore: str, group: str, *, now_unix_s: float) -> tuple[GroupShardLag, ...]:
    """The lag of each shard, in the order of their numbers."""
    if client.has_extensions():
        return tuple(_reported_lag(one) for one in client.group_status(logstore, group).shards)
    saved = {one.shard: one for one in client.get_checkpoints(logstore, group)}
    shards = sorted(client.list_shards(logstore), key=lambda one: one.shard)
    return tuple(_measured(client, logstore, one, saved.get(one.shard), now_unix_s) for one in shards)


def total(lags: Iterable[Lag]) -> Lag:
    """Of all shards: sums, and the greatest age. None if the value of one shard is not known."""
    every = tuple(lags)
    seconds = [lag.seconds for lag in every]
    return Lag(
        groups=_sum([lag.groups for lag in every]),
        logs=_sum([lag.logs for lag in every]),
        seconds=None if None in seconds else max((one for one in seconds if one is not None), default=0.0),
    )


def _sum(values: list[int | None]) -> int | None:
    return None if None in values else sum(value for value in values if value is not None)


def _reported_lag(status: ShardStatus) -> GroupShardLag:
    return GroupShardLag(
        shard=status.shard,
        consumer=status.holder,
        checkpoint=status.checkpoint,
        lag=Lag(groups=status.lag_groups, logs=status.lag_logs, seconds=status.lag_s),
    )


def _measured(
    client: LogHub, logstore: str, info: ShardInfo, saved: CheckpointInfo | None, now_unix_s: float
) -> GroupShardLag:
    def cursor(where: Position) -> int:
        return wire_cursor.decode(client.get_cursor(logstore, info.shard, where))

    checkpoint = saved.cursor if saved else ""
    position = wire_cursor.decode(checkpoint) if checkpoint else None
    begin, end = cursor("begin"), cursor("end")
    lag = Lag()
    if position is not None:
        received = None
        if position < end:
            at = wire_cursor.encode(max(position, begin))
            received = float(client.get_cursor_time(logstore, info.shard, at))
        marks = ShardMarks(
            position=position, begin_cursor=begin, end_cursor=end, next_received_unix_s=received
        )
        lag = shard_lag(marks, now_unix_s=now_unix_s)
    elif begin == end:
        lag = NONE_LEFT  # wherever a consumer would begin
    return GroupShardLag(
        shard=info.shard, consumer=saved.consumer if saved else "", checkpoint=checkpoint, lag=lag
    )


SLS, KAFKA = "sls", "kafka"


def kafka_groups(client: LogHub, logstore: str, name: str | None = None) -> tuple[KafkaGroupStatus, ...]:
    """All groups that read the logstore, or the group of this name; none at a service that does not list
    them."""
    try:
        return client.list_kafka_groups(logstore, name)
    except ExtensionMissing:
        return ()


def kafka_group(client: LogHub, logstore: str, name: str) -> KafkaGroupStatus:
    """The group that --kafka asks for. Raises `LogHubError` ConsumerGroupNotExist, and `ExtensionMissing`."""
    return _first(
        client.list_kafka_groups(logstore, name), f"{logstore} has no group {name} of Kafka clients"
    )


def kafka_group_instead(client: LogHub, logstore: str, name: str) -> KafkaGroupStatus:
    """The Kafka group of a name that no group of SLS has. Raises `LogHubError` ConsumerGroupNotExist."""
    return _first(kafka_groups(client, logstore, name), f"{logstore} has no consumer group {name}")


def _first(groups: Sequence[KafkaGroupStatus], problem: str) -> KafkaGroupStatus:
    if not groups:
        raise LogHubError.of(Code.CONSUMER_GROUP_NOT_EXIST, f"logstore {problem}")
    return groups[0]


def may_be_of_sls(name: str) -> bool:
    """Whether SLS allows the name; Kafka allows every one."""
    return names.CONSUMER_GROUP.allows(name)


def listed(group: KafkaGroupStatus) -> Record:
    """A row of `loghub group list`."""
    return {
        "group": group.name,
        "kind": KAFKA,
        "timeoutSeconds": None,
        "inOrder": None,
        "state": group.state,
        "members": len(group.members),
    }


def shown(group: KafkaGroupStatus) -> Record:
    """What `loghub group show` shows."""
    members = [
        {
            "member": member.member_id,
            "instance": member.instance_id or None,
            "client": member.client_id or None,
            "host": member.client_host,
            "shards": [place.shard for place in member.assigned],
        }
        for member in group.members
    ]
    committed = {one.shard: utc(one.committed_unix_s) for one in group.offsets}
    return {
        "group": group.name,
        "kind": KAFKA,
        "state": group.state,
        "generation": group.generation,
        "assignor": group.assignor or None,
        "members": members,
        "shards": [{**row, "committed": committed.get(shard)} for shard, row in _rows(group).items()],
    }


def lag_of(group: KafkaGroupStatus, *, observed: str | None) -> Record:
    """What `loghub lag` shows. The lag of a shard without a committed offset is not known: it depends on
    where its consumer begins."""
    rows = list(_rows(group).values())
    return {
        "group": group.name,
        "kind": KAFKA,
        "state": group.state,
        "generation": group.generation,
        "observed": observed,
        "lagLogs": _lag_logs(group),
        "shards": rows,
    }


def _lag_logs(group: KafkaGroupStatus) -> int | None:
    """Of the shards of one logstore."""
    committed = [Lag(logs=one.lag_logs) for one in group.offsets]
    unknown = len(_rows(group)) - len(committed)
    return total([*committed, *[Lag()] * unknown]).logs


def _rows(group: KafkaGroupStatus) -> dict[int, Record]:
    """By shard."""
    holders = {place.shard: one.member_id for one in group.members for place in one.assigned}
    offsets = {one.shard: one for one in group.offsets}
    return {
        shard: {
            "shard": shard,
            "member": holders.get(shard),
            "offset": offsets[shard].offset if shard in offsets else None,
            "lagLogs": offsets[shard].lag_logs if shard in offsets else None,
        }
        for shard in sorted(holders.keys() | offsets.keys())
    }


@dataclass(frozen=True, slots=True)
class ProjectGroup:
    """A group and the project that it belongs to."""

    project: str
    group: KafkaGroupStatus

    def lags(self) -> dict[str, int | None]:
        """Logs by logstore; None: a shard has no committed offset. `loghub lag` shows the same numbers."""
        group = self.group
        logstores = {place.logstore for one in group.members for place in one.assigned}
        logstores |= {one.logstore for one in group.offsets}
        return {name: _lag_logs(_only(group, name)) for name in sorted(logstores)}


T = TypeVar("T")


def of_all_projects(
    endpoint: str, key_folder: Path, find: Callable[[HttpLogHub, str], Iterable[T]], *, what: str
) -> tuple[T, ...]:
    """What ``find`` finds in each project of the embedded service of this machine; nothing, with a message,
    if the service does not answer."""
    try:
        return tuple(_found(endpoint, read_key(key_folder), find))
    except (LogHubException, OSError) as error:
        click.echo(f"loghub: {what} are not known: {error}", err=True)
        return ()


def _found(endpoint: str, key: Credentials, find: Callable[[HttpLogHub, str], Iterable[T]]) -> Iterator[T]:
    with closing(HttpLogHub(endpoint, "any", credentials=key)) as client:
        projects = client.list_projects()
    for project in projects:
        with closing(HttpLogHub(endpoint, project.name, credentials=key)) as client:
            yield from find(client, project.name)


def groups_of_project(client: HttpLogHub, project: str) -> Iterator[ProjectGroup]:
    return (ProjectGroup(project, group) for group in client.list_kafka_groups())


def document(entry: ProjectGroup) -> Record:
    """What `loghub status` prints as JSON or YAML, next to each LogHubConsumerGroup."""
    group, lags = entry.group, entry.lags()
    return {
        "kind": "KafkaGroup",
        "metadata": {"name": group.name},
        "spec": {"project": entry.project},
        "status": {
            "state": group.state,
            "generation": group.generation,
            "assignor": group.assignor or None,
            "members": len(group.members),
            "lag": {"logs": total(Lag(logs=logs) for logs in lags.values()).logs if lags else None},
            "logstores": [{"name": name, "lagLogs": logs} for name, logs in lags.items()],
        },
    }


def overview(groups: Iterable[ProjectGroup]) -> list[Record]:
    """A row for each logstore of each group."""
    return [
        {
            "kafkaGroup": entry.group.name,
            "project": entry.project,
            "state": entry.group.state,
            "members": len(entry.group.members),
            "logstore": logstore,
            "lagLogs": logs,
        }
        for entry in groups
        for logstore, logs in (entry.lags() or {"": None}).items()
    ]


def _only(group: KafkaGroupStatus, logstore: str) -> KafkaGroupStatus:
    members = (
        replace(member, assigned=tuple(place for place in member.assigned if place.logstore == logstore))
        for member in group.members
    )
    offsets = tuple(one for one in group.offsets if one.logstore == logstore)
    return replace(group, members=tuple(members), offsets=offsets)
