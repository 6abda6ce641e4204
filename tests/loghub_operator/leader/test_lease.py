"""Leader election: each decision, and two candidates over one Lease through every kind of failure."""

import asyncio
import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from loghub_operator.clients.kube import Document, Kind, KubeError
from loghub_operator.leader.elector import LeaderElector
from loghub_operator.leader.fencing import WriteFence
from loghub_operator.leader.lease import (
    Acquire,
    LeaseDecision,
    LeaseRecord,
    LeaseTimings,
    Lost,
    ObservedLease,
    Renew,
    Wait,
    decide,
    observe,
)
from loghub_operator.settings import LeaseRef

TERMS = LeaseTimings()
PLACE = LeaseRef(namespace="loghub-system", name="loghub-operator")


def record(holder: str, *, renewed: str = "t0", version: str = "1", duration_s: float = 15.0) -> LeaseRecord:
    return LeaseRecord(holder=holder, duration_s=duration_s, renewed=renewed, transitions=3, version=version)


@pytest.mark.parametrize(
    ("observed", "deadline_s", "expected"),
    [
        (None, None, Acquire(0)),
        (ObservedLease(record("other"), 100.0), None, Wait(2.0)),
        (ObservedLease(record("other"), 86.0), None, Wait(1.0)),
        (ObservedLease(record("other"), 85.0), None, Acquire(4)),
        (ObservedLease(record("other", duration_s=60.0), 85.0), None, Wait(2.0)),
        (ObservedLease(record(""), 100.0), None, Acquire(4)),
        (ObservedLease(record("me"), 100.0), None, Acquire(3)),
        (ObservedLease(record("me"), 100.0), 101.0, Renew(3)),
        (ObservedLease(record("me"), 100.0), 100.0, Lost("it could not be renewed in time")),
        (ObservedLease(record("other"), 100.0), 101.0, Lost("it is held by other")),
        (ObservedLease(record(""), 100.0), 101.0, Lost("it is held by nobody")),
        (None, 101.0, Acquire(0)),
        (ObservedLease(record("other"), 95.0, deleted=True), None, Wait(2.0)),
        (ObservedLease(record("other"), 85.0, deleted=True), None, Acquire(4)),
        (ObservedLease(record(""), 100.0, deleted=True), None, Acquire(4)),
        (ObservedLease(record("me"), 100.0, deleted=True), 101.0, Acquire(0)),
    ],
)
def test_each_case_gives_the_expected_result(
    observed: ObservedLease | None, deadline_s: float | None, expected: LeaseDecision
) -> None:
    assert decide(observed, identity="me", deadline_s=deadline_s, now=100.0, timings=TERMS) == expected


def test_only_writes_of_the_holder_renew_the_lease() -> None:
    first = observe(None, record("other"), now=1.0)
    assert first == ObservedLease(record("other"), 1.0)
    touched = observe(first, record("other", version="2"), now=5.0)
    assert touched == ObservedLease(record("other", version="2"), 1.0)
    assert observe(touched, record("other", renewed="t1"), now=6.0) == ObservedLease(
        record("other", renewed="t1"), 6.0
    )
    assert observe(None, None, now=7.0) is None


def test_a_follower_remembers_the_holder_of_a_deleted_lease() -> None:
    """Its holder may write until its deadline, which it does not know to be over."""
    seen = observe(None, record("other"), now=1.0)
    assert observe(seen, None, now=7.0) == ObservedLease(record("other"), 1.0, deleted=True)
    assert observe(observe(seen, None, now=7.0), None, now=8.0) == observe(seen, None, now=7.0)
    back = observe(observe(seen, None, now=7.0), record("third", renewed="t1"), now=9.0)
    assert back == ObservedLease(record("third", renewed="t1"), 9.0)


@dataclass
class World:
    """One Lease behind an apiserver that loses requests and answers, and the time."""

    now: float = 1000.0
    stored: Document | None = None
    version: int = 0
    troubles: list[str] = field(default_factory=list)
    slow_s: list[float] = field(default_factory=list)

    def monotonic_s(self) -> float:
        return self.now

    def unix_s(self) -> float:
        return self.now

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        self._pass()
        if self.troubles and self.troubles.pop() != "":
            raise KubeError(0, "Unreachable", "lost")
        return self.stored

    async def create(self, document: Document) -> Document:
        return self._write(document["spec"], expected=None)

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document | None:
        return None if self.stored is None else self._write(patch["spec"], patch["metadata"])

    def _write(self, spec: Document, expected: Mapping[str, Any] | None) -> Document:
        failure = self.troubles.pop() if self.troubles else ""
        self._pass()
        if failure == "request lost":
            raise KubeError(0, "Unreachable", "lost")
        known = None if self.stored is None else self.stored["metadata"]
        if expected != known:
            raise KubeError(409, "Conflict", "it is another version")
        self.version += 1
        before = {} if self.stored is None else self.stored["spec"]
        self.stored = {"metadata": {"resourceVersion": str(self.version)}, "spec": {**before, **spec}}
        self._pass()
        if failure == "answer lost":
            raise KubeError(0, "Unreachable", "lost")
        return self.stored

    def _pass(self) -> None:
        self.now += self.slow_s.pop() if self.slow_s else 0.0


