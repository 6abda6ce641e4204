"""`kubectl loghub` over a real apiserver, with the whole operator and the real kubectl.

No pod runs here, so what `kubectl exec` and `kubectl logs` would get from a kubelet is in files; every other
request reaches the apiserver.
"""

import asyncio
import contextlib
import io
import json
import os
import re
import shlex
import signal
import sys
import threading
import zipfile
from collections.abc import AsyncIterator, Callable
from contextlib import asynccontextmanager
from dataclasses import dataclass
from pathlib import Path

import pytest

from loghub_cli.plugin.main import main
from loghub_operator.clients.kube import STATEFUL_SET
from loghub_worker.positions import positions
from tests.cluster import build
from tests.cluster.processes import BRIEF
from tests.loghub_cli.plugin.planted import PLANTED, planted_log
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import GROUP, GUARD_S, LOGSTORE, Stage, stage

pytestmark = pytest.mark.cluster

# `exec` and `logs` are answered as a kubelet would, and recorded; all else is the real program.
KUBECTL = """#!/bin/sh
case "$1" in
exec) echo "$@" >> {folder}/exec; exec cat {folder}/positions ;;
logs) exec cat {folder}/log ;;
*) exec {real} --cache-dir {cache} "$@" ;;
esac
"""


class OutputOfThread(io.StringIO):
    """What this thread prints; the operator logs in others."""

    def __init__(self) -> None:
        super().__init__()
        self._owner = threading.get_ident()

    def write(self, text: str) -> int:
        if threading.get_ident() == self._owner:
            return super().write(text)
        assert sys.__stdout__ is not None
        return sys.__stdout__.write(text)


@dataclass(frozen=True)
class Plugin:
    """The plugin as a user has it: programs on PATH, a kubeconfig, a namespace."""

    folder: Path
    options: tuple[str, ...]

    @classmethod
    def installed(cls, folder: Path, server: Apiserver, namespace: str) -> "Plugin":
        real, cache = server.command[0], server.command[-1]
        programs = folder / "bin"
        programs.mkdir()
        code = "import sys; from loghub_cli.plugin.main import main; sys.exit(main())"
        start = f'exec {shlex.quote(sys.executable)} -c "{code}" "$@"'
        for name, text in {
            "kubectl": KUBECTL.format(folder=folder, real=real, cache=cache),
            "kubectl-loghub": f"#!/bin/sh\n{start}\n",
        }.items():
            (programs / name).write_text(text)
            (programs / name).chmod(0o755)
        return cls(folder, ("--kubeconfig", str(server.kubeconfig), "-n", namespace))

    async def __call__(self, *arguments: str) -> tuple[int, str]:
        """The exit status, and what it printed, errors last; in a thread, since the operator runs in this
        one."""
        status, out, err = await asyncio.to_thread(self._run, arguments)
        return status, out + err

    def _run(self, arguments: tuple[str, ...]) -> tuple[int, str, str]:
        out, err = OutputOfThread(), OutputOfThread()
        command, *rest = arguments
        with contextlib.redirect_stdout(out), contextlib.redirect_stderr(err):
            try:
                status = main([command, *self.options, *rest])
            except SystemExit as error:
                status = int(str(error.code))
        return status, out.getvalue(), err.getvalue()

    async def shown(self, *arguments: str) -> str:
        status, text = await self(*arguments)
        assert status == 0, text
        return text

    async def values(self, *arguments: str) -> dict[str, object]:
        status, out, err = await asyncio.to_thread(self._run, (*arguments, "-o", "json"))
        assert status == 0, err
        found = json.loads(out)
        assert isinstance(found, dict)
        return found

    @asynccontextmanager
    async def watching(self, *arguments: str) -> AsyncIterator[asyncio.subprocess.Process]:
        """A process of its own, started by kubectl itself: in a thread it would print into other outputs."""
        command = [str(build.folder() / "kubectl"), "loghub", *arguments, *self.options]
        process = await asyncio.create_subprocess_exec(
            *command, stdout=asyncio.subprocess.PIPE, env=os.environ | BRIEF, start_new_session=True
        )
        try:
            yield process
        finally:
            if process.returncode is None:
                os.killpg(process.pid, signal.SIGKILL)
                await process.wait()


def play(
    server: Apiserver,
    folder: Path,
    patch: pytest.MonkeyPatch,
    story: Callable[[Stage, Plugin], "asyncio.Future[None]"],
) -> None:
    async def played(on: Stage) -> None:
        plugin = Plugin.installed(folder, server, on.namespace)
        patch.setattr(sys, "stdin", io.StringIO())  # nobody is there to agree
        patch.setenv("PATH", f"{folder / 'bin'}{os.pathsep}{os.environ['PATH']}")
        await story(on, plugin)

    stage(server, folder, played)


