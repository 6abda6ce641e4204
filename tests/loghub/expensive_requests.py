"""The most expensive request that the limits allow, for each action over HTTP and each API of Kafka.

Expensive in CPU time of the event loop or in memory, for what it costs its sender. A service is prepared with
what such requests are about. `test_request_costs` fails if an action or an API has none here.
"""

import json
import os
import socket
from collections.abc import Callable, Iterable, Iterator, Mapping
from functools import partial

import msgspec
from msgspec import Struct

from loghub.domain.subscription import SubscriptionType
from loghub.wire import cursor
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import MAX_ANSWER_BYTES, MAX_IDS, MAX_LOGS, Exchange
from loghub_service.kafka.wire import groups, logs, topics
from loghub_service.kafka.wire.apis import APIS, ApiKey
from loghub_service.kafka.wire.batch_compression import BatchCompression
from loghub_service.kafka.wire.frames import RequestHeader
from loghub_service.kafka.wire.record_batch import MAX_RECORDS, Record
from loghub_service.kafka.wire.topics import SaslAuthenticateRequest, SaslHandshakeRequest
from tests.loghub import load
from tests.loghub_service.kafka.broker.batches import packed
from tests.loghub_service.kafka.client_frames import encode_request
from tests.loghub_service.rawclient import RawClient
from tests.support import ServiceProcess

SHARDS = 64
_PARTITIONS = 10_000  # in one request of Kafka, and the same offsets in a group
_NAMES = 1000
_JSON_BYTES = 60_000
_GROUP = "/logstores/access/consumergroups/g"
Make = Callable[[], bytes]
_MINE = "/_loghub/v1/logstores/access/consumergroups/g"
_SUBSCRIPTIONS = "/_loghub/v1/logstores/access/subscriptions"


def prepare(service: ServiceProcess, kafka: str) -> None:
    """20 MB in one shard, a full group of consumers, and a Kafka group with many offsets."""
    with RawClient(service) as client:
        client.create(shards=SHARDS)
        client.create_group()
        client.ok("PUT", f"{_SUBSCRIPTIONS}/s", body=b'{"type":"Shared"}')
        for number in range(20):
            client.heartbeat(f"consumer-{number}", [])
        text = [os.urandom(500).hex() for _ in range(5000)]
        large = encode(LogGroup(logs=tuple(Log(time=1, contents=(("x", one),)) for one in text)))
        for _ in range(4):
            assert client.put(large, key="0" * 32).status == 200
    with KafkaConnection(kafka, service) as connection:
        connection.exchange(_kafka(ApiKey.OFFSET_COMMIT, _commit()))


# -- over HTTP


def _of_groups(of: Callable[..., Make]) -> dict[str, Make]:
    every = {str(shard): cursor.encode(1) for shard in range(1000)}
    return {
        "ListConsumerGroup": of("GET", "/logstores/access/consumergroups"),
        "CreateConsumerGroup": of(
            "POST",
            "/logstores/access/consumergroups",
            body={"consumerGroup": "made", "timeout": 30, "order": True},
        ),
        "GetCheckPoint": of("GET", _GROUP),
        "UpdateCheckPoint": of(
            "POST",
            _GROUP,
            {"type": "checkpoint", "consumer": "", "forceSuccess": "true"},
            {"shard": 0, "checkpoint": cursor.encode(1)},
        ),
        "UpdateConsumerGroup": of("PUT", _GROUP, body={"timeout": 30, "order": False}),
        "DeleteConsumerGroup": of("DELETE", "/logstores/access/consumergroups/made"),
        "GetGroupStatus": of("GET", _MINE),
        "ListKafkaGroups": of("GET", "/_loghub/v1/kafka/groups", {"size": "100"}),
        "LeaveGroup": of("POST", _MINE + "/leave", {"consumer": "consumer-1"}),
        "SaveCheckPoints": of("POST", _MINE + "/checkpoints", {"consumer": "consumer-0"}, every),
        "AwaitGroup": of("GET", _MINE + "/revision", {"consumer": "consumer-0", "revision": "0"}),
        "AwaitEnds": of("POST", "/_loghub/v1/logstores/access/ends", body=every),
    }


