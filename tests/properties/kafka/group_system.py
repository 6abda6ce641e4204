"""A Kafka group, its clients and the network between them, small enough to search all orders of events.

A client joins, sends SyncGroup, and then heartbeats and commits, as the consumers of the five libraries do.
An answer that the coordinator has given lies in the client's inbox until it is read or lost: the connection
may break at any time, so a client may abandon a request that waits and send it again, and the service may be
killed when only some have read their answers. A client may crash and start again without its member id, and
an earlier request of it, to join, to commit or any other, may arrive later, and any number of times. Clients
with an instance id are static members; two with the same one are an earlier process that still runs, and a
later.

The leader assigns two partitions. What must hold, whatever the order of events:

    Within one generation, no partition belongs to two clients, unless both have the same instance id.

`tests.loghub_service.kafka.coordinator.invariants` and `numbered_group` say what holds for every step.
Besides, once nothing is lost any more, every client that runs gets its share
(`KafkaGroupModel.check_settles`).
"""

from collections.abc import Iterator

from loghub_service.kafka.coordinator.group import GroupErrorCode
from loghub_service.kafka.coordinator.requests import (
    Cleanup,
    ConnectionLost,
    DeleteKafkaGroup,
    Event,
    HeartbeatAnswer,
    JoinAnswer,
    JoinGroup,
    LeaveGroup,
    LogstoreGone,
    MemberHeartbeat,
    OffsetCommit,
    OffsetDelete,
    PartitionsAnswer,
    SyncAnswer,
    SyncGroup,
)
from loghub_service.kafka.coordinator.states import KafkaGroupState
from tests.properties.kafka.numbered_group import REBALANCE, SESSION, Next, NumberedKafkaGroup
from tests.properties.kafka.system import (
    FENCED,
    JOINED,
    JOINING,
    MEMBER,
    OUT,
    PARTITION,
    PARTITIONS,
    PROTOCOLS,
    SYNCING,
    Client,
    Setup,
    System,
    after_error,
    check_exclusive,
    put,
)


