"""Killed with -9 between any two calls, the operator reaches the same end.

A whole life of a group over the real apiserver, with an operator that dies and is started anew.
"""

import asyncio
import contextlib
from collections.abc import Awaitable, Callable
from concurrent.futures import ThreadPoolExecutor
from pathlib import Path

import pytest

from loghub.client.port import GroupInfo
from loghub_operator import __main__ as program
from loghub_operator.kube import CONFIG_MAP, POD, SERVICE, STATEFUL_SET, AioKube, configured
from loghub_operator.names import ANNOTATION_CONFIG_HASH, worker_selector
from tests.loghub_operator.api_server import Apiserver
from tests.loghub_operator.examples import Document
from tests.loghub_operator.mortal import (
    AtCall,
    Doom,
    EachSiteOnce,
    Fate,
    Killed,
    MortalKube,
    Never,
    mortal_connect,
)
from tests.loghub_operator.stage import GROUP, LOGSTORE, Stage, make_namespace, play, stage
from tests.loghub_operator.test_cluster_orders import checkpoints, cursors, fill, until_moved

pytestmark = pytest.mark.cluster

AT_ONCE = 4


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
        fate = Fate(self._doom, lambda: loop.call_soon_threadsafe(dead.set) and None)
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
                with contextlib.suppress(asyncio.CancelledError, Killed):
                    await task


async def _with(on: Stage, doom: Doom, story: Callable[[Stage], Awaitable[None]]) -> int:
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


def _spec(replicas: int, **more: Document | int) -> Document:
    return {"replicas": replicas, "deletionPolicy": "Delete", **more}


async def whole_life(on: Stage) -> None:
    await on.apply(_spec(2))
    await on.until_phase("Running", "2/2")
    assert on.hub.list_groups(LOGSTORE) == (GroupInfo(name=GROUP, timeout_s=30, order=False),)
    await on.apply(_spec(3))
    await on.until_phase("Running", "3/3")
    await on.apply(_spec(1))
    await on.until_phase("Running", "1/1")
    assert on.player.stopped_without_leaving == []
    sql = "SELECT contents FROM logs"
    await on.apply(_spec(1, timeoutSeconds=40, pipeline={"sql": sql}))
    await _until_rolled(on, sql)
    await on.until_phase("Running", "1/1")
    assert on.hub.list_groups(LOGSTORE) == (GroupInfo(name=GROUP, timeout_s=40, order=False),)
    status = await on.status()
    assert status["groupOrigin"] == "Created"
    assert {shard["holder"] for shard in status["shards"]} == {"access-0"}
    await on.remove()
    await on.until_gone()
    await _nothing_is_left(on)


async def _until_rolled(on: Stage, sql: str) -> None:
    """The one worker runs with these settings."""

    async def holds() -> bool:
        pod = await on.get(POD, "access-0")
        if pod is None or not pod.get("status", {}).get("containerStatuses", [{}])[0].get("ready"):
            return False
        name = f"{GROUP}-{pod['metadata']['annotations'][ANNOTATION_CONFIG_HASH]}"
        config = await on.get(CONFIG_MAP, name)
        return config is not None and sql in config["data"]["worker.json"]

    await on.until("access-0 with the new settings", holds)


async def _nothing_is_left(on: Stage) -> None:
    assert on.hub.list_groups(LOGSTORE) == ()
    assert on.player.stopped_without_leaving == []
    for kind in (STATEFUL_SET, POD, SERVICE, CONFIG_MAP):
        assert await on.kube.select(kind, on.namespace, worker_selector(GROUP)) == []


def test_killed_once_at_each_kind_of_call(server: Apiserver, tmp_path: Path) -> None:
    doom = EachSiteOnce()

    async def story(on: Stage) -> None:
        lives = await _with(on, doom, whole_life)
        assert lives == len(doom.struck) + 1

    stage(server, tmp_path, story, operator=False)
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
    doom = EachSiteOnce(armed=False)

    async def orders(on: Stage) -> None:
        fill(on.server)
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        before, end = checkpoints(on), cursors(on, "end")
        assert before != end
        doom.armed = True
        await on.apply({"replicas": 2, "reposition": {"to": "end", "nonce": "one"}})
        done = await until_moved(on, "one", "Done")
        assert checkpoints(on) == end
        kept = await on.get(CONFIG_MAP, done["undo"])
        assert kept is not None
        assert kept["data"] == {str(shard): cursor for shard, cursor in before.items()}
        await on.until_phase("Running", "2/2")
        await on.apply({"replicas": 2, "suspend": True})
        await on.until_phase("Paused", "0/0")
        assert on.player.stopped_without_leaving == []
        await on.apply({"replicas": 1})
        await on.until_phase("Running", "1/1")
        assert checkpoints(on) == end

    async def story(on: Stage) -> None:
        await _with(on, doom, orders)

    stage(server, tmp_path, story, operator=False)
    for moment in (("log service update_checkpoint", "before"), ("log service update_checkpoint", "after")):
        assert moment in doom.struck


@pytest.mark.deep
@pytest.mark.timeout(7200)
def test_killed_before_every_call_and_after_every_write(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """A life for each, `AT_ONCE` at a time; how many calls there are is seen in one that is not disturbed."""
    monkeypatch.setenv("KUBECONFIG", str(server.as_the_operator(tmp_path)))
    monkeypatch.delenv("KUBERNETES_SERVICE_HOST", raising=False)
    seen = Never()
    _live(server, seen)
    dooms = [AtCall(number, "before") for number in range(len(seen.sites))]
    dooms += [AtCall(number, "after") for number in range(len(seen.writes))]
    # A loop, and so a thread, for each: Kopf ends with all tasks of its loop.
    with ThreadPoolExecutor(AT_ONCE) as threads:
        ends = list(threads.map(lambda doom: _end(server, doom), dooms))
    assert [end for end in ends if end] == []
    # Lives differ by a few rounds, so the last numbers may not be reached.
    assert sum(bool(doom.struck) for doom in dooms) > 0.8 * len(dooms)


def _live(server: Apiserver, doom: Doom) -> None:
    async def story(on: Stage) -> None:
        await _with(on, doom, whole_life)

    asyncio.run(play(server.kubeconfig, make_namespace(server), story, operator=False))


def _end(server: Apiserver, doom: AtCall) -> str:
    """What went wrong in this life, if anything did."""
    try:
        _live(server, doom)
    except (Exception, pytest.fail.Exception) as error:  # noqa: BLE001 - all lives are told of
        return f"killed {doom.struck}: {error!r}"
    return ""
