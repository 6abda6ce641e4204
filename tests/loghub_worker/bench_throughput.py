"""How much CPU a worker needs for a log, beside a plain loop over the vendor SDK in the same run.

What for: ``python -m tests.loghub_worker.bench_throughput [LOGS]`` prints both and their ratio. CPU
seconds are compared, not wall time: they mean something on a busy machine too. The SDK loop only
pulls and flattens into dicts; the worker goes all the way into Parquet files. What it must not
know: whether the figures are good. Read next: `tests.loghub_worker.support`.
"""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from loghub.client.http import HttpLogHub
from loghub.worker_contract import ParquetSink
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    Producer,
    delivered,
    prepared,
    worker_config,
    worker_processes,
)
from tests.support import ServiceProcess, running_service, wait_until

SHARDS, LOGS_PER_GROUP = 2, 200
TICKS_PER_S = os.sysconf("SC_CLK_TCK")

SDK_LOOP = """
import sys
from aliyun.log import LogClient
client = LogClient(sys.argv[1], sys.argv[2], sys.argv[3])
logs = 0
for shard in range(int(sys.argv[6])):
    cursor = client.get_cursor(sys.argv[4], sys.argv[5], shard, "begin").get_cursor()
    while True:
        pulled = client.pull_logs(sys.argv[4], sys.argv[5], shard, cursor, count=1000)
        if not pulled.get_loggroup_count():
            break
        logs += len(pulled.get_flatten_logs_json_auto())
        cursor = pulled.get_next_cursor()
print(logs)
"""


def sdk_loop(service: ServiceProcess) -> tuple[int, float]:
    """Logs read by the SDK, and the CPU seconds of its process. It reaches loopback through the
    service's forward-proxy mode (docs/sls-protocol.md 1.1)."""
    before = _children_cpu_s()
    keys = (service.credentials.access_key_id, service.credentials.access_key_secret)
    run = subprocess.run(
        [sys.executable, "-c", SDK_LOOP, "http://sls.invalid", *keys, PROJECT, LOGSTORE, str(SHARDS)],
        env=os.environ | {"http_proxy": service.endpoint, "no_proxy": ""},
        capture_output=True,
        text=True,
        check=True,
    )
    return int(run.stdout), _children_cpu_s() - before


def _children_cpu_s() -> float:
    used = resource.getrusage(resource.RUSAGE_CHILDREN)
    return used.ru_utime + used.ru_stime


def worker(service: ServiceProcess, hub: HttpLogHub, folder: Path, wanted: Producer) -> tuple[int, float]:
    """Rows in the sink, and the CPU seconds of the worker and all its processes from the moment
    that it is a member on."""
    sink = folder / "sink"
    sink_folder = ParquetSink(path=str(sink))
    config = worker_config(service.endpoint, sink_folder, max_log_groups=1000, spark_conf={})
    with worker_processes(folder, service) as workers:
        one = workers.start("w-0", config)
        wait_until(lambda: one.phase == "running", "the worker", guard_s=GUARD_S)
        before = _tree_cpu_s(one.process.pid)
        wait_until(lambda: _saved(hub), "all to be delivered", guard_s=GUARD_S)
        spent = _tree_cpu_s(one.process.pid) - before
    rows = delivered(sink)
    assert rows == wanted.sent
    return rows.total(), spent


def _saved(hub: HttpLogHub) -> bool:
    return all(s.checkpoint == s.end_cursor for s in hub.group_status(LOGSTORE, GROUP).shards)


def _tree_cpu_s(root: int) -> float:
    """CPU seconds of a process, its living descendants, and those they waited for."""
    ticks, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # ended meanwhile
        pid = int(stat.parent.name)
        parents[pid] = int(fields[1])
        ticks[pid] = sum(int(field) for field in fields[11:15])

    def belongs(pid: int) -> bool:
        while pid not in (0, root):
            pid = parents.get(pid, 0)
        return pid == root

    return sum(used for pid, used in ticks.items() if belongs(pid)) / TICKS_PER_S


def main(logs: int) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        hub = prepared(service, shards=SHARDS)
        producer = Producer(hub)
        producer.put(groups=logs // LOGS_PER_GROUP, logs=LOGS_PER_GROUP)
        sdk_logs, sdk_s = sdk_loop(service)
        rows, worker_s = worker(service, hub, Path(name), producer)
        assert rows == sdk_logs
    sdk, ours = sdk_s * 1e6 / sdk_logs, worker_s * 1e6 / rows
    print(f"SDK loop, pull and flatten:  {sdk:7.1f} CPU s per million logs, {sdk_logs} logs")
    print(f"worker, pull to Parquet:     {ours:7.1f} CPU s per million logs, {rows} rows")
    print(f"worker / SDK loop:           {ours / sdk:7.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
