"""A real single-node Kubernetes from upstream's own programs, without a Docker engine.

The provider where `kind` cannot work: etcd, apiserver, controllers, scheduler, containerd, kubelet,
kube-proxy and CoreDNS as processes of this machine, everything under one folder. Needs Linux and root.
"""

import dataclasses
import json
import os
import shutil
import subprocess
import sys
import time
from collections.abc import Iterator
from concurrent.futures import ThreadPoolExecutor
from contextlib import contextmanager
from functools import partial
from pathlib import Path

from tests.cluster import apiserver, build, control_plane, host, images, ip_family, mounts, node, paths
from tests.cluster.containerd import Ctr
from tests.cluster.control_plane import Plan
from tests.cluster.processes import BRIEF, Processes, wait_until
from tests.cluster.provider import PARTS, Cluster, ClusterUnavailableError
from tests.ports import free_ports

NODE_GUARD_S = 180.0
_OURS = "localhost/loghub-"
_BY_DIGEST = "sha256:"  # a second name that the pod plugin gives; it would keep an old image forever
_PROGRAMS = ("controller-manager", "scheduler", "containerd", "kubelet", "proxy", "dns")
_CRI_STATE = "io.containerd.grpc.v1.cri"


class Upstream:
    """See `provider.ClusterProvider`."""

    name = "upstream"

    def __init__(self) -> None:
        self.family = ip_family.chosen()
        self.folder = paths.run_folder() / "cluster"
        self.containerd_root = paths.cache_folder() / "containerd"  # images outlive a cluster
        self.processes = Processes(self.folder)

    def up(self) -> Cluster:
        self.down()
        if reason := host.conflict(self.family):
            raise ClusterUnavailableError(reason)
        started = time.monotonic()
        plan = self._prepare()
        try:
            with ThreadPoolExecutor(max_workers=1) as pool:
                loading = pool.submit(self._load_before_pods, plan)
                apiserver.start(plan, self.processes)
                self._start_controllers(plan)
                loading.result()
            self._start_node(plan)
            wait_until(
                lambda: self._node_comes_up(plan), what="node Ready", guard_s=NODE_GUARD_S, pause_s=0.5
            )
        except BaseException:
            self._say("the cluster did not come up; last lines of its logs:\n" + self._tails())
            self.down()
            raise
        self._say(f"cluster up in {time.monotonic() - started:.0f} s; kubeconfig {plan.kubeconfig}")
        return self._cluster(plan)

    def running(self) -> Cluster | None:
        """None for one of the other family too, and for what is left of one that is not whole any more;
        `up` removes it."""
        plan = self._plan()
        if (
            plan is None
            or plan.family != self.family
            or self._ended()
            or not apiserver.is_ready(plan)
            or not self._node_ready(plan)
        ):
            return None
        return self._cluster(plan)

    def load_images(self) -> dict[str, str]:
        plan = self._plan()
        if plan is None:
            raise RuntimeError("the cluster is not up")
        return self._load(Ctr(node.containerd_socket(plan)))

    def down(self) -> None:
        if not self.folder.exists():
            return
        self.processes.stop("kubelet")
        host.end_containers(self.folder)
        self.processes.kill("apiserver")  # asked, it would wait for those who watch
        self.processes.stop()
        host.sweep(self.folder)
        mounts.unmount_below(self.containerd_root)
        mounts.remove_folder(self.folder)

    def _prepare(self) -> Plan:
        """Folders, the bridge, ports on it, certificates' place; nothing runs yet."""
        programs = build.ensure()
        self.folder.mkdir(parents=True)
        volumes = self.folder / "volumes"
        volumes.mkdir()
        host.make_bridge(self.folder, self.family)
        api, kubelet = free_ports(2, self.family.bridge)
        etcd, peer, controllers, scheduler, proxy = free_ports(5, self.family.loopback)
        plan = Plan(
            binaries=programs,
            folder=self.folder,
            family=self.family,
            address=self.family.bridge,
            api_port=api,
            etcd_port=etcd,
            etcd_peer_port=peer,
            controller_port=controllers,
            scheduler_port=scheduler,
            kubelet_port=kubelet,
            proxy_metrics_port=proxy,
        )
        node.write_files(plan, containerd_root=self.containerd_root)
        (self.folder / "plan.json").write_text(json.dumps(dataclasses.asdict(plan), default=str))
        return plan

    def _plan(self) -> Plan | None:
        path = self.folder / "plan.json"
        if not path.exists():
            return None
        value = json.loads(path.read_text())
        folders = {name: Path(value[name]) for name in ("binaries", "folder")}
        return Plan(**{**value, **folders, "family": ip_family.FAMILIES[value["family"]["name"]]})

    def _cluster(self, plan: Plan) -> Cluster:
        return Cluster(
            kubeconfig=plan.kubeconfig,
            kubectl=plan.binaries / "kubectl",
            images=json.loads((self.folder / "images.json").read_text()),
            volumes=self.folder / "volumes",
            volumes_on_node=str(self.folder / "volumes"),
            restart_apiserver=partial(self._restart_apiserver, plan),
        )

    def _restart_apiserver(self, plan: Plan) -> None:
        self.processes.kill("apiserver")
        apiserver.start_apiserver(plan, self.processes)

    def _start_controllers(self, plan: Plan) -> None:
        self.processes.start("controller-manager", control_plane.controller_manager(plan))
        self.processes.start("scheduler", control_plane.scheduler(plan))
        roles = json.dumps({"apiVersion": "v1", "kind": "List", "items": node.dns_role()})
        self._kubectl(plan, "apply", "-f", "-", text=roles)

    def _load_before_pods(self, plan: Plan) -> None:
        """Images and the sweep of old containers, by a containerd that runs no pods."""
        with self._containerd(plan, "containerd-images") as ctr:
            ctr.forget_containers()
            self._load(ctr)
        shutil.rmtree(self.containerd_root / _CRI_STATE, ignore_errors=True)

    @contextmanager
    def _containerd(self, plan: Plan, name: str) -> Iterator[Ctr]:
        self._start_containerd(plan, name)
        try:
            yield Ctr(node.containerd_socket(plan))
        finally:
            self.processes.stop(name)

    def _start_containerd(self, plan: Plan, name: str) -> None:
        config = plan.folder / f"{name}.toml"
        self.processes.start(name, ["containerd", "--config", str(config), "--log-level", "warn"])
        ctr = Ctr(node.containerd_socket(plan))
        wait_until(ctr.answers, what="containerd answers", guard_s=60)

    def _load(self, ctr: Ctr) -> dict[str, str]:
        built = images.ensure_all()
        wanted = {image.name: image.layout for image in built.values()}
        present = ctr.images()
        for name in sorted(wanted.keys() - present):
            self._say(f"putting {name} on the node")
            ctr.load(wanted[name])
        ctr.remove_images(
            sorted(name for name in present - wanted.keys() if name.startswith((_OURS, _BY_DIGEST)))
        )
        names = {part: built[part].name for part in PARTS}
        (self.folder / "images.json").write_text(json.dumps(names))
        return names

    def _start_node(self, plan: Plan) -> None:
        host.weigh_pods()
        self._start_containerd(plan, "containerd")
        self.processes.start("kubelet", node.kubelet(plan))
        self.processes.start("proxy", node.proxy(plan))
        self.processes.start("dns", node.coredns(plan))

    def _ended(self) -> str | None:
        """The first of a running cluster's programs that does not run."""
        return next((name for name in _PROGRAMS if not self.processes.alive(name)), None)

    def _node_comes_up(self, plan: Plan) -> bool:
        """Raises at once where it cannot any more."""
        if (name := self._ended()) is not None:
            raise RuntimeError(f"{name} has ended:\n{self.processes.tail(name)}")
        return self._node_ready(plan)

    def _node_ready(self, plan: Plan) -> bool:
        query = '{.items[*].status.conditions[?(@.type=="Ready")].status}'
        return self._kubectl(plan, "get", "nodes", "-o", f"jsonpath={query}").strip() == "True"

    def _kubectl(self, plan: Plan, *arguments: str, text: str | None = None) -> str:
        command = [str(plan.binaries / "kubectl"), "--kubeconfig", str(plan.kubeconfig), *arguments]
        done = subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=60,
            check=False,
            env=os.environ | BRIEF,
        )
        if done.returncode != 0:
            raise RuntimeError(f"kubectl {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout

    def _tails(self) -> str:
        logs = sorted((self.folder / "logs").glob("*.log"))
        return "\n".join(f"--- {log.stem}\n{self.processes.tail(log.stem)}" for log in logs)

    def _say(self, line: str) -> None:
        print(f"[cluster] {line}", file=sys.__stderr__, flush=True)
