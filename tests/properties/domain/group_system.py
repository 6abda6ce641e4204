"""A group, its consumers and the network between them, small enough to search all orders of events.

Consumers are of two kinds. One that *fences* (our worker) drops its shards before the service would expel it,
measured from the sending of its last good heartbeat. One that does not (the vendor's Java, Go and Python
libraries) drops them only one interval after the timeout, measured from the last answer it received, and in
the meantime goes on working on shards that the service has given to another consumer.

Time is counted in units; the timeout is two of them and the interval one. The service may be paused, while
the consumers' clocks run on. Each consumer has at most one heartbeat on its way, and waits for its answer or
abandons it; an abandoned heartbeat, and a copy of any other, may arrive later, and any number of times.

What must hold, whatever the order of events (`tests.properties.domain.system.check_exclusive`):

    At most one consumer works on a shard, not counting those that lost it.

A consumer *lost* the shards that it works on, or that an answer on its way to it names,

- when the service, *while it was running*, has received no heartbeat of it for the timeout. Time for which
  the service was paused or down does not count. This is the silence of the holder itself.
- when a heartbeat arrives that it sent before it received the answer with these shards, and which therefore
  does not report them (an abandoned heartbeat that was overtaken, or a copy). The protocol has no sequence
  numbers, so the service takes it for a release (docs/decisions/domain.md).

A shard stops being lost when an answer of the service names it again. Besides, the service's count of the
silence is exactly that of `Client.quiet`, which is kept apart from it, and only consumers that were silent
for the timeout are expelled.
"""

from collections.abc import Iterator
from dataclasses import dataclass
from dataclasses import replace as replaced

from loghub.domain.group import (
    Configure,
    Event,
    Heartbeat,
    Leave,
    LogShard,
    RefusalCode,
    SaveCheckpoint,
    Tick,
)
from tests.properties.domain.numbered_group import TIMEOUT, NumberedGroup, bits, shards_of
from tests.properties.domain.system import NOT_ANSWERED, Client, Sent, System, check_exclusive

INTERVAL = 1
MAX_PAUSE = TIMEOUT
END = 5


@dataclass(frozen=True, kw_only=True)
class Setup:
    """Which consumers there are and what may happen. Names in ``fencing`` are those of our workers."""

    names: str
    fencing: str = ""
    shards: int = 1
    read_only: int = 0  # so many of the shards, the first ones, were split before the group existed
    order: bool = False
    max_shards: int = 3
    late_heartbeats: bool = True
    excuse_overtaken: bool = True  # whether shards may be lost by a heartbeat that was overtaken


