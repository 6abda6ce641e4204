"""The operator over 500 groups of 32 shards: latencies, writes while idle and memory, compared with their
targets.

``python -m tests.loghub_operator.bench_scale [GROUPS [REST_SECONDS [WORKED]]]`` prints them, and ends with
exit status 1 if a target is missed. With ``--client http sdk --latency-ms 20`` it runs once over each client
of the log service, which then is as far away as a cloud region and has no extensions, and prints both runs
side by side. A real apiserver with its audit log, the real LogHub service with every shard, the operator in a
process of its own with the permissions of deploy/, its Lease and a scrape of its metrics. No nodes: the pods
of WORKED groups are simulated (`bench_workers`), those of the others never exist.

The groups are created at a steady rate; then nothing happens for REST_SECONDS, in which the apiserver's audit
log counts what the operator writes; then the WORKED groups consume what producers write for as long again,
with the same figures; then specs and checkpoints are changed at the rate of the beginning. Latencies are
those of a watcher: from before the request to the line.
"""

import argparse
import asyncio
import base64
import json
import os
import signal
import subprocess
import sys
import tempfile
import time
from collections.abc import Iterator
from contextlib import contextmanager, nullcontext
from dataclasses import dataclass
from pathlib import Path

import yaml

from loghub.client.http import HttpLogHub
from loghub_operator.api.conditions import ActiveReason
from loghub_operator.clients.kube import CONSUMER_GROUP, AioKube, configured
from loghub_operator.settings import RESYNC_S
from tests.cluster import apiserver, build, runs
from tests.cluster.processes import Processes
from tests.loghub_operator.bench_figures import Figures, Load, compare, peak_kib, sample
from tests.loghub_operator.bench_watch import Watch, latencies, watching
from tests.loghub_operator.bench_workers import Worked, beating, consuming, start_pod
from tests.loghub_operator.latency import distant
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document
from tests.ports import free_port
from tests.support import ServiceProcess, running_service

METRICS = f"127.0.0.1:{free_port()}"
SCRAPE_S = 15.0
GROUPS_PER_PROJECT = 10
PER_SECOND = 4.0
CHANGES = 200
GUARD_S = 300.0
STATEFUL_SET_P99_S = 2.0
STATUS_P99_S = 45.0
MEMORY_MIB = 256.0
AGE_P99_S = 60.0
BUSY_WRITES_PER_S = 0.1  # of the status of a group whose lag moves
UNDECIDED = ("none", ActiveReason.PROCESSING_RATE_UNKNOWN)
AUTO = {"mode": "Auto", "minReplicas": 1, "maxReplicas": 1}
AUDIT_POLICY = {
    "apiVersion": "audit.k8s.io/v1",
    "kind": "Policy",
    "omitStages": ["RequestReceived"],
    "rules": [{"level": "Metadata", "verbs": ["create", "update", "patch", "delete", "deletecollection"]}],
}
OPERATOR = "system:serviceaccount:loghub-system:loghub-operator"


@contextmanager
def operator(
    server: Apiserver, folder: Path, endpoint: str, adapter: str
) -> Iterator[subprocess.Popen[bytes]]:
    """The operator as it runs in a cluster, but for its endpoint."""
    environment = {
        "KUBECONFIG": str(server.as_the_operator(folder)),
        "LOGHUB_EMBEDDED_ENDPOINT": endpoint,
        "LOGHUB_CLIENT": adapter,
        "LOGHUB_LEASE_NAMESPACE": "loghub-system",
        "LOGHUB_LEASE_NAME": "loghub-operator",
        "LOGHUB_HTTP_ADDRESS": METRICS,
    }
    with (folder / "operator.log").open("wb") as output:
        process = subprocess.Popen(
            [sys.executable, "-m", "loghub_operator"],
            env=os.environ | environment,
            stdout=output,
            stderr=output,
        )
        try:
            yield process
        finally:
            process.terminate()
            process.wait(GUARD_S)


