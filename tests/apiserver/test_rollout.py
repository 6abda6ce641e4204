"""A rollout whose second worker breaks, as the tools of users see it: `kubectl wait`, `helm --wait`, Flux's
kstatus and Argo CD's health script are the real ones, over a real apiserver. Pods are simulated
(`tests.loghub_operator.support.harness`); `tests.cluster.test_rollout` has real ones.
"""

import asyncio
import json
import os
import subprocess
from collections.abc import AsyncIterator
from contextlib import asynccontextmanager
from pathlib import Path

import pytest

from loghub_operator.api.labels import ANNOTATION_REVISION, worker_selector
from loghub_operator.clients.kube import CONFIG_MAP, POD
from loghub_operator.model.revision import Revision
from tests.cluster.fixtures import (
    health,  # noqa: F401 - fixtures
    helm,  # noqa: F401 - fixtures
)
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.harness import GROUP, Stage, stage
from tests.loghub_operator.support.health import judged
from tests.loghub_operator.support.player import Player
from tests.loghub_operator.support.watched_versions import documents

pytestmark = pytest.mark.cluster

DEADLINE_S = 3
FIRST, BROKEN, CORRECTED = (
    "SELECT 1 AS a FROM logs",
    "SELECT 2 AS breaks FROM logs",
    "SELECT 3 AS c FROM logs",
)
SECOND = f"{GROUP}-1"  # of three: the highest ordinal is replaced first


class BreakingPlayer(Player):
    """The second worker that gets the broken query fails, the first one does not."""

    def fails(self, name: str, sql: str) -> bool:
        return name == SECOND and sql == BROKEN


def spec(sql: str, **more: object) -> Document:
    worker = {"progressDeadlineSeconds": DEADLINE_S}
    return {"replicas": 3, "pipeline": {"sql": sql}, "worker": worker, **more}


@asynccontextmanager
async def command(*arguments: str, **environment: str) -> AsyncIterator["asyncio.subprocess.Process"]:
    """A program of a user, ended with the block."""
    pipe = asyncio.subprocess.PIPE
    running = await asyncio.create_subprocess_exec(
        *arguments, stdout=pipe, stderr=asyncio.subprocess.STDOUT, env={**os.environ, **environment}
    )
    try:
        yield running
    finally:
        if running.returncode is None:
            running.kill()
        await running.wait()


def kubectl(server: Apiserver, on: Stage, *arguments: str) -> tuple[str, ...]:
    return (*server.command, "-n", on.namespace, *arguments)


class Versions:
    """Every version of the object that a watch delivers."""

    def __init__(self, running: "asyncio.subprocess.Process") -> None:
        self._running = running
        self._text = ""
        self.first = asyncio.Event()
        self._reading = asyncio.create_task(self._read())

    async def _read(self) -> None:
        assert self._running.stdout is not None
        while piece := await self._running.stdout.read(65_536):
            self._text += piece.decode()
            self.first.set()

    async def end(self) -> list[Document]:
        self._running.terminate()
        await self._reading
        return list(documents(self._text))


async def settings_of_workers(on: Stage) -> list[str]:
    """The query of each worker that exists."""
    pods = await on.kube.list(POD, on.namespace, worker_selector(GROUP))
    revisions = [Revision.parse(pod["metadata"]["annotations"][ANNOTATION_REVISION]) for pod in pods]
    found = [await on.get(CONFIG_MAP, f"{GROUP}-{one.settings}") for one in revisions]
    return [json.loads(one["data"]["worker.json"])["pipeline"]["text"] for one in found if one is not None]


