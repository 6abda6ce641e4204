"""How long a micro-batch of many shards, and their start, wait for the log service if that is far away.

``python -m tests.loghub_worker.bench_round_trips [SHARDS [MILLISECONDS]]`` plans and reads micro-batches
with the data source's own reader, without a JVM. Each has one new log group in each shard, so it asks for the
end of each shard and pulls from each: once next to the service, and once from so far away that each request
takes longer by this time. The difference of the two medians is what a micro-batch waits for round trips.

Then a worker's shard manager opens all shards, whose first checkpoints it saves, and saves another one for
each: with one request about shards at a time, and as workers do it."""

import logging
import sys
import tempfile
import time
from collections.abc import Callable
from pathlib import Path
from statistics import median

import structlog
from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.client.http import HttpLogHub
from loghub.client.port import GroupInfo
from loghub.clock import SystemClock
from loghub.contract.sinks import NoSink
from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.batch_plan import BatchPlan, GroupSize
from loghub_consumer.exchange_files import ExchangeFiles, Positions
from loghub_consumer.log_service import ConsumerIdentity
from loghub_consumer.membership.heartbeat import Heartbeats
from loghub_consumer.membership.membership import Membership, MembershipTimings
from loghub_consumer.membership.shard_manager import PARALLEL, ParallelTasks, ShardManager
from loghub_consumer.membership.shard_opening import ShardOpening
from loghub_consumer.membership.shared_membership import SharedState
from loghub_consumer.resumption import NoRecord
from loghub_worker.source import GroupStreamReader
from tests.loghub_consumer.reading.options import source_options
from tests.loghub_operator.latency import distant
from tests.loghub_worker.support import GROUP as GROUP_NAME
from tests.loghub_worker.support import LOGSTORE, PROJECT, prepare, worker_config
from tests.support import ServiceProcess, running_service

BATCHES, WARM = 25, 5
OPENINGS = 5
GROUP = encode(LogGroup(logs=tuple(Log(time=1, contents=(("n", str(n)),)) for n in range(10))))


class Source:
    """The reader of a worker that holds all shards."""

    def __init__(self, service: ServiceProcess, client: HttpLogHub, endpoint: str, folder: Path) -> None:
        folder.mkdir()
        shards = client.list_shards(LOGSTORE)
        self.client = client
        self.keys = [info.begin_key for info in shards]
        self.positions = {
            info.shard: decode(client.get_cursor(LOGSTORE, info.shard, "end")) for info in shards
        }
        self.exchange = ExchangeFiles(folder)
        self.version = 0
        self.reader = GroupStreamReader(
            source_options(
                endpoint,
                service.credentials_dir,
                folder,
                fetch_interval_s=0.0,
                max_bytes=1 << 24,
                max_logs=1 << 20,
            )
        )
        self.offset = self.reader.initialOffset()
        self.write()

    def write(self) -> None:
        self.version += 1
        sizes = dict.fromkeys(self.positions, GroupSize(bytes=len(GROUP), logs=10))
        self.exchange.write_positions(
            Positions(version=self.version, shards=self.positions, group_sizes=sizes)
        )

    def batch(self) -> float:
        """Write a log group into each shard; the seconds to plan and to read a batch of all of them."""
        for key in self.keys:
            self.client.put_logs(LOGSTORE, GROUP, hash_key=key)
        since = time.perf_counter()
        after = self.reader.latestOffset(self.offset, ReadAllAvailable())
        rows = sum(
            batch.num_rows
            for partition in self.reader.partitions(self.offset, after)
            for batch in self.reader.read(partition)
        )
        took = time.perf_counter() - since
        assert rows == 10 * len(self.keys)
        self.offset = after
        self.positions |= {part.shard: part.end for part in BatchPlan.from_json(after).ranges}
        self.write()
        return took


