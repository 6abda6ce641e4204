"""The Kafka groups of a service, with a disk and a clock that the test controls."""

import asyncio
from collections.abc import Awaitable, Callable

from loghub.clock import Clock
from loghub_service.kafka.coordinator.facts import Fact
from loghub_service.kafka.coordinator.group import GroupErrorCode, KafkaGroupLimits, MemberProtocol
from loghub_service.kafka.coordinator.requests import JoinGroup, MemberHeartbeat, OffsetCommit, SyncGroup
from loghub_service.kafka.groups import DEFAULT_GROUP_BYTES, KafkaGroupKey, KafkaGroups
from tests.loghub_service.engines import ManualClock
from tests.loghub_service.kafka.coordinator.driver import NONE, P0, subscription

KEY = KafkaGroupKey("p", "g")
SESSION_S = 10.0
JOIN = JoinGroup(
    member_id="",
    protocol_type="consumer",
    protocols=(MemberProtocol("range", subscription("ls")),),
    session_timeout_ms=int(SESSION_S * 1000),
    rebalance_timeout_ms=60_000,
    client_id="cli",
)
COMMIT = OffsetCommit(offsets=((P0, 5, ""),), unix_ms=1)
HANG_S = 60.0  # a guard only


class Disk:
    """Persists facts when the test says so, in order."""

    def __init__(self, *, is_slow: bool = False) -> None:
        self.is_slow = is_slow
        self.saved: dict[KafkaGroupKey, list[Fact]] = {}
        self.waiting: list[tuple[KafkaGroupKey, tuple[Fact, ...], asyncio.Future[object]]] = []

    def persist(self, key: KafkaGroupKey, facts: tuple[Fact, ...]) -> "asyncio.Future[object]":
        future: asyncio.Future[object] = asyncio.get_running_loop().create_future()
        self.waiting.append((key, facts, future))
        if not self.is_slow:
            self.commit()
        return future

    def commit(self) -> None:
        for key, facts, future in self.waiting:
            self.saved.setdefault(key, []).extend(facts)
            future.set_result(None)
        self.waiting = []

    def fail(self) -> None:
        for _, _, future in self.waiting:
            future.set_exception(OSError("no disk"))
        self.waiting = []


class Service:
    """Kafka groups, their disk and their clock."""

    def __init__(
        self,
        *,
        clock: Clock | None = None,
        delay_ms: int = 0,
        max_groups: int = 10,
        max_bytes: int = DEFAULT_GROUP_BYTES,
    ) -> None:
        self.disk = Disk()
        self.manual = ManualClock()
        self._ids = iter(range(1000))
        self.groups = KafkaGroups(
            clock=clock or self.manual,
            persist=self.disk.persist,
            new_id=lambda: str(next(self._ids)),
            limits=KafkaGroupLimits(initial_rebalance_delay_ms=delay_ms),
            max_groups=max_groups,
            max_bytes=max_bytes,
        )
        self.groups.open()

    def wait(self, seconds: float) -> None:
        """Let time pass as the timer would see it."""
        end = self.manual.now_s + seconds
        while self.manual.now_s < end:
            self.manual.now_s = min(self.manual.now_s + 1.0, end)
            self.groups.tick()

    async def stable_member(self, key: KafkaGroupKey = KEY) -> str:
        """A member that is alone in its group."""
        joined = await self.groups.join(key, JOIN)
        assert joined.error is NONE
        event = SyncGroup(
            member_id=joined.member_id,
            generation=joined.generation,
            assignments=((joined.member_id, b"all"),),
        )
        assert (await self.groups.sync(key, event)).assignment == b"all"
        return joined.member_id

    async def heartbeat(self, member_id: str, generation: int = 1) -> GroupErrorCode:
        event = MemberHeartbeat(member_id=member_id, generation=generation)
        return (await self.groups.heartbeat(KEY, event)).error


def run(story: Callable[[], Awaitable[None]]) -> None:
    async def bounded() -> None:
        async with asyncio.timeout(HANG_S):
            await story()

    asyncio.run(bounded())


async def settled() -> None:
    """Everything that is ready has run."""
    for _ in range(10):
        await asyncio.sleep(0)