def test_no_tool_passes_before_every_worker_runs_the_new_settings(
    server: Apiserver,
    health: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    async def story(on: Stage) -> None:
        wait = ("wait", f"lhcg/{GROUP}", "--timeout=110s")
        await on.apply(spec(FIRST))
        await on.until_phase("Running", "3/3")
        async with command(*kubectl(server, on, "get", "lhcg", GROUP, "-w", "-o", "json")) as watching:
            versions = Versions(watching)
            await versions.first.wait()
            await on.apply(spec(BROKEN))
            async with (
                command(*kubectl(server, on, *wait, "--for=condition=Ready")) as ready,
                command(*kubectl(server, on, *wait, "--for=condition=Stalled")) as stalled,
            ):
                await on.until_reason("Stalled", "ProgressDeadlineExceeded")
                assert await stalled.wait() == 0

                async def waits_for_second() -> bool:
                    """A slow machine may let the first worker exceed the deadline, too."""
                    named = SECOND in (await on.condition("Stalled")).get("message", "")
                    status = await on.status()
                    return named and (status["updatedReplicas"], status["workers"]) == (2, "2/3")

                await on.until(f"the rollout waits for {SECOND}", waits_for_second)
                assert (await on.status())["phase"] == "Degraded"
                assert ready.returncode is None, "kubectl wait went on"
                await on.apply(spec(CORRECTED))
                assert await ready.wait() == 0
                assert await settings_of_workers(on) == [CORRECTED] * 3
            await on.until_phase("Running", "3/3")
            await on.apply(spec(CORRECTED, suspend=True))
            await on.until_phase("Suspended", "0/0")
            _, error = await asyncio.to_thread(_wait_ready, server, on)
            assert error == 0
            seen = await versions.end()
        judge(health, seen)

    stage(server, tmp_path, story, player=BreakingPlayer)


def _wait_ready(server: Apiserver, on: Stage) -> tuple[str, int]:
    arguments = ("wait", f"lhcg/{GROUP}", "--for=condition=Ready", "--timeout=60s")
    done = subprocess.run(kubectl(server, on, *arguments), capture_output=True, text=True, check=False)
    return done.stdout + done.stderr, done.returncode


def judge(health: Path, seen: list[Document]) -> None:  # noqa: F811
    """Flux and Argo CD pass the first, the corrected and the suspended generation, and no version of the
    broken one; each only with three workers of that generation, or none.
    """
    passed: dict[int, set[tuple[int, int, int]]] = {}
    last: dict[int, tuple[str, str]] = {}
    for version, judgement in zip(seen, judged(health, seen), strict=True):
        generation, status = version["metadata"]["generation"], version["status"]
        last[generation] = judgement.kstatus, judgement.argo
        if judgement.passes:
            numbers = tuple(status[name] for name in ("replicas", "readyReplicas", "updatedReplicas"))
            passed.setdefault(generation, set()).add(numbers)
    assert passed == {1: {(3, 3, 3)}, 3: {(3, 3, 3)}, 4: {(0, 0, 0)}}
    assert last[4] == ("Current", "Healthy")
    broken = [one for one in seen if one["metadata"]["generation"] == 2]
    # How many versions there are depends on how many writes the operator makes of one round.
    assert [one.kstatus for one in judged(health, broken[:1])] == ["InProgress"]
    assert ("Failed", "Degraded") in {(one.kstatus, one.argo) for one in judged(health, broken)}


def test_helm_waits_for_every_worker_and_reports_the_broken_one(
    server: Apiserver,
    helm: Path,  # noqa: F811
    tmp_path: Path,
) -> None:
    chart = tmp_path / "chart"
    (chart / "templates").mkdir(parents=True)
    (chart / "Chart.yaml").write_text("apiVersion: v2\nname: access\nversion: 0.1.0\n")
    group = document({"project": "demo", **spec("{{ .Values.sql }}")})
    del group["metadata"]["namespace"]
    (chart / "templates" / "group.json").write_text(json.dumps(group))

    async def story(on: Stage) -> None:
        def release(verb: str, sql: str) -> tuple[str, ...]:
            options = ("--kubeconfig", str(server.kubeconfig), "-n", on.namespace, "--wait", "--timeout=60s")
            return (str(helm), verb, GROUP, str(chart), *options, "--set-string", f"sql={sql}")

        homes = {f"HELM_{name}_HOME": str(tmp_path / name.lower()) for name in ("CACHE", "CONFIG", "DATA")}
        async with command(*release("install", FIRST), **homes) as installing:
            said, _ = await installing.communicate()
            assert installing.returncode == 0, said.decode()
        assert await settings_of_workers(on) == [FIRST] * 3
        async with command(*release("upgrade", BROKEN), **homes) as upgrading:
            said, _ = await upgrading.communicate()
            assert upgrading.returncode not in (0, None), "helm passed a rollout that never ended"
            assert SECOND in said.decode()
        async with command(*release("upgrade", CORRECTED), **homes) as upgrading:
            said, _ = await upgrading.communicate()
            assert upgrading.returncode == 0, said.decode()
        assert await settings_of_workers(on) == [CORRECTED] * 3

    stage(server, tmp_path, story, player=BreakingPlayer)
