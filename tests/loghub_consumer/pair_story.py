"""What happens in a row of `tests.loghub_consumer.test_pairs`, and what must hold in the end."""

import json
from collections import Counter
from collections.abc import Awaitable, Callable
from contextlib import suppress
from dataclasses import dataclass, field, replace
from pathlib import Path
from typing import Any

from loghub.contract.processor import retry_group
from loghub.wire.cursor import decode
from loghub_consumer import (
    Consumer,
    DeadLetterFolder,
    DeadLetterLogstore,
    LogBatch,
    MultiLogstoreConsumer,
    OnFailure,
    Processor,
    ReceivedLog,
    ReceivedLogGroup,
    RetryLogstore,
    ShardLostError,
    Tracker,
    UnavailableError,
    fan_out,
)
from loghub_consumer.processor import ProcessorFactory
from loghub_consumer.unacknowledged import ENTRY_BYTES
from tests.loghub_consumer.covering import Row
from tests.loghub_consumer.virtual import GROUP, MAX_S, PROJECT, AnyConsumer, Program, Save, World
from tests.loghub_consumer.virtual_worker import DirectPool, in_worker

SECOND_S = 5.0  # when something happens
OUTAGE_S = 12.0
HEALED_S = 30.0  # from then on no log is bad, if the policy does not settle any
LOGSTORES = {"one logstore": ("access",), "several": ("access", "billing")}
BUFFERED_BYTES, BATCH_BYTES = 20_000, 4000
SHARDS = 2
FLUSH, FLUSH_S = "flush", 5.0  # a log at which processors save that save later, and how often it comes


