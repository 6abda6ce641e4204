"""A group together with its consumers, as one value: what two consumers work on at once.

The consumers are well-behaved ones (docs/sls-protocol.md 4.3): they start what an answer names, go
on with what it drops until they are done, name all of it meanwhile, and stop everything by
themselves before their timeout. Time is left out: a consumer either is silent long enough or is
not. So a `World` is small enough to be searched, and equal worlds are equal values.
"""

from collections.abc import Iterable, Iterator
from dataclasses import dataclass, replace

from loghub.domain.coordinator import create_group, restore, step
from loghub.domain.group import (
    Checkpoint,
    Configure,
    Event,
    GroupState,
    Heartbeat,
    Leave,
    LogShard,
    ShardsChanged,
    Tick,
)
from tests.loghub.domain.invariants import check_state, check_step

TIMEOUT_S = 10.0
END = 5


@dataclass(frozen=True, slots=True)
class Client:
    """One consumer process: what it works on, and what the last answer that it heard named."""

    works_on: frozenset[int] = frozenset()
    told: frozenset[int] = frozenset()


NEW_CLIENT = Client()


@dataclass(frozen=True, slots=True)
class World:
    """``clients`` has an entry for every name, running or not. ``next_shard`` numbers the next child."""

    state: GroupState
    clients: tuple[tuple[str, Client], ...]
    next_shard: int

    def client(self, name: str) -> Client:
        return dict(self.clients)[name]

    def key(self) -> tuple[object, ...]:
        """Equal keys: equal futures."""
        state = self.state
        live = tuple((c.name, c.held) for c in state.consumers.values())
        return (state.order, live, tuple(state.shards.values()), self.clients, self.next_shard)


def new_world(*, shards: int, names: str, order: bool) -> World:
    log_shards = tuple(LogShard(shard=n) for n in range(shards))
    made = create_group(group="g", timeout_s=TIMEOUT_S, order=order, shards=log_shards, now=0.0)
    return World(made.state, tuple((name, NEW_CLIENT) for name in names), shards)


def _with_client(world: World, name: str, client: Client) -> World:
    return replace(world, clients=tuple((n, client if n == name else c) for n, c in world.clients))


def _do(world: World, event: Event, *, now: float = 0.0) -> tuple[World, tuple[int, ...]]:
    made = step(world.state, event, now=now)
    check_step(world.state, made)
    check_state(made.state)
    return replace(world, state=made.state), made.answer


def check_world(world: World) -> None:
    """Two consumers never both hold a shard: no two processes ever work on one at a time."""
    busy: dict[int, str] = {}
    for name, client in world.clients:
        for shard in client.works_on:
            assert shard not in busy, f"{busy[shard]} and {name} both work on {shard}"
            busy[shard] = name


# --- what may happen in the world --------------------------------------------------------------


def beat(world: World, name: str) -> World:
    """A heartbeat with its answer heard."""
    client = world.client(name)
    world, answer = _do(world, Heartbeat(consumer=name, held=client.works_on))
    assert set(answer) == {
        s for s, e in world.state.shards.items() if e.state == "already_alloc" and e.holder == name
    }
    told = frozenset(answer)
    return _with_client(world, name, Client(works_on=client.works_on | told, told=told))


def beat_unheard(world: World, name: str) -> World:
    """The service has the heartbeat, the consumer never gets the answer."""
    return _do(world, Heartbeat(consumer=name, held=world.client(name).works_on))[0]


def finish(world: World, name: str) -> World:
    """Done with what the answer dropped."""
    client = world.client(name)
    return _with_client(world, name, replace(client, works_on=client.works_on & client.told))


def crash(world: World, name: str) -> World:
    """The process dies; another of the same name may beat at once, knowing nothing."""
    return _with_client(world, name, NEW_CLIENT)


def time_out(world: World, names: Iterable[str]) -> World:
    """These have been silent for the timeout, having stopped by themselves before it."""
    for name in names:
        world = crash(world, name)
    silent = set(names)
    consumers = {
        n: replace(c, last_heartbeat_s=-TIMEOUT_S if n in silent else 0.0)
        for n, c in world.state.consumers.items()
    }
    return _do(replace(world, state=replace(world.state, consumers=consumers)), Tick())[0]


def leave(world: World, name: str) -> World:
    """Drained, given up, gone for good."""
    return _do(crash(world, name), Leave(consumer=name))[0]


def checkpoint(world: World, name: str, shard: int, cursor: int, *, force: bool = False) -> World:
    return _do(world, Checkpoint(consumer=name, shard=shard, cursor=cursor, force=force))[0]


def configure(world: World, *, order: bool) -> World:
    return _do(world, Configure(order=order))[0]


