"""What Kafka clients get from the endpoint over TLS, next to a Kafka broker on the same machine and disk.

``python -m tests.loghub_service.kafka.bench_broker [fetch] [produce]`` prints MB of values and records a
second on the clock, and the CPU time of the server and of the client for each MB. One confluent-kafka
consumer reads the same records, which are JSON objects of ten fields, from log groups of ten fields, from log
groups with the text in one field, from a topic that a Kafka client has filled, and from the broker (``python
-m tests.kafka``). Then a producer waits for `acks=all`: the broker flushes each append, so that on both sides
an acknowledgement means durable. Every round measures all rows on both sides, so that those of a round share
what else the machine does; the first round warms both up and does not count.
"""

import sys
import tempfile
import time
from collections.abc import Callable, Iterable, Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from itertools import chain, islice
from pathlib import Path
from statistics import median
from typing import Any

import msgspec
from confluent_kafka import Consumer, Message, Producer, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic

from loghub.wire.loggroup import Log, LogGroup, encode
from tests import kafka as broker_of_tests
from tests.loghub.bench_service import fields_of
from tests.loghub.load import PROJECT, cpu_s, put_request, run
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_service.rawclient import RawClient
from tests.support import running_service, wait_until

ROUNDS = 3
# Logs of 288 bytes as JSON: 58 MB, and produced one by one, 1.2 MB.
LOGS, GROUP_LOGS, ALONE = 200_000, 200, 4000
PARTITIONS = 2
FIELDS, CONTENT, RAW, FLUSHED = "ten-fields", "one-field", "produced", "flushed"
IN_FLIGHT, MAX_IDEMPOTENT = 64, 5  # the latter is Kafka's limit
GUARD_S = 120.0
MB = 1e6
# What a user sets who wants much at once; by default librdkafka also waits a second once 100,000 records are
# queued, which its application has long read then.
_READS_MUCH = {
    "fetch.max.bytes": 64 << 20,
    "max.partition.fetch.bytes": 8 << 20,
    "queued.min.messages": 1_000_000,
    "queued.max.messages.kbytes": 256 << 10,
    "fetch.queue.backoff.ms": 10,
}
_SENDS_MUCH = {
    "acks": "all",
    "queue.buffering.max.messages": 1_000_000,
    "queue.buffering.max.kbytes": 1 << 20,
}


@dataclass(frozen=True, slots=True, kw_only=True)
class Side:
    """One of the two that are compared: its process, and the settings with which clients connect."""

    name: str
    pid: int
    client: dict[str, Any]


@dataclass(frozen=True, slots=True, kw_only=True)
class Cost:
    """Of ``records`` with so many MB of values."""

    records: int
    mb: float
    wall_s: float
    server_s: float
    client_s: float


Pair = tuple[Cost, Cost]  # of the service and of the broker
Contents = tuple[tuple[str, str | bytes], ...]


def values(count: int) -> list[bytes]:
    return [msgspec.json.encode(dict(fields_of(number))) for number in range(count)]


def _cost(side: Side, work: Callable[[], tuple[int, int]]) -> Cost:
    """Of work that returns how many records and bytes it has moved."""
    begin_s, begin_server_s, begin_client_s = time.monotonic(), cpu_s(side.pid), time.process_time()
    records, size = work()
    return Cost(
        records=records,
        mb=size / MB,
        wall_s=time.monotonic() - begin_s,
        server_s=cpu_s(side.pid) - begin_server_s,
        client_s=time.process_time() - begin_client_s,
    )


def read(side: Side, topic: str) -> Cost:
    """One consumer reads the whole topic."""

    def work() -> tuple[int, int]:
        consumer = Consumer(side.client | _READS_MUCH | {"group.id": "bench", "enable.auto.commit": False})
        consumer.assign([TopicPartition(topic, partition, 0) for partition in range(PARTITIONS)])
        records = size = 0
        while records < LOGS:
            # It waits until it has that many.
            messages = consumer.consume(min(10_000, LOGS - records), GUARD_S)
            assert messages, f"{records} records of {topic} at {side.name}"
            assert messages[0].error() is None, messages[0].error()
            records += len(messages)
            size += sum(map(len, messages))
        consumer.close()
        return records, size

    return _cost(side, work)


def write(side: Side, topic: str, records: Sequence[bytes], **settings: Any) -> Cost:
    """One producer sends the records and waits for every acknowledgement."""
    failed: list[Any] = []

    def delivered(error: Any, _: Message) -> None:
        if error is not None:
            failed.append(error)

    def work() -> tuple[int, int]:
        named = {name.replace("_", "."): value for name, value in settings.items()}
        producer = Producer(side.client | _SENDS_MUCH | named)
        for number, value in enumerate(records):
            producer.produce(topic, value, partition=number % PARTITIONS, on_delivery=delivered)
            if number % 100 == 0:
                producer.poll(0)
        assert producer.flush(GUARD_S) == 0
        assert not failed, failed[0]
        return len(records), sum(map(len, records))

    return _cost(side, work)


def fetch(service: Side, broker: Side) -> dict[str, Pair]:
    """The broker stores the records as they are, so it is asked once for all forms."""
    of_broker = read(broker, RAW)
    return {f"fetch {topic}": (read(service, topic), of_broker) for topic in (FIELDS, CONTENT, RAW)}


