"""A group together with its consumers as one value, to check that no two consumers work on one shard.

The consumers are well-behaved (docs/sls-protocol.md 4.3): they start the shards that an answer lists, finish
those that it no longer lists, report all of them meanwhile, and stop everything before their timeout. Time is
left out: a consumer is silent long enough or it is not. So a `System` is small enough to be searched, and
equal systems are equal values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from loghub.domain.coordinator import create_group, restore, step
from loghub.domain.group import (
    Configure,
    Event,
    GroupState,
    Heartbeat,
    Leave,
    LogShard,
    SaveCheckpoint,
    ShardsChanged,
    Tick,
)
from tests.loghub.domain.invariants import check_state, check_step

TIMEOUT_S = 10.0
END = 5


@dataclass(frozen=True, slots=True)
class Client:
    """One consumer process: the shards it works on, and those that the last answer it received lists."""

    works_on: frozenset[int] = frozenset()
    assigned: frozenset[int] = frozenset()


NEW_CLIENT = Client()


@dataclass(frozen=True, slots=True)
class System:
    """``clients`` has an entry for every name, running or not. ``next_shard`` numbers the next child."""

    state: GroupState
    clients: tuple[tuple[str, Client], ...]
    next_shard: int

    def client(self, name: str) -> Client:
        return dict(self.clients)[name]

    def key(self) -> tuple[object, ...]:
        """Systems with equal keys behave equally from now on."""
        state = self.state
        live = tuple((c.name, c.held) for c in state.consumers.values())
        return (state.order, live, tuple(state.shards.values()), self.clients, self.next_shard)


def new_system(*, shards: int, names: str, order: bool) -> System:
    log_shards = tuple(LogShard(shard=n) for n in range(shards))
    created = create_group(group="g", timeout_s=TIMEOUT_S, order=order, shards=log_shards, now=0.0)
    return System(created.state, tuple((name, NEW_CLIENT) for name in names), shards)


def _with_client(system: System, name: str, client: Client) -> System:
    return replace(system, clients=tuple((n, client if n == name else c) for n, c in system.clients))


def _do(system: System, event: Event, *, now: float = 0.0) -> tuple[System, tuple[int, ...]]:
    created = step(system.state, event, now=now)
    check_step(system.state, created)
    check_state(created.state)
    return replace(system, state=created.state), created.answer


def check_exclusive(system: System) -> None:
    """Two consumers never both hold a shard: no two processes ever work on one at a time."""
    busy: dict[int, str] = {}
    for name, client in system.clients:
        for shard in client.works_on:
            assert shard not in busy, f"{busy[shard]} and {name} both work on {shard}"
            busy[shard] = name


# --- what may happen -----------------------------------------------------------------------------


def heartbeat(system: System, name: str) -> System:
    """A heartbeat whose answer arrives."""
    client = system.client(name)
    system, answer = _do(system, Heartbeat(consumer=name, held=client.works_on))
    assert set(answer) == {
        s for s, e in system.state.shards.items() if e.state == "already_alloc" and e.holder == name
    }
    assigned = frozenset(answer)
    return _with_client(system, name, Client(works_on=client.works_on | assigned, assigned=assigned))


def heartbeat_without_answer(system: System, name: str) -> System:
    """The service receives the heartbeat, but the consumer never receives the answer."""
    return _do(system, Heartbeat(consumer=name, held=system.client(name).works_on))[0]


def finish(system: System, name: str) -> System:
    """The consumer finishes the shards that the answer no longer lists."""
    client = system.client(name)
    return _with_client(system, name, replace(client, works_on=client.works_on & client.assigned))


def crash(system: System, name: str) -> System:
    """The process dies. Another with the same name may send a heartbeat immediately, without any state."""
    return _with_client(system, name, NEW_CLIENT)


def time_out(system: System, names: Iterable[str]) -> System:
    """These consumers have been silent for the timeout, and stopped their work before it."""
    for name in names:
        system = crash(system, name)
    silent = set(names)
    consumers = {
        n: replace(c, last_heartbeat_s=-TIMEOUT_S if n in silent else 0.0)
        for n, c in system.state.consumers.items()
    }
    return _do(replace(system, state=replace(system.state, consumers=consumers)), Tick())[0]


def leave(system: System, name: str) -> System:
    """The consumer has drained and released its shards, and leaves."""
    return _do(crash(system, name), Leave(consumer=name))[0]


def checkpoint(system: System, name: str, shard: int, cursor: int, *, force: bool = False) -> System:
    return _do(system, SaveCheckpoint(consumer=name, shard=shard, cursor=cursor, force=force))[0]


def configure(system: System, *, order: bool) -> System:
    return _do(system, Configure(order=order))[0]


def _report_shards(system: System, shards: dict[int, LogShard], next_shard: int) -> System:
    deleted = frozenset(system.state.shards) - frozenset(shards)
    system = replace(system, next_shard=next_shard)
    for name, client in system.clients:
        # Pulls of a deleted shard fail, so its consumer stops working on it.
        system = _with_client(system, name, Client(client.works_on - deleted, client.assigned - deleted))
    return _do(system, ShardsChanged(shards=tuple(shards.values())))[0]


def reshard(system: System, closing: tuple[int, ...], *, children: int, empty: bool) -> System:
    """A split (one shard closed, two created) or a merge (two closed, one created)."""
    shards = {s: e.log_shard for s, e in system.state.shards.items()}
    for shard in closing:
        shards[shard] = replace(shards[shard], begin_cursor=END if empty else 0, end_cursor=END)
    for child in range(system.next_shard, system.next_shard + children):
        shards[child] = LogShard(shard=child, parents=closing)
    return _report_shards(system, shards, system.next_shard + children)


def delete_shard(system: System, shard: int) -> System:
    """Retention deletes a read-only shard, whether or not it is consumed."""
    shards = {s: e.log_shard for s, e in system.state.shards.items() if s != shard}
    return _report_shards(system, shards, system.next_shard)


def restart_service(system: System) -> System:
    """The service restarts from what it persisted and learns the current shards."""
    state = system.state
    restored = restore(
        group=state.group, timeout_s=TIMEOUT_S, order=state.order, entries=state.shards.values(), now=0.0
    )
    shards = {s: e.log_shard for s, e in state.shards.items()}
    return _report_shards(replace(system, state=restored), shards, system.next_shard)


def settle(system: System) -> System:
    """No consumer joins, leaves or is late any more. Each live consumer sends two heartbeats, and immediately
    releases, with another heartbeat, what the answer no longer lists (docs/architecture.md 5)."""
    for _ in range(2):
        for name in system.state.consumers:
            system = heartbeat(system, name)
            if system.client(name).works_on != system.client(name).assigned:
                system = heartbeat(finish(system, name), name)
            check_exclusive(system)
    return system


def check_settled(system: System) -> None:
    """Liveness: each consumer works on exactly the shards that balance assigns to it."""
    assert all(e.state != "transfer" for e in system.state.shards.values())
    live = list(system.state.consumers)
    for name in live:
        assert system.client(name).works_on == set(system.state.owned_by(name))
    held = [len(system.client(name).works_on) for name in live]
    taking_part = [e for e in system.state.shards.values() if e.state not in ("wait", "over")]
    if live:
        assert max(held) - min(held) <= 1
        assert sum(held) == len(taking_part)


# --- every next state ----------------------------------------------------------------------------


def successors(system: System, *, max_shards: int) -> Iterator[tuple[str, System]]:
    """A description of each event that may come next, with the system after it."""
    for name, client in system.clients:
        yield f"heartbeat of {name}", heartbeat(system, name)
        yield f"heartbeat of {name} without answer", heartbeat_without_answer(system, name)
        if client.works_on != client.assigned:
            yield f"{name} finishes", finish(system, name)
        if client != NEW_CLIENT:
            yield f"{name} crashes", crash(system, name)
        if name in system.state.consumers:
            yield f"{name} leaves", leave(system, name)
    yield from _timeouts(system)
    yield from _checkpoints(system)
    yield from _reshards(system, max_shards)
    yield f"order {not system.state.order}", configure(system, order=not system.state.order)
    yield "service restarts", restart_service(system)


def _timeouts(system: System) -> Iterator[tuple[str, System]]:
    live = list(system.state.consumers)
    for bits in range(1, 1 << len(live)):
        silent = [name for i, name in enumerate(live) if bits >> i & 1]
        yield f"time out {' '.join(silent)}", time_out(system, silent)


def _checkpoints(system: System) -> Iterator[tuple[str, System]]:
    for shard, entry in system.state.shards.items():
        if entry.holder is not None and shard in system.client(entry.holder).works_on:
            yield f"{entry.holder} checkpoints {shard} at {END}", checkpoint(system, entry.holder, shard, END)
        if entry.state == "over":
            yield f"{shard} forced back", checkpoint(system, "", shard, 0, force=True)


def _reshards(system: System, max_shards: int) -> Iterator[tuple[str, System]]:
    open_shards = [s for s, e in system.state.shards.items() if not e.log_shard.read_only]
    closed = [s for s, e in system.state.shards.items() if e.log_shard.read_only]
    if system.next_shard + 2 <= max_shards:
        for shard in open_shards:
            for empty in (False, True):
                yield f"split {shard}", reshard(system, (shard,), children=2, empty=empty)
    if system.next_shard + 1 <= max_shards and len(open_shards) >= 2:
        left, right = open_shards[:2]
        yield f"merge {left} {right}", reshard(system, (left, right), children=1, empty=False)
    for shard in closed:
        yield f"delete {shard}", delete_shard(system, shard)
