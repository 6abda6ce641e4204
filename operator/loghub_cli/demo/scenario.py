"""The scenario of the demo: wait for rows, add a worker, kill one, and observe how the shards move.

Each step lasts until its effect is observed or its bound has passed. The scenario needs only a
`ScenarioContext`, which says what it can observe and do, so tests run it without processes.
"""

import asyncio
import os
import re
import signal
from collections.abc import Callable
from dataclasses import dataclass
from pathlib import Path
from typing import Any

import yaml

from loghub_cli.up.snapshot import GroupSnapshot
from loghub_operator.model.observed import WorkerPhase

POLL_S = 0.2  # what is awaited takes seconds, and a look costs no request


@dataclass(slots=True, kw_only=True)
class ScenarioContext:
    """``latest_snapshot`` and the other callables return the current values."""

    name: str  # of the LogHubConsumerGroup
    cr_file: Path
    latest_snapshot: Callable[[], GroupSnapshot | None]
    rows: Callable[[], int]  # visible in the sink
    clock_s: Callable[[], float]  # since the demo began
    say: Callable[[str], None]
    first_row_s: float | None = None

    @property
    def snapshot(self) -> GroupSnapshot | None:
        return self.latest_snapshot()

    @property
    def elapsed_s(self) -> float:
        return self.clock_s()

    async def until(self, holds: Callable[[], bool], what: str, *, bound_s: float | None) -> bool:
        """Wait until `holds` returns True. Reports it and returns False once the bound has passed."""
        try:
            async with asyncio.timeout(bound_s):
                while not holds():
                    await asyncio.sleep(POLL_S)
        except TimeoutError:
            self.say(f"DEMO: not seen within {bound_s:.0f} s, goes on: {what}")
            return False
        return True


_REPLICAS = re.compile(r"^(  replicas: )(\d+)$", re.MULTILINE)


async def first_row(context: ScenarioContext, *, bound_s: float) -> bool:
    """Wait for the first row. Returns False if none arrived within the bound."""
    if not await context.until(lambda: context.rows() > 0, "the first row in the sink", bound_s=bound_s):
        return False
    context.first_row_s = context.elapsed_s
    context.say(f"the first rows are in the sink, {context.first_row_s:.0f} s after the start")
    return True


async def play(context: ScenarioContext, *, pause_s: float, bound_s: float) -> None:
    """Run the steps after the first row; `bound_s` applies to each of them. Cancel the task to end it
    earlier."""
    await asyncio.sleep(pause_s)
    added = add_worker(context.cr_file)
    newcomer = f"{context.name}-{added - 1}"
    context.say(f"DEMO: adds a worker: replicas {added - 1} -> {added} in {context.cr_file.name}")
    await context.until(
        lambda: working(context.snapshot, newcomer), f"{newcomer} holding a shard", bound_s=bound_s
    )
    await asyncio.sleep(pause_s)
    await _kill(context, f"{context.name}-0", bound_s)
    await asyncio.sleep(pause_s)


async def _kill(context: ScenarioContext, victim: str, bound_s: float) -> None:
    pid, held = process_of(context.snapshot, victim), holdings(context.snapshot, victim)
    if pid is None:
        context.say(f"DEMO: {victim} does not run; nothing to kill")
        return
    context.say(f"DEMO: kills {victim} (process {pid}) with SIGKILL; it holds {_numbers(held)}")
    os.kill(pid, signal.SIGKILL)
    moved = f"{_numbers(held)} held by others, or {victim} back"
    await context.until(
        lambda: taken_over(context.snapshot, victim, held) or restarted(context.snapshot, victim, pid),
        moved,
        bound_s=bound_s,
    )
    if not taken_over(context.snapshot, victim, held):  # Spark starts fast on this machine
        context.say(f"DEMO: {victim} was back before its session timed out, so it kept its shards")
    back = f"{victim} back with a shard"
    await context.until(lambda: working(context.snapshot, victim), back, bound_s=bound_s)


def _numbers(shards: frozenset[int]) -> str:
    return "shard " + ", ".join(map(str, sorted(shards))) if shards else "no shard"


def with_a_line_of_replicas(text: str, document: dict[str, Any]) -> str:
    """The text unchanged if `add_worker` can edit it, otherwise the same object serialized again."""
    if len(_REPLICAS.findall(text)) == 1:
        return text
    replicas = document["spec"].get("replicas", 1)
    spec = {**document["spec"], "replicas": replicas}
    return yaml.safe_dump({**document, "spec": spec}, indent=2, default_flow_style=False, sort_keys=False)


def add_worker(cr_file: Path) -> int:
    """Save the file with one more replica, as a user with an editor would. Returns the new number."""
    text = cr_file.read_text()
    match = _REPLICAS.search(text)
    assert match is not None, f"{cr_file} has no line of replicas"
    replicas = int(match[2]) + 1
    edited = cr_file.with_suffix(".new")
    edited.write_text(_REPLICAS.sub(rf"\g<1>{replicas}", text, count=1))
    edited.replace(cr_file)
    return replicas


def working(snapshot: GroupSnapshot | None, worker: str) -> bool:
    """The worker is ready and holds a shard as `already_alloc`."""
    ready = snapshot is not None and any(
        view.observed.name == worker and view.observed.phase is WorkerPhase.RUNNING
        for view in snapshot.workers
    )
    return ready and bool(holdings(snapshot, worker))


def holdings(snapshot: GroupSnapshot | None, worker: str) -> frozenset[int]:
    """The shards that are `already_alloc` to this worker."""
    shards = snapshot.status.shards if snapshot is not None else ()
    return frozenset(one.id for one in shards if one.consumer == worker and one.state == "already_alloc")


def taken_over(snapshot: GroupSnapshot | None, worker: str, shards: frozenset[int]) -> bool:
    """Each of the shards is `already_alloc` to another worker."""
    held = (
        {one.id: one.consumer for one in snapshot.status.shards if one.state == "already_alloc"}
        if snapshot
        else {}
    )
    return all(held.get(shard) not in (None, worker) for shard in shards)


def restarted(snapshot: GroupSnapshot | None, worker: str, pid: int) -> bool:
    """The worker holds a shard, and its process is another one than ``pid``."""
    return working(snapshot, worker) and process_of(snapshot, worker) not in (None, pid)


def process_of(snapshot: GroupSnapshot | None, worker: str) -> int | None:
    """The process ID of a worker, if it runs."""
    views = snapshot.workers if snapshot is not None else ()
    return next((one.pid for one in views if one.observed.name == worker), None)
