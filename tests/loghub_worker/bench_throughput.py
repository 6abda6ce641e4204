"""How much CPU time a worker needs for a log, compared with a plain loop over the vendor SDK in the same run.

``python -m tests.loghub_worker.bench_throughput [LOGS]`` prints both and their ratio. It compares CPU seconds
and not wall time, because they are meaningful on a busy machine too. The SDK loop only pulls and flattens
into dicts; the worker writes Parquet files."""

import os
import resource
import subprocess
import sys
import tempfile
from pathlib import Path

from loghub.client.http import HttpLogHub
from loghub.sink_settings import ParquetSink
from tests.loghub_worker.support import (
    GROUP,
    GUARD_S,
    LOGSTORE,
    PROJECT,
    Producer,
    delivered,
    prepare,
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


def worker(
    service: ServiceProcess, client: HttpLogHub, folder: Path, producer: Producer
) -> tuple[int, float]:
    """Rows in the sink, and the CPU seconds of the worker and all its processes since it became a member."""
    sink = folder / "sink"
    sink_folder = ParquetSink(path=str(sink))
    config = worker_config(service.endpoint, sink_folder, max_log_groups=1000, spark_conf={})
    with worker_processes(folder, service) as workers:
        started = workers.start("w-0", config)
        wait_until(lambda: started.phase == "running", "the worker", guard_s=GUARD_S)
        before = _tree_cpu_s(started.process.pid)
        wait_until(lambda: _saved(client), "all to be delivered", guard_s=GUARD_S)
        spent = _tree_cpu_s(started.process.pid) - before
    rows = delivered(sink)
    assert rows == producer.sent
    return rows.total(), spent


def _saved(client: HttpLogHub) -> bool:
    return all(s.checkpoint == s.end_cursor for s in client.group_status(LOGSTORE, GROUP).shards)


def _tree_cpu_s(root: int) -> float:
    """CPU seconds of a process, its living descendants, and those they waited for."""
    ticks, parents = {}, {}
    for stat in Path("/proc").glob("[0-9]*/stat"):
        try:
            fields = stat.read_text().rpartition(")")[2].split()
        except OSError:
            continue  # the process has ended
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
        client = prepare(service, shards=SHARDS)
        producer = Producer(client)
        producer.put(groups=logs // LOGS_PER_GROUP, logs=LOGS_PER_GROUP)
        sdk_logs, sdk_s = sdk_loop(service)
        rows, worker_s = worker(service, client, Path(name), producer)
        assert rows == sdk_logs
    sdk, ours = sdk_s * 1e6 / sdk_logs, worker_s * 1e6 / rows
    print(f"SDK loop, pull and flatten:  {sdk:7.1f} CPU s per million logs, {sdk_logs} logs")
    print(f"worker, pull to Parquet:     {ours:7.1f} CPU s per million logs, {rows} rows")
    print(f"worker / SDK loop:           {ours / sdk:7.2f}")


if __name__ == "__main__":
    main(int(sys.argv[1]) if len(sys.argv) > 1 else 200_000)
