"""The life of a group whose shard is delivered into a place of `places`, by one worker after the other."""

from collections import Counter
from typing import Any

from loghub.client.port import GroupInfo, Position
from loghub.contract.sinks import ParquetSink
from loghub.wire.cursor import decode, encode
from loghub_consumer.batch_plan import Range
from loghub_consumer.log_service import ConsumerIdentity
from loghub_consumer.membership.shard_opening import ShardOpening
from tests.fakes.fake_log_service import MemoryServer
from tests.loghub_consumer.membership.one_shard_worker import GROUP, FakeClock
from tests.loghub_worker.sink.places import Place
from tests.loghub_worker.support import worker_config

LOGSTORE = "ls"
BATCH = 10  # log groups


class Life:
    """A logstore of one shard, a group that reads it, and workers that deliver the shard to its end."""

    def __init__(self, place: Place) -> None:
        self.place = place
        self.start: Position = "begin"
        self.batch = BATCH
        self.is_sls = False
        self.workers = 0
        self.project = "proj"
        self.clock = FakeClock()
        self.expected: Counter[str] = Counter()
        self.is_lost = False  # the group, and not what the sink has of it
        self.continued: dict[int, int] = {}  # as the last worker reports it
        self.begin_service()

    def begin_service(self) -> None:
        """With the project, the logstore and the group, which exist nowhere else."""
        self.clock.now += 100
        self.client = MemoryServer(self.clock).client(self.project)
        self.client.create_project()
        self.begin_logstore()

    def begin_logstore(self) -> None:
        self.client.create_logstore(LOGSTORE, shards=1)
        self.begin_group()

    def begin_group(self, name: str = "g") -> None:
        self.client.create_group(LOGSTORE, GroupInfo(name=name, timeout_s=30, order=False))

    def lose_group(self) -> None:
        self.client.delete_group(LOGSTORE, "g")
        self.begin_group()
        self.is_lost = True

    def put(self, log_groups: int) -> None:
        for _ in range(log_groups):
            self.client.put_logs(LOGSTORE, GROUP)

    def cursor(self, position: Position) -> int:
        return decode(self.client.get_cursor(LOGSTORE, 0, position))

    def lines(self, begin: int, end: int) -> list[str]:
        """Of the log groups with these numbers."""
        (shard,) = self.client.list_shards(LOGSTORE)
        first = self.cursor("begin")
        return [f"{self.project}/{shard.created_unix_s}/{n}" for n in range(first + begin, first + end)]

    def expect(self, begin: int, end: int) -> None:
        """The sink has these log groups once more."""
        self.expected.update(self.lines(begin, end))

    def move(self, log_group: int, *, by: str = "") -> None:
        self.is_lost = False
        cursor = encode(self.cursor("begin") + log_group)
        self.client.update_checkpoint(LOGSTORE, "g", shard=0, cursor=cursor, consumer=by, force=True)

    def run(self, group: str = "g", *, saves: bool = True) -> None:
        """A worker; one that does not save ends after its first batch."""
        self.workers += 1
        worker = f"w-{self.workers}"
        sink = self.place.open((self.project, LOGSTORE, group), worker)
        identity = ConsumerIdentity(logstore=LOGSTORE, group=group, consumer=worker)
        config = worker_config("http://x", ParquetSink(path="/x"), start_position=self.start)
        client: Any = self.client
        client.has_extensions = lambda: not self.is_sls

        def save(position: int) -> None:
            self.client.update_checkpoint(
                LOGSTORE, group, shard=0, cursor=encode(position), consumer=worker, force=True
            )

        opening = ShardOpening(client, sink, identity, config=config)
        position = opening.open(0, confirm=lambda: None, save=save)
        self.continued = opening.continued
        while position < self.cursor("end"):
            part = Range(0, position, min(position + self.batch, self.cursor("end")))
            name = f"{worker}-{self.workers}x{part.begin}"
            first = self.cursor("begin")
            self.place.write(sink, name, self.lines(part.begin - first, part.end - first))
            sink.publish(name, (part,), lambda: True)
            position = part.end
            if not saves:
                return
            save(position)
            sink.acknowledge(0, position)
