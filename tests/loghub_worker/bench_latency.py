"""How long a log takes from PutLogs to the sink on an idle shard, and what an idle worker requests.

``python -m tests.loghub_worker.bench_latency [SHARDS [PUTS [NAME]]]`` runs a worker on Spark and a consumer
of `loghub_consumer` with all shards of a logstore, one after the other: on the embedded service with its
extensions, and behind a relay that has none, as SLS has none. It prints the quantiles of the time from the
answer to PutLogs to the row in the sink, or in ``process``; each log group follows when the one before is
there, after a pause, so that its shard is idle. Then it counts the requests of the consumer by API, and
the CPU time of its processes. The settings are the defaults, but for the trigger, which is 0. The seconds are
those of a quiet machine only.
"""

import os
import random
import statistics
import sys
import tempfile
import threading
import time
from collections import Counter
from collections.abc import Callable, Iterator
from contextlib import contextmanager, redirect_stdout
from pathlib import Path

from prometheus_client.parser import text_string_to_metric_families

from loghub.client.http import HttpLogHub
from loghub.contract.sinks import ParquetSink
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer import Consumer, ConsumerSettings, LogBatch, Processor, Tracker
from tests.loghub_operator.latency import distant
from tests.loghub_service.test_admin import admin_address
from tests.loghub_worker.cpu_time import cpu_time
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    prepare,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, get, running_service, wait_until

WARM, LOOK_S, MAX_PAUSE_S, SETTLE_S, REST_S = 10, 0.004, 2.0, 5.0, 30.0
BODY = encode(LogGroup(logs=(Log(time=1, contents=(("id", "1"), ("line", "one"))),)))
Arrived = Callable[[], int]  # the log groups that are in the sink


class Noting(Processor):
    """Counts the log groups of all shards."""

    groups = 0

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        Noting.groups += len(logs.groups)
        tracker.save()


@contextmanager
def spark_worker(service: ServiceProcess, endpoint: str, folder: Path) -> Iterator[tuple[Arrived, int]]:
    """A worker that holds all shards, and its process id."""
    sink = folder / "sink"
    config = worker_config(
        endpoint,
        ParquetSink(path=str(sink)),
        heartbeat_interval_s=5.0,
        fetch_interval_s=1.0,
        trigger_interval_s=0.0,
        max_log_groups=1_000_000,
        cores=2,
        spark_conf={},
    )
    with redirect_stdout(sys.stderr), worker_processes(folder, service) as workers:
        worker = workers.start("w-0", config)

        def arrived() -> int:
            assert worker.process.poll() is None, worker.log_tail()
            if not sink.is_dir():
                return 0
            with os.scandir(sink) as entries:
                return sum(entry.name.endswith(".parquet") for entry in entries)

        yield arrived, worker.process.pid


@contextmanager
def consumer(service: ServiceProcess, endpoint: str, _: Path) -> Iterator[tuple[Arrived, int]]:
    """A consumer in this process."""
    Noting.groups = 0
    settings = ConsumerSettings(
        credentials=service.credentials,
        endpoint=endpoint,
        project=PROJECT,
        logstore=LOGSTORE,
        consumer_group=GROUP,
        consumer="c-0",
    )
    running = Consumer(settings, Noting)
    thread = threading.Thread(target=running.run)
    thread.start()
    try:
        yield lambda: Noting.groups, os.getpid()
    finally:
        running.shutdown()
        thread.join()


def requests_of(service: ServiceProcess) -> Counter[str]:
    """Requests so far, by API."""
    text = get(admin_address(service), "/metrics")[1].decode()
    found: Counter[str] = Counter()
    for family in text_string_to_metric_families(text):
        for sample in family.samples:
            if sample.name == "loghub_service_requests_total":
                found[sample.labels["action"]] += int(sample.value)
    return found


def quantile(ascending: list[float], part: float) -> float:
    return ascending[min(len(ascending) - 1, round(part * (len(ascending) - 1)))]


def held(client: HttpLogHub) -> int:
    return sum(1 for shard in client.group_status(LOGSTORE, GROUP).shards if shard.holder)


def latency(client: HttpLogHub, arrived: Arrived, puts: int) -> str:
    shards = client.list_shards(LOGSTORE)
    wait_until(lambda: held(client) == len(shards), "all shards to be held", guard_s=GUARD_S)
    dice, times = random.Random(1), []
    for number in range(WARM + puts):
        key = dice.choice(shards).begin_key
        time.sleep(dice.uniform(0.0, MAX_PAUSE_S))
        before = arrived()
        client.put_logs(LOGSTORE, BODY, hash_key=key)
        since_s, give_up_s = time.perf_counter(), time.perf_counter() + GUARD_S
        while arrived() == before:
            assert time.perf_counter() < give_up_s, "the log did not arrive"
            time.sleep(LOOK_S)
        if number >= WARM:
            times.append(time.perf_counter() - since_s)
    times.sort()
    p50, p90, p99 = (1000 * quantile(times, part) for part in (0.5, 0.9, 0.99))
    mean = 1000 * statistics.mean(times)
    return f"PutLogs to sink, ms: p50 {p50:.0f}, p90 {p90:.0f}, p99 {p99:.0f}, mean {mean:.0f}"


def rest(service: ServiceProcess, pid: int) -> str:
    time.sleep(SETTLE_S)
    cpu, requests = cpu_time(pid), requests_of(service)
    time.sleep(REST_S)
    spent, sent = cpu_time(pid) - cpu, requests_of(service) - requests
    apis = ", ".join(f"{api} {count / REST_S:.2f}" for api, count in sent.most_common())
    cores = spent.total_s / REST_S
    return f"idle: {sent.total() / REST_S:.2f} requests/s ({apis}); CPU {cores:.3f} cores"


PROGRAMS = {"worker": spark_worker, "consumer": consumer}


def main(shards: int, puts: int, only: str) -> None:
    print(f"{shards} shards, {puts} log groups one after the other")
    for name, run in PROGRAMS.items():
        if only not in ("", name):
            continue
        for extended in (False, True):
            with (
                tempfile.TemporaryDirectory() as folder,
                running_service(Path(folder, "service"), extra=("--admin-listen", "127.0.0.1:0")) as service,
                distant(service.endpoint, 0.0) as plain,
            ):
                client = prepare(service, shards=shards)
                endpoint = service.endpoint if extended else plain
                with run(service, endpoint, Path(folder)) as (arrived, pid):
                    kind = "with extensions" if extended else "as on SLS"
                    print(f"{name}, {kind}: {latency(client, arrived, puts)}", flush=True)
                    print(f"{name}, {kind}: {rest(service, pid)}", flush=True)


if __name__ == "__main__":
    given = dict(enumerate(sys.argv[1:]))
    main(int(given.get(0, 32)), int(given.get(1, 100)), given.get(2, ""))
