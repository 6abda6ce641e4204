"""Killed with -9 between any two calls, the operator reaches the same end.

Whole lives of a group (`tests.loghub_operator.support.lifecycles`) over the real apiserver, with an operator
that dies and is started anew."""

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

Story = Callable[[Stage], Awaitable[None]]

AT_ONCE = 4
# Of so many reads one is tried. A life takes about 5, 8, 2 and 40 s, all of them about 40 minutes.
DEEP: tuple[tuple[Story, int], ...] = (
    (whole_life, 8),
    (life_with_orders, 8),
    (adopted_life, 4),
    (life_with_a_split, 40),
)


class Deployment:
    """Starts the operator anew whenever it was killed."""

    def __init__(self, on: Stage, doom: Doom) -> None:
        self._on = on
        self._doom = doom
        self.lives = 0

    async def run(self) -> None:
        async with AioKube(await configured()) as kube:
            while True:
                self.lives += 1
                await self._life(kube)

    async def _life(self, kube: AioKube) -> None:
        loop, dead = asyncio.get_running_loop(), asyncio.Event()

        def dies() -> None:
            loop.call_soon_threadsafe(dead.set)

        fate = Fate(self._doom, dies)
        on, stop = self._on, asyncio.Event()
        connect = mortal_connect(on.connect, fate)
        life = asyncio.create_task(
            program.run(on.settings, stop, connect=connect, kube=MortalKube(kube, fate))
        )
        died = asyncio.create_task(dead.wait())
        try:
            await asyncio.wait((life, died), return_when=asyncio.FIRST_COMPLETED)
            assert dead.is_set(), f"it ended by itself: {life}"
        finally:
            for task in (life, died):
                task.cancel()
            # Not by suppressing what they raise: who cancels us meanwhile, in the last life, is heard.
            await asyncio.gather(life, died, return_exceptions=True)


async def _with(on: Stage, doom: Doom, story: Story) -> int:
    """Play it over an operator of this fate; how many lives that took."""
    deployment = Deployment(on, doom)
    running = asyncio.create_task(deployment.run())
    telling = asyncio.ensure_future(story(on))
    try:
        await asyncio.wait((running, telling), return_when=asyncio.FIRST_COMPLETED)
        if running.done():
            running.result()
        telling.result()
    finally:
        for task in (running, telling):
            task.cancel()
        await asyncio.gather(running, telling, return_exceptions=True)
    return deployment.lives


def test_killed_once_at_each_kind_of_call(server: Apiserver, tmp_path: Path) -> None:
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


def test_killed_amid_orders_each_is_carried_out_once(server: Apiserver, tmp_path: Path) -> None:
    """What is kept for undo are the checkpoints from before, not those that a killed try had moved."""
    doom = EachSiteOnce()
    _killed_often(server, tmp_path, doom, life_with_orders)
    for moment in (("log service update_checkpoint", "before"), ("log service update_checkpoint", "after")):
        assert moment in doom.struck
    assert "log service delete_group" not in {site for site, _ in doom.struck}


def test_killed_with_a_group_of_others_it_is_never_taken_for_our_own(
    server: Apiserver, tmp_path: Path
) -> None:
    doom = EachSiteOnce()
    _killed_often(server, tmp_path, doom, adopted_life)
    struck = {site for site, _ in doom.struck}
    assert "log service update_group" in struck
    assert not struck & {"log service create_group", "log service delete_group"}


def _killed_often(server: Apiserver, folder: Path, doom: EachSiteOnce, life: Story) -> None:
    async def story(on: Stage) -> None:
        lives = await _with(on, doom, life)
        # The story may be over before who was killed last is started anew.
        assert lives - len(doom.struck) in (0, 1)

    stage(server, folder, story, operator=False)


@pytest.mark.deep
@pytest.mark.timeout(3600)
@pytest.mark.parametrize(("story", "every"), DEEP, ids=[story.__name__ for story, _ in DEEP])
def test_killed_before_and_after_every_write_and_between_reads(
    story: Story, every: int, server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life for each death, `AT_ONCE` at a time: before each write, after it, and before every so
    many-th read, beginning with that of `LOGHUB_TEST_KILL_OFFSET` (default 0), so that runs with 0, 1,
    2 and so on try them all. How many calls there are is seen in a life that is not disturbed.
    """
    monkeypatch.setenv("KUBECONFIG", str(server.as_the_operator(tmp_path)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    seen = Never()
    _live(server, story, seen)
    chosen = dooms(seen, every=every, offset=int(os.environ.get("LOGHUB_TEST_KILL_OFFSET", "0")))
    # A loop, and so a thread, for each: Kopf ends with all tasks of its loop.
    with ThreadPoolExecutor(AT_ONCE) as threads:
        ends = list(threads.map(lambda doom: _end(server, story, doom), chosen))
    assert [end for end in ends if end] == []
    # Lives differ by a few rounds, so the last numbers may not be reached.
    assert sum(bool(doom.struck) for doom in chosen) > 0.8 * len(chosen)


def dooms(seen: Never, *, every: int, offset: int) -> list[AtCall]:
    """All writes, and of the reads every so many-th."""
    writes = set(seen.writes)
    reads = [number for number, site in enumerate(seen.sites) if site not in writes]
    tried = {number for number, site in enumerate(seen.sites) if site in writes}
    tried |= set(reads[offset % every :: every])
    before = [AtCall(number, "before") for number in sorted(tried)]
    return before + [AtCall(number, "after") for number in range(len(seen.writes))]


def test_the_offsets_try_every_call() -> None:
    seen = Never()
    sites = ["get A", "apply A", "get B", "get A", "get A", "delete A", "get B"]
    for site in sites:
        seen.strikes(site, "before", write=not site.startswith("get"))
    tried = [dooms(seen, every=2, offset=offset) for offset in (0, 1, 2)]
    assert [len(one) for one in tried] == [2 + 3 + 2, 2 + 2 + 2, 2 + 3 + 2]
    deaths = {_death(doom, sites) for one in tried for doom in one}
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


def _live(server: Apiserver, story: Story, doom: Doom) -> None:
    async def told(on: Stage) -> None:
        await _with(on, doom, story)

    asyncio.run(play(server.kubeconfig, make_namespace(server), told, operator=False))


def _end(server: Apiserver, story: Story, doom: AtCall) -> str:
    """What went wrong in this life, if anything did."""
    try:
        _live(server, story, doom)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all lives are told of
        return f"killed {doom.struck}: {error!r}"
    return ""
