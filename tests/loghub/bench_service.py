"""What the embedded service costs: CPU time of its process, and seconds on the clock.

``python -m tests.loghub.bench_service [ROW ..]`` prints one table: durable PutLogs with 64 requests in flight
next to bare writes with `fdatasync` on the same disk and, if it is installed (``python -m tests.kafka``), to
a Kafka broker that flushes each append; small requests; PullLogs; and the sync of 32 shards. Every round
measures all rows, so that those of a round share what else the machine does, and ratios are those of a round;
the median of the rounds counts.
"""

import json
import os
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

from confluent_kafka import Producer
from confluent_kafka.admin import NewTopic

from loghub.wire.loggroup import Log, LogGroup
from loghub.wire.loggroup import encode as encoded
from loghub_service.ports import OsDisk
from loghub_service.storage.group_commit import Append, commit_logs
from loghub_service.storage.segment import NewGroup
from loghub_service.storage.segment_format import SegmentHeader
from tests import kafka as broker_of_tests
from tests.loghub.load import LOGSTORE, Connection, put_request, run, serialized
from tests.loghub_service.rawclient import RawClient
from tests.loghub_service.storage.opened_log import open_log
from tests.support import ServiceProcess, running_service

ROUNDS = 3
GROUP_LOGS, IN_FLIGHT, SHARDS = 48, 64, 32
SMALL, PULLS, SYNCS = 3000, 40, 30
# Logs in a group, and how many groups are sent, so that each size takes a second or so.
SIZES = {"14 KB": (GROUP_LOGS, 4000), "71 KB": (240, 1200), "284 KB": (960, 400), "1 MB": (3400, 120)}
MB = 1e6
PUT, BROKER = "PutLogs of 14 KB, MB/s", "Kafka that flushes each append, MB/s"
RATIO = "PutLogs / Kafka that flushes each append"
BARE = "write and fdatasync"
Rows = dict[str, float]


def ratio_of(size: str) -> str:
    return f"PutLogs of {size} / {BARE} of 64"


def fields_of(number: int, seed: int = 0) -> tuple[tuple[str, str], ...]:
    """Ten fields of about 260 bytes, as of an access log."""
    n = (number + seed * 7919) * 2654435761 % (1 << 32)
    return (
        ("method", ("GET", "POST", "PUT")[n % 3]),
        ("path", f"/api/v1/items/{n % 1_000_003}/details"),
        ("status", str((200, 200, 200, 404, 500)[n % 5])),
        ("bytes", str(n % 65_536)),
        ("latency_ms", f"{n % 3000 / 7:.3f}"),
        ("client_ip", f"10.{n % 256}.{n // 256 % 256}.{n // 65536 % 256}"),
        ("user_agent", "Mozilla/5.0 (X11; Linux x86_64) AppleWebKit/537.36"),
        ("request_id", f"{n:08x}-{n * 31 % (1 << 32):08x}"),
        ("host", f"web-{n % 40}"),
        ("referer", "https://example.com/start"),
    )


def log_group(logs: int, seed: int = 0) -> bytes:
    """Logs of ten fields and about 290 bytes."""
    rows = (Log(time=1_700_000_000 + number, contents=fields_of(number, seed)) for number in range(logs))
    return encoded(LogGroup(logs=tuple(rows), topic="access", source="10.0.0.1"))


