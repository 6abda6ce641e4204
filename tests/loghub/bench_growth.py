"""How costs grow: each row at three sizes, with the exponent of the power of the size that fits best.

``python -m tests.loghub.bench_growth [ROW ..]`` prints one table (docs/performance.md 14); a ROW is the
beginning of a name. An exponent of 0 is a cost that does not grow, 1 is one in proportion. Each size has a
service of its own, and costs are CPU time of its process unless the row says otherwise.
"""

import math
import sys
import tempfile
import threading
import time
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from confluent_kafka import Consumer as KafkaConsumer
from confluent_kafka import TopicPartition

from loghub_consumer import ConsumerSettings, Credentials, LogBatch, MultiLogstoreConsumer, Processor, Tracker
from loghub_worker.sink.files.storage import FolderStorage
from tests.loghub.bench_service import log_group
from tests.loghub.load import LOGSTORE, PROJECT, Connection, cpu_s, put_request, run, serialized
from tests.loghub_service.rawclient import RawClient, Refused
from tests.loghub_worker.bench_commit_log import GROUP_PATH, Bench
from tests.support import ServiceProcess, running_service, wait_until

REQUESTS = 2000
GROUP_BYTES = 71_000  # of 240 logs, to fill a shard
IDLE_S = 20.0
LIMITS = (
    *("--max-shards", "3000", "--max-shards-at-creation", "256", "--max-consumer-groups", "1000"),
    *("--max-logstores", "10000", "--max-connections", "10000"),
)


@contextmanager
def service_with(*flags: str, shards: int = 4) -> Iterator[ServiceProcess]:
    """A service with a logstore of so many shards and the group `g`."""
    with (
        tempfile.TemporaryDirectory() as name,
        running_service(Path(name), extra=(*LIMITS, *flags)) as service,
    ):
        with RawClient(service) as client:
            client.create(logstore=LOGSTORE, shards=min(shards, 256))
            split(client, shards)
            client.create_group("g", timeout=3600)
        yield service


def split(client: RawClient, shards: int) -> None:
    """Split shards until the logstore has so many that take logs."""
    number, last = min(shards, 256), min(shards, 256) - 1
    splits = [*range(number)]
    while number < shards:
        client.ok("POST", f"/logstores/{LOGSTORE}/shards/{splits.pop(0)}", {"action": "split"})
        splits += [last + 1, last + 2]
        number, last = number + 1, last + 2


