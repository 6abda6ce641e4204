"""What a consumer of `loghub_worker.api` costs, next to the vendor's consumer library on the same bytes.

``python -m tests.loghub_worker.bench_processor [LOGS]`` prints the seconds from the start of a process to its
first log, its peak memory, and the logs per second of CPU time after the first log, in runs that alternate.
The handlers do nothing; in two further rows they read every row in Arrow, or every log of every log group.
"""

import json
import os
import signal
import statistics
import subprocess
import sys
import tempfile
from contextlib import closing
from pathlib import Path
from typing import Any

from loghub.client.http import HttpLogHub
from loghub.wire.loggroup import Log, LogGroup, encode
from tests.loghub_worker.consumer.support import PROJECT, Site, programs, wait_for
from tests.loghub_worker.support import real_lines
from tests.support import ROOT, ServiceProcess, running_service

SHARDS, LOGS_PER_GROUP, RUNS = 4, 200, 3
Figures = dict[str, Any]

VENDOR = """
import resource, sys, threading
from aliyun.log.consumer import ConsumerProcessorBase, ConsumerWorker, LogHubConfig
endpoint, key, secret, project, logstore, group, expected, read = sys.argv[1:]
start_s = 0.0
lock, seen, done = threading.Lock(), [0], threading.Event()

def cpu_s():
    used = resource.getrusage(resource.RUSAGE_SELF)
    return used.ru_utime + used.ru_stime

class Nothing(ConsumerProcessorBase):
    def process(self, log_groups, tracker):
        global start_s
        start_s = start_s or cpu_s()
        if read == "groups":
            for group in log_groups.LogGroups:
                for log in group.Logs:
                    [(one.Key, one.Value) for one in log.Contents]
        with lock:
            if not seen[0]:
                print(start_s)
            seen[0] += len(log_groups.LogGroups)
        if seen[0] >= int(expected):
            done.set()
        self.save_checkpoint(tracker)

config = LogHubConfig(
    endpoint, key, secret, project, logstore, group, "vendor", heartbeat_interval=5, data_fetch_interval=0.2
)
worker = ConsumerWorker(Nothing, config)
worker.start()
done.wait()
worker.shutdown()
worker.join()
print(cpu_s())
"""


def fill(site: Site, logs: int) -> None:
    """Log groups of logs with ten fields, spread over the shards."""
    lines = real_lines()
    keys = [one.begin_key for one in site.client.list_shards(site.logstore)]
    fields = tuple((f"field_{n}", f"value {n} of ten") for n in range(9))
    for number in range(logs // LOGS_PER_GROUP):
        first = number * LOGS_PER_GROUP
        written = tuple(
            Log(time=1_700_000_000, contents=(("line", lines[n % len(lines)]), *fields))
            for n in range(first, first + LOGS_PER_GROUP)
        )
        body = encode(LogGroup(logs=written, topic="bench"))
        site.client.put_logs(site.logstore, body, hash_key=keys[number % len(keys)])


def ours(site: Site, read: str) -> Figures:
    """The figures of one process that reads everything."""
    reset(site)
    with programs() as start:
        program = start(site, "ours", quiet=True, read=read, checkpoint_interval_s=0.5)
        wait_for(lambda: site.saved() == site.ends(), "everything to be read")
        assert program.end(signal.SIGTERM) == 0
        (ended,) = program.of("ended")
        assert ended["modules"] == [], "no Spark"
        first = min(program.of("process"), key=lambda one: one["after_s"])
        return {
            "first_s": first["after_s"],
            "first_mb": first["peak_mb"],
            "start_cpu_s": first["cpu_s"],
            "cpu_s": ended["cpu_s"] - first["cpu_s"],
            "peak_mb": ended["peak_mb"],
        }


def vendor(site: Site, groups: int, read: str) -> Figures:
    """The vendor's consumer library, which reads ``nothing`` or ``groups``. It reaches loopback through the
    service's forward-proxy mode (docs/sls-protocol.md 1.1)."""
    reset(site)
    key = site.service.credentials
    arguments = ("http://sls.invalid", key.access_key_id, key.access_key_secret, PROJECT, site.logstore)
    run = subprocess.run(
        [sys.executable, "-c", VENDOR, *arguments, "readers", str(groups), read],
        cwd=ROOT,
        env=os.environ | {"http_proxy": site.service.endpoint, "no_proxy": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    start_s, total_s = map(float, run.stdout.split())
    return {"start_cpu_s": start_s, "cpu_s": total_s - start_s}


def reset(site: Site) -> None:
    """Let the group begin at the first log."""
    if site.client.list_groups(site.logstore):
        site.client.delete_group(site.logstore, "readers")
    site.create_group()


def print_row(name: str, runs: list[Figures], logs: int) -> None:
    cpu_s = statistics.median(run["cpu_s"] for run in runs)
    print(f"{name:38} {logs / cpu_s:10,.0f} logs per CPU second, {cpu_s * 1e6 / logs:6.2f} CPU s per million")


def main(logs: int) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        bench(service, logs)


def bench(service: ServiceProcess, logs: int) -> None:
    with closing(HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)) as client:
        client.create_project("bench")
        site = Site(service, client)
        site.prepare(shards=SHARDS)
        fill(site, logs)
        reads = ("nothing", "arrow", "groups")
        theirs = {"vendor": "nothing", "vendor groups": "groups"}
        runs: dict[str, list[Figures]] = {name: [] for name in (*reads, *theirs)}
        for _ in range(RUNS):
            for name, read in theirs.items():
                runs[name].append(vendor(site, logs // LOGS_PER_GROUP, read))
            for read in reads:
                runs[read].append(ours(site, read))
    starts = [run["first_s"] for read in reads for run in runs[read]]
    memory = max(run["first_mb"] for read in reads for run in runs[read])
    print(f"process start to first log: {statistics.median(starts):.2f} s, longest {max(starts):.2f} s")
    for name in ("nothing", "vendor"):
        spent = statistics.median(run["start_cpu_s"] for run in runs[name])
        print(f"CPU time to the first log, {'vendor' if name == 'vendor' else 'consumer'}: {spent:.2f} s")
    print(f"peak memory at the first log: {memory:.0f} MB")
    for read in reads:
        peak = max(run["peak_mb"] for run in runs[read])
        print(f"peak memory, reading {read:8}: {peak:6.0f} MB")
    print_row("consumer, empty handler", runs["nothing"], logs)
    print_row("consumer, every row in Arrow", runs["arrow"], logs)
    print_row("consumer, every log of every group", runs["groups"], logs)
    print_row("vendor's consumer, empty handler", runs["vendor"], logs)
    print_row("vendor's consumer, every log", runs["vendor groups"], logs)
    medians = {name: statistics.median(run["cpu_s"] for run in found) for name, found in runs.items()}
    print(f"vendor / consumer, empty handlers: {medians['vendor'] / medians['nothing']:.1f}")
    print(f"vendor's logs / consumer's Arrow:  {medians['vendor groups'] / medians['arrow']:.1f}")
    print(json.dumps({name: round(value, 3) for name, value in medians.items()}))


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 400_000)