class Candidate:
    def __init__(self, world: World, identity: str) -> None:
        result: Any = world
        self.fence = WriteFence(result)
        self.leader = LeaderElector(
            kube=result, fence=self.fence, clock=result, lease=PLACE, identity=identity
        )
        self.lost = False

    async def step(self) -> None:
        """As the program does: who has lost it ends, and another with a new name starts."""
        if not self.lost:
            self.lost = isinstance(await self.leader.try_acquire_or_renew(), Lost)


OPERATORS = ("a", "b", "nobody")
FAILURES = ("", "", "", "request lost", "answer lost")
SLOW_S = (0.0, 0.0, 0.0, 0.3, 3.0, 11.0, 16.0)
PAUSE_S = (0.0, 0.1, 2.0, 2.0, 5.0, 10.1, 15.1)


@pytest.mark.parametrize("seed", range(40))
def test_two_operators_never_lead_at_once(seed: int) -> None:
    chance, world = random.Random(seed), World()
    both = {"a": Candidate(world, "a"), "b": Candidate(world, "b")}
    acted: set[str] = set()

    async def play() -> None:
        for number in range(300):
            operator = chance.choice(OPERATORS)
            world.now += chance.choice(PAUSE_S)
            world.troubles = [chance.choice(FAILURES), chance.choice(FAILURES)]
            world.slow_s = [chance.choice(SLOW_S), chance.choice(SLOW_S)]
            if operator in both:
                await both[operator].step()
                if both[operator].lost:
                    both[operator] = Candidate(world, f"{operator}{number}")
            acting = {name for name, one in both.items() if one.fence.open}
            acted.update(acting)
            assert len(acting) < 2
            for name in acting:
                other = both["b" if name == "a" else "a"]
                assert other.fence.left_s <= 0, "what it began could still arrive"

    asyncio.run(play())
    assert acted == {"a", "b"}


def test_after_the_holder_dies_the_other_waits_for_the_whole_duration() -> None:
    world = World()
    first, second = Candidate(world, "a"), Candidate(world, "b")

    async def play() -> float:
        await first.step()
        assert first.fence.open
        died = world.now
        while not second.fence.open:
            await second.step()
            world.now += TERMS.retry_period_s
        return world.now - TERMS.retry_period_s - died

    assert TERMS.lease_duration_s <= asyncio.run(play()) <= TERMS.lease_duration_s + TERMS.retry_period_s
    assert world.stored is not None
    assert world.stored["spec"]["leaseTransitions"] == 1


def test_a_released_lease_is_acquired_at_the_next_attempt() -> None:
    world = World()
    first, second = Candidate(world, "a"), Candidate(world, "b")

    async def play() -> None:
        await first.step()
        await second.step()
        assert not second.fence.open
        await first.leader.release()
        assert not first.fence.open
        await second.step()
        assert second.fence.open

    asyncio.run(play())


def test_the_holder_recreates_a_deleted_lease() -> None:
    world = World()
    first = Candidate(world, "a")

    async def play() -> None:
        await first.step()
        world.stored = None
        await first.step()  # the patch finds nothing
        await first.step()
        assert not first.lost

    asyncio.run(play())
    assert world.stored is not None
    assert world.stored["spec"]["holderIdentity"] == "a"


def test_the_lease_is_not_released_while_a_write_may_still_arrive() -> None:
    world = World()
    first = Candidate(world, "a")

    async def play() -> None:
        await first.step()
        with first.fence:
            giving_back = asyncio.create_task(first.leader.release())
            await asyncio.sleep(0)
            assert world.stored is not None
            assert world.stored["spec"]["holderIdentity"] == "a"
            world.now += 60.0
            await giving_back
        assert world.stored["spec"]["holderIdentity"] == "a"

    asyncio.run(play())
