"""How long a start of the service takes by the data that it keeps, with and without the footers of segments.

``python -m tests.loghub.bench_recovery [GB]`` writes log groups of 300 bytes, and starts an engine on them
twice, each time in a process of its own: without footers, as after an upgrade, when all records are read; and
with them. It prints seconds per GB of both, and the memory of each start beyond that with an empty folder.
Then it does the same with 1,000 shards that have one log group each, after a clean stop.
"""

import asyncio
import json
import resource
import subprocess
import sys
import tempfile
import time
from pathlib import Path

from loghub.clock import SystemClock
from loghub.domain import shards as rules
from loghub_service.engine import Engine
from loghub_service.facts import LogstoreSaved, ProjectSaved, ShardSaved
from loghub_service.ports import OsDisk, OsRandom, Platform
from loghub_service.settings import KEEP_FOREVER_DAYS, ServiceSettings
from loghub_service.start import open_engine
from loghub_service.storage.group_commit import Append, commit_logs
from loghub_service.storage.log_inspection import read_end_block
from loghub_service.storage.segment import NewGroup

GROUP_BYTES, SHARDS, BATCH = 300, 4, 2000
MANY_SHARDS, MANY_STARTS = 1000, 3
GB = 1e9


async def opened(data: Path) -> Engine:
    data.mkdir(exist_ok=True)
    settings = ServiceSettings(data=str(data), host="127.0.0.1", port=0)
    platform = Platform(clock=SystemClock(), disk=OsDisk(), random=OsRandom())
    return await open_engine(settings, platform, on_failed=print)


async def created(data: Path, count: int) -> Engine:
    """An engine with one logstore of so many shards."""
    engine = await opened(data)
    now = engine.now_s()
    store = LogstoreSaved(
        id=1, project="p", name="ls", ttl_days=KEEP_FOREVER_DAYS, next_shard=count, options="{}",
        created_s=now, modified_s=now,
    )  # fmt: skip
    shards = [
        ShardSaved(logstore=1, spec=spec, born_us=engine.now_us(), first_cursor=1000)
        for spec in rules.create(count).shards.values()
    ]
    await engine.persist(ProjectSaved(name="p", description="", created_s=now, modified_s=now))
    await engine.create_shards(store, shards)
    return engine


async def write_each(data: Path) -> None:
    """One log group in each of many shards."""
    engine = await created(data, MANY_SHARDS)
    new = NewGroup(group=b"x" * GROUP_BYTES, logs=1, received_us=engine.now_us())
    commit_logs([Append(log=log, new=new) for log in engine.logs.values()])
    await engine.close()


async def write(data: Path, gigabytes: float) -> int:
    """Fill the shards of one logstore evenly; return the number of log groups."""
    engine = await created(data, SHARDS)
    batch = [NewGroup(group=b"x" * GROUP_BYTES, logs=1, received_us=engine.now_us())] * BATCH
    count = int(gigabytes * GB / GROUP_BYTES / BATCH)
    for number in range(count):
        log = engine.logs[1, number % SHARDS]
        log.append(batch)
        if number % 50 < SHARDS:
            log.sync()
    for log in engine.logs.values():
        log.sync()
    await engine.close()
    return count * BATCH


def remove_footers(data: Path) -> int:
    """Cut all footers off; return the number of segments."""
    disk = OsDisk()
    paths = sorted(data.glob("logs/*/*/*.seg"))
    for path in paths:
        file = disk.open(str(path))
        block = read_end_block(file)
        if block is not None:
            file.truncate(block.totals.used)
        file.close()
    return len(paths)


async def measure(data: Path) -> None:
    """Start an engine in this process, and print what it took as JSON."""
    begin_s, begin_cpu_s = time.monotonic(), time.process_time()
    engine = await opened(data)
    took = {"s": time.monotonic() - begin_s, "cpu_s": time.process_time() - begin_cpu_s}
    kib = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss
    await engine.close()
    print(json.dumps(took | {"mib": kib / 1024, "groups": _groups(engine)}))


def _groups(engine: Engine) -> int:
    return sum(log.extent.end_cursor - log.extent.oldest_cursor for log in engine.logs.values())


def started(data: Path) -> dict[str, float]:
    command = [sys.executable, "-m", "tests.loghub.bench_recovery", "--start", str(data)]
    run = subprocess.run(command, stdout=subprocess.PIPE, text=True, check=True)
    result: dict[str, float] = json.loads(run.stdout.splitlines()[-1])
    return result


def main(gigabytes: float) -> None:
    with tempfile.TemporaryDirectory() as name:
        empty = started(Path(name, "empty"))
        data = Path(name, "data")
        groups = asyncio.run(write(data, gigabytes))
        size = groups * GROUP_BYTES / GB
        segments = remove_footers(data)
        print(f"recovery of {size:.2f} GB: {groups} log groups, {SHARDS} shards, {segments} segments")
        for title in ("full scan, without footers", "with footers"):
            found = started(data)
            assert found["groups"] == groups
            print(
                f"{title:28} {found['s']:7.2f} s, {found['s'] / size:6.2f} s per GB"
                f" ({found['cpu_s'] / size:.2f} s CPU), {found['mib'] - empty['mib']:6.1f} MiB"
            )
        shards = Path(name, "shards")
        asyncio.run(write_each(shards))
        for _ in range(MANY_STARTS):
            found = started(shards)
            print(f"{MANY_SHARDS} shards after a clean stop {found['s']:7.2f} s, {found['cpu_s']:.2f} s CPU")


if __name__ == "__main__":
    if sys.argv[1:2] == ["--start"]:
        asyncio.run(measure(Path(sys.argv[2])))
    else:
        main(float(sys.argv[1]) if len(sys.argv) > 1 else 1.0)
