"""Consumer groups of Kafka clients at the embedded service, as `loghub group` and `loghub lag` show them.

A Kafka group belongs to a project. Here it is shown for one logstore: the shards of it that a member is
assigned or that have a committed offset, as Kafka's own tools do. Their lag is in logs, since Kafka's offsets
jump (docs/kafka.md 2).
"""

from collections.abc import Sequence

from loghub.client.port import KafkaGroupStatus, LogHub
from loghub.domain.lag import Lag
from loghub.wire import names
from loghub.wire.errors import Code, ExtensionMissing, LogHubError
from loghub_operator.cli.group_lag import total
from loghub_operator.cli.output import Record, utc

SLS, KAFKA = "sls", "kafka"


def kafka_groups(client: LogHub, logstore: str, name: str | None = None) -> tuple[KafkaGroupStatus, ...]:
    """All that read the logstore, or the one of this name; none at a service that does not list them."""
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


def _first(found: Sequence[KafkaGroupStatus], problem: str) -> KafkaGroupStatus:
    if not found:
        raise LogHubError.of(Code.CONSUMER_GROUP_NOT_EXIST, f"logstore {problem}")
    return found[0]


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
            "member": one.member_id,
            "instance": one.instance_id or None,
            "client": one.client_id or None,
            "host": one.client_host,
            "shards": [place.shard for place in one.assigned],
        }
        for one in group.members
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
    lags = [one.lag_logs for one in group.offsets]
    unknown = len(rows) - len(lags)
    logs = total([*(Lag(logs=number) for number in lags), *[Lag()] * unknown]).logs
    return {
        "group": group.name,
        "kind": KAFKA,
        "state": group.state,
        "generation": group.generation,
        "observed": observed,
        "lagLogs": logs,
        "shards": rows,
    }


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