def test_a_group_is_shown_planned_paused_reset_reported_and_watched(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    async def story(on: Stage, plugin: Plugin) -> None:
        on.player.groups_at_once = 1
        await on.apply({"replicas": 2})
        on.put(8)
        await on.until_phase("Running", "2/2")
        await shows(on, plugin)
        await foretells(on, plugin)
        await previews(on, plugin)
        await reports(on, plugin)
        async with plugin.watching("status", GROUP, "--watch") as watch:
            await pauses_and_resets(on, plugin)
            await explains(on, plugin)
            await on.remove()
            out, _ = await asyncio.wait_for(watch.communicate(), GUARD_S)
        assert watch.returncode == 0
        text = out.decode()
        assert text.splitlines()[-1] == f"LogHubConsumerGroup {GROUP} is deleted"
        assert "wrong: WorkersAvailable InvalidPipeline" in text

    play(server, tmp_path, monkeypatch, story)


async def shows(on: Stage, plugin: Plugin) -> None:
    listed = await plugin.shown("status")
    assert listed.splitlines()[0].split()[:3] == ["NAME", "PHASE", "WORKERS"]
    assert listed.splitlines()[1].split()[:3] == [GROUP, "Running", "2/2"]
    on.client.split_shard(LOGSTORE, 0)

    async def seen() -> bool:
        return len((await on.status())["shards"]) == 6

    await on.until("the children of the split", seen)
    one = await plugin.shown("status", GROUP, "--verbose")
    assert "access-0  ready" in one
    assert re.search(r"^WorkersAvailable +True ", one, re.MULTILINE)
    assert "wrong:" not in one
    tree = await plugin.shown("shards", GROUP, "--tree")
    assert [line.split()[:2] for line in tree.splitlines()[2:4]] == [["├─", "4"], ["└─", "5"]]
    assert (await plugin.values("lag", GROUP))["name"] == GROUP


async def foretells(on: Stage, plugin: Plugin) -> None:
    """What the plan says is what the operator and the log service then do."""
    most = await plugin.values("plan", GROUP, "--replicas", "9")
    assert most["limitedBy"] == "the shards that a worker can hold"
    await on.until("no transfer", lambda: _settled(on))
    plan = await plugin.values("plan", GROUP, "--replicas", "3")
    await on.apply({"replicas": 3})
    await on.until_phase("Running", "3/3")
    await on.until("no transfer", lambda: _settled(on))
    held: dict[str, list[int]] = {f"{GROUP}-{n}": [] for n in range(3)}
    for shard in (await on.status())["shards"]:
        if "consumer" in shard:
            held[shard["consumer"]].append(shard["id"])
    rows = plan["workers"]
    assert isinstance(rows, list)
    assert {row["worker"]: row["then"] for row in rows} == {name: sorted(of) for name, of in held.items()}


async def _settled(on: Stage) -> bool:
    """All that has logs is held, and nothing moves."""
    states = [shard["state"] for shard in (await on.status())["shards"]]
    return set(states) <= {"already_alloc", "over"} and "over" in states


async def previews(on: Stage, plugin: Plugin) -> None:
    async def caught_up() -> bool:
        return ((await on.status()).get("lag") or {}).get("logs") == 0

    await on.until("no lag", caught_up)
    (plugin.folder / "positions").write_text(json.dumps(positions(on.client, LOGSTORE, "begin", ())))
    preview = await plugin.values("reset", GROUP, "--to", "begin", "--dry-run")
    assert (preview["logGroupsThatComeAgain"], preview["logGroupsThatAreSkipped"]) == (8, 0)
    assert "loghub_worker.positions begin" in (plugin.folder / "exec").read_text()
    assert "resetCheckpoints" not in ((await on.get()) or {})["spec"]


async def reports(on: Stage, plugin: Plugin) -> None:
    (plugin.folder / "log").write_text(planted_log())
    path = plugin.folder / "report.zip"
    await plugin.shown("report", GROUP, "--to", str(path))
    with zipfile.ZipFile(path) as archive:
        files = {name: archive.read(name).decode() for name in archive.namelist()}
    objects = {f"objects/{kind}.yaml" for kind in ("pods", "statefulsets", "configmaps", "services")}
    assert {"README.txt", "group.yaml", "versions.txt", "workers/access-0-worker.log", *objects} <= set(files)
    assert [(name, one) for name, text in files.items() for one in PLANTED if one in text] == []
    assert "WARNING  access-0  the sink refuses" in await plugin.shown("logs", GROUP, "--pretty")
    assert (await plugin.values("restart", GROUP))["workers"] == 3
    await on.until_rounds(2)
    template = ((await on.get(STATEFUL_SET)) or {})["spec"]["template"]
    assert "kubectl.kubernetes.io/restartedAt" in template["metadata"]["annotations"], "the operator keeps it"


async def pauses_and_resets(on: Stage, plugin: Plugin) -> None:
    await plugin.shown("pause", GROUP)
    await on.until_phase("Suspended", "0/0")
    said = await plugin.shown("reset", GROUP, "--to", "begin", "--yes")
    assert "no worker is ready" in said
    assert "all logs up to the checkpoint come again" in said

    async def done() -> bool:
        return ((await on.status()).get("checkpointReset") or {}).get("phase") == "Succeeded"

    await on.until("the reset", done)
    undo = await plugin.values("reset", GROUP, "--undo", "--dry-run")
    assert (undo["logGroupsThatComeAgain"], undo["logGroupsThatAreSkipped"]) == (0, 8)
    await plugin.shown("resume", GROUP)


async def explains(on: Stage, plugin: Plugin) -> None:
    await on.apply({"replicas": 3, "pipeline": {"sql": "SELEC"}})
    await on.until_reason("WorkersAvailable", "InvalidPipeline")
    why = await plugin.shown("why", GROUP)
    assert "wrong: WorkersAvailable InvalidPipeline" in why
    assert "PARSE_SYNTAX_ERROR" in why
    status, text = await plugin("status", "acess")
    assert (status, "did you mean access?" in text) == (3, True), text
    status, text = await plugin("status", GROUP, "--as", "nobody")
    assert (status, "not permitted" in text) == (4, True), text