def _of_subscriptions(of: Callable[..., Make], service: ServiceProcess) -> dict[str, Make]:
    one = f"{_SUBSCRIPTIONS}/s"
    # Every second log of two log groups is acknowledged, and the last answer is read again.
    acks = tuple((2 * number, 2 * number + 1) for number in range(MAX_IDS // 2))
    exchange = Exchange(
        consumer="c",
        type=SubscriptionType.SHARED,
        nonce="n",
        acks={0: acks + tuple((first + (1 << 17), stop + (1 << 17)) for first, stop in acks)},
        number=1,
        max_logs=MAX_LOGS,
        max_bytes=MAX_ANSWER_BYTES,
    )
    body = msgspec.msgpack.encode(exchange)
    spec = {"type": "Shared", "start": 1_800_000_000, "marks": {}}
    return {
        "ListSubscriptions": of("GET", _SUBSCRIPTIONS),
        "CreateSubscription": of("PUT", f"{_SUBSCRIPTIONS}/made", body=spec),
        "GetSubscription": of("GET", one),
        "DeleteSubscription": of("DELETE", f"{_SUBSCRIPTIONS}/made"),
        "SeekSubscription": of("POST", f"{one}/seek", body={"position": 1_800_000_000}),
        "SkipLogs": of("POST", f"{one}/skip", body={"shard": 0, "logs": 1_000_000}),
        "Exchange": partial(load.serialized, service, "POST", f"{one}/exchange", body=body),
    }


def over_http(service: ServiceProcess) -> dict[str, Make]:
    """What makes the request, by the name of its action."""

    def of(method: str, path: str, query: dict[str, str] | None = None, body: object = None) -> Make:
        data = b"" if body is None else json.dumps(body).encode()
        headers = {"Content-Type": "application/json"} if data else {}
        return partial(load.serialized, service, method, path, query, body=data, headers=headers)

    def put_logs() -> bytes:
        tiny = encode(LogGroup(logs=(Log(time=1, contents=(("", ""),)),)))
        return load.put_request(service, tiny * 700_000)  # which is a group with as many logs

    return {
        **_of_groups(of),
        **_of_subscriptions(of, service),
        "GetProject": of("GET", "/"),
        "CreateProject": of("POST", "/", body={"projectName": "demo", "description": "d" * _JSON_BYTES}),
        "UpdateProject": of("PUT", "/", body={"description": "d" * _JSON_BYTES}),
        "DeleteProject": partial(
            load.serialized, service, "DELETE", "/", headers={"Host": f"none.{service.host}"}
        ),
        "ListLogStores": of("GET", "/logstores", {"size": "500"}),
        "CreateLogStore": of(
            "POST", "/logstores", body={"logstoreName": "made", "shardCount": SHARDS, "ttl": 1}
        ),
        "GetLogStore": of("GET", "/logstores/access"),
        "UpdateLogStore": of("PUT", "/logstores/access", body={"logstoreName": "access", "ttl": 7}),
        "DeleteLogStore": of("DELETE", "/logstores/made"),
        "GetLogs": of("GET", "/logstores/access/logs", {"from": "0", "to": "9", "query": "q" * 1000}),
        "GetIndex": of("GET", "/logstores/access/index"),
        "ListShards": of("GET", "/logstores/access/shards"),
        "GetCursor": of("GET", "/logstores/access/shards/0", {"type": "cursor", "from": "1800000000"}),
        "SplitOrMergeShard": of("POST", "/logstores/access/shards/1", {"action": "split"}),
        "DeleteShard": of("DELETE", "/logstores/access/shards/2"),
        "PutLogs": put_logs,
        "PullLogs": partial(
            load.serialized,
            service,
            "GET",
            "/logstores/access/shards/0",
            {"type": "log", "cursor": cursor.encode(1), "count": "1000"},
            headers={"Accept-Encoding": "zstd", "Accept": "application/x-protobuf"},
        ),
        "HeartBeat": of(
            "POST", _GROUP, {"type": "heartbeat", "consumer": "consumer-2"}, [*range(_JSON_BYTES // 8)]
        ),
    }


# -- Kafka


class KafkaConnection:
    """A connection that has logged in."""

    def __init__(self, address: str, service: ServiceProcess) -> None:
        host, _, port = address.rpartition(":")
        self.socket = socket.create_connection((host, int(port)), timeout=load.GUARD_S)
        self._key = service.credentials

    def __enter__(self) -> "KafkaConnection":
        key = self._key
        token = f"\0demo\0{key.access_key_id}#{key.access_key_secret}".encode()
        self.exchange(_kafka(ApiKey.SASL_HANDSHAKE, SaslHandshakeRequest(mechanism="PLAIN")))
        self.exchange(_kafka(ApiKey.SASL_AUTHENTICATE, SaslAuthenticateRequest(auth_bytes=token)))
        return self

    def __exit__(self, *_: object) -> None:
        self.socket.close()

    def exchange(self, request: bytes) -> int:
        """The bytes of the answer."""
        self.socket.sendall(request)
        size = left = int.from_bytes(self._read(4), "big")
        while left:
            left -= len(self._read(min(left, 1 << 20)))
        return size

    def _read(self, size: int) -> bytes:
        found = b""
        while len(found) < size:
            part = self.socket.recv(size - len(found))
            assert part, "the service closed the connection"
            found += part
        return found


def _kafka(api: ApiKey, body: Struct, version: int | None = None) -> bytes:
    header = RequestHeader(
        api_key=api,
        api_version=APIS[api].max_version if version is None else version,
        correlation_id=1,
        client_id="costs",
    )
    return encode_request(header, body)


def _in_topics(count: int = _PARTITIONS) -> Iterator[tuple[str, tuple[int, ...]]]:
    """The shards under each of the names that a logstore has, again and again."""
    names = ("access", "access.json", "access.raw", "access.plain")
    for number in range(0, count, SHARDS):
        yield names[number // SHARDS % 4], tuple(range(min(SHARDS, count - number)))


def _commit() -> groups.OffsetCommitRequest:
    return groups.OffsetCommitRequest(
        group_id="kg",
        topics=tuple(
            groups.OffsetCommitRequestTopic(
                name=name,
                partitions=tuple(
                    groups.OffsetCommitRequestPartition(
                        partition_index=one, committed_offset=1, committed_metadata="m" * 1000
                    )
                    for one in ones
                ),
            )
            for name, ones in _in_topics()
        ),
    )


def _produce(partitions: Iterable[tuple[str, tuple[int, ...]]], batch: bytes) -> logs.ProduceRequest:
    return logs.ProduceRequest(
        acks=-1,
        timeout_ms=1000,
        topic_data=tuple(
            logs.TopicProduceData(
                name=name,
                partition_data=tuple(logs.PartitionProduceData(index=one, records=batch) for one in ones),
            )
            for name, ones in partitions
        ),
    )


Bodies = Mapping[str, tuple[ApiKey, Struct]]


def _offset_bodies() -> Bodies:
    return {
        "OFFSET_COMMIT": (ApiKey.OFFSET_COMMIT, _commit()),
        "OFFSET_FETCH": (
            ApiKey.OFFSET_FETCH,
            groups.OffsetFetchRequest(
                group_id="kg",
                topics=tuple(
                    groups.OffsetFetchRequestTopic(name=name, partition_indexes=ones)
                    for name, ones in _in_topics()
                ),
            ),
        ),
        "OFFSET_DELETE": (
            ApiKey.OFFSET_DELETE,
            groups.OffsetDeleteRequest(
                group_id="other",
                topics=tuple(
                    groups.OffsetDeleteRequestTopic(
                        name=name,
                        partitions=tuple(
                            groups.OffsetDeleteRequestPartition(partition_index=one) for one in ones
                        ),
                    )
                    for name, ones in _in_topics()
                ),
            ),
        ),
    }


def _group_bodies(names: tuple[str, ...]) -> Bodies:
    return {
        "JOIN_GROUP": (
            ApiKey.JOIN_GROUP,
            groups.JoinGroupRequest(
                group_id="joined",
                session_timeout_ms=6000,
                rebalance_timeout_ms=1000,
                member_id="",
                protocol_type="consumer",
                protocols=tuple(
                    groups.JoinGroupRequestProtocol(name=f"p{number}", metadata=bytes(8000))
                    for number in range(32)
                ),
            ),
        ),
        "HEARTBEAT": (
            ApiKey.HEARTBEAT,
            groups.HeartbeatRequest(group_id="kg", generation_id=1, member_id=""),
        ),
        "LEAVE_GROUP": (
            ApiKey.LEAVE_GROUP,
            groups.LeaveGroupRequest(
                group_id="kg",
                members=tuple(groups.MemberIdentity(member_id=name) for name in names),
            ),
        ),
        "SYNC_GROUP": (
            ApiKey.SYNC_GROUP,
            groups.SyncGroupRequest(
                group_id="kg",
                generation_id=1,
                member_id="m",
                assignments=tuple(
                    groups.SyncGroupRequestAssignment(member_id=name, assignment=bytes(8000))
                    for name in names
                ),
            ),
        ),
        "DESCRIBE_GROUPS": (
            ApiKey.DESCRIBE_GROUPS,
            groups.DescribeGroupsRequest(groups=("kg",) * 999),
        ),
        "LIST_GROUPS": (ApiKey.LIST_GROUPS, groups.ListGroupsRequest()),
        "DELETE_GROUPS": (ApiKey.DELETE_GROUPS, groups.DeleteGroupsRequest(groups_names=names)),
    }


def _topic_bodies(names: tuple[str, ...]) -> Bodies:
    return {
        "CREATE_TOPICS": (
            ApiKey.CREATE_TOPICS,
            topics.CreateTopicsRequest(
                topics=tuple(
                    topics.CreatableTopic(name=name, num_partitions=1, replication_factor=1) for name in names
                ),
                validate_only=True,
            ),
        ),
        "DELETE_TOPICS": (
            ApiKey.DELETE_TOPICS,
            topics.DeleteTopicsRequest(topic_names=names, timeout_ms=1),
        ),
        "CREATE_PARTITIONS": (
            ApiKey.CREATE_PARTITIONS,
            topics.CreatePartitionsRequest(
                topics=tuple(topics.CreatePartitionsTopic(name="access", count=300) for _ in names),
                timeout_ms=1000,
                validate_only=True,
            ),
        ),
        "DESCRIBE_CONFIGS": (
            ApiKey.DESCRIBE_CONFIGS,
            topics.DescribeConfigsRequest(
                resources=tuple(
                    topics.DescribeConfigsResource(
                        resource_type=topics.TOPIC_RESOURCE, resource_name="access"
                    )
                    for _ in names
                ),
                include_synonyms=True,
            ),
        ),
    }


def of_kafka() -> dict[str, Make]:
    """What makes the frame, by the name of its API; of Produce there are two."""
    one = Record(None, b"x", (), 1_700_000_000_000)
    small = packed([one], BatchCompression.NONE)

    def many_records() -> bytes:
        batch = packed([one] * MAX_RECORDS, BatchCompression.ZSTD)
        return _kafka(ApiKey.PRODUCE, _produce([("access.raw", (0,))], batch))

    names = tuple(f"name-{number}" for number in range(_NAMES))
    bodies: Bodies = {
        **_offset_bodies(),
        **_group_bodies(names),
        **_topic_bodies(names),
        "PRODUCE of many partitions": (ApiKey.PRODUCE, _produce(_in_topics(), small)),
        "FETCH": (ApiKey.FETCH, _fetch()),
        "LIST_OFFSETS": (ApiKey.LIST_OFFSETS, _list_offsets(1_700_000_000_000)),
        "METADATA": (
            ApiKey.METADATA,
            topics.MetadataRequest(
                topics=tuple(topics.MetadataRequestTopic(name="access") for _ in range(_NAMES))
            ),
        ),
        "FIND_COORDINATOR": (ApiKey.FIND_COORDINATOR, groups.FindCoordinatorRequest(key="kg")),
        "INIT_PRODUCER_ID": (
            ApiKey.INIT_PRODUCER_ID,
            logs.InitProducerIdRequest(transactional_id=None, transaction_timeout_ms=1000),
        ),
    }
    frames = {name: partial(_kafka, api, body) for name, (api, body) in bodies.items()}
    return {"PRODUCE": many_records, **frames}


def _fetch() -> logs.FetchRequest:
    return logs.FetchRequest(
        max_wait_ms=0,
        min_bytes=1,
        topics=tuple(
            logs.FetchTopic(
                topic=name,
                partitions=tuple(
                    logs.FetchPartition(partition=one, fetch_offset=0, partition_max_bytes=1 << 20)
                    for one in ones
                ),
            )
            for name, ones in _in_topics()
        ),
    )


def _list_offsets(unix_ms: int) -> logs.ListOffsetsRequest:
    return logs.ListOffsetsRequest(
        topics=tuple(
            logs.ListOffsetsTopic(
                name=name,
                partitions=tuple(
                    logs.ListOffsetsPartition(partition_index=one, timestamp=unix_ms) for one in ones
                ),
            )
            for name, ones in _in_topics()
        )
    )
