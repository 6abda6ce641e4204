"""A real kube-apiserver with its etcd and nothing else; it starts in seconds and needs no root.

For tests of schema, CEL rules, server-side apply and watches against the real code. No pod ever runs.
"""

import ssl
import urllib.error
import urllib.request
import uuid
from collections.abc import Iterator
from contextlib import contextmanager
from pathlib import Path

from tests.cluster import control_plane, runs
from tests.cluster.control_plane import Plan
from tests.cluster.ip_family import IPV4
from tests.cluster.processes import Processes, wait_until
from tests.ports import free_ports

READY_GUARD_S = 120.0
PREFIX = "apiserver"
RUN = uuid.uuid4().hex  # the processes of a test run are forked after this is imported


def plan(binaries: Path, folder: Path) -> Plan:
    api, etcd, peer = free_ports(3)
    return Plan(
        binaries=binaries,
        folder=folder,
        family=IPV4,
        address=IPV4.loopback,
        api_port=api,
        etcd_port=etcd,
        etcd_peer_port=peer,
    )


def start(layout: Plan, processes: Processes, *, flags: tuple[str, ...] = ()) -> None:
    """Certificates, etcd, apiserver with these flags too; returns once it says that it is ready."""
    control_plane.write_pki(layout)
    processes.start("etcd", control_plane.etcd(layout))
    start_apiserver(layout, processes, flags=flags)


def start_apiserver(layout: Plan, processes: Processes, *, flags: tuple[str, ...] = ()) -> None:
    """The apiserver alone, over the etcd that runs."""
    command = [*control_plane.apiserver(layout), *flags]
    processes.start("apiserver", command)

    def ready() -> bool:
        for name in ("etcd", "apiserver"):
            if not processes.alive(name):
                raise RuntimeError(f"{name} ended while starting:\n{processes.tail(name)}")
        return is_ready(layout)

    try:
        wait_until(ready, what="kube-apiserver ready", guard_s=READY_GUARD_S)
    except TimeoutError as error:
        raise RuntimeError(f"{error}\n{processes.tail('apiserver')}") from error


def is_ready(layout: Plan) -> bool:
    """Does ``/readyz`` answer 200 to the administrator's certificate?"""
    context = ssl.create_default_context(cafile=str(layout.pki / "ca.crt"))
    context.load_cert_chain(layout.pki / "admin.crt", layout.pki / "admin.key")
    opener = urllib.request.build_opener(
        urllib.request.ProxyHandler({}), urllib.request.HTTPSHandler(context=context)
    )
    try:
        with opener.open(f"{layout.url}/readyz", timeout=5) as answer:
            return bool(answer.status == 200)
    except (urllib.error.URLError, OSError):
        return False


class Standing:
    """An apiserver that can be stopped and started again, with its etcd and all objects kept."""

    def __init__(self, layout: Plan, processes: Processes) -> None:
        self._layout = layout
        self._processes = processes
        self.kubeconfig = layout.kubeconfig

    def stop(self) -> None:
        self._processes.stop("apiserver")

    def start(self) -> None:
        start_apiserver(self._layout, self._processes)


@contextmanager
def standing(binaries: Path) -> Iterator[Standing]:
    """A running one; it and its processes are removed afterwards."""
    with runs.own_folder(PREFIX) as folder:
        layout, processes = plan(binaries, folder), Processes(folder)
        start(layout, processes)
        yield Standing(layout, processes)


@contextmanager
def shared(binaries: Path) -> Iterator[Path]:
    """Path of a kubeconfig with every permission for the one that all processes of a test run share."""

    def begin(folder: Path) -> None:
        start(plan(binaries, folder), Processes(folder))

    with runs.shared_folder(PREFIX, RUN, begin) as folder:
        yield folder / control_plane.KUBECONFIG