def us_of(service: ServiceProcess, request: bytes, total: int = REQUESTS) -> float:
    """CPU time of the service for one request, in microseconds."""
    run(service, [request], total=total // 10, in_flight=8)
    return run(service, [request], total=total, in_flight=8).cpu_s / total * 1e6


def heartbeat_of(service: ServiceProcess, consumer: str, group: str = "g") -> bytes:
    path = f"/logstores/{LOGSTORE}/consumergroups/{group}"
    return serialized(service, "POST", path, {"type": "heartbeat", "consumer": consumer}, body=b"[]")


def put_by_shards(shards: int) -> float:
    with service_with(shards=shards) as service:
        return us_of(service, put_request(service, log_group(1)))


def heartbeat_by_shards(shards: int) -> float:
    with service_with(shards=shards) as service:
        return us_of(service, heartbeat_of(service, "c"), 400)


def list_by_shards(shards: int) -> float:
    with service_with(shards=shards) as service:
        return us_of(service, serialized(service, "GET", f"/logstores/{LOGSTORE}/shards"), 200)


def status_by_shards(shards: int) -> float:
    with service_with(shards=shards) as service:
        path = f"/_loghub/v1/logstores/{LOGSTORE}/consumergroups/g"
        return us_of(service, serialized(service, "GET", path), 200)


def heartbeat_by_consumers(consumers: int) -> float:
    with service_with() as service, RawClient(service) as client:
        for number in range(consumers):
            client.heartbeat(f"c{number}", [])
        return us_of(service, heartbeat_of(service, "c0"))


def join_by_consumers(consumers: int) -> float:
    """The CPU time of one consumer that joins a group, after so many others."""
    with service_with() as service, RawClient(service) as client:
        for number in range(consumers):
            client.heartbeat(f"c{number}", [])
        begin_s, joined = cpu_s(service.pid), 200
        for number in range(joined):
            client.heartbeat(f"d{number}", [])
        return (cpu_s(service.pid) - begin_s) / joined * 1e6


def heartbeat_by_groups(groups: int) -> float:
    with service_with() as service, RawClient(service) as client:
        for number in range(groups - 1):
            client.create_group(f"g{number}", timeout=3600)
            client.heartbeat("c", [], group=f"g{number}")
        return us_of(service, heartbeat_of(service, "c"))


def heartbeat_by_connections(connections: int) -> float:
    with service_with() as service:
        idle = [Connection(service) for _ in range(connections)]
        request = heartbeat_of(service, "c")
        for one in idle:
            one.exchange(request)
        cost = us_of(service, request)
        for one in idle:
            one.socket.close()
        return cost


def memory_by_connections(connections: int) -> float:
    """KiB that the service has more."""
    with service_with() as service:
        request = heartbeat_of(service, "c")
        run(service, [request], total=REQUESTS, in_flight=8)
        before = resident_kib(service.pid)
        idle = [Connection(service) for _ in range(connections)]
        for one in idle:
            one.exchange(request)
        more = resident_kib(service.pid) - before
        for one in idle:
            one.socket.close()
        return float(max(more, 1))


def resident_kib(pid: int) -> int:
    text = Path(f"/proc/{pid}/status").read_text()
    return int(text.partition("VmRSS:")[2].split()[0])


def idle_by_kafka_partitions(partitions: int) -> float:
    """CPU milliseconds of the service in a second in which a client waits at so many empty partitions."""
    with tempfile.TemporaryDirectory() as name:
        port = Path(name, "kafka-port")
        flags = ("--kafka", "127.0.0.1:0", "--kafka-port-file", str(port))
        with service_with(*flags, shards=partitions) as service:
            wait_until(port.exists, "the Kafka endpoint")
            return _idle_with(service, port.read_text().strip(), partitions)


def _idle_with(service: ServiceProcess, address: str, partitions: int) -> float:
    key = service.credentials
    settings = {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": PROJECT,
        "sasl.password": f"{key.access_key_id}#{key.access_key_secret}",
        "group.id": "k",
    }
    consumer = KafkaConsumer(settings)
    consumer.assign([TopicPartition(LOGSTORE, number, 0) for number in range(partitions)])
    consumer.poll(IDLE_S)  # its first requests
    begin_s = cpu_s(service.pid)
    assert consumer.poll(IDLE_S) is None
    cost = (cpu_s(service.pid) - begin_s) / IDLE_S * 1e3
    consumer.close()
    return max(cost, 0.01)


def _fill(service: ServiceProcess, megabytes: int) -> None:
    requests = [put_request(service, log_group(240, seed)) for seed in range(40)]
    run(service, requests, total=megabytes * 1_000_000 // GROUP_BYTES, in_flight=32)


def put_by_kept(megabytes: int) -> float:
    with service_with() as service:
        _fill(service, megabytes)
        return us_of(service, put_request(service, log_group(1)))


def cursor_by_kept(megabytes: int) -> float:
    """GetCursor of a time, which is looked for."""
    with service_with() as service:
        _fill(service, megabytes)
        query = {"type": "cursor", "from": str(int(time.time()))}
        return us_of(service, serialized(service, "GET", f"/logstores/{LOGSTORE}/shards/0", query))


def start_by_kept(megabytes: int) -> float:
    """CPU milliseconds of a start on the data, after SIGTERM."""
    with service_with() as service:
        _fill(service, megabytes)
        service.restart()
        return cpu_s(service.pid) * 1e3


class _Nothing(Processor):
    def process(self, batch: LogBatch, tracker: Tracker) -> None:
        """Idle logstores have no logs."""


def client_by_logstores(logstores: int) -> float:
    """CPU milliseconds of this process in a second in which its consumer waits at so many empty logstores."""
    with service_with() as service, RawClient(service) as client:
        for number in range(logstores):
            client.create_logstore(f"many-{number}", shards=1)
        key = service.credentials
        settings = ConsumerSettings(
            endpoint=service.endpoint,
            project=PROJECT,
            consumer_group="many",
            consumer="c",
            credentials=Credentials(access_key_id=key.access_key_id, access_key_secret=key.access_key_secret),
            create_group=True,
        )
        names = [f"many-{number}" for number in range(logstores)]
        consumer = MultiLogstoreConsumer(settings, lambda _: _Nothing, names)
        thread = threading.Thread(target=consumer.run)
        thread.start()
        wait_until(lambda: _is_waiting(client, names), "all logstores are read")
        begin_s = time.process_time()
        threading.Event().wait(IDLE_S)  # the measurement itself is of a time
        cost = (time.process_time() - begin_s) / IDLE_S * 1e3
        consumer.shutdown()
        thread.join()
        return cost


def _is_waiting(client: RawClient, names: list[str]) -> bool:
    """Whether each group exists and its shard has the consumer."""
    try:
        return all(client.status(group="many", ls=name)["consumers"] for name in names)
    except Refused:
        return False


def _cost_after(batches: int, step: Callable[[Bench], object]) -> float:
    """CPU microseconds of a step of a worker after so many batches that are acknowledged."""
    with tempfile.TemporaryDirectory() as name:
        bench = Bench(FolderStorage(Path(name), group_path=GROUP_PATH), 4)
        for _ in range(batches):
            _deliver(bench)
        begin_s, more = time.process_time(), 50
        for _ in range(more):
            step(bench)
        return (time.process_time() - begin_s) / more * 1e6


def _deliver(bench: Bench) -> None:
    bench.publish()
    bench.acknowledge()


def publish_by_batches(batches: int) -> float:
    return _cost_after(batches, _deliver)


def resume_by_batches(batches: int) -> float:
    return _cost_after(batches, lambda bench: bench.resume(bench.shards[0], bench.position))


@dataclass(frozen=True, slots=True)
class Row:
    """A cost at three sizes, and the exponent above which it needs a reason."""

    name: str
    unit: str
    sizes: tuple[int, int, int]
    measure: Callable[[int], float]
    most: float


SHARDS, MANY, KEPT = (4, 64, 1024), (4, 64, 900), (10, 100, 1000)
BATCHES = (50, 200, 800)  # what is acknowledged is removed, so a year of batches would show nothing else
ROWS = (
    Row("shards: PutLogs", "us", SHARDS, put_by_shards, 0.1),
    Row("shards: heartbeat of the one consumer", "us", SHARDS, heartbeat_by_shards, 1),
    Row("shards: ListShards", "us", SHARDS, list_by_shards, 1),
    Row("shards: status of a group", "us", SHARDS, status_by_shards, 1),
    Row("consumers: heartbeat of one", "us", MANY, heartbeat_by_consumers, 0.1),
    Row("consumers: one more joins", "us", (4, 64, 700), join_by_consumers, 1),
    Row("groups: heartbeat in one", "us", MANY, heartbeat_by_groups, 0.1),
    Row("connections: heartbeat over one", "us", (10, 100, 1000), heartbeat_by_connections, 0.1),
    Row("connections: memory", "KiB", (10, 100, 1000), memory_by_connections, 1),
    Row("kafka: a second at idle partitions", "ms", (4, 32, 256), idle_by_kafka_partitions, 1),
    Row("kept MB: PutLogs", "us", KEPT, put_by_kept, 0.1),
    Row("kept MB: GetCursor of a time", "us", KEPT, cursor_by_kept, 0.1),
    Row("start: by kept MB", "ms", KEPT, start_by_kept, 1),
    Row("logstores: an idle second of the consumer", "ms", (4, 32, 256), client_by_logstores, 1),
    Row("commit log: a batch after others", "us", BATCHES, publish_by_batches, 0.1),
    Row("commit log: takeover after batches", "us", BATCHES, resume_by_batches, 0.1),
)


def exponent(sizes: tuple[int, ...], costs: list[float]) -> float:
    """The slope of the line of least squares through the logarithms."""
    x, y = [math.log(size) for size in sizes], [math.log(cost) for cost in costs]
    mean_x, mean_y = sum(x) / len(x), sum(y) / len(y)
    rise = sum((a - mean_x) * (b - mean_y) for a, b in zip(x, y, strict=True))
    return rise / sum((a - mean_x) ** 2 for a in x)


def main(only: list[str]) -> None:
    print(f"{'':44}{'sizes':>18}{'costs':>32}{'exponent':>10}  at most")
    for row in ROWS:
        if only and not row.name.startswith(tuple(only)):
            continue
        costs = [row.measure(size) for size in row.sizes]
        sizes = "  ".join(map(str, row.sizes))
        shown = "  ".join(f"{cost:.3g}" for cost in costs)
        found = exponent(row.sizes, costs)
        print(f"{row.name:44}{sizes:>18}{shown:>28} {row.unit:3}{found:10.2f}  {row.most}", flush=True)


if __name__ == "__main__":
    main(sys.argv[1:])
