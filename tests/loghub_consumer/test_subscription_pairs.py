"""Each type of subscription with each thing that can happen to its consumers, in virtual time.

Two consumers of production, with all of their threads, consume a logstore in memory whose subscription is the
real core (`tests.fakes.fake_subscriptions`). One invariant holds for every row:

- In the end every log is acknowledged at the log service, and was processed or is in the dead letter.
- No log is processed twice, unless what happened allows it: then only logs that were out at that moment.
- Failover and Exclusive process the logs of a shard, and KeyShared the logs of a key, in their order for the
  first time.
- A log that is refused comes again with a count, and not before its time.
- No log is handed over whose acknowledgment the log service has, unless a lease has ended in between.
"""

from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loghub.contract.processor import retry_group
from loghub.domain.log_position import position_of
from loghub.wire.errors import ExtensionMissing
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub.wire.subscriptions import SubscriptionSpec
from loghub_consumer import (
    Consumer,
    DeadLetterLogstore,
    LogBatch,
    OnFailure,
    Processor,
    ReceivedLog,
    ReceivedLogGroup,
    RetryLogstore,
    SubscriptionOptions,
    SubscriptionType,
    Tracker,
    fan_out,
)
from tests.loghub_consumer.virtual import GROUP, PROJECT, Program, World, world
from tests.loghub_consumer.virtual_worker import DirectPool, in_worker

EVENTS = (
    "ack",
    "ack up to",
    "nack",
    "raise",
    "ack time-out",
    "lost replies",
    "kill",
    "drain",
    "split",
    "pause",
    "pause of what was refused",
    "joins and leaves",
    "silence",
    "suspension",
    "retry logstore",
    "dead letter",
)
PLACES = ("program", "processes", "worker")  # `processes`: a program whose processors run in others
# The rows of `make test`: each event, type and place, and the pairs in which a type decides what happens.
REPRESENTATIVES = (
    (SubscriptionType.SHARED, "nack", "worker"),
    (SubscriptionType.KEY_SHARED, "nack", "program"),
    (SubscriptionType.FAILOVER, "nack", "program"),
    (SubscriptionType.SHARED, "raise", "program"),
    (SubscriptionType.SHARED, "ack time-out", "worker"),
    (SubscriptionType.SHARED, "lost replies", "program"),
    (SubscriptionType.FAILOVER, "lost replies", "worker"),
    (SubscriptionType.SHARED, "kill", "worker"),
    (SubscriptionType.FAILOVER, "kill", "program"),
    (SubscriptionType.KEY_SHARED, "kill", "program"),
    (SubscriptionType.EXCLUSIVE, "kill", "program"),
    (SubscriptionType.SHARED, "drain", "program"),
    (SubscriptionType.KEY_SHARED, "drain", "worker"),
    (SubscriptionType.FAILOVER, "drain", "program"),
    (SubscriptionType.FAILOVER, "split", "program"),
    (SubscriptionType.SHARED, "split", "program"),
    (SubscriptionType.SHARED, "pause", "program"),
    (SubscriptionType.EXCLUSIVE, "pause", "worker"),
    (SubscriptionType.SHARED, "silence", "program"),
    (SubscriptionType.FAILOVER, "silence", "worker"),
    (SubscriptionType.SHARED, "retry logstore", "program"),
    (SubscriptionType.SHARED, "dead letter", "worker"),
    (SubscriptionType.EXCLUSIVE, "dead letter", "program"),
    (SubscriptionType.KEY_SHARED, "ack", "worker"),
    (SubscriptionType.SHARED, "pause of what was refused", "program"),
    (SubscriptionType.FAILOVER, "pause of what was refused", "processes"),
    (SubscriptionType.KEY_SHARED, "joins and leaves", "program"),
    (SubscriptionType.FAILOVER, "joins and leaves", "worker"),
    (SubscriptionType.SHARED, "suspension", "program"),
    (SubscriptionType.FAILOVER, "suspension", "program"),
    (SubscriptionType.KEY_SHARED, "suspension", "worker"),
    (SubscriptionType.KEY_SHARED, "retry logstore", "processes"),
    (SubscriptionType.FAILOVER, "dead letter", "processes"),
    (SubscriptionType.FAILOVER, "ack up to", "worker"),
    (SubscriptionType.EXCLUSIVE, "ack up to", "program"),
    (SubscriptionType.SHARED, "ack up to", "worker"),
)
ROWS = [(kind, event, place) for kind in SubscriptionType for event in EVENTS for place in PLACES]
LOGSTORE, SHARDS, GROUPS = "access", 2, 24
USERS = ("ann", "bob", "eve")
NACK_S, ACK_TIMEOUT_S = 2.0, 3.0
WAITING = RetryLogstore(logstore="waiting", delays_s=(2.0,))
COUNTED = ("delivered", "redelivered", "acknowledged", "refused")
REPEATS = {"kill", "lost replies", "silence", "joins and leaves", "suspension"}  # what was out may come twice
# A consumer has logs that others have acknowledged since its lease, or logs of another logstore.
OVERTAKEN = {"silence", "suspension", "retry logstore"}
JOINS = 6


