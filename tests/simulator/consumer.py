"""Schedules with programs that use `loghub_consumer.Consumer` in place of workers.

They are the production consumer, with all of its threads (`tests.simulator.threads`). A processor records a
batch and then saves the checkpoint, which is at least once; it may raise or roll back. What must hold:

- Each log group that the service stored is processed at least once, in order within an assignment, and none
  that was acknowledged is lost.
- A checkpoint is never beyond what was processed.
- At most one consumer has a processor for a shard, not counting the assignments of one that the service,
  while it ran, has not heard for the timeout, nor those of one that has ended its own session after so long,
  nor those that were abandoned after the drain timeout.
- In an ordered group, a log group of a child shard is processed only after all of its parents.
- A consumer that ends before the drain timeout has ended all of its processors and given up their shards.

In the end, without faults, what is written to any shard is processed, and consumers that are asked to stop
end soon and leave no log group behind the checkpoints.
"""

from contextlib import suppress
from pathlib import Path

from loghub.client.transport import HttpCall
from loghub.wire.cursor import decode as decode_cursor
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import LogHubException
from loghub_consumer import Consumer, ConsumerSettings, Listener, LogBatch, ShardLostError, Tracker
from loghub_consumer.membership.membership import MemberState, ShardPhase
from loghub_consumer.processor import TrackedProcessor
from tests.simulator.faults import Fault
from tests.simulator.library import TOLERANCE_S
from tests.simulator.network import KEY, connect
from tests.simulator.program import Program, ThreadedNetwork, replaced
from tests.simulator.service import PROJECT
from tests.simulator.simulation import END_ROUNDS, NAMES, Simulation
from tests.simulator.threads import SimThread, Threads
from tests.simulator.worker import GROUP, INTERVAL_S, LOGSTORE, TIMEOUT_S, id_of

TURNS = 24  # of threads, at most, in an event
END_TURNS = 1000  # in a part of a second, at most
LAST_LOG_GROUPS = 12
DRAIN_ROUNDS = 60
COMMITS_S = 5.0


class SimProcessor(TrackedProcessor):
    """Of one assignment; `first` and `following` are where it begins and continues."""

    def __init__(self, simulation: "ConsumerSimulation", program: Program) -> None:
        self._simulation = simulation
        self.program = program
        self.epoch = self.first = self.following = -1
        self._fails_until_s = 0.0

    def use(self, tracker: Tracker) -> None:
        self.epoch = tracker._epoch  # type: ignore[attr-defined]
        self.first = self.following = decode_cursor(tracker.get())

    def initialize(self, shard: int) -> None:
        self._simulation.may_raise(0.1)
        self._simulation.begun(self, shard)

    def process(self, logs: LogBatch, tracker: Tracker) -> str | None:
        simulation = self._simulation
        simulation.check(
            logs.begin == self.following,
            f"shard {logs.shard} continued at cursor {logs.begin} instead of {self.following}",
        )
        self.following = logs.begin  # if it raises
        simulation.linger()
        self._fail_for_a_while()
        simulation.processed(logs)
        self._save(tracker)
        simulation.linger()
        simulation.may_raise(0.05)
        to = simulation.roll_back_to(self.first, logs.begin)
        self.following = logs.end if to is None else to
        return None if to is None else encode_cursor(to)

    def _fail_for_a_while(self) -> None:
        simulation = self._simulation
        if simulation.clock.now_s < self._fails_until_s:
            simulation.may_raise(1.0)
        elif simulation.dice.random.random() < 0.1:
            self._fails_until_s = simulation.clock.now_s + simulation.dice.random.choice((0.0, 8.0))
            simulation.may_raise(1.0)

    def _save(self, tracker: Tracker) -> None:
        chance = self._simulation.dice.random.random()
        if chance < 0.6:
            tracker.save()
        elif chance < 0.8:
            tracker.save(persist=False)

    def shutdown(self, tracker: Tracker) -> None:
        with suppress(ShardLostError, LogHubException):
            tracker.save()
        self.close()

    def close(self) -> None:
        self._simulation.ended(self)


class CommittingListener(Listener):
    """Saves what was processed when shards are taken away, as the documents recommend."""

    def __init__(self, simulation: "ConsumerSimulation", program: Program) -> None:
        self._simulation = simulation
        self._program = program

    def on_assigned(self, shards: tuple[int, ...]) -> None:
        self._simulation.linger()

    def on_revoked(self, shards: tuple[int, ...]) -> None:
        self._simulation.linger()
        assert self._program.consumer is not None
        with suppress(ShardLostError, LogHubException):
            self._program.consumer.commit()