def produce(service: Side, broker: Side) -> dict[str, Pair]:
    many, few = values(LOGS), values(ALONE)
    rows: dict[str, Pair] = {}
    for idempotence in (True, False):
        name = "idempotent" if idempotence else "not idempotent"
        in_flight = MAX_IDEMPOTENT if idempotence else IN_FLIGHT
        batches = {"enable_idempotence": idempotence, "linger_ms": 20}
        alone = {
            "enable_idempotence": idempotence,
            "linger_ms": 0,
            "batch_num_messages": 1,
            "max_in_flight": in_flight,
        }
        first, second = (write(side, FLUSHED, many, **batches) for side in (service, broker))
        rows[f"produce batches, {name}"] = first, second
        first, second = (write(side, FLUSHED, few, **alone) for side in (service, broker))
        rows[f"produce 1 record, {in_flight} in flight, {name}"] = first, second
    return rows


WORK = {"fetch": fetch, "produce": produce}


@contextmanager
def a_service(folder: Path) -> Iterator[Side]:
    """With log groups of both forms, and the topics that a Kafka client makes."""
    groups = {
        FIELDS: _groups(map(fields_of, range(LOGS))),
        CONTENT: _groups((("content", value),) for value in values(LOGS)),
    }
    with running_service(folder) as service, RawClient(service) as client:
        for number, (logstore, put) in enumerate(groups.items()):
            of = client.create_logstore if number else client.create
            of(logstore=logstore, shards=PARTITIONS)
            requests = [put_request(service, group, logstore=logstore) for group in put]
            run(service, requests, total=len(requests), in_flight=8)
        assert service.terminate() == 0
    authority, port_file = Authority("bench"), folder / "kafka-port"
    authority.write_pair(folder, "127.0.0.1")
    extra = {
        "--kafka": "127.0.0.1:0",
        "--kafka-port-file": str(port_file),
        "--tls-cert": str(folder / "tls.crt"),
        "--tls-key": str(folder / "tls.key"),
    }
    with running_service(folder, extra=tuple(chain.from_iterable(extra.items()))) as service:
        wait_until(port_file.exists, "the Kafka endpoint")
        key = service.credentials
        login = {
            "security.protocol": "SASL_SSL",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": PROJECT,
            "sasl.password": f"{key.access_key_id}#{key.access_key_secret}",
        }
        yield _filled("service", service.pid, _client(port_file.read_text(), authority.pem.decode()) | login)


def _groups(logs: Iterable[Contents]) -> Iterator[bytes]:
    """Log groups as a producer of SLS writes them, a log a millisecond."""
    numbered = (
        Log(time=1_700_000_000 + number // 1000, time_ns=number % 1000 * 1_000_000, contents=contents)
        for number, contents in enumerate(logs)
    )
    while some := tuple(islice(numbered, GROUP_LOGS)):
        yield encode(LogGroup(logs=some, topic="access", source="10.0.0.1"))


@contextmanager
def a_broker(folder: Path) -> Iterator[Side]:
    """A broker with Kafka's own options of the JVM, apart from its memory."""
    with broker_of_tests.running_broker(folder, java=("-Xmx1g",)) as broker:
        assert broker.process is not None
        ssl = {"security.protocol": "SSL"}
        yield _filled("broker", broker.process.pid, _client(broker.tls, broker.authority) | ssl)


def _client(servers: str, authority: str) -> dict[str, Any]:
    return {"bootstrap.servers": servers.strip(), "ssl.ca.pem": authority, "log_level": 0}


def _filled(name: str, pid: int, client: dict[str, Any]) -> Side:
    side = Side(name=name, pid=pid, client=client)
    flush = {"flush.messages": "1"}  # the service flushes always
    topics = [NewTopic(RAW, PARTITIONS, 1), NewTopic(FLUSHED, PARTITIONS, 1, config=flush)]
    admin = AdminClient(client)
    for created in admin.create_topics(topics).values():
        created.result(GUARD_S)
    write(side, RAW, values(LOGS), linger_ms=20)
    return side


def measure(folder: Path, only: Sequence[str]) -> list[dict[str, Pair]]:
    with a_service(folder / "service") as service, a_broker(folder / "broker") as broker:
        rounds = []
        for _ in range(1 + ROUNDS):
            rows: dict[str, Pair] = {}
            for name, work in WORK.items():
                rows |= work(service, broker) if not only or name in only else {}
            rounds.append(rows)
    return rounds[1:]


# MB/s, and how many times as fast as the broker.
GOALS = {"fetch": ">= 50", "produce": ""}, {"fetch": "", "produce": ">= 1"}


def main(only: Sequence[str]) -> None:
    broker_of_tests.install()
    with tempfile.TemporaryDirectory() as name:
        rounds = measure(Path(name), only)
    print(
        f"{'':56} {'MB/s':>6} {'lowest':>7} {'highest':>7} {'records/s':>9}  CPU ms/MB: server client  goal"
    )
    for row in rounds[0]:
        of_speed, of_ratio = (goals[row.partition(" ")[0]] for goals in GOALS)
        for number, side in enumerate(("service", "broker")):
            costs = [rows[row][number] for rows in rounds]
            rates = [cost.mb / cost.wall_s for cost in costs]
            print(
                f"{row + ', ' + side:56} {median(rates):6.1f} {min(rates):7.1f} {max(rates):7.1f}"
                f" {median(cost.records / cost.wall_s for cost in costs):9.0f}"
                f" {median(cost.server_s / cost.mb for cost in costs) * 1000:18.1f}"
                f" {median(cost.client_s / cost.mb for cost in costs) * 1000:6.1f}"
                f"  {'' if number else of_speed}"
            )
        ratios = [second.wall_s / first.wall_s for first, second in (rows[row] for rows in rounds)]
        shown = f"{median(ratios):6.2f} {min(ratios):7.2f} {max(ratios):7.2f}"
        print(f"{'  service / broker':56} {shown} {'':36}  {of_ratio}")


if __name__ == "__main__":
    main(sys.argv[1:])