def _tell_shards(world: World, shards: dict[int, LogShard], next_shard: int) -> World:
    gone = frozenset(world.state.shards) - frozenset(shards)
    world = replace(world, next_shard=next_shard)
    for name, client in world.clients:
        # Pulls of a shard that is gone fail; its consumer can only drop it.
        world = _with_client(world, name, Client(client.works_on - gone, client.told - gone))
    return _do(world, ShardsChanged(shards=tuple(shards.values())))[0]


def reshard(world: World, closing: tuple[int, ...], *, children: int, empty: bool) -> World:
    """A split (one closed, two made) or a merge (two closed, one made)."""
    shards = {s: e.log_shard for s, e in world.state.shards.items()}
    for shard in closing:
        shards[shard] = replace(shards[shard], begin_cursor=END if empty else 0, end_cursor=END)
    for child in range(world.next_shard, world.next_shard + children):
        shards[child] = LogShard(shard=child, parents=closing)
    return _tell_shards(world, shards, world.next_shard + children)


def delete_shard(world: World, shard: int) -> World:
    """Retention has taken a read-only shard, read or not."""
    shards = {s: e.log_shard for s, e in world.state.shards.items() if s != shard}
    return _tell_shards(world, shards, world.next_shard)


def restart_service(world: World) -> World:
    """The service comes back from what it persisted, and hears of its shards."""
    state = world.state
    restored = restore(
        group=state.group, timeout_s=TIMEOUT_S, order=state.order, entries=state.shards.values(), now=0.0
    )
    shards = {s: e.log_shard for s, e in state.shards.items()}
    return _tell_shards(replace(world, state=restored), shards, world.next_shard)


def settle(world: World) -> World:
    """Nobody joins, leaves or is late any more: all live consumers beat twice, each giving up
    at once, with an immediate heartbeat, what the answer dropped (docs/architecture.md 5)."""
    for _ in range(2):
        for name in world.state.consumers:
            world = beat(world, name)
            if world.client(name).works_on != world.client(name).told:
                world = beat(finish(world, name), name)
            check_world(world)
    return world


def check_settled(world: World) -> None:
    """Liveness: what is really held has come to where balance wants it."""
    assert all(e.state != "transfer" for e in world.state.shards.values())
    live = list(world.state.consumers)
    for name in live:
        assert world.client(name).works_on == set(world.state.owned_by(name))
    held = [len(world.client(name).works_on) for name in live]
    taking_part = [e for e in world.state.shards.values() if e.state not in ("wait", "over")]
    if live:
        assert max(held) - min(held) <= 1
        assert sum(held) == len(taking_part)


# --- every next world --------------------------------------------------------------------------


def successors(world: World, *, max_shards: int) -> Iterator[tuple[str, World]]:
    """Each event that may come next, in words, with the world after it."""
    for name, client in world.clients:
        yield f"beat {name}", beat(world, name)
        yield f"beat {name}, unheard", beat_unheard(world, name)
        if client.works_on != client.told:
            yield f"{name} finishes", finish(world, name)
        if client != NEW_CLIENT:
            yield f"{name} crashes", crash(world, name)
        if name in world.state.consumers:
            yield f"{name} leaves", leave(world, name)
    yield from _timeouts(world)
    yield from _checkpoints(world)
    yield from _reshards(world, max_shards)
    yield f"order {not world.state.order}", configure(world, order=not world.state.order)
    yield "service restarts", restart_service(world)


def _timeouts(world: World) -> Iterator[tuple[str, World]]:
    live = list(world.state.consumers)
    for bits in range(1, 1 << len(live)):
        silent = [name for i, name in enumerate(live) if bits >> i & 1]
        yield f"time out {' '.join(silent)}", time_out(world, silent)


def _checkpoints(world: World) -> Iterator[tuple[str, World]]:
    for shard, entry in world.state.shards.items():
        if entry.holder is not None and shard in world.client(entry.holder).works_on:
            yield f"{entry.holder} checkpoints {shard} at {END}", checkpoint(world, entry.holder, shard, END)
        if entry.state == "over":
            yield f"{shard} forced back", checkpoint(world, "", shard, 0, force=True)


def _reshards(world: World, max_shards: int) -> Iterator[tuple[str, World]]:
    open_ones = [s for s, e in world.state.shards.items() if not e.log_shard.read_only]
    closed = [s for s, e in world.state.shards.items() if e.log_shard.read_only]
    if world.next_shard + 2 <= max_shards:
        for shard in open_ones:
            for empty in (False, True):
                yield f"split {shard}", reshard(world, (shard,), children=2, empty=empty)
    if world.next_shard + 1 <= max_shards and len(open_ones) >= 2:
        left, right = open_ones[:2]
        yield f"merge {left} {right}", reshard(world, (left, right), children=1, empty=False)
    for shard in closed:
        yield f"delete {shard}", delete_shard(world, shard)