@dataclass(frozen=True, slots=True, kw_only=True)
class Group:
    """One of the many."""

    name: str
    project: str

    @property
    def namespace(self) -> str:
        return f"ns-{self.project}"

    def document(self, **spec: object) -> Document:
        given = {"project": self.project, "logstore": self.name, **spec}
        return document(given, name=self.name, namespace=self.namespace)


def many(number: int) -> list[Group]:
    return [Group(name=f"g-{n:04}", project=f"p-{n // GROUPS_PER_PROJECT:03}") for n in range(number)]


def prepare(server: Apiserver, service: ServiceProcess, groups: list[Group], shards: int) -> None:
    """Namespaces with a Secret, projects, and a logstore for each group."""
    keys = {
        "accessKeyId": service.credentials.access_key_id,
        "accessKeySecret": service.credentials.access_key_secret,
    }
    data = {key: base64.b64encode(value.encode()).decode() for key, value in keys.items()}
    objects: list[Document] = []
    for project in sorted({group.project for group in groups}):
        metadata = {"name": "loghub-credentials", "namespace": f"ns-{project}"}
        objects.append({"apiVersion": "v1", "kind": "Namespace", "metadata": {"name": f"ns-{project}"}})
        objects.append({"apiVersion": "v1", "kind": "Secret", "metadata": metadata, "data": data})
        log_service = client(service, project)
        log_service.create_project()
        for group in groups:
            if group.project == project:
                log_service.create_logstore(group.name, shards=shards)
        log_service.close()
    done = server.run("apply", "--server-side", "-f", "-", text=yaml.safe_dump_all(objects))
    assert done.returncode == 0, done.stderr


def client(service: ServiceProcess, project: str) -> HttpLogHub:
    return HttpLogHub(service.endpoint, project, credentials=service.credentials, agent="bench")