def put_large(service: ServiceProcess) -> Rows:
    rows: Rows = {}
    for size, (logs, total) in SIZES.items():
        groups = [log_group(logs, seed) for seed in range(max(4, 200 * GROUP_LOGS // logs))]
        requests = [put_request(service, group) for group in groups]
        run(service, requests, total=total // 4, in_flight=IN_FLIGHT)
        cost = run(service, requests, total=total, in_flight=IN_FLIGHT)
        sent_mb = total * sum(map(len, groups)) / len(groups) / MB
        rows |= {f"PutLogs of {size}, MB/s per core": sent_mb / cost.cpu_s}
        rows |= {PUT if logs == GROUP_LOGS else f"PutLogs of {size}, MB/s": sent_mb / cost.wall_s}
    return rows


def small_requests(service: ServiceProcess) -> Rows:
    group, shard = f"/logstores/{LOGSTORE}/consumergroups/g", f"/logstores/{LOGSTORE}/shards/0"
    with RawClient(service) as client:
        saved = json.dumps({"shard": 0, "checkpoint": client.cursor(shard=0)}).encode()
    end, time_s = ({"type": "cursor", "from": position} for position in ("end", "1700000000"))
    beat = {"type": "heartbeat", "consumer": "c1"}
    save = {"type": "checkpoint", "consumer": "c1", "forceSuccess": "true"}  # also after a slow row
    by_name = {
        "small PutLogs, ms CPU": put_request(service, log_group(1)),
        "heartbeat, ms CPU": serialized(service, "POST", group, beat, body=b"[]"),
        "checkpoint, ms CPU": serialized(service, "POST", group, save, body=saved),
        "GetCursor, ms CPU": serialized(service, "GET", shard, end),
        "GetCursor by time, ms CPU": serialized(service, "GET", shard, time_s),
    }
    costs = {name: run(service, [sent], total=SMALL, in_flight=8) for name, sent in by_name.items()}
    return {name: cost.cpu_s / SMALL * 1000 for name, cost in costs.items()}


def pull(service: ServiceProcess) -> Rows:
    """Over and over the first answer of each shard, as large as one may be."""
    connection, requests, sizes = Connection(service), [], []
    with RawClient(service) as client:
        cursors = [client.cursor(shard=shard) for shard in range(2)]
    for shard, cursor in enumerate(cursors):
        query = {"type": "logs", "cursor": cursor, "count": "1000"}
        sent = serialized(
            service,
            "GET",
            f"/logstores/{LOGSTORE}/shards/{shard}",
            query,
            headers={"Accept-Encoding": "lz4"},
        )
        head = connection.exchange(sent)
        sizes.append(int(head.partition(b"x-log-bodyrawsize: ")[2].partition(b"\r\n")[0]))
        requests.append(sent)
    cost = run(service, requests, total=PULLS, in_flight=2)
    pulled_mb = PULLS * sum(sizes) / len(sizes) / MB
    return {"PullLogs, MB/s per core": pulled_mb / cost.cpu_s, "PullLogs, MB/s": pulled_mb / cost.wall_s}


def bare_writes(folder: Path) -> Rows:
    """The same bytes with nothing but writes and `fdatasync`: for each log group, and for 64 together."""
    rows = {f"{BARE} of each 14 KB, MB/s": _written(folder, log_group(GROUP_LOGS), 500)}
    for size, (logs, total) in SIZES.items():
        together = log_group(logs) * IN_FLIGHT
        rows |= {f"{BARE} of 64 times {size}, MB/s": _written(folder, together, max(total // IN_FLIGHT, 3))}
    return rows


def _written(folder: Path, data: bytes, count: int) -> float:
    """MB a second, into allocated space as a segment has it."""
    path = folder / "bare"
    fd = os.open(path, os.O_RDWR | os.O_CREAT | os.O_TRUNC)
    try:
        os.posix_fallocate(fd, 0, len(data) * count)
        os.fsync(fd)
        begin_s = time.monotonic()
        for number in range(count):
            os.pwrite(fd, data, number * len(data))
            os.fdatasync(fd)
        return len(data) * count / MB / (time.monotonic() - begin_s)
    finally:
        os.close(fd)
        path.unlink()


def many_shards(folder: Path) -> Rows:
    """One commit with a small log group for each of 32 shards."""
    with tempfile.TemporaryDirectory(dir=folder) as data:
        logs = []
        for number in range(SHARDS):
            os.mkdir(f"{data}/{number}")
            birth = SegmentHeader(first_cursor=1, logs_before=0, received_us=1)
            logs.append(open_log(OsDisk(), folder=f"{data}/{number}", birth=birth, segment_bytes=1 << 20)[0])
        new = NewGroup(group=log_group(1), logs=1, received_us=1)
        took = []
        for _ in range(SYNCS):
            begin_s = time.monotonic()
            commit_logs([Append(log=log, new=new) for log in logs])
            took.append(time.monotonic() - begin_s)
        for log in logs:
            log.close()
    return {"32 shards synced, ms": median(took) * 1000}


def kafka(folder: Path) -> Rows:
    """The same groups as records of a broker that flushes each append, with 64 requests of one in flight.

    It has Kafka's own options of the JVM, apart from its memory."""
    if broker_of_tests.missing():
        return {}
    data, count = log_group(GROUP_LOGS), 1000
    with (
        tempfile.TemporaryDirectory(dir=folder) as home,
        broker_of_tests.running_broker(Path(home, "broker"), java=("-Xmx1g",)) as broker,
    ):
        topic = NewTopic("flushed", 2, 1, config={"flush.messages": "1"})
        broker.admin.create_topics([topic])["flushed"].result(60)
        producer = Producer(
            {
                "bootstrap.servers": broker.plain,
                "acks": "all",
                "linger.ms": 0,
                "batch.num.messages": 1,
                "max.in.flight.requests.per.connection": IN_FLIGHT,
                "compression.type": "lz4",
                "log_level": 0,  # the broker ends first
            }
        )
        rate = 0.0
        for _ in range(2):  # the first one warms the JVM up
            begin_s = time.monotonic()
            for number in range(count):
                producer.produce("flushed", data, partition=number % 2)
                producer.poll(0)
            assert producer.flush(120) == 0
            rate = count * len(data) / MB / (time.monotonic() - begin_s)
    return {BROKER: rate}


GOALS = {
    "PutLogs of 14 KB, MB/s per core": ">= 70",
    "PutLogs of 71 KB, MB/s per core": ">= 150",
    "PutLogs of 284 KB, MB/s per core": ">= 250",
    "PutLogs of 1 MB, MB/s per core": ">= 300",
    RATIO: ">= 5",
    **{ratio_of(size): ">= 0.5" for size in list(SIZES)[1:]},
    "small PutLogs, ms CPU": "<= 0.2",
    "heartbeat, ms CPU": "<= 0.15",
    "GetCursor, ms CPU": "<= 0.12",
    "PullLogs, MB/s per core": ">= 600",
    "32 shards synced, ms": "<= 2",
}


def measure(folder: Path, only: list[str]) -> list[Rows]:
    of_service: dict[str, Callable[[ServiceProcess], Rows]] = {
        "put": put_large,
        "small": small_requests,
        "pull": pull,
    }
    of_disk: dict[str, Callable[[Path], Rows]] = {
        "bare": bare_writes,
        "shards": many_shards,
        "kafka": kafka,
    }
    rounds: list[Rows] = []
    for number in range(ROUNDS):
        rows: Rows = {}
        with running_service(folder / f"service{number}") as service:
            with RawClient(service) as client:
                client.create(logstore=LOGSTORE, shards=2)
                client.create_group("g")
            put_large(service)  # warm, and data for PullLogs
            for name, of in of_service.items():
                rows |= of(service) if not only or name in only else {}
        for name, work in of_disk.items():
            rows |= work(folder) if not only or name in only else {}
        rounds.append(with_ratio(rows))
    return rounds


def with_ratio(rows: Rows) -> Rows:
    """The rows of a round, and how many times the speed of the broker and of the bare writes the service has,
    where both were measured."""
    others = {RATIO: (PUT, BROKER)} | {
        ratio_of(size): (f"PutLogs of {size}, MB/s", f"{BARE} of 64 times {size}, MB/s") for size in SIZES
    }
    return rows | {
        name: rows[ours] / rows[theirs]
        for name, (ours, theirs) in others.items()
        if rows.keys() >= {ours, theirs}
    }


def main(only: list[str]) -> None:
    with tempfile.TemporaryDirectory() as name:
        rounds = measure(Path(name), only)
    print(f"{'':44} {'median':>9} {'lowest':>9} {'highest':>9}  goal")
    for row in dict.fromkeys(name for rows in rounds for name in rows):
        found = [rows[row] for rows in rounds if row in rows]
        goal = GOALS.get(row, "")
        print(f"{row:44} {median(found):9.2f} {min(found):9.2f} {max(found):9.2f}  {goal}")


if __name__ == "__main__":
    main(sys.argv[1:])