@dataclass
class Story:
    """What happens in a row, and what has become of the logs."""

    world: World
    row: Row
    folder: Path
    good: Counter[str] = field(default_factory=Counter)
    bad: Counter[str] = field(default_factory=Counter)
    companions: set[str] = field(default_factory=set)  # of bad logs in their log groups
    done: Counter[str] = field(default_factory=Counter)
    is_away: bool = False
    is_healed: bool = False
    programs: list[Program] = field(default_factory=list)
    pools: list[DirectPool] = field(default_factory=list)
    places: dict[tuple[str, int, int], list[str]] = field(default_factory=dict)  # of groups that are good
    saves_seen: int = 0

    def put(self) -> None:
        for logstore in LOGSTORES[self.row["source"]]:
            self.world.make_logstore(logstore, shards=SHARDS)
            for shard in range(SHARDS):
                name = f"{logstore}-{shard}"
                for number, kinds in enumerate(("ggg", "gbg", "b", "gg", "gttg", "g", "bgb", "gggg")):
                    ids = [
                        f"{name}-twin" if kind == "t" else f"{name}-{number}-{index}"
                        for index, kind in enumerate(kinds)
                    ]
                    bad = [one for one, kind in zip(ids, kinds, strict=True) if kind != "g"]
                    good = [one for one in ids if one not in bad]
                    self.bad.update(bad)
                    self.good.update(good)
                    if bad:
                        self.companions.update(good)
                    cursor = self.world.put(logstore, ids, shard=shard)
                    if not bad:
                        self.places[logstore, shard, cursor] = good

    def check_save(self, save: Save) -> None:
        """What a checkpoint passes is done."""
        logstore, _, shard = save.of
        passed = [
            name
            for (of, number, cursor), names in self.places.items()
            if (of, number) == (logstore, shard) and cursor < save.cursor
            for name in names
        ]
        left = [name for name in passed if not self.done[name]]
        self.world.check(not left, f"the checkpoint passes {left}, which were never processed")

    # -- what the user's code does

    def look_at(self, name: str) -> bool:
        """Whether this log is good now."""
        if self.is_away:
            raise UnavailableError("what the processor writes to is away")
        if self.row["event"] == "slow" and name.endswith(("0-0", "3-1")):
            self.world.sleep(10.0)
        if self.row["event"] in ("move", "kill"):
            self.world.sleep(0.3)
        return self.is_healed or name not in self.bad

    def handle(self, log: ReceivedLog, _: ReceivedLogGroup) -> None:
        name = str(log.get("id"))
        if not self.look_at(name) and self.row["says"] == "raise":
            raise ValueError(f"{name} is bad")
        self.done[name] += 1

    def key(self, log: ReceivedLog, _: ReceivedLogGroup) -> str:
        name = str(log.get("id"))
        if name in self.bad and not self.is_healed and self.row["says"] == "nack":
            raise LookupError(name)
        return name

    def process(self, logs: LogBatch, tracker: Tracker, kept: list[str]) -> None:
        """`kept` are logs that are not written yet."""
        self.check_memory()
        names: list[str] = []
        saves = self.row["saves"] == "each time"
        by_log = self.row["acknowledge"] == "log"
        for group in logs.groups:
            is_further = logs.delivery == 1 and decode(group.cursor) > decode(tracker.get())
            if saves and not by_log and self.row["says"] == "raise" and is_further:
                self.done.update(names)
                names.clear()
                tracker.save(cursor=group.cursor)  # what is before is done, also if this one fails
            is_good = True
            for log in group.logs:
                name = str(log.get("id"))
                if not self.look_at(name):
                    is_good = False
                    self.refuse(log, tracker)
                elif by_log and self.row["acks"] == "logs":
                    self.done.update([name])
                    tracker.ack(log)
                else:
                    names.append(name)
            if by_log and self.row["acks"] == "log groups":
                self.acknowledge(group, names, tracker, is_good=is_good)
                names.clear()
        kept += names
        if saves or FLUSH in names:
            self.done.update(kept)
            kept.clear()
            if not by_log:
                tracker.save()

    def acknowledge(
        self, group: ReceivedLogGroup, names: list[str], tracker: Tracker, *, is_good: bool
    ) -> None:
        """The log group, or its good logs."""
        self.done.update(names)
        if is_good:
            tracker.ack(group)
        for log in () if is_good else group.logs:
            if str(log.get("id")) in names:
                tracker.ack(log)

    def refuse(self, log: ReceivedLog, tracker: Tracker) -> None:
        match self.row["says"]:
            case "raise":
                raise ValueError(f"{log.get('id')} is bad")
            case "nack":
                tracker.nack(log, reason=f"refused at {self.world.clock.now_s}")
            case "reject":
                tracker.reject(log, reason=f"rejected at {self.world.clock.now_s}")

    def check_memory(self) -> None:
        for program in self.programs:
            entries = [entry for table in tables_of(program.consumer) for entry in table._entries.values()]
            for unacknowledged in (entry.unacknowledged for entry in entries):
                kept = {id(one.raw): len(one.raw) for *_, one in unacknowledged._due}
                self.world.check(sum(kept.values()) <= unacknowledged.bytes, "bytes that do not count")
            used = sum(entry.state.used_bytes for entry in entries)
            parts = sum(entry.unacknowledged._parts for entry in entries)
            maximum = BUFFERED_BYTES + len(entries) * BATCH_BYTES + parts * ENTRY_BYTES
            self.world.check(used <= maximum, f"{used} bytes are in use, of {maximum}")

    # -- the consumers

    def factory(self) -> ProcessorFactory:
        story = self

        class Sync(Processor):
            def __init__(self) -> None:
                self.kept: list[str] = []

            def shutdown(self, tracker: Tracker) -> None:
                story.done.update(self.kept)
                with suppress(ShardLostError):
                    tracker.save()

            def process(self, logs: LogBatch, tracker: Tracker) -> None:
                story.process(logs, tracker, self.kept)

        class Async(Sync):
            async def process(self, logs: LogBatch, tracker: Tracker) -> None:  # type: ignore[override]
                story.process(logs, tracker, self.kept)

        async def handle(log: ReceivedLog, group: ReceivedLogGroup) -> None:
            self.handle(log, group)

        is_async = self.row["processor"] == "async"
        if self.row["fan_out"] == "yes":
            how: Callable[..., Awaitable[None] | None] = handle if is_async else self.handle
            return fan_out(how, key=self.key, threads=3, max_attempts=2)
        return Async if is_async else Sync

    @property
    def on_failure(self) -> OnFailure:
        target: Any = None
        if self.row["target"] == "logstore":
            target = DeadLetterLogstore(project=PROJECT, logstore="rejected")
        elif self.row["target"] == "folder":
            target = DeadLetterFolder(path=str(self.folder / "rejected"))
        limits = {"max_attempts": 2, "max_consecutive": 1000, "max_per_hour": 1000}
        return OnFailure(policy=self.row["policy"], dead_letter=target, **limits)  # type: ignore[arg-type]

    def make(self, name: str) -> AnyConsumer:
        row = self.row
        settings = self.world.settings(
            "access",
            consumer=name,
            acknowledge=row["acknowledge"],
            ack_timeout_s=3.0 if row["ack_timeout"] == "yes" else None,
            retry=RetryLogstore(logstore="waiting", delays_s=(2.0, 4.0)) if row["waits"] == "yes" else None,
            on_failure=self.on_failure,
            redelivery_delay_s=0.5,
            max_redelivery_delay_s=4.0,
            max_buffered_bytes=BUFFERED_BYTES,
            max_bytes=BATCH_BYTES,
        )
        factory = self.factory()
        if row["source"] == "several":
            several = replace(settings, logstore="")
            return MultiLogstoreConsumer(several, lambda _: factory, LOGSTORES["several"])
        if row["place"] == "program":
            return Consumer(settings, factory)
        folder = self.folder / name if row["place"] == "worker" else None
        self.pools.append(DirectPool(factory))
        return in_worker(settings, factory, folder, self.world.clock, pool=self.pools[-1])

    def start(self, name: str) -> Program:
        program = self.world.start(lambda: self.make(name))
        self.programs.append(program)
        return program

    # -- the course

    def run(self) -> None:
        row, clock = self.row, self.world.clock
        self.put()
        if row["waits"] == "yes":
            self.world.make_logstore("waiting", has_group=False)
        if row["target"] == "logstore" and row["event"] != "target away":
            self.world.make_logstore("rejected", has_group=False)
        self.world.on_save = self.check_save
        self.is_away = row["event"] == "outage"
        begin_s = clock.now_s
        first = self.start("c-0")
        self.world.until(lambda: clock.now_s >= begin_s + SECOND_S, "the event")
        self.happen(first)
        if row["policy"] in ("Retry", "Stop"):
            self.world.until(lambda: clock.now_s >= begin_s + HEALED_S, "the bad logs to be good")
            assert self.settled() == 0
            self.is_healed = True
        if row["saves"] == "each time":
            self.world.until(self.is_over, f"the end of {row}")
            return
        give_up_s = clock.now_s + MAX_S
        while not self.is_over():
            assert clock.now_s < give_up_s, f"an hour of {row}"
            self.flush()

    def flush(self) -> None:
        """Let the processors save."""
        for logstore in LOGSTORES[self.row["source"]]:
            for shard in range(SHARDS):
                self.world.put(logstore, [FLUSH], shard=shard)
        if self.row["waits"] == "yes":
            self.world.put("waiting", [FLUSH])
        self.world.pass_time(FLUSH_S)

    def happen(self, first: Program) -> None:
        event = self.row["event"]
        if event == "outage":
            self.world.pass_time(OUTAGE_S)
            needs_none = self.row["fan_out"] == "yes" and self.row["says"] == "nack"  # the key does not
            assert needs_none or self.settled() == 0, "nothing is settled in an outage"
            self.is_away = False
        elif event == "target away":
            rejected = self.folder / "rejected"
            if self.row["target"] == "folder":
                rejected.rename(self.folder / "elsewhere")
                rejected.touch()
                self.world.pass_time(OUTAGE_S)
                rejected.unlink()
                (self.folder / "elsewhere").rename(rejected)
            else:
                self.world.pass_time(OUTAGE_S)
                self.world.make_logstore("rejected", has_group=False)
        elif event == "move":
            self.start("c-1")
        elif event == "processes":
            first.call(lambda _: [process.replaced() for process in self.pools[0].processes])
            self.pools[0].moves = 3
        elif event == "kill":
            first.kill()
            self.programs.remove(first)
            self.start("c-0")

    def is_over(self) -> bool:
        if self.row["policy"] == "Stop" and self.is_healed:
            for program in self.programs:
                program.call(resume)
        if len(self.world.saves) == self.saves_seen:
            return False
        self.saves_seen = len(self.world.saves)
        places = [(logstore, GROUP) for logstore in LOGSTORES[self.row["source"]]]
        if self.row["waits"] == "yes":
            places.append(("waiting", retry_group(GROUP, "access")))
        return all(self.world.is_saved(logstore, group) for logstore, group in places)

    # -- what became of them

    def settled(self) -> int:
        totals = [program.call(totals_of) for program in self.programs]
        return sum(one.skipped + one.dead_lettered for found in totals for one in found)

    def dead_letters(self) -> Counter[str]:
        if self.row["target"] == "logstore":
            return (
                Counter(self.world.ids("rejected"))
                if self.world.client.logstore_exists("rejected")
                else Counter()
            )
        found = [json.loads(path.read_text()) for path in self.folder.rglob("rejected/**/*.json")]
        contents = [pair for one in found for log in one["logs"] for pair in log["contents"]]
        return Counter(value for name, value in contents if name == "id")

    def check(self) -> None:
        row = self.row
        settles = row["policy"] in ("Skip", "DeadLetter")
        # In order a log group is the least that can fail alone; what waits elsewhere has no order.
        by_group = row["acknowledge"] == "batch" and row["says"] == "raise" and row["waits"] == "no"
        left = set(self.good) - set(self.done) - (self.companions if settles and by_group else set())
        assert not left, "good logs that were never processed"
        if not settles:
            assert not set(self.bad) - set(self.done), "they are good now"
            assert self.settled() == 0
            return
        assert not set(self.bad) & set(self.done)
        expected = self.bad + (Counter(self.companions) if by_group else Counter())
        is_repeated = row["event"] in ("move", "kill", "processes")
        if row["policy"] == "DeadLetter":
            found = self.dead_letters()
            assert set(found) == set(expected)
            assert is_repeated or found == expected
            assert all(found[name] >= count for name, count in self.bad.items())
        elif not is_repeated:
            assert 0 < self.settled() <= self.bad.total()


def tables_of(consumer: Any) -> list[Any]:
    """Of all shards of a consumer."""
    if isinstance(consumer, MultiLogstoreConsumer):
        return [one._table for one in consumer.consumers().values()]
    return [] if consumer is None else [consumer._table]


def consumers_of(consumer: Any) -> list[Consumer]:
    return list(consumer.consumers().values()) if isinstance(consumer, MultiLogstoreConsumer) else [consumer]


def totals_of(consumer: Any) -> list[Any]:
    return [total for one in consumers_of(consumer) for total in one.failure_report().totals.values()]


def resume(consumer: Any) -> bool:
    for one in consumers_of(consumer):
        one.resume()
    return True