class Bench:
    """One run; its steps are listed in the order in which they are called."""

    def __init__(
        self,
        server: Apiserver,
        service: ServiceProcess,
        groups: list[Group],
        worked: list[Group],
        audit: Path,
        process: "subprocess.Popen[bytes]",
    ) -> None:
        self._server = server
        self._service = service
        self._groups = groups
        self._worked = worked
        self._audit = audit
        self._process = process
        self._figures = Figures()
        self.load: dict[str, float] = {}

    @property
    def missed(self) -> bool:
        """Whether a figure is beyond its goal."""
        return self._figures.missed

    def run(self, rest_s: float) -> None:
        tell, first_checkpoint = self._figures.latencies, "{.status.shards[0].checkpoint}"
        log_services = {
            project: client(self._service, project) for project in {one.project for one in self._worked}
        }
        worked = [
            Worked(namespace=one.namespace, name=one.name, client=log_services[one.project])
            for one in self._worked
        ]
        with (
            watching(self._server, "statefulsets", "{.spec.replicas}") as sets,
            watching(self._server, "lhcg", first_checkpoint) as reported,
            watching(self._server, "lhcg", "{.status.phase}{.status.workers}") as phases,
        ):
            tell("created, to its StatefulSet", asyncio.run(self._create(sets)), max_s=STATEFUL_SET_P99_S)
            with beating(worked):
                asyncio.run(self._start(worked, phases))
                self._settle()
                self._measure("idle", rest_s, at_rest=True)
                if worked:
                    with consuming(worked):
                        self._measure("busy", rest_s, at_rest=False)
                        asyncio.run(self._report_undecided())
                changed = asyncio.run(self._change(sets))
                tell("spec changed, to its StatefulSet", changed, max_s=STATEFUL_SET_P99_S)
                tell("checkpoint moved, to the status", self._move_checkpoints(reported), max_s=STATUS_P99_S)
        for log_service in log_services.values():
            log_service.close()
        peak_mib = peak_kib(self._process.pid) / 1024
        self.load["memory, peak, MiB"] = peak_mib
        self._figures.tell(
            "memory of the operator", f"peak {peak_mib:6.1f} MiB", peak_mib, maximum=MEMORY_MIB
        )

    async def _start(self, worked: list[Worked], phases: Watch) -> None:
        """Until the operator says of each that its worker runs."""
        before, began = sample(METRICS, self._process.pid), time.monotonic()
        async with AioKube(await configured(str(self._server.kubeconfig)), manager="bench") as kube:
            for group in worked:
                await start_pod(kube, group)
            seconds = await latencies(phases, {one.name: 0.0 for one in worked}, "Running1/1")
        after, took_s = sample(METRICS, self._process.pid), time.monotonic() - began
        for what, count in (
            ("reconciles", after.reconciles - before.reconciles),
            ("requests to Kubernetes", after.requests - before.requests),
        ):
            print(f"{what + ' while workers start:':36} {count:.0f} in {took_s:.0f} s", flush=True)
        late = sum(one == float("inf") for one in seconds)
        self._figures.tell(
            "groups whose workers were not started", f"{late} of {len(worked)}", late, maximum=0
        )

    async def _create(self, sets: Watch) -> list[float]:
        async with AioKube(await configured(str(self._server.kubeconfig)), manager="bench") as kube:
            first, *others = self._groups
            await kube.apply(first.document(replicas=1))
            await latencies(sets, {first.name: 0.0}, "1")  # operator and watcher have started
            requested = {}
            for group in others:
                requested[group.name] = time.monotonic()
                scaling = {"scaling": AUTO} if group in self._worked else {}
                await kube.apply(group.document(replicas=1, **scaling))
                await asyncio.sleep(1 / PER_SECOND)
            return await latencies(sets, requested, "1")

    async def _change(self, sets: Watch) -> list[float]:
        async with AioKube(await configured(str(self._server.kubeconfig)), manager="bench") as kube:
            requested = {}
            for group in [one for one in self._groups if one not in self._worked][:CHANGES]:
                requested[group.name] = time.monotonic()
                patch = {"spec": {"replicas": 2}}
                await kube.patch(CONSUMER_GROUP, group.namespace, group.name, patch)
                await asyncio.sleep(1 / PER_SECOND)
            return await latencies(sets, requested, "2")

    def _move_checkpoints(self, reported: Watch) -> list[float]:
        requested, cursors = {}, {}
        for group in self._groups[-CHANGES:]:
            log_service = client(self._service, group.project)
            cursors[group.name] = cursor = log_service.get_cursor(group.name, 0, "end")
            requested[group.name] = time.monotonic()
            log_service.update_checkpoint(
                group.name, group.name, shard=0, cursor=cursor, consumer="", force=True
            )
            log_service.close()
            time.sleep(1 / PER_SECOND)
        return asyncio.run(latencies(reported, requested, cursors))

    def _settle(self) -> None:
        """Until the operator has written nothing for a while; where it never does, the rest shows it."""
        quiet_s, deadline = 30.0, time.monotonic() + GUARD_S
        while time.monotonic() < deadline:
            before = len(self._writes())
            time.sleep(quiet_s)
            if len(self._writes()) == before:
                return
        print("the operator did not come to rest")

    def _measure(self, how: str, rest_s: float, *, at_rest: bool) -> None:
        before, began, load = (
            len(self._writes()),
            time.monotonic(),
            Load([sample(METRICS, self._process.pid)]),
        )
        while (left_s := began + rest_s - time.monotonic()) > 0:
            time.sleep(min(SCRAPE_S, left_s))
            load.samples.append(sample(METRICS, self._process.pid))
        written = self._writes()[before:]
        figures = load.figures(groups=len(self._groups), seconds=time.monotonic() - began, resync_s=RESYNC_S)
        self.load |= {f"{what}, {how}": value for what, value in figures.items()}
        names = tuple(one.name for one in self._worked)
        theirs = [one for one in written if one.split(" ")[-1].startswith(names)] if names else []
        allowed = 0 if at_rest else BUSY_WRITES_PER_S * rest_s * len(names)
        self._report_writes(f"of {len(names)} groups that run, {how}", rest_s, theirs, allowed)
        others = [one for one in written if one not in theirs]
        self._report_writes(f"of {len(self._groups) - len(names)} that wait, {how}", rest_s, others, 0)
        for what, value in figures.items():
            print(f"{what + f', {how}:':44} {value:.1f}", flush=True)
        oldest_s = figures["age of readings, p99, s"]
        self._figures.tell(f"age of readings, {how}", f"p99 {oldest_s:.1f} s", oldest_s, maximum=AGE_P99_S)

    async def _report_undecided(self) -> None:
        """The workers' rate is known from what they consumed, so Auto decides."""
        undecided = []
        async with AioKube(await configured(str(self._server.kubeconfig)), manager="bench") as kube:
            for group in self._worked:
                found = await kube.get(CONSUMER_GROUP, group.namespace, group.name) or {}
                reason = found.get("status", {}).get("scaling", {}).get("reason", "none")
                undecided += [reason] if reason in UNDECIDED else []
        reported = f"{len(undecided)} of {len(self._worked)} {' '.join(sorted(set(undecided)))}"
        self._figures.tell("groups for which Auto cannot decide", reported, len(undecided), maximum=0)

    def _report_writes(self, whose: str, rest_s: float, written: list[str], allowed: float) -> None:
        reported = f"{len(written)} in {rest_s:.0f} s"
        self._figures.tell(f"writes {whose}", reported, len(written), maximum=allowed)
        for line in sorted(set(written))[:10]:
            print(f"    {line}")

    def _writes(self) -> list[str]:
        """Verb and object of what the operator wrote; its Lease is renewed by its nature."""
        result = []
        for line in self._audit.read_text().split("\n")[:-1]:  # the last one may be half written
            event = json.loads(line)
            metadata = event.get("objectRef", {})
            if event["user"]["username"] == OPERATOR and metadata.get("resource") != "leases":
                name = (
                    f"{metadata.get('resource')}/{metadata.get('subresource', '')} {metadata.get('name', '')}"
                )
                result.append(f"{event['verb']} {name}")
        return result


