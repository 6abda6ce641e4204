"""The operator reaches the same result when it is killed with -9 between any two calls.

Complete life cycles of a group (`tests.loghub_operator.support.lifecycles`) on the real apiserver, with an
operator that is killed and started again.
"""

import asyncio
import os
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loghub_operator.clients.kube import AioKube, configured
from loghub_operator.controller import app as program
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.crash_injection import (
    AtCall,
    Doom,
    EachSiteOnce,
    Fate,
    MortalKube,
    Never,
    When,
    mortal_connect,
)
from tests.loghub_operator.support.harness import Stage, make_namespace, play, stage
from tests.loghub_operator.support.lifecycles import (
    adopted_life,
    life_with_a_split,
    life_with_orders,
    whole_life,
)

pytestmark = pytest.mark.cluster

Lifecycle = Callable[[Stage], Awaitable[None]]

CONCURRENT = 4
# The life cycles, and of how many reads one is tested. One run takes about 5, 8, 2 and 40 s, all about 40
# minutes.
DEEP: tuple[tuple[Lifecycle, int], ...] = (
    (whole_life, 8),
    (life_with_orders, 8),
    (adopted_life, 4),
    (life_with_a_split, 40),
)


class Deployment:
    """Starts the operator again whenever it was killed."""

    def __init__(self, on: Stage, doom: Doom) -> None:
        self._on = on
        self._doom = doom
        self.starts = 0

    async def run(self) -> None:
        async with AioKube(await configured()) as kube:
            while True:
                self.starts += 1
                await self._run_once(kube)

    async def _run_once(self, kube: AioKube) -> None:
        loop, dead = asyncio.get_running_loop(), asyncio.Event()

        def dies() -> None:
            loop.call_soon_threadsafe(dead.set)

        fate = Fate(self._doom, dies)
        on, stop = self._on, asyncio.Event()
        connect = mortal_connect(on.connect, fate)
        operator = asyncio.create_task(
            program.run(on.settings, stop, connect=connect, kube=MortalKube(kube, fate))
        )
        died = asyncio.create_task(dead.wait())
        try:
            await asyncio.wait((operator, died), return_when=asyncio.FIRST_COMPLETED)
            assert dead.is_set(), f"it ended by itself: {operator}"
        finally:
            for task in (operator, died):
                task.cancel()
            # Without suppressing what they raise, so that a cancellation of this task is noticed.
            await asyncio.gather(operator, died, return_exceptions=True)


