"""How long a micro-batch of many shards waits for the log service if that is far away.

``python -m tests.loghub_worker.bench_round_trips [SHARDS [MILLISECONDS]]`` plans and reads micro-batches
with the data source's own reader, without a JVM. Each has one new log group in each shard, so it asks for the
end of each shard and pulls from each: once next to the service, and once from so far away that each request
takes longer by this time. The difference of the two medians is what a micro-batch waits for round trips."""

import sys
import tempfile
import time
from pathlib import Path
from statistics import median

from pyspark.sql.streaming.datasource import ReadAllAvailable

from loghub.client.http import HttpLogHub
from loghub.wire.cursor import decode
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_worker.batch_plan import BatchPlan, GroupSize
from loghub_worker.exchange_files import ExchangeFiles, Positions
from loghub_worker.source.datasource import LogHubStreamReader
from tests.loghub_operator.latency import distant
from tests.loghub_worker.source.options import source_options
from tests.loghub_worker.support import LOGSTORE, prepare
from tests.support import ServiceProcess, running_service

BATCHES, WARM = 25, 5
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
        self.reader = LogHubStreamReader(
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


def main(shards: int, milliseconds: float) -> None:
    with tempfile.TemporaryDirectory() as name, running_service(Path(name, "service")) as service:
        client = prepare(service, shards=shards)
        medians = []
        for delay_ms in (0.0, milliseconds):
            with distant(service.endpoint, delay_ms) as endpoint:
                source = Source(service, client, endpoint, Path(name, f"source-{delay_ms}"))
                times = [source.batch() for _ in range(BATCHES)]
            medians.append(median(times[WARM:]))
    near, far = medians
    print(f"{shards} shards; medians of {BATCHES - WARM} micro-batches, ms")
    print(f"plan and read, no delay:        {near * 1000:7.1f}")
    print(f"plan and read, {milliseconds:4.0f} ms a request: {far * 1000:6.1f}")
    print(f"waited for round trips:         {(far - near) * 1000:7.1f}")


if __name__ == "__main__":
    given = [float(argument) for argument in sys.argv[1:]]
    main(int(given[0]) if given else 32, given[1] if len(given) > 1 else 10.0)