def main(given: argparse.Namespace, adapter: str) -> Bench:
    number, played, latency_ms = given.groups, given.worked, given.latency_ms
    with (
        tempfile.TemporaryDirectory() as name,
        running_service(Path(name, "service")) as service,
        distant(service.endpoint, latency_ms) if latency_ms else nullcontext(service.endpoint) as endpoint,
        runs.own_folder("bench") as folder,
    ):
        layout = apiserver.plan(build.ensure(), folder)
        audit, policy = folder / "audit.log", folder / "audit-policy.yaml"
        policy.write_text(yaml.safe_dump(AUDIT_POLICY))
        flags = (f"--audit-policy-file={policy}", f"--audit-log-path={audit}")
        apiserver.start(layout, Processes(folder), flags=flags)
        server, groups = Apiserver(layout.kubeconfig), many(number)
        prepare(server, service, groups, given.shards)
        worked = groups[:: max(1, number // played)][:played] if played else []
        message = f"{number} groups of {given.shards} shards, {len(worked)} of them with a worker"
        way = f"client {adapter}, {latency_ms:g} ms to the log service"
        print(f"{message}; {PER_SECOND:.0f} requests per second; {way}", flush=True)
        with operator(server, Path(name), endpoint, adapter) as process:
            bench = Bench(server, service, groups, worked, audit, process)
            bench.run(given.rest_seconds)
            return bench


def arguments() -> argparse.Namespace:
    parser = argparse.ArgumentParser(description="The operator over many groups")
    parser.add_argument("groups", nargs="?", type=int, default=500)
    parser.add_argument("rest_seconds", nargs="?", type=float, default=600.0)
    parser.add_argument("worked", nargs="?", type=int, default=50, help="groups whose workers are played")
    parser.add_argument("--shards", type=int, default=32, help="of each group's logstore")
    parser.add_argument("--client", nargs="+", choices=("auto", "http", "sdk"), default=["auto"])
    parser.add_argument("--latency-ms", type=float, default=0.0, help="0: extensions, and no delay")
    return parser.parse_args()


if __name__ == "__main__":
    signal.signal(signal.SIGTERM, lambda *_: sys.exit(1))  # what was started is ended
    given = arguments()
    benches = {adapter: main(given, adapter) for adapter in given.client}
    if len(benches) > 1:
        compare({adapter: bench.load for adapter, bench in benches.items()})
    sys.exit(1 if any(bench.missed for bench in benches.values()) else 0)