@dataclass
class Story:
    """One row. ``seen`` has each delivery in order: time, shard, name, number of deliveries."""

    world: World
    kind: SubscriptionType
    event: str
    place: str
    folder: Path
    done: Counter[str] = field(default_factory=Counter)
    seen: list[tuple[float, int, str, int]] = field(default_factory=list)
    sent: list[str] = field(default_factory=list)
    programs: list[Program] = field(default_factory=list)
    killed: set[str] = field(default_factory=set)
    begun: dict[int, int] = field(default_factory=dict)  # the first cursor of each shard that came

    def put(self, count: int, shard: int) -> None:
        for _ in range(count):
            number = len(self.sent)
            names = [f"{number + index}-{USERS[(number + index) % 3]}" for index in range(1 + number % 3)]
            self.sent += names
            key = next(one.begin_key for one in self.world.client.list_shards(LOGSTORE) if one.shard == shard)
            logs = tuple(
                Log(time=1_700_000_000, contents=(("id", name), ("user", name.split("-")[1])))
                for name in names
            )
            self.world.client.put_logs(LOGSTORE, encode(LogGroup(logs=logs)), hash_key=key)

    # -- what the user's code does

    def is_bad(self, name: str) -> bool:
        return int(name.split("-")[0]) % 7 == 3

    def process(self, logs: LogBatch, tracker: Tracker) -> None:
        now = self.world.clock.now_s
        names = [(log, str(log.get("id"))) for group in logs.groups for log in group.logs]
        self.seen += [(now, logs.shard, name, logs.delivery) for _, name in names]
        if self.event not in OVERTAKEN:
            again = [place for place in logs.places() if self.is_acked(logs.shard, place.cursor)]
            self.world.check(not again, f"acknowledged before, and handed over again: {again}")
        self.world.sleep(0.02 * len(names))
        for log, name in names:
            if self.is_bad(name) and self._refuses(log, logs, tracker):
                continue
            self.done[name] += 1
            if self.event != "ack up to" or self._is_refused_up_to(log, logs, tracker):
                tracker.ack(log)

    def _is_refused_up_to(self, log: ReceivedLog, logs: LogBatch, tracker: Tracker) -> bool:
        """The second batch of a shard acknowledges the first one as well, and each later one itself."""
        is_first = self.begun.setdefault(logs.shard, logs.begin) == logs.begin
        if not self.kind.is_ordered:
            with pytest.raises(ValueError, match="acknowledge each log with"):
                tracker.ack_up_to(log)
        elif not is_first:
            tracker.ack_up_to(log)
        return not self.kind.is_ordered

    def _refuses(self, log: object, logs: LogBatch, tracker: Tracker) -> bool:
        match self.event:
            case "nack" | "pause of what was refused" if logs.delivery == 1:
                tracker.nack(log, delay_s=NACK_S)  # type: ignore[arg-type]
                return True
            case "ack time-out" if logs.delivery == 1:
                return True
            case "raise" if logs.delivery < 3:
                raise ValueError("bad")
            case "retry logstore" | "dead letter":
                tracker.nack(log, reason="bad")  # type: ignore[arg-type]
                return True
        return False

    def factory(self) -> type[Processor]:
        story = self

        class Recording(Processor):
            def process(self, logs: LogBatch, tracker: Tracker) -> None:
                story.process(logs, tracker)

        return Recording

    # -- the consumers

    def make(self, name: str) -> Consumer:
        policy = OnFailure()
        if self.event in ("retry logstore", "dead letter"):
            dead_letter = DeadLetterLogstore(project=PROJECT, logstore="rejected")
            limits = {"max_attempts": 2, "max_consecutive": 1000, "max_per_hour": 1000}
            policy = OnFailure(policy="DeadLetter", dead_letter=dead_letter, **limits)  # type: ignore[arg-type]
        settings = self.world.settings(
            LOGSTORE,
            consumer=name,
            acknowledge="log",
            subscription=SubscriptionOptions(type=self.kind, key=self.key, prefetch_logs=20),
            create_group=True,
            in_order=True,
            timeout_s=10,
            max_logs=5,
            ack_timeout_s=ACK_TIMEOUT_S if self.event == "ack time-out" else None,
            redelivery_delay_s=0.5,
            on_failure=policy,
            retry=WAITING if self.event == "retry logstore" else None,
        )
        if self.place == "program":
            return Consumer(settings, self.factory())
        pool, state = DirectPool(self.factory()), self.folder / name if self.place == "worker" else None
        return in_worker(settings, self.factory(), state, self.world.clock, pool=pool)

    @property
    def key(self) -> tuple[str, ...]:
        return ("user",) if self.kind is SubscriptionType.KEY_SHARED else ()

    def start(self, name: str) -> Program:
        self.programs.append(self.world.start(lambda: self.make(name), name))
        return self.programs[-1]

    # -- the course

    def run(self) -> None:
        self.world.make_logstore(LOGSTORE, shards=SHARDS, has_group=False)
        self.world.make_logstore("rejected", has_group=False)
        self.world.make_logstore("waiting", has_group=False)
        if self.place == "worker":  # an operator has created it
            spec = SubscriptionSpec(type=self.kind, key=self.key)
            self.world.client.create_subscription(LOGSTORE, GROUP, spec)
        if self.event == "lost replies":
            self.world.loses = lambda _: self.world.dice.random.random() < 0.2
        for name in ("c-0", "c-1"):
            program = self.start(name)
            if (
                name == "c-0" or self.kind is not SubscriptionType.EXCLUSIVE
            ):  # refused until the first has left
                self.world.until(lambda program=program: program.call(has_joined), "the consumer to join")
        for shard in range(SHARDS):
            self.put(GROUPS // SHARDS, shard)
        self.world.until(lambda: self.done.total() > 10, "some logs")
        self.happen()
        self.world.until(self.is_over, f"the end of {self.event}")
        self.world.loses = lambda _: False
        for program in list(self.programs):
            program.end()
            assert program.error is None

    def happen(self) -> None:
        first = self.programs[0]
        match self.event:
            case "kill":
                self.programs.remove(first)
                self.killed.add(first.name)
                first.kill()
                self.start("c-2")
            case "drain":
                self.programs.remove(first)
                first.end()
                if not self.kind.is_ordered:  # a new one takes shards of others while these have batches
                    self.start("c-2")
            case "split":
                self.world.client.split_shard(LOGSTORE, 0)
                self.put(10, 2)
                self.put(10, 3)
            case "pause":
                self.pause(first)
            case "pause of what was refused":
                self.pause_refused()
            case "joins and leaves":
                self.come_and_go()
            case "suspension":
                first.is_suspended = True
                self.put(10, 1)
                self.world.pass_time(15.0)  # its lease is over, and others have its logs
                first.is_suspended = False
            case "silence":
                self.world.server.unreachable = True
                self.world.pass_time(12.0)
                self.world.server.unreachable = False

    def pause(self, first: Program) -> None:
        """One shard is paused everywhere: the other one is processed to its end."""
        for program in self.programs:
            program.call(lambda consumer: [consumer.pause((n,)) for n in consumer.assignment() if n == 0])
        self.world.until(lambda: self.open_logs(1) == 0, "the end of the other shard")
        assert self.open_logs(0) > 0, "nothing is handed over of a paused shard"
        for program in self.programs:
            program.call(lambda consumer: consumer.resume())

    def pause_refused(self) -> None:
        """Nothing is handed over, though the time of what was refused has come."""
        for program in self.programs:
            program.call(lambda consumer: consumer.pause())
        self.world.pass_time(1.0)  # running batches end
        before = len(self.seen)
        assert any(delivery == 1 and self.is_bad(name) for _, _, name, delivery in self.seen)
        self.world.pass_time(2 * NACK_S)
        assert len(self.seen) == before
        for program in self.programs:
            program.call(lambda consumer: consumer.resume())

    def come_and_go(self) -> None:
        """One joins after the other, and leaves in order or is killed, while logs are written."""
        for number in range(JOINS):
            self.start(f"c-{number + 2}")
            self.put(4, number % SHARDS)
            self.world.pass_time(1.0)
            gone = self.programs.pop(0)
            if number % 2:
                self.killed.add(gone.name)
                gone.kill()
            else:
                gone.end()

    @property
    def cursors(self) -> dict[int, object]:
        subscriptions = self.world.server.subscriptions
        assert subscriptions is not None
        return dict(subscriptions[PROJECT, LOGSTORE][GROUP].core.shards)

    def is_acked(self, shard: int, cursor: int) -> bool:
        """Whether the log service knows a whole log group as acknowledged."""
        subscriptions = self.world.server.subscriptions
        assert subscriptions is not None
        one = subscriptions[PROJECT, LOGSTORE][GROUP]
        ordinal = cursor - one.store.data[shard].first_cursor
        first = position_of(ordinal)
        return one.core.shards[shard].acked.covers(first, first + one.store.data[shard].logs[ordinal])

    def open_logs(self, shard: int) -> int:
        subscriptions = self.world.server.subscriptions
        assert subscriptions is not None
        one = subscriptions[PROJECT, LOGSTORE][GROUP]
        acked = one.core.shards[shard].acked
        logs = one.store.data[shard].logs
        return sum(
            (ordinal << 17) + index not in acked
            for ordinal, count in enumerate(logs)
            for index in range(count)
        )

    def is_over(self) -> bool:
        is_acknowledged = all(not self.open_logs(shard) for shard in self.cursors)
        if self.event == "retry logstore":
            saved = (
                self.world.is_saved("waiting", retry_group(GROUP, LOGSTORE, is_subscription=True))
                if self.waits()
                else False
            )
            return is_acknowledged and saved
        return is_acknowledged

    def waits(self) -> bool:
        return any(
            one.name == retry_group(GROUP, LOGSTORE, is_subscription=True)
            for one in self.world.client.list_groups("waiting")
        )

    # -- what became of the logs

    def check(self) -> None:
        subscriptions = self.world.server.subscriptions
        assert subscriptions is not None
        members = subscriptions[PROJECT, LOGSTORE][GROUP].members
        assert {one.consumer for one in members.values()} <= self.killed, "all others have left"
        rejected = Counter(self.world.ids("rejected"))
        settles = self.event in ("retry logstore", "dead letter")
        bad = {name for name in self.sent if self.is_bad(name)} if settles else set()
        assert set(self.done) == set(self.sent) - bad
        assert set(rejected) == bad
        if self.event not in REPEATS:
            assert set(self.done.values()) == {1}
            assert set(rejected.values()) <= {1}
        self.check_counts()
        if self.event not in ("silence", "lost replies"):
            self.check_order()

    def check_counts(self) -> None:
        """A log that is refused comes again with a count."""
        if self.event not in ("nack", "ack time-out", "pause of what was refused"):
            return
        bad, sent = sum(map(self.is_bad, self.sent)), len(self.sent)
        counts = [program.consumer.delivery_counts() for program in self.programs]
        found = [sum(getattr(one, name) for one in counts) for name in COUNTED]
        is_local = self.kind.is_ordered  # the active consumer keeps what it refuses
        assert found == ([sent, 0, sent, 0] if is_local else [sent + bad, bad, sent, bad])
        delay_s = ACK_TIMEOUT_S if self.event == "ack time-out" else NACK_S
        for name in filter(self.is_bad, self.sent):
            times = [(at_s, delivery) for at_s, _, of, delivery in self.seen if of == name]
            assert [delivery for _, delivery in times] == [1, 2], name
            assert times[1][0] - times[0][0] >= delay_s - 0.001, "not before its time"

    def check_order(self) -> None:
        """Logs come for the first time in their order."""
        if self.kind is SubscriptionType.SHARED:
            return
        by_line: dict[tuple[int, str], list[int]] = {}
        for _, shard, name, _ in self.seen:
            number, user = name.split("-")
            line = (shard, user if self.kind is SubscriptionType.KEY_SHARED else "")
            if int(number) not in by_line.setdefault(line, []):
                by_line[line].append(int(number))
        assert all(numbers == sorted(numbers) for numbers in by_line.values())


def has_joined(consumer: Consumer) -> bool:
    return consumer.has_started and consumer._assignment.has_joined


def tell(kind: SubscriptionType, event: str, place: str, folder: Path, *, seed: int) -> None:
    with world(seed) as one:
        story = Story(one, kind, event, place, folder)
        story.run()
        story.check()


@pytest.mark.parametrize(("kind", "event", "place"), REPRESENTATIVES)
def test_each_log_is_acknowledged_once_or_comes_again(
    kind: SubscriptionType, event: str, place: str, tmp_path: Path
) -> None:
    tell(kind, event, place, tmp_path, seed=1)


@pytest.mark.deep
@pytest.mark.parametrize(("kind", "event", "place"), ROWS)
def test_each_pair_of_a_type_and_an_event(
    kind: SubscriptionType, event: str, place: str, tmp_path: Path
) -> None:
    for seed in range(10):
        tell(kind, event, place, tmp_path / str(seed), seed=seed)


def test_the_representatives_have_each_type_event_and_place() -> None:
    assert {row[0] for row in REPRESENTATIVES} == set(SubscriptionType)
    assert {row[1] for row in REPRESENTATIVES} == set(EVENTS)
    assert {row[2] for row in REPRESENTATIVES} == set(PLACES)
    assert set(REPRESENTATIVES) <= set(ROWS)


def test_a_service_without_subscriptions_is_an_error_in_words(tmp_path: Path) -> None:
    with world() as one:
        one.server.subscriptions = None
        one.make_logstore(LOGSTORE, has_group=False)
        how = SubscriptionOptions(type=SubscriptionType.SHARED)
        settings = one.settings(LOGSTORE, acknowledge="log", subscription=how, create_group=True)
        program = one.start(lambda: Consumer(settings, Processor))
        one.until(lambda: program.has_ended, "the end")
        assert isinstance(program.error, ExtensionMissing)
        assert "leave out subscription" in str(program.error)
        pool = DirectPool(Processor)
        worker = one.start(lambda: in_worker(settings, Processor, tmp_path, one.clock, pool=pool))
        one.until(lambda: bool(worker.call(lambda consumer: consumer.errors())), "the error")
        (error,) = worker.call(lambda consumer: consumer.errors())
        assert (error.reason, "use fan_out" in error.message) == ("SubscriptionUnsupported", True)
        worker.end()


def test_the_threads_of_fan_out_acknowledge_logs_of_a_subscription() -> None:
    with world() as one:
        one.make_logstore(LOGSTORE, has_group=False)
        handled = Counter[str]()
        how = SubscriptionOptions(type=SubscriptionType.SHARED)
        settings = one.settings(LOGSTORE, acknowledge="log", subscription=how, create_group=True)

        def handle(log: ReceivedLog, _: ReceivedLogGroup) -> None:
            handled[str(log.get("id"))] += 1

        ids = [f"{number}-{USERS[number % 3]}" for number in range(30)]
        for number in range(0, 30, 3):
            one.put(LOGSTORE, ids[number : number + 3])
        factory = fan_out(handle, key=lambda log, _: str(log.get("id"))[-3:], threads=3)
        program = one.start(lambda: Consumer(settings, factory))
        subscriptions = one.server.subscriptions
        assert subscriptions is not None

        def open_logs() -> int:
            found = subscriptions.get((PROJECT, LOGSTORE), {}).get(GROUP)
            return 1 if found is None else found.core.shards[0].end - found.core.shards[0].acked.mark

        one.until(lambda: open_logs() == 0, "all logs to be acknowledged")
        program.end()
        assert handled == Counter(ids)
