"""What a connection holds in memory for a client whose requests wait, by a transport without a socket."""

import asyncio
from collections.abc import Awaitable, Callable

import pytest

from loghub_service.connections.frames import FrameResources
from loghub_service.connections.stalled import StalledClients
from loghub_service.kafka.broker.answer import NO_ANSWER, Answer, BrokerCounts, BrokerLimits, Complete
from loghub_service.kafka.broker.connection import KafkaConnection
from loghub_service.messages import MemoryBudget
from tests.loghub_service.kafka.broker.broker_place import ShiftedClock

LIMITS = BrokerLimits(free_bytes=1000, frame_bytes=100_000, queued_requests=8)
OVERLAPPING = b"o"


class FakeTransport(asyncio.Transport):
    def __init__(self) -> None:
        super().__init__()
        self.reads = True
        self.closing = False

    def pause_reading(self) -> None:
        self.reads = False

    def resume_reading(self) -> None:
        self.reads = True

    def is_closing(self) -> bool:
        return self.closing

    def close(self) -> None:
        self.closing = True

    def abort(self) -> None:
        self.closing = True


class FakePlace:
    peer, evicted, busy, waiting = "peer", False, False, False


class WaitingSession:
    """Every request waits until the test lets it go on."""

    is_logged_in = True

    def __init__(self) -> None:
        self.go_on = asyncio.Event()
        self.begun = 0
        self.closed = False

    def close(self) -> None:
        self.closed = True

    def overlaps(self, frame: bytes) -> bool:
        return frame.startswith(OVERLAPPING)

    async def begin(self, frame: bytes) -> Complete:
        self.begun += 1
        return self._complete

    async def _complete(self) -> Answer:
        await self.go_on.wait()
        return NO_ANSWER


class CountingHolders(StalledClients):
    """How often a request has found no memory."""

    refusals = 0

    def end_oldest(self) -> None:
        self.refusals += 1
        super().end_oldest()


class Stage:
    """A connection that is open, and its parts."""

    def __init__(self, *, memory: int) -> None:
        self.clock = ShiftedClock()
        self.holders = CountingHolders(self.clock, grace_s=1)
        self.budget = MemoryBudget("requests", limit=memory)
        self.session = WaitingSession()
        self.transport = FakeTransport()
        self.connection = KafkaConnection(
            FakePlace(),
            resources=FrameResources(
                limits=LIMITS,
                budget=self.budget,
                holders=self.holders,
                stalled=StalledClients(self.clock, grace_s=1),
            ),
            counts=BrokerCounts(),
            make_session=lambda _: self.session,
            on_closed=lambda _: None,
        )
        self.connection.connection_made(self.transport)

    def receive(self, data: bytes) -> None:
        """As a transport does, which asks for a buffer until it has nothing more."""
        while data:
            buffer = self.connection.get_buffer(-1)
            size = min(len(buffer), len(data))
            buffer[:size] = data[:size]
            data = data[size:]
            self.connection.buffer_updated(size)

    async def settle(self) -> None:
        """Let the tasks of the connection go as far as they can."""
        for _ in range(20):
            await asyncio.sleep(0)


def frame(size: int, *, overlaps: bool = False) -> bytes:
    return size.to_bytes(4, "big") + (OVERLAPPING if overlaps else b"x") * size


def run(story: Callable[[Stage], Awaitable[None]], *, memory: int = 50_000) -> None:
    async def play() -> None:
        stage = Stage(memory=memory)
        try:
            await story(stage)
        finally:
            stage.connection.connection_lost(None)
            await stage.settle()
        assert stage.budget.used == 0

    asyncio.run(play())


def test_requests_beyond_the_free_bytes_take_memory_and_give_it_back() -> None:
    async def story(stage: Stage) -> None:
        for _ in range(6):
            stage.receive(frame(400))
        await stage.settle()
        assert stage.budget.used == 4 * 400
        stage.session.go_on.set()
        await stage.settle()
        assert stage.budget.used == 0
        stage.receive(frame(400))
        assert stage.budget.used == 0

    run(story)


@pytest.mark.parametrize("before", ["waits for the answers before", "waits for a place among the answers"])
def test_a_client_that_leaves_gives_back_the_memory_of_a_request_that_waits(before: str) -> None:
    async def story(stage: Stage) -> None:
        overlaps = "place" in before
        stage.receive(frame(10, overlaps=overlaps))
        for _ in range(LIMITS.queued_requests if overlaps else 0):
            await stage.settle()
            stage.receive(frame(10, overlaps=True))
        await stage.settle()
        stage.receive(frame(20_000, overlaps=overlaps))
        await stage.settle()
        assert stage.budget.used == 20_000

    run(story)


@pytest.mark.parametrize("others", [1, LIMITS.queued_requests])
def test_nothing_more_is_received_while_a_request_waits_for_memory(others: int) -> None:
    async def story(stage: Stage) -> None:
        stage.budget.used = 45_000  # by others
        stage.receive(others * frame(10) + frame(20_000)[:100])
        assert not stage.transport.reads
        await stage.settle()  # the first one begins
        assert stage.session.begun == 1
        assert not stage.transport.reads
        stage.budget.used = 0

    run(story)


def test_a_request_that_waits_for_memory_asks_again_by_one_timer_only() -> None:
    """Not whenever an earlier request begins as well: each attempt would start a timer more."""

    async def story(stage: Stage) -> None:
        stage.budget.used = 45_000  # by others
        stage.receive(5 * frame(10) + frame(20_000)[:100])
        assert stage.holders.refusals == 1
        stage.session.go_on.set()
        await stage.settle()
        assert stage.session.begun == 5
        assert stage.holders.refusals == 1
        stage.budget.used = 0
        while not stage.transport.reads:
            await asyncio.sleep(0.01)
        assert stage.budget.used == 20_000
        stage.receive(frame(20_000)[100:])
        await stage.settle()
        assert stage.session.begun == 6

    run(story)


@pytest.mark.parametrize("is_read", [True, False])
def test_memory_of_requests_behind_an_answer_that_is_not_read_is_there_for_others(is_read: bool) -> None:
    """As long as the client reads, the requests wait for the service, and are no reason to end it."""

    async def story(stage: Stage) -> None:
        stage.receive(frame(20_000))
        if not is_read:
            stage.connection.pause_writing()
        stage.clock.ahead_s += 2
        stage.holders.end_oldest()
        assert stage.transport.closing is not is_read

    run(story)


def test_each_request_may_wait_for_memory_for_the_whole_time(monkeypatch: pytest.MonkeyPatch) -> None:
    """One that was free in the end, since those before it were answered, takes none from the next one."""

    async def story(stage: Stage) -> None:
        stage.budget.used = 50_000  # by others
        stage.receive(frame(900) + frame(500)[:100])
        await stage.settle()
        assert stage.holders.refusals == 1
        stage.session.go_on.set()
        while not stage.transport.reads:
            await asyncio.sleep(0.01)
        loop = asyncio.get_running_loop()
        later_s = loop.time() + LIMITS.memory_wait_s
        monkeypatch.setattr(loop, "time", lambda: later_s)
        stage.receive(frame(500)[100:] + frame(20_000)[:100])
        assert stage.holders.refusals == 2
        assert not stage.transport.closing
        stage.budget.used = 0

    run(story)


def test_one_read_brings_no_more_than_the_buffer_that_all_connections_share() -> None:
    async def story(stage: Stage) -> None:
        other = Stage(memory=0)
        assert len(stage.connection.get_buffer(1 << 20)) <= 16 << 10
        other.connection.connection_lost(None)

    run(story)
