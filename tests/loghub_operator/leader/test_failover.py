"""Several operators, and one that hangs: which one leads, which one takes over, and when liveness fails."""

import asyncio
import dataclasses
import functools
import json
import signal
import subprocess
import time
from contextlib import ExitStack
from itertools import pairwise
from pathlib import Path
from typing import Any

import pytest

from loghub.clock import SystemClock
from loghub_operator.clients.kube import (
    CONSUMER_GROUP,
    LEASE,
    STATEFUL_SET,
    AioKube,
    Kind,
    KubeError,
    configured,
)
from loghub_operator.controller import app as program
from loghub_operator.controller.watch_check import WatchCheck
from loghub_operator.leader.lease import LeaseTimings
from loghub_operator.settings import LeaseRef
from tests.apiserver.test_autoscaling import AUTO
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.loghub_operator.support.harness import Stage, stage
from tests.loghub_operator.support.subprocesses import GUARD_S, Operator, health, make_namespace, until
from tests.ports import free_port

pytestmark = pytest.mark.cluster

LEASE_NAME = "loghub-operator"


class Skipping(SystemClock):
    """The machine's clock, which can be set ahead."""

    ahead_s = 0.0

    def monotonic_s(self) -> float:
        return super().monotonic_s() + self.ahead_s


class Hanging(AioKube):
    """While switched on, never answers a read of a group."""

    free: asyncio.Event
    hanging: asyncio.Event

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        if kind is CONSUMER_GROUP and not self.free.is_set():
            self.hanging.set()
            await self.free.wait()
        return await super().get(kind, namespace, name)