class ConsumerSimulation(Simulation):
    """A schedule without workers."""

    def __init__(self, seed: int, folder: Path) -> None:
        super().__init__(seed, folder)
        has_polls = self.network.has_polls
        self.threads = Threads(self.clock, self.dice)
        self.network = ThreadedNetwork(
            self.service, self.dice, on_call=self._in_request, on_done=self._done, late_heartbeats=False
        )
        self.network.threads = self.threads
        self.network.has_polls = has_polls
        self._admin, self._producer = connect(self.network, ""), connect(self.network, "")
        self.service.on_start = self._everyone_heard
        self.programs: dict[str, Program] = {}
        self._processors: dict[int, list[SimProcessor]] = {}
        self._heard_s = dict.fromkeys(NAMES, 0.0)

    def run(self) -> None:
        with replaced(self.network):
            try:
                super().run()
            finally:
                for program in self.programs.values():
                    self.threads.kill(program)

    # -- the network

    def _in_request(self, sender: str) -> None:
        if sender and self.dice.happens(Fault.INTERLEAVED):
            self.threads.sleep(0.0)

    def _done(self, sender: str, call: HttpCall) -> None:
        if sender and call.query.get("type") == "heartbeat":
            self._mark_fenced()
            self._heard_s[sender] = self.service.ran_s
        try:
            self._check_checkpoint(sender, call)
        except AssertionError as error:
            self.check(False, str(error))

    def _everyone_heard(self) -> None:
        """A restarted service gives every consumer a new session."""
        self._mark_fenced()
        self._heard_s = dict.fromkeys(NAMES, self.service.ran_s)

    def _mark_fenced(self) -> None:
        for program in self.programs.values():
            is_silent = self.service.ran_s - self._heard_s[program.name] >= TIMEOUT_S - TOLERANCE_S
            if is_silent or program.has_fenced_itself(self.clock.now_s):
                program.fence()

    # -- what processors do

    def check(self, holds: bool, message: str) -> None:
        """In a thread of a consumer, whose code must not see the error."""
        current = self.threads.current
        is_dead = current is not None and current.process is not None and current.process.is_dead
        if not holds and not is_dead:
            self.threads.failures.append(message)

    def may_raise(self, probability: float) -> None:
        if self.dice.active and self.dice.random.random() < probability:
            self.dice.counts[Fault.PROCESSOR_RAISED] += 1
            raise RuntimeError("simulated")

    def linger(self) -> None:
        """User code takes a while."""
        if self.dice.random.random() < 0.3:
            self.threads.sleep(self.dice.random.choice((0.0, 0.0, 0.5, 1.0, 8.0 * self.dice.active)))

    def roll_back_to(self, first: int, begin: int) -> int | None:
        if not self.dice.active or self.dice.random.random() >= 0.05:
            return None
        self.dice.counts[Fault.ROLLED_BACK] += 1
        return self.dice.random.randint(first, begin) if first < begin else begin

    def begun(self, processor: SimProcessor, shard: int) -> None:
        others = self._processors.setdefault(shard, [])
        if processor in others:
            return
        self._mark_fenced()
        for other in others:
            self.check(
                self._is_fenced(other) or self._is_fenced(processor),
                f"{other.program.name} and {processor.program.name} both work on shard {shard}",
            )
        others.append(processor)

    def _is_fenced(self, processor: SimProcessor) -> bool:
        program = processor.program
        return (
            program.is_dead
            or processor.epoch <= program.fenced_epoch
            or program.has_abandoned(self.clock.now_s)
        )

    def ended(self, processor: SimProcessor) -> None:
        for others in self._processors.values():
            if processor in others:
                others.remove(processor)

    def processed(self, logs: LogBatch) -> None:
        for cursor, raw, _ in logs.raw_groups():
            self.sink[logs.shard, cursor] = id_of(raw)
        if self.order:
            self._learn_stored()
            try:
                self._check_order(logs.shard)
            except AssertionError as error:
                self.check(False, str(error))

    # -- programs

    def _start_program(self, name: str) -> None:
        choose = self.dice.random.choice
        settings = ConsumerSettings(
            endpoint="http://127.0.0.1:1",
            project=PROJECT,
            credentials=KEY,
            logstore=LOGSTORE,
            consumer_group=GROUP,
            consumer=name,
            heartbeat_interval_s=INTERVAL_S,
            fetch_interval_s=1.0,
            checkpoint_interval_s=2.0,
            max_bytes=choose((60, 1000)),
            max_buffered_bytes=choose((200, 10_000)),
            max_pulls=choose((1, 2)),
            drain_timeout_s=choose((6.0, 60.0)),
            leave=choose((True, False)),
        )
        program = self.programs[name] = Program(name, settings=settings)
        self.threads.begin(program, lambda: self._main(program))

    def _main(self, program: Program) -> None:
        program.consumer = consumer = Consumer(
            program.settings,
            lambda: SimProcessor(self, program),
            CommittingListener(self, program),
        )
        commits = SimThread(self.threads, lambda: self._commit_often(consumer), name="commits")
        commits.start()
        try:
            consumer.run()
        except LogHubException:
            if consumer.has_started:
                raise
            program.is_dead = True  # it could not read the group
            return
        self._check_ended(program)
        program.is_dead = True

    def _commit_often(self, consumer: Consumer) -> None:
        """For what processors have not saved: a child waits for the checkpoint at the end of its parent."""
        while True:
            self.threads.sleep(COMMITS_S)
            with suppress(ShardLostError, LogHubException):
                consumer.commit()

    def _check_ended(self, program: Program) -> None:
        assert program.consumer is not None
        self.check(program.asked_s is not None, f"{program.name} ended by itself")
        if program.has_abandoned(self.clock.now_s) or not program.consumer.has_started:
            return
        left = {
            shard
            for shard, processors in self._processors.items()
            for processor in processors
            if processor.program is program
        }
        kept = [one for one in program.consumer._assignment.held() if one.phase is not ShardPhase.DRAINED]
        self.check(not left and not kept, f"{program.name} ended without giving up {left} and {kept}")

    def _remove_dead(self) -> None:
        for name, program in list(self.programs.items()):
            if program.is_dead:
                del self.programs[name]
                for processors in self._processors.values():
                    processors[:] = [one for one in processors if one.program is not program]

    # -- events

    def _step_a_worker(self) -> None:
        name = self.dice.random.choice(NAMES)
        program = self.programs.get(name)
        chance = self.dice.random.random()
        if program is None:
            if chance < 0.5:
                self._start_program(name)
        elif chance < 0.01:
            self._count(Fault.WORKER_CRASHED)
            self.threads.kill(program)
        elif chance < 0.02:
            self._count(Fault.WORKER_PAUSED)
            program.paused_until_s = self.clock.now_s + self.dice.random.uniform(2.0, 30.0)
        elif chance < 0.04:
            self._count(Fault.CONSUMER_STOPPED)
            program.ask_to_stop(self.clock.now_s)
        self._run_threads(turns=self.dice.below(TURNS))

    def _run_threads(self, *, turns: int) -> None:
        """In any order, but heartbeats are delayed less than others."""
        for _ in range(turns):
            self._remove_dead()
            ready = [one for program in self.programs.values() for one in self.threads.ready(program)]
            if not ready:
                return
            heartbeats = [thread for thread in ready if thread.name == "heartbeat"]
            self.threads.run(self.dice.random.choice(heartbeats or ready))
            assert not self.threads.failures, self.threads.failures[0]
        self._remove_dead()

    # -- the end

    def _end(self) -> None:
        for program in self.programs.values():
            program.paused_until_s = 0.0
            self.threads.end_sleeps(program)  # delays that began earlier
        self._await_all()
        for _ in range(LAST_LOG_GROUPS):
            self._put()
        self._await_all()
        self._check_end()
        running = list(self.programs.values())
        for program in running:
            program.ask_to_stop(self.clock.now_s)
        for _ in range(DRAIN_ROUNDS):
            self._second(starts=False)
            if not self.programs:
                break
        assert not self.programs, f"{sorted(self.programs)} did not end"
        self._check_saved()

    def _await_all(self) -> None:
        for _ in range(END_ROUNDS):
            self._second(starts=True)
            self._learn_stored()
            missing = self.stored.keys() - self.sink.keys()
            idle = [held for program in self.programs.values() for held in self._not_worked_on(program)]
            if self.service.engine is not None and not missing and not idle:
                return
        raise AssertionError(f"stored and never processed: {sorted(missing)[:5]}, not worked on: {idle}")

    def _not_worked_on(self, program: Program) -> list[object]:
        """What of its shards is not processed to the end."""
        membership = program.membership
        if membership is None or membership.state is not MemberState.MEMBER:
            return [program.name]
        at = {
            (shard, one.epoch): one.following
            for shard, processors in self._processors.items()
            for one in processors
            if one.program is program
        }
        return [
            held for held in membership.shards if at.get((held.shard, held.epoch)) != self._ends[held.shard]
        ]

    def _second(self, *, starts: bool) -> None:
        if self.service.engine is None:
            self._start_service()
        for name in NAMES if starts else ():
            if name not in self.programs:
                self._start_program(name)
        for _ in range(4):
            self.service.advance(0.25)
            self._run_threads(turns=END_TURNS)

    def _check_saved(self) -> None:
        saved = {one.shard: one.cursor for one in self._admin.get_checkpoints(LOGSTORE, GROUP)}
        for shard in {shard for shard, _ in self.stored}:
            end = encode_cursor(self._ends[shard])
            assert saved.get(shard) == end, f"shard {shard} is saved up to {saved.get(shard)}, not {end}"