async def _with(on: Stage, doom: Doom, lifecycle: Lifecycle) -> int:
    """Play the life cycle with an operator that is killed so; return how often it was started."""
    deployment = Deployment(on, doom)
    running = asyncio.create_task(deployment.run())
    lifecycle_task = asyncio.ensure_future(lifecycle(on))
    try:
        await asyncio.wait((running, lifecycle_task), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        lifecycle_task.result()
    finally:
        for task in (running, lifecycle_task):
            task.cancel()
        await asyncio.gather(running, lifecycle_task, return_exceptions=True)
    return deployment.starts


def test_the_operator_survives_a_kill_at_each_kind_of_call(server: Apiserver, tmp_path: Path) -> None:
    doom = EachSiteOnce()
    _killed_often(server, tmp_path, doom, whole_life)
    struck = {site for site, _ in doom.struck}
    assert struck >= {
        "apply LogHubConsumerGroup status",
        "apply StatefulSet annotations,labels,ownerReferences,spec",
        "delete StatefulSet",
        "log service create_group",
        "log service update_group",
        "log service delete_group",
    }
    assert ("log service create_group", "after") in doom.struck


def test_each_checkpoint_reset_is_executed_once_despite_kills(server: Apiserver, tmp_path: Path) -> None:
    """The backup contains the checkpoints from before the reset, not those that a killed attempt had
    moved."""
    doom = EachSiteOnce()
    _killed_often(server, tmp_path, doom, life_with_orders)
    for moment in (("log service update_checkpoint", "before"), ("log service update_checkpoint", "after")):
        assert moment in doom.struck
    assert "log service delete_group" not in {site for site, _ in doom.struck}


@pytest.mark.deep
def test_an_adopted_group_is_never_treated_as_created_despite_kills(
    server: Apiserver, tmp_path: Path
) -> None:
    doom = EachSiteOnce()
    _killed_often(server, tmp_path, doom, adopted_life)
    struck = {site for site, _ in doom.struck}
    assert "log service update_group" in struck
    assert not struck & {"log service create_group", "log service delete_group"}


def _killed_often(server: Apiserver, folder: Path, doom: EachSiteOnce, lifecycle: Lifecycle) -> None:
    async def play_it(on: Stage) -> None:
        starts = await _with(on, doom, lifecycle)
        # The life cycle may be over before the operator is started after its last kill.
        assert starts - len(doom.struck) in (0, 1)

    stage(server, folder, play_it, operator=False)


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("lifecycle", "every"), DEEP, ids=[lifecycle.__name__ for lifecycle, _ in DEEP])
def test_the_operator_survives_a_kill_before_and_after_every_write_and_between_reads(
    lifecycle: Lifecycle, every: int, server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """One life cycle for each kill, `CONCURRENT` at a time: before each write, after it, and before every
    n-th read, beginning with that of `LOGHUB_TEST_KILL_OFFSET` (default 0), so that runs with 0, 1, 2 and so
    on test them all. An undisturbed life cycle shows how many calls there are."""
    monkeypatch.setenv("KUBECONFIG", str(server.as_the_operator(tmp_path)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    seen = Never()
    _live(server, lifecycle, seen)
    chosen = dooms(seen, every=every, offset=int(os.environ.get("LOGHUB_TEST_KILL_OFFSET", "0")))
    # Each has a loop and so a thread of its own, because Kopf ends all tasks of its loop.
    with ThreadPoolExecutor(CONCURRENT) as threads:
        ends = list(threads.map(lambda doom: _end(server, lifecycle, doom), chosen))
    assert [end for end in ends if end] == []
    # Life cycles differ by a few rounds, so the last calls may not be reached.
    assert sum(bool(doom.struck) for doom in chosen) > 0.8 * len(chosen)


def dooms(seen: Never, *, every: int, offset: int) -> list[AtCall]:
    """Kills at all writes, and at every n-th read."""
    writes = set(seen.writes)
    reads = [number for number, site in enumerate(seen.sites) if site not in writes]
    attempted = {number for number, site in enumerate(seen.sites) if site in writes}
    attempted |= set(reads[offset % every :: every])
    before = [AtCall(number, "before") for number in sorted(attempted)]
    return before + [AtCall(number, "after") for number in range(len(seen.writes))]


def test_the_offsets_try_every_call() -> None:
    seen = Never()
    sites = ["get A", "apply A", "get B", "get A", "get A", "delete A", "get B"]
    for site in sites:
        seen.strikes(site, "before", write=not site.startswith("get"))
    attempted = [dooms(seen, every=2, offset=offset) for offset in (0, 1, 2)]
    assert [len(kills) for kills in attempted] == [2 + 3 + 2, 2 + 2 + 2, 2 + 3 + 2]
    deaths = {_death(doom, sites) for kills in attempted for doom in kills}
    befores = {(number, "before") for number in range(len(sites))}
    assert deaths == befores | {(1, "after"), (5, "after")}


def _death(doom: AtCall, sites: list[str]) -> tuple[int, When]:
    whens: tuple[When, ...] = ("before", "after")
    moments = [(number, site, when) for number, site in enumerate(sites) for when in whens]
    return next(
        (number, when)
        for number, site, when in moments
        if doom.strikes(site, when, write=not site.startswith("get"))
    )


def _live(server: Apiserver, lifecycle: Lifecycle, doom: Doom) -> None:
    async def play_it(on: Stage) -> None:
        await _with(on, doom, lifecycle)

    asyncio.run(play(server.kubeconfig, make_namespace(server), play_it, operator=False))


def _end(server: Apiserver, lifecycle: Lifecycle, doom: AtCall) -> str:
    """A description of the failure of this life cycle, or an empty text."""
    try:
        _live(server, lifecycle, doom)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all failures are reported together
        return f"killed {doom.struck}: {error!r}"
    return ""