def test_a_hanging_reconcile_fails_liveness(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    clock = Skipping()
    monkeypatch.setattr(program, "SystemClock", lambda: clock)

    async def story(on: Stage) -> None:
        address, stop = f"127.0.0.1:{free_port()}", asyncio.Event()
        settings = dataclasses.replace(on.settings, http_address=address)
        async with Hanging(await configured()) as kube:
            kube.free, kube.hanging = asyncio.Event(), asyncio.Event()
            kube.free.set()
            running = asyncio.create_task(program.run(settings, stop, connect=on.connect, kube=kube))
            await on.apply({"replicas": 1})
            await on.until_phase("Running", "1/1")
            clock.ahead_s += 1000.0  # as when the machine slept: every reconcile begins again at once
            await _until_health(on, address, 200)
            kube.free.clear()
            await asyncio.wait_for(kube.hanging.wait(), GUARD_S)
            assert (await asyncio.to_thread(health, address))[0] == 200, "late is not hanging"
            clock.ahead_s += 121.0
            assert f"{on.namespace}/access has been reconciling for" in await _until_health(on, address, 503)
            kube.free.set()
            await _until_health(on, address, 200)
            stop.set()
            await asyncio.wait_for(running, GUARD_S)

    stage(server, tmp_path, story, operator=False)


def test_a_silent_watch_fails_liveness(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    often = functools.partialmethod(WatchCheck.run, every_s=0.5)
    monkeypatch.setattr(WatchCheck, "run", often)
    calls = 0
    call = WatchCheck.check

    async def counted(self: WatchCheck) -> None:
        nonlocal calls
        await call(self)
        calls += 1

    async def story(on: Stage) -> None:
        address, stop = f"127.0.0.1:{free_port()}", asyncio.Event()
        settings = dataclasses.replace(on.settings, http_address=address)
        running = asyncio.create_task(program.run(settings, stop, connect=on.connect))
        for replicas in (1, 2):
            await on.apply({"replicas": replicas})
            await on.until_phase("Running", f"{replicas}/{replicas}")

        async def called() -> bool:
            return calls > 4

        await on.until("a few calls", called)
        await _until_health(on, address, 200)
        monkeypatch.setattr(WatchCheck, "reported", lambda *_: None)
        await on.apply({"replicas": 1})
        message = await _until_health(on, address, 503)
        assert message == f"the watch does not report {on.namespace}/access\n"
        stop.set()
        await asyncio.wait_for(running, GUARD_S)

    monkeypatch.setattr(WatchCheck, "check", counted)
    stage(server, tmp_path, story, operator=False)


async def _until_health(on: Stage, address: str, status: int) -> str:
    message = ""

    async def holds() -> bool:
        nonlocal message
        result, message = await asyncio.to_thread(health, address)
        return result == status

    await on.until(f"health {status}", holds)
    return message


class Parted(AioKube):
    """Once ``cut`` no Lease can be reached; all else can. Notes when anything else was written."""

    cut = False
    written_s: list[float]

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        self._reach(kind)
        return await super().get(kind, namespace, name)

    async def patch(self, kind: Kind, namespace: str, name: str, patch: Document) -> Document | None:
        self._reach(kind)
        return await super().patch(kind, namespace, name, patch)

    async def apply(self, document: Document, *, subresource: str = "") -> Document:
        self.written_s.append(time.monotonic())
        return await super().apply(document, subresource=subresource)

    def _reach(self, kind: Kind) -> None:
        if kind is LEASE and self.cut:
            raise KubeError(0, "Unreachable", "cut")


def _allow_lease(server: Apiserver, namespace: str) -> None:
    """Each test has a Lease of its own, where the operator's role does not reach."""
    rights = ("--verb=get,create,patch", "--resource=leases.coordination.k8s.io")
    server.must("create", "role", LEASE_NAME, *rights, "-n", namespace)
    who = (f"--role={LEASE_NAME}", "--serviceaccount=loghub-system:loghub-operator")
    server.must("create", "rolebinding", LEASE_NAME, *who, "-n", namespace)


def test_an_operator_that_cannot_renew_stops_writing_before_another_leads(
    server: Apiserver, tmp_path: Path
) -> None:
    timings = LeaseTimings(lease_duration_s=8.0, renew_deadline_s=5.0, retry_period_s=0.5)
    lost: list[str] = []

    async def story(on: Stage) -> None:
        await asyncio.to_thread(_allow_lease, server, on.namespace)
        settings = dataclasses.replace(on.settings, lease=LeaseRef(namespace=on.namespace, name=LEASE_NAME))
        async with Parted(await configured()) as kube:
            kube.written_s = []
            running = asyncio.create_task(
                program.run(
                    settings, asyncio.Event(), connect=on.connect, kube=kube, end=lost.append, timings=timings
                )
            )
            await on.apply({"replicas": 1})
            await on.until_phase("Running", "1/1")
            kube.cut = True
            cut_s = time.monotonic()
            replicas = 1
            while not running.done():  # always something to write, until the end
                replicas = 3 - replicas
                await on.apply({"replicas": replicas})
                await asyncio.sleep(0.2)
            with pytest.raises(program.LeaseLostError, match="could not be renewed in time"):
                await running
            assert lost == ["it could not be renewed in time"]
            assert kube.written_s[-1] > cut_s, "it acted on until its deadline"
            assert kube.written_s[-1] < cut_s + timings.lease_duration_s

    stage(server, tmp_path, story, operator=False)


@pytest.mark.parametrize(
    "scaling",
    [
        pytest.param({"mode": "Fixed"}, id="Fixed"),
        # With load, another test has it.
        pytest.param({"mode": "Auto", "minReplicas": 1, "maxReplicas": 4}, id="Auto", marks=pytest.mark.deep),
    ],
)
def test_two_operators_without_a_lease_agree(scaling: Document, server: Apiserver, tmp_path: Path) -> None:
    """As after a wrong setting, or a lease that is lost late: neither undoes what the other did."""

    async def story(on: Stage) -> None:
        stop = asyncio.Event()
        second = asyncio.create_task(program.run(on.settings, stop, connect=on.connect))
        try:
            for replicas in (3, 1) if scaling["mode"] == "Fixed" else (1,):
                await on.apply({"replicas": replicas, "scaling": scaling, "deletionPolicy": "Delete"})
                await on.until_phase("Running", f"{replicas}/{replicas}")
            assert on.player.stopped_without_leaving == []
            # Long enough for what both of them report at a bounded rate.
            await on.until_settled(rounds=60)
            # The one that found the group created by the other counts it as adopted, and keeps that.
            origin = (await on.status())["groupOrigin"]
            await on.remove()
            await on.until_deleted()
            assert bool(on.client.list_groups("access")) == (origin == "Adopted")
        finally:
            stop.set()
            await second

    stage(server, tmp_path, story)


class Watched(AioKube):
    """Records how many workers each write requested, from either of two operators."""

    def __init__(self, configuration: Any, numbers: list[int]) -> None:
        super().__init__(configuration)
        self._numbers = numbers

    async def apply(self, document: Document, *, subresource: str = "") -> Document:
        result = await super().apply(document, subresource=subresource)
        if document["kind"] == STATEFUL_SET.kind:
            self._numbers.append(result["spec"]["replicas"])
        return result


def test_two_operators_without_a_lease_agree_under_load(server: Apiserver, tmp_path: Path) -> None:
    """Each measures and decides for itself; the number goes up to what the shards allow, and stays."""
    numbers: list[int] = []

    async def story(on: Stage) -> None:
        on.player.groups_at_once = 1
        async with (
            Watched(await configured(), numbers) as kube,
            Watched(await configured(), numbers) as other,
        ):
            stop = asyncio.Event()
            both = [
                asyncio.create_task(program.run(on.settings, stop, connect=on.connect, kube=one))
                for one in (kube, other)
            ]
            try:
                await on.apply({"replicas": 1, "scaling": AUTO})
                await on.until_phase("Running", "1/1")
                on.put(12_000)
                await on.until_phase("Running", "4/4")
                await on.until_rounds(20)
                assert (await on.status())["workers"] == "4/4"
                assert on.player.stopped_without_leaving == []
                steps = (await on.status())["scaling"]["history"]
                assert numbers == sorted(numbers), "up only"
                # One entry for each change, by either of the two.
                changes = [(step["from"], step["to"]) for step in reversed(steps)]
                assert changes == list(pairwise(dict.fromkeys(numbers)))
            finally:
                stop.set()
                await asyncio.gather(*both)

    stage(server, tmp_path, story, operator=False)


class Replicas:
    """Operators of one Lease, each a process with a name."""

    def __init__(self, server: Apiserver, folder: Path, stack: ExitStack) -> None:
        self._server = server
        self._folder = folder
        self._stack = stack
        self.namespace = make_namespace(server)
        self.lease_at = ("lease", LEASE_NAME, "-n", self.namespace)
        _allow_lease(server, self.namespace)
        self.operators: dict[str, Operator] = {}

    def start(self, name: str) -> "subprocess.Popen[bytes]":
        operator = Operator(self._server, self._folder, "http://127.0.0.1:1", self.namespace, name=name)
        lease = {"LOGHUB_LEASE_NAMESPACE": self.namespace, "LOGHUB_LEASE_NAME": LEASE_NAME}
        operator.environment |= {**lease, "LOGHUB_POD_NAME": name}
        self.operators[name] = operator
        return self._stack.enter_context(operator.running())

    def until_acting(self, *names: str) -> str:
        """The first of them that holds the lease and says so."""
        acting: list[str] = []

        def one_acts() -> bool:
            wanted = (200, "ok, leader\n")
            acting.extend(name for name in names if health(self.operators[name].address) == wanted)
            return bool(acting)

        until(f"{' or '.join(names)} acting", one_acts)
        return acting[0]

    def until_waiting(self, name: str) -> None:
        wanted = (200, "ok, waiting for the lease\n")
        until(f"{name} waiting", lambda: health(self.operators[name].address) == wanted)


def test_one_operator_leads_and_another_takes_over(server: Apiserver, tmp_path: Path) -> None:
    with ExitStack() as stack:
        replicas = Replicas(server, tmp_path, stack)
        first = replicas.start("first")
        replicas.until_acting("first")
        group = document(
            {"project": "demo", "credentialsSecret": {"name": "none"}}, namespace=replicas.namespace
        )
        assert server.apply(group) == ""
        _until_reported(server, replicas.namespace, 1)
        second = replicas.start("second")
        replicas.until_waiting("second")
        third = replicas.start("third")
        replicas.until_waiting("third")

        first.kill()
        first.wait(GUARD_S)
        leader = replicas.until_acting("second", "third")
        other = "third" if leader == "second" else "second"
        processes = {"second": second, "third": third}
        replicas.until_waiting(other)
        _edit(server, replicas.namespace)
        _until_reported(server, replicas.namespace, 2)

        # Asked to stop, it releases the lease, so that no other waits for it to expire.
        processes[leader].send_signal(signal.SIGTERM)
        replicas.until_acting(other)
        assert processes[leader].wait(GUARD_S) == 0
        assert "lease given back" in replicas.operators[leader].log.read_text()

        # Another holder has it: the process ends by itself.
        server.must(
            "patch",
            *replicas.lease_at,
            "--type=merge",
            "-p",
            json.dumps({"spec": {"holderIdentity": "else"}}),
        )
        assert processes[other].wait(GUARD_S) == program.LEASE_LOST
        assert "it is held by else" in replicas.operators[other].log.read_text()


def _edit(server: Apiserver, namespace: str) -> None:
    patch = json.dumps({"spec": {"replicas": 2}})
    server.must("patch", "lhcg", "access", "-n", namespace, "--type=merge", "-p", patch)


def _until_reported(server: Apiserver, namespace: str, generation: int) -> None:
    server.wait(namespace, f"jsonpath={{.status.observedGeneration}}={generation}")