class GroupModel:
    """All systems that a setup can lead to."""

    def __init__(self, setup: Setup, group: NumberedGroup | None = None) -> None:
        self.setup = setup
        self.group = NumberedGroup() if group is None else group
        self._fences = tuple(name in setup.fencing for name in setup.names)
        self._settled: set[tuple[int, tuple[int, ...]]] = set()
        self._heartbeats: dict[tuple[int, int], Heartbeat] = {}

    def starts(self) -> list[System]:
        """No consumer has joined; all but the last work on their shards, and it joins; all work on theirs.
        In the latter two, a copy of a heartbeat is still on its way: one of an earlier process of the last
        consumer, and one that the first has sent before it gave up shards."""
        log_shards = tuple(
            LogShard(shard=shard, end_cursor=END if shard < self.setup.read_only else None)
            for shard in range(self.setup.shards)
        )
        number = self.group.create(log_shards, order=self.setup.order)
        empty = System(number, tuple(Client() for _ in self.setup.names), self.setup.shards)
        last = len(self.setup.names) - 1
        before = self._all_work(empty, range(last))
        joining = self._heartbeat(before, last)
        working = self._all_work(joining, range(last + 1))
        if self.setup.late_heartbeats:
            late = before.clients[0].works_on
            joining = _put(joining, last, joining.clients[last]._replace(late=late))
            working = _put(working, 0, working.clients[0]._replace(late=late))
        return [empty, joining, working]

    def _all_work(self, system: System, clients: range) -> System:
        for _ in range(3):
            for i in clients:
                system = self._finish(self._heartbeat(system, i), i)
        return system

    def successors(self, system: System) -> Iterator[tuple[str, System]]:
        """A description of each event that may come next, with the system after it."""
        for i, name in enumerate(self.setup.names):
            yield from self._of_client(system, i, name)
        if system.paused:
            yield "the service runs again", self._resume(system)
        else:
            yield from self._of_service(system)
            yield from self._checkpoints(system)
            yield from self._reshards(system)
            self._check_refusals(system)
        if system.paused < MAX_PAUSE:
            yield "time passes without the service", self._pass_time(system, paused=system.paused + 1)

    # -- consumers and the network

    def _of_client(self, system: System, i: int, name: str) -> Iterator[tuple[str, System]]:
        client = system.clients[i]
        sent = client.sent
        if sent is None:
            yield f"{name} heartbeat and answer", self._heartbeat(system, i)
            if self.setup.late_heartbeats:
                yield f"{name} sends", _put(system, i, client._replace(sent=Sent(client.works_on, 0)))
        else:
            yield f"{name} abandons", _put(system, i, client._replace(sent=None, late=sent.held))
            if sent.answer == NOT_ANSWERED:
                yield f"heartbeat of {name} arrives", self._arrive(system, i)
            else:
                received = self._receive(system, i)
                yield f"answer to {name} arrives", received
                copied = received.clients[i]._replace(late=sent.held)
                yield f"answer to {name} arrives, a copy is late", _put(received, i, copied)
        if client.late != NOT_ANSWERED:
            yield f"late heartbeat of {name} arrives", self._arrive_late(system, i)
        if client.works_on & ~client.assigned:
            yield f"{name} finishes", self._finish(system, i)
        if client.works_on or client.assigned or sent:
            yield f"{name} crashes", self._crash(system, i)

    def _heard(self, system: System, i: int, held: int) -> tuple[int, int]:
        event = self._heartbeats.get((i, held))
        if event is None:
            event = Heartbeat(consumer=self.setup.names[i], held=frozenset(shards_of(held)))
            self._heartbeats[i, held] = event
        done = self.group.step(system.group, event)
        return done.state, done.answer if done.refusal is None else NOT_ANSWERED

    def _heartbeat(self, system: System, i: int) -> System:
        client = system.clients[i]
        sent = _put(system, i, client._replace(sent=Sent(client.works_on, 0)))
        return self._receive(self._arrive(sent, i), i)

    def _arrive(self, system: System, i: int) -> System:
        client = system.clients[i]
        assert client.sent is not None
        assert not client.works_on & ~client.sent.held
        number, answer = self._heard(system, i, client.sent.held)
        if answer == NOT_ANSWERED:
            return self._refuse(system, i)
        sent = client.sent._replace(answer=answer)
        heard = client._replace(quiet=0, lost=client.lost & ~answer, sent=sent)
        return _put(system, i, heard)._replace(group=number)

    def _refuse(self, system: System, i: int) -> System:
        """The group has forgotten this consumer. Only one that fences gives its shards up because of it."""
        if self._fences[i]:
            return self._crash(system, i)
        return _put(system, i, system.clients[i]._replace(sent=None))

    def _arrive_late(self, system: System, i: int) -> System:
        """The answer goes nowhere: its consumer no longer waits for it."""
        client = system.clients[i]
        number, answer = self._heard(system, i, client.late)
        if answer == NOT_ANSWERED:
            return system
        lost, sent = client.lost & ~answer, client.sent
        if self.setup.excuse_overtaken:
            lost |= client.works_on & ~client.late
            if sent is not None and sent.answer != NOT_ANSWERED:
                sent = sent._replace(lost=sent.lost | (sent.answer & ~client.late))
        return _put(system, i, client._replace(quiet=0, lost=lost, sent=sent))._replace(group=number)

    def _receive(self, system: System, i: int) -> System:
        client = system.clients[i]
        sent = client.sent
        if sent is None:
            return system  # it was refused
        if self._fences[i] and sent.age >= TIMEOUT:
            return _put(system, i, client._replace(sent=None))
        received = client._replace(
            works_on=client.works_on | sent.answer,
            assigned=sent.answer,
            age=sent.age if self._fences[i] else 0,
            lost=client.lost | sent.lost,
            sent=None,
        )
        return _put(system, i, received)

    def _finish(self, system: System, i: int) -> System:
        """The consumer finishes the shards that the answer no longer lists."""
        client = system.clients[i]
        works_on = client.works_on & client.assigned
        return _put(system, i, client._replace(works_on=works_on, lost=client.lost & works_on))

    def _crash(self, system: System, i: int) -> System:
        """Another process with the same name may send a heartbeat immediately."""
        client = system.clients[i]
        late = client.sent.held if client.sent is not None and self.setup.late_heartbeats else client.late
        return _put(system, i, Client(quiet=client.quiet, late=late))

    # -- time

    def _pass_time(self, system: System, *, paused: int) -> System:
        clients = tuple(self._older(client, i, runs=not paused) for i, client in enumerate(system.clients))
        return System(self.group.one_unit_later(system.group), clients, system.next_shard, paused)

    def _older(self, client: Client, i: int, *, runs: bool) -> Client:
        sent = client.sent
        if sent is not None:
            sent = sent._replace(age=min(sent.age + 1, TIMEOUT))
        client = client._replace(sent=sent, age=client.age + 1 if client.works_on or client.assigned else 0)
        if runs and client.quiet < TIMEOUT:
            client = client._replace(quiet=client.quiet + 1)
            if client.quiet == TIMEOUT:
                if sent is not None and sent.answer != NOT_ANSWERED:
                    sent = sent._replace(lost=sent.answer)
                client = client._replace(lost=client.works_on, sent=sent)
        if client.age >= (TIMEOUT if self._fences[i] else TIMEOUT + INTERVAL):
            client = client._replace(works_on=0, assigned=0, lost=0, age=0)
        return client

    def _tick(self, system: System) -> System:
        return self._checked_expulsion(system, system._replace(group=self.group.tick(system.group)))

    def _resume(self, system: System) -> System:
        number = self.group.resume(system.group, system.paused)
        return self._checked_expulsion(system, system._replace(group=number, paused=0))

    def _checked_expulsion(self, before: System, after: System) -> System:
        live = self.group[after.group].consumers
        for name, client in zip(self.setup.names, after.clients, strict=True):
            if name in live:
                assert -live[name].last_heartbeat_s == client.quiet, f"the session of {name} is wrong"
            elif name in self.group[before.group].consumers:
                assert client.quiet >= TIMEOUT, f"{name} was expelled without having been silent"
        return after

    # -- the service and the logstore

    def _of_service(self, system: System) -> Iterator[tuple[str, System]]:
        if self.group.is_tick_due(system.group):
            yield "tick", self._tick(system)
        else:  # a tick comes within less than a unit
            yield "time passes", self._pass_time(system, paused=0)
        state = self.group[system.group]
        for i, name in enumerate(self.setup.names):
            if name in state.consumers:
                gone = self._crash(system, i)
                gone = _put(gone, i, gone.clients[i]._replace(quiet=TIMEOUT))
                yield f"{name} leaves", self._do(gone, Leave(consumer=name))
        yield f"order {not state.order}", self._do(system, Configure(order=not state.order))
        yield "service restarts", self._restart(system)

    def _do(self, system: System, event: Event) -> System:
        return system._replace(group=self.group.step(system.group, event).state)

    def _restart(self, system: System) -> System:
        number = self.group.restart(system.group)
        live = self.group[number].consumers
        clients = (
            client._replace(quiet=0 if name in live else TIMEOUT)
            for name, client in zip(self.setup.names, system.clients, strict=True)
        )
        return system._replace(group=number, clients=tuple(clients))

    def _checkpoints(self, system: System) -> Iterator[tuple[str, System]]:
        """Saved by the holder at the end, and by force, as the Go and Python libraries do, anywhere."""
        for shard, entry in self.group[system.group].shards.items():
            if entry.holder is not None and self._works(system, entry.holder) >> shard & 1:
                yield f"{entry.holder} saves the end of {shard}", self._save(system, entry.holder, shard, END)
            yield f"end of {shard} forced", self._save(system, "", shard, END, force=True)
            yield f"begin of {shard} forced", self._save(system, "", shard, 0, force=True)

    def _works(self, system: System, name: str) -> int:
        return system.clients[self.setup.names.index(name)].works_on

    def _save(self, system: System, name: str, shard: int, cursor: int, *, force: bool = False) -> System:
        return self._do(system, SaveCheckpoint(consumer=name, shard=shard, cursor=cursor, force=force))

    def _check_refusals(self, system: System) -> None:
        """Events that change nothing."""
        group, number = self.group, system.group
        state = group[number]
        for name in self.setup.names:
            for shard, entry in state.shards.items():
                if entry.holder != name:
                    save = SaveCheckpoint(consumer=name, shard=shard, cursor=END, force=False)
                    assert group.step(number, save).refusal is RefusalCode.CONSUMER_NOT_MATCH
            if name not in state.consumers and state.shards:
                unknown = Heartbeat(consumer=name, held=frozenset(list(state.shards)[:1]))
                done = group.step(number, unknown)
                assert done.refusal is RefusalCode.NOT_EXIST_CONSUMER_WITH_BODY
        missing = SaveCheckpoint(consumer="", shard=99, cursor=0, force=True)
        assert group.step(number, missing).refusal is RefusalCode.SHARD_NOT_EXIST
        nameless = SaveCheckpoint(consumer="", shard=0, cursor=0, force=False)
        assert group.step(number, nameless).refusal is RefusalCode.PARAMETER_INVALID
        for event in (Configure(timeout_s=float(TIMEOUT)), Leave(consumer="unknown")):
            assert group.step(number, event).state == number
        if not group.is_tick_due(number):
            assert group.step(number, Tick()).state == number

    def _reshards(self, system: System) -> Iterator[tuple[str, System]]:
        shards = {s: e.log_shard for s, e in self.group[system.group].shards.items()}
        writable = [shard for shard, log_shard in shards.items() if not log_shard.read_only]
        if system.next_shard + 2 <= self.setup.max_shards:
            for shard in writable:
                yield f"split {shard}", self._reshard(system, (shard,), children=2, empty=False)
                yield f"split {shard}, empty", self._reshard(system, (shard,), children=2, empty=True)
        if system.next_shard + 1 <= self.setup.max_shards and len(writable) >= 2:
            left, right = writable[:2]
            yield f"merge {left} {right}", self._reshard(system, (left, right), children=1, empty=False)
        for shard, log_shard in shards.items():
            if log_shard.read_only:
                others = {s: each for s, each in shards.items() if s != shard}
                yield f"delete {shard}", self._report(system, others, system.next_shard)
                if not log_shard.is_empty:
                    expired = {**shards, shard: replaced(log_shard, begin_cursor=END)}
                    yield f"{shard} expires", self._report(system, expired, system.next_shard)

    def _reshard(self, system: System, closing: tuple[int, ...], *, children: int, empty: bool) -> System:
        """A split (one shard closed, two created) or a merge (two closed, one created)."""
        shards = {s: e.log_shard for s, e in self.group[system.group].shards.items()}
        for shard in closing:
            shards[shard] = replaced(shards[shard], begin_cursor=END if empty else 0, end_cursor=END)
        for child in range(system.next_shard, system.next_shard + children):
            shards[child] = LogShard(shard=child, parents=closing)
        return self._report(system, shards, system.next_shard + children)

    def _report(self, system: System, shards: dict[int, LogShard], next_shard: int) -> System:
        """Pulls of a deleted shard fail, so its consumer stops working on it."""
        kept = bits(tuple(shards))
        clients = tuple(
            c._replace(works_on=c.works_on & kept, assigned=c.assigned & kept, lost=c.lost & kept)
            for c in system.clients
        )
        number = self.group.report_shards(system.group, shards)
        return System(number, clients, next_shard, system.paused)

    # -- what must hold

    def check(self, system: System) -> None:
        check_exclusive(system)

    def check_settles(self, system: System) -> None:
        """Once no consumer joins, leaves or is late any more, each live consumer works after three heartbeats
        on exactly the shards that the balance assigns to it. It releases immediately, with another
        heartbeat, what an answer no longer lists."""
        key = (system.group, tuple(client.works_on for client in system.clients))
        if key in self._settled:
            return
        self._settled.add(key)
        live = [i for i, name in enumerate(self.setup.names) if name in self.group[system.group].consumers]
        number, works_on = system.group, {i: system.clients[i].works_on for i in live}
        for i in live * 3:
            number, answer = self._heard(System(number, (), 0), i, works_on[i])
            if works_on[i] & ~answer:
                number, answer = self._heard(System(number, (), 0), i, works_on[i] & answer)
            works_on[i] = answer
        state = self.group[number]
        assert all(e.state != "transfer" for e in state.shards.values())
        for i in live:
            assert works_on[i] == bits(state.owned_by(self.setup.names[i]))
        held = [works_on[i].bit_count() for i in live]
        if live:
            assert max(held) - min(held) <= 1
            assert sum(held) == sum(e.state not in ("wait", "over") for e in state.shards.values())


def _put(system: System, i: int, client: Client) -> System:
    clients = system.clients
    return system._replace(clients=(*clients[:i], client, *clients[i + 1 :]))