def opening_and_saving(
    service: ServiceProcess, client: HttpLogHub, folder: Path, milliseconds: float, *, limit: int
) -> tuple[float, float]:
    """Seconds from an assignment until all shards are open, and to save a checkpoint of each. At most `limit`
    requests are under way."""
    folder.mkdir()
    client.delete_group(LOGSTORE, GROUP_NAME)
    client.create_group(LOGSTORE, GroupInfo(name=GROUP_NAME, timeout_s=300, order=False))
    ends = {
        one.shard: decode(client.get_cursor(LOGSTORE, one.shard, "end"))
        for one in client.list_shards(LOGSTORE)
    }
    timings = MembershipTimings.of(interval_s=5.0, timeout_s=300.0)
    shared_state = SharedState(Membership(timings), ExchangeFiles(folder), SystemClock())
    identity = ConsumerIdentity(logstore=LOGSTORE, group=GROUP_NAME, consumer="bench")
    with distant(service.endpoint, milliseconds) as endpoint:
        far = HttpLogHub(endpoint, PROJECT, credentials=service.credentials)
        config = worker_config(endpoint, NoSink())
        manager = ShardManager(
            shared_state,
            far,
            ShardOpening(far, NoRecord(), identity, config=config),
            identity,
            config=config,
            tasks=ParallelTasks(limit),
        )
        Heartbeats(shared_state, client, identity).step()
        since = time.perf_counter()
        manager.start()
        _wait(shared_state, lambda membership: membership.positions.keys() == ends.keys())
        opened_s = time.perf_counter() - since
        with shared_state.use() as (membership, now):
            for held in membership.shards:
                membership.moved(held.shard, epoch=held.epoch, position=ends[held.shard], now=now)
        since = time.perf_counter()
        manager.save_all()
        _wait(shared_state, lambda membership: not membership.unsaved())
        saved_s = time.perf_counter() - since
        manager.stop()
        far.close()
    return opened_s, saved_s


def _wait(shared_state: SharedState, condition: Callable[[Membership], bool]) -> None:
    while True:
        with shared_state.use() as (membership, _):
            since, is_so = shared_state.changes, condition(membership)
        if is_so:
            return
        shared_state.wait(since, 60.0)


def opening_lines(
    service: ServiceProcess, client: HttpLogHub, folder: Path, milliseconds: float
) -> list[str]:
    lines = []
    for limit in (1, PARALLEL):
        runs = [
            opening_and_saving(service, client, folder / f"manager-{limit}-{n}", milliseconds, limit=limit)
            for n in range(OPENINGS)
        ]
        opened, saved = (median(one) * 1000 for one in zip(*runs, strict=True))
        lines.append(
            f"{limit:2} at a time: open after {opened:6.0f} ms, checkpoints saved in {saved:6.0f} ms"
        )
    return lines


def main(shards: int, milliseconds: float) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        client = prepare(service, shards=shards)
        medians = []
        for delay_ms in (0.0, milliseconds):
            with distant(service.endpoint, delay_ms) as endpoint:
                source = Source(service, client, endpoint, Path(name, f"source-{delay_ms}"))
                times = [source.batch() for _ in range(BATCHES)]
            medians.append(median(times[WARM:]))
        lines = opening_lines(service, client, Path(name), milliseconds)
    near, far = medians
    print(f"{shards} shards; medians of {BATCHES - WARM} micro-batches, ms")
    print(f"plan and read, no delay:        {near * 1000:7.1f}")
    print(f"plan and read, {milliseconds:4.0f} ms a request: {far * 1000:6.1f}")
    print(f"waited for round trips:         {(far - near) * 1000:7.1f}")
    print(f"{shards} shards, {milliseconds:.0f} ms a request; medians of {OPENINGS} starts")
    for line in lines:
        print(line)


if __name__ == "__main__":
    structlog.configure(wrapper_class=structlog.make_filtering_bound_logger(logging.WARNING))
    given = [float(argument) for argument in sys.argv[1:]]
    main(int(given[0]) if given else 32, given[1] if len(given) > 1 else 10.0)