class KafkaGroupModel:
    """All systems that a setup can lead to."""

    def __init__(self, setup: Setup, group: NumberedKafkaGroup | None = None) -> None:
        self.setup = setup
        self.group = NumberedKafkaGroup() if group is None else group
        self._checked = 0

    def starts(self) -> list[System]:
        """Nobody has joined; all are members of a stable group; and all but the leader are late to ask for
        their assignments."""
        stable = self.settle(self.empty())
        return [self.empty(), stable, self._late_to_sync(stable)]

    def _late_to_sync(self, system: System) -> System:
        for i, client in enumerate(system.clients):
            if client.phase == MEMBER:  # not fenced
                changed = client._replace(metadata=b"1")
                system = self.join(put(system, i, changed), i)
                break
        for _ in range(3):
            for i, client in enumerate(system.clients):
                if client.phase in (MEMBER, OUT, JOINING):
                    system = self._act(system if client.phase != MEMBER else self.heartbeat(system, i), i)
        leader = next(i for i, client in enumerate(system.clients) if client.roster)
        system = self.read(self.sync(system, leader), leader)
        for _ in range(REBALANCE - 1):
            system = system._replace(group=self.group.one_unit_later(system.group))
            for i, client in enumerate(system.clients):
                if client.phase in (JOINED, MEMBER):
                    system = self.heartbeat(system, i)
        return system

    def empty(self) -> System:
        return System(self.group.dead, tuple(Client() for _ in self.setup.names))

    def check(self, system: System) -> None:
        check_exclusive(self.setup, system)

    # -- what may happen next

    def successors(self, system: System) -> Iterator[tuple[str, System]]:
        """A description of each event that may come next, with the system after it."""
        for i, name in enumerate(self.setup.names):
            client = system.clients[i]
            if client.request:
                yield from self._while_waiting(system, i, name)
            else:
                yield from self._requests(system, i, name)
            if client.phase != OUT:
                yield f"{name} crashes", self.crash(system, i)
            if client.late is not None:
                yield from self._late(system, i, name, client.late)
        yield from self._of_service(system)

    def _while_waiting(self, system: System, i: int, name: str) -> Iterator[tuple[str, System]]:
        client = system.clients[i]
        if client.inbox is not None:
            yield f"{name} reads its answer", self.read(system, i)
        yield f"{name} abandons its request", self.abandon(system, i)
        if client.request in self.group.waiting(system.group):
            yield f"the connection of {name} breaks", self._break(system, i)

    def _requests(self, system: System, i: int, name: str) -> Iterator[tuple[str, System]]:
        client = system.clients[i]
        if client.phase == OUT:
            yield f"{name} joins", self.join(system, i)
            return
        if client.phase == FENCED:
            return
        yield f"{name} heartbeats", self.heartbeat(system, i)
        if client.phase == JOINED:
            yield f"{name} syncs", self.sync(system, i)
            return
        yield f"{name} rejoins", self.join(system, i)
        changed = client._replace(metadata=b"1" if client.metadata == b"0" else b"0")
        yield f"{name} rejoins with other metadata", self.join(put(system, i, changed), i)
        yield f"{name} leaves", self._leave(system, i)
        if client.owned & 1:
            yield f"{name} commits", self.commit(system, i)
        if self.setup.late:
            for kind in ("commit", "join", "sync", "leave"):
                late = (kind, client.member_id, client.generation)
                yield f"a {kind} of {name} is late", put(system, i, client._replace(late=late))

    def _of_service(self, system: System) -> Iterator[tuple[str, System]]:
        if self.group.is_tick_due(system.group):
            yield "tick", self._after(system, self.group.tick(system.group))
        else:  # a tick comes within less than a unit
            later = self.group.one_unit_later(system.group)
            yield "time passes", system._replace(group=later)
            yield "the service pauses", self._after(system, self.group.pause(system.group))
        yield "the service restarts", self.restart(system)
        if self.setup.admin:
            events: tuple[Event, ...] = (
                DeleteKafkaGroup(),
                OffsetCommit(offsets=((PARTITION, 0, ""),), unix_ms=0),
                OffsetDelete(partitions=(("t", PARTITION),)),
            )
            for event in events:
                yield f"{event}", self._ask(system, event)
            for event in (Cleanup(unix_ms=0), LogstoreGone(logstore=2)):
                done = self.group.step(system.group, event)
                yield f"{event}", self._after(system, done)

    # -- requests of clients

    def _free_request(self, system: System) -> int:
        used = {*self.group.waiting(system.group), *(client.request for client in system.clients)}
        return next(number for number in range(1, 20) if number not in used)

    def _new_id(self, system: System, name: str) -> str:
        """One that nobody knows: neither the group nor a client, nor a request that is late."""
        group = self.group[system.group]
        used = {*group.members, *group.pending}
        for client in system.clients:
            used |= {client.member_id, *client.roster, client.late[1] if client.late else ""}
            used |= {client.inbox.member_id} if isinstance(client.inbox, JoinAnswer) else set()
        return next(f"{name}{n}" for n in range(20) if f"{name}{n}" not in used)

    def _instance(self, i: int) -> str | None:
        instance = self.setup.instances[i]
        return None if instance == "-" else instance

    def _ask(self, system: System, event: Event) -> System:
        """A request whose answer nobody reads."""
        request = self._free_request(system)
        return self._after(system, self.group.step(system.group, event, request))

    def _send(self, system: System, i: int, phase: str, event: Event) -> System:
        """The request arrives; its answer, now or later, goes into the inbox."""
        request = self._free_request(system)
        sent = put(system, i, system.clients[i]._replace(phase=phase, request=request, inbox=None, owned=0))
        return self._after(sent, self.group.step(system.group, event, request))

    def join(self, system: System, i: int) -> System:
        client = system.clients[i]
        event = self._join_event(system, i, client.member_id, client.metadata)
        return self._send(system, i, JOINING, event)

    def _join_event(self, system: System, i: int, member_id: str, metadata: bytes) -> JoinGroup:
        return JoinGroup(
            member_id=member_id,
            new_member_id="" if member_id else self._new_id(system, self.setup.names[i]),
            protocol_type="consumer",
            protocols=PROTOCOLS[metadata],
            session_timeout_ms=SESSION * 1000,
            rebalance_timeout_ms=REBALANCE * 1000,
            group_instance_id=self._instance(i),
            requires_member_id=True,
        )

    def sync(self, system: System, i: int) -> System:
        client = system.clients[i]
        return self._send(
            system, i, SYNCING, self._sync_event(i, client.member_id, client.generation, client.roster)
        )

    def _sync_event(self, i: int, member_id: str, generation: int, roster: tuple[str, ...]) -> SyncGroup:
        masks = dict.fromkeys(roster, 0)
        for partition in range(PARTITIONS if roster else 0):
            masks[roster[partition % len(roster)]] |= 1 << partition
        return SyncGroup(
            member_id=member_id,
            generation=generation,
            group_instance_id=self._instance(i),
            assignments=tuple((member, bytes([mask])) for member, mask in masks.items()),
        )

    def heartbeat(self, system: System, i: int) -> System:
        """With its answer, which is read at once."""
        client = system.clients[i]
        event = MemberHeartbeat(
            member_id=client.member_id, generation=client.generation, group_instance_id=self._instance(i)
        )
        return self._at_once(system, i, event)

    def commit(self, system: System, i: int) -> System:
        client = system.clients[i]
        event = self._commit_event(i, client.member_id, client.generation)
        return self._at_once(system, i, event)

    def _commit_event(self, i: int, member_id: str, generation: int) -> OffsetCommit:
        return OffsetCommit(
            offsets=((PARTITION, 1, ""),),
            unix_ms=0,
            member_id=member_id,
            generation=generation,
            group_instance_id=self._instance(i),
        )

    def _at_once(self, system: System, i: int, event: Event) -> System:
        request = self._free_request(system)
        done = self.group.step(system.group, event, request)
        answer = dict(done.answers)[request]
        after = self._after(system, done)
        error = answer.error
        if isinstance(answer, PartitionsAnswer):
            ((_, error),) = answer.partitions
        else:
            assert isinstance(answer, HeartbeatAnswer)
        return put(after, i, after_error(after.clients[i], error))

    def _leave(self, system: System, i: int) -> System:
        client = system.clients[i]
        event = LeaveGroup(members=((client.member_id, self._instance(i)),))
        return put(self._ask(system, event), i, Client(late=client.late))

    def _late(
        self, system: System, i: int, name: str, late: tuple[str, str, int]
    ) -> Iterator[tuple[str, System]]:
        kind, member_id, generation = late
        client = system.clients[i]
        event: Event
        if kind == "commit":
            event = self._commit_event(i, member_id, generation)
        elif kind == "sync":
            event = self._sync_event(i, member_id, generation, (member_id,))
        elif kind == "leave":
            event = LeaveGroup(members=((member_id, self._instance(i)),))
        else:
            event = self._join_event(system, i, member_id, client.metadata)
        yield f"the late {kind} of {name} arrives", self._ask(system, event)

    # -- answers, crashes, restarts

    def _after(self, system: System, done: Next) -> System:
        """The answers lie in the inboxes; those that nobody waits for are gone."""
        clients = list(system.clients)
        for number, answer in done.answers:
            for i, client in enumerate(clients):
                if client.request == number:
                    clients[i] = client._replace(inbox=answer)
        if self.group[done.state].state is KafkaGroupState.DEAD:
            # Generations begin again: clients of the former group own nothing that counts.
            clients = [client._replace(owned=0) for client in clients]
        return System(done.state, tuple(clients))

    def read(self, system: System, i: int) -> System:
        client = system.clients[i]
        answer, client = client.inbox, client._replace(request=0, inbox=None)
        if isinstance(answer, JoinAnswer):
            if answer.error is GroupErrorCode.NONE:
                roster = tuple(member.member_id for member in answer.members)
                client = client._replace(
                    member_id=answer.member_id, generation=answer.generation, phase=JOINED, roster=roster
                )
            elif answer.error is GroupErrorCode.MEMBER_ID_REQUIRED:
                client = client._replace(member_id=answer.member_id, phase=OUT)
            else:
                client = after_error(client, answer.error)
        else:
            assert isinstance(answer, SyncAnswer)
            if answer.error is GroupErrorCode.NONE:
                mask = answer.assignment[0] if answer.assignment else 0
                client = client._replace(phase=MEMBER, owned=mask, roster=())
            else:
                client = after_error(client, answer.error)
        return put(system, i, client)

    def abandon(self, system: System, i: int) -> System:
        client = system.clients[i]
        phase = JOINED if client.phase == SYNCING else OUT
        return put(system, i, client._replace(phase=phase, request=0, inbox=None))

    def _break(self, system: System, i: int) -> System:
        lost = ConnectionLost(request=system.clients[i].request)
        return self._after(self.abandon(system, i), self.group.step(system.group, lost))

    def crash(self, system: System, i: int) -> System:
        return put(system, i, Client(late=system.clients[i].late))

    def restart(self, system: System) -> System:
        """Answers that were sent may still be read; requests that wait are gone."""
        after = system._replace(group=self.group.restart(system.group))
        for i, client in enumerate(system.clients):
            if client.request and client.inbox is None:
                after = self.abandon(after, i)
        if self.group[after.group].state is KafkaGroupState.DEAD:
            after = after._replace(clients=tuple(client._replace(owned=0) for client in after.clients))
        return after

    # -- liveness

    def check_settles(self, system: System) -> None:
        self._checked += 1
        if self._checked % self.setup.settles_every == 0:
            self.settle(system)

    def settle(self, system: System, *, idle: tuple[int, ...] = ()) -> System:
        """Nothing is lost any more, and every client gets its share that is neither fenced nor idle."""
        active = [i for i in range(len(system.clients)) if i not in idle]
        for _ in range(12 * REBALANCE):
            for _ in range(12):
                for i in active:
                    system = self._act(system, i)
                if self.group.is_tick_due(system.group):
                    system = self._after(system, self.group.tick(system.group))
            if self._is_settled(system, active):
                return system
            system = system._replace(group=self.group.one_unit_later(system.group))
            for i in active:
                if system.clients[i].phase in (JOINED, MEMBER):
                    system = self.heartbeat(system, i)
        raise AssertionError("the group does not settle")

    def _act(self, system: System, i: int) -> System:
        client = system.clients[i]
        if client.inbox is not None:
            return self.read(system, i)
        if client.request:
            is_lost = client.request not in self.group.waiting(system.group)
            return self.abandon(system, i) if is_lost else system
        if client.phase == OUT:
            return self.join(system, i)
        if client.phase == JOINED:
            return self.sync(system, i)
        if client.phase == MEMBER and client.generation != self.group[system.group].generation:
            return self.heartbeat(system, i)
        return system

    def _is_settled(self, system: System, active: list[int]) -> bool:
        group = self.group[system.group]
        running = [c for c in (system.clients[i] for i in active) if c.phase != FENCED]
        if group.state is not KafkaGroupState.STABLE or {c.member_id for c in running} != set(group.members):
            return not running and group.state in (KafkaGroupState.EMPTY, KafkaGroupState.DEAD)
        shares = sorted(client.owned for client in running)
        return (
            all(c.generation == group.generation and c.phase == MEMBER for c in running)
            and sum(shares) == (1 << PARTITIONS) - 1
        )
