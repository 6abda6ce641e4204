"""Command lines of etcd, the apiserver, the controllers and the scheduler.

Pure functions from a `Plan` (addresses, ports, folders) to an argument list, so that a test can check them
without starting anything. docs/test-cluster.md explains each unusual flag. `node` has the node's half.
"""

import base64
import json
from dataclasses import dataclass
from pathlib import Path

from tests.cluster import pki
from tests.cluster.ip_family import IpFamily, host_port

CLUSTER_DOMAIN = "cluster.local"
NODE_NAME = "loghub-test"
KUBECONFIG = "admin.kubeconfig"  # of the administrator


@dataclass(frozen=True, slots=True, kw_only=True)
class Plan:
    """One cluster on paper. ``address`` is where the apiserver listens: loopback when it
    runs alone, the pods' bridge when pods have to reach it."""

    binaries: Path
    folder: Path
    family: IpFamily
    address: str
    api_port: int
    etcd_port: int
    etcd_peer_port: int
    controller_port: int = 0
    scheduler_port: int = 0
    kubelet_port: int = 0
    proxy_metrics_port: int = 0

    @property
    def pki(self) -> Path:
        return self.folder / "pki"

    @property
    def kubeconfig(self) -> Path:
        return self.folder / KUBECONFIG

    @property
    def url(self) -> str:
        return f"https://{host_port(self.address, self.api_port)}"

    @property
    def etcd_url(self) -> str:
        return f"http://{host_port(self.family.loopback, self.etcd_port)}"

    @property
    def serves_pods(self) -> bool:
        return self.address != self.family.loopback


def write_pki(plan: Plan) -> None:
    """Every certificate and kubeconfig of the plan."""
    ca = pki.authority(plan.pki, "ca")
    proxy_ca = pki.authority(plan.pki, "front-proxy-ca")
    pki.signing_key(plan.pki, "service-account")
    pki.issue(ca, plan.pki, "apiserver", common_name="kube-apiserver", names=apiserver_names(plan))
    pki.issue(proxy_ca, plan.pki, "front-proxy", common_name="front-proxy-client")
    admin = pki.issue(ca, plan.pki, "admin", common_name="admin", organisation="system:masters")
    write_kubeconfig(plan, admin, plan.kubeconfig)
    if plan.serves_pods:
        _write_node_pki(plan, ca)


def apiserver_names(plan: Plan) -> tuple[str, ...]:
    """What its certificate is for, as `pki.issue` takes it."""
    service = ("kubernetes", "kubernetes.default", "kubernetes.default.svc")
    names = ("localhost", *service, f"kubernetes.default.svc.{CLUSTER_DOMAIN}")
    addresses = dict.fromkeys((plan.family.loopback, plan.address, plan.family.first_service))
    return tuple(f"DNS:{name}" for name in names) + tuple(f"IP:{address}" for address in addresses)


def _write_node_pki(plan: Plan, ca: pki.Pair) -> None:
    node_names = (f"DNS:{NODE_NAME}", f"IP:{plan.address}")
    pki.issue(ca, plan.pki, "kubelet-server", common_name=f"system:node:{NODE_NAME}", names=node_names)
    pki.issue(ca, plan.pki, "kubelet-client", common_name="apiserver", organisation="system:masters")
    users = {
        "controller-manager": ("system:kube-controller-manager", ""),
        "scheduler": ("system:kube-scheduler", ""),
        "kubelet": (f"system:node:{NODE_NAME}", "system:nodes"),
        "proxy": ("system:kube-proxy", ""),
        # CoreDNS reads Services and EndpointSlices of all namespaces; the role comes with `node.rbac`.
        "dns": ("system:coredns", ""),
    }
    for name, (user, group) in users.items():
        pair = pki.issue(ca, plan.pki, name, common_name=user, organisation=group)
        write_kubeconfig(plan, pair, plan.folder / f"{name}.kubeconfig")


def write_kubeconfig(plan: Plan, pair: pki.Pair, path: Path) -> None:
    """A kubeconfig with everything inline (JSON, which is YAML)."""
    cluster = {"server": plan.url, "certificate-authority-data": _inline(plan.pki / "ca.crt")}
    user = {"client-certificate-data": _inline(pair.certificate), "client-key-data": _inline(pair.key)}
    config = {
        "apiVersion": "v1",
        "kind": "Config",
        "clusters": [{"name": NODE_NAME, "cluster": cluster}],
        "users": [{"name": NODE_NAME, "user": user}],
        "contexts": [{"name": NODE_NAME, "context": {"cluster": NODE_NAME, "user": NODE_NAME}}],
        "current-context": NODE_NAME,
    }
    path.touch(mode=0o600)
    path.write_text(json.dumps(config))


def _inline(path: Path) -> str:
    return base64.b64encode(path.read_bytes()).decode()


def etcd(plan: Plan) -> list[str]:
    client = plan.etcd_url
    peer = f"http://{host_port(plan.family.loopback, plan.etcd_peer_port)}"
    return [
        str(plan.binaries / "etcd"),
        "--name=default",
        f"--data-dir={plan.folder / 'etcd'}",
        f"--listen-client-urls={client}",
        f"--advertise-client-urls={client}",
        f"--listen-peer-urls={peer}",
        f"--initial-advertise-peer-urls={peer}",
        f"--initial-cluster=default={peer}",
        "--unsafe-no-fsync",  # nothing here outlives the test
    ]


def apiserver(plan: Plan) -> list[str]:
    keys = plan.pki
    command = [
        str(plan.binaries / "kube-apiserver"),
        f"--bind-address={plan.address}",
        f"--advertise-address={plan.address}",
        f"--secure-port={plan.api_port}",
        f"--etcd-servers={plan.etcd_url}",
        f"--cert-dir={keys}",
        f"--tls-cert-file={keys / 'apiserver.crt'}",
        f"--tls-private-key-file={keys / 'apiserver.key'}",
        f"--client-ca-file={keys / 'ca.crt'}",
        f"--service-account-issuer=https://kubernetes.default.svc.{CLUSTER_DOMAIN}",
        f"--service-account-key-file={keys / 'service-account.key'}",
        f"--service-account-signing-key-file={keys / 'service-account.key'}",
        f"--service-cluster-ip-range={plan.family.services}",
        "--authorization-mode=Node,RBAC",
        "--allow-privileged=true",
        "--anonymous-auth=false",
        "--profiling=false",
        f"--requestheader-client-ca-file={keys / 'front-proxy-ca.crt'}",
        "--requestheader-allowed-names=front-proxy-client",
        "--requestheader-username-headers=X-Remote-User",
        "--requestheader-group-headers=X-Remote-Group",
        "--requestheader-extra-headers-prefix=X-Remote-Extra-",
        f"--proxy-client-cert-file={keys / 'front-proxy.crt'}",
        f"--proxy-client-key-file={keys / 'front-proxy.key'}",
    ]
    return command + (_with_pods(plan) if plan.serves_pods else _alone())


def _with_pods(plan: Plan) -> list[str]:
    keys = plan.pki
    return [
        f"--kubelet-client-certificate={keys / 'kubelet-client.crt'}",
        f"--kubelet-client-key={keys / 'kubelet-client.key'}",
        f"--kubelet-certificate-authority={keys / 'ca.crt'}",
        "--kubelet-preferred-address-types=InternalIP",
        "--enable-aggregator-routing=true",
    ]


def _alone() -> list[str]:
    # No controller makes the service accounts that the admission plugin would wait for.
    return ["--endpoint-reconciler-type=none", "--disable-admission-plugins=ServiceAccount"]


def controller_manager(plan: Plan) -> list[str]:
    config = plan.folder / "controller-manager.kubeconfig"
    keys = plan.pki
    return [
        str(plan.binaries / "kube-controller-manager"),
        f"--bind-address={plan.family.loopback}",
        f"--secure-port={plan.controller_port}",
        f"--cert-dir={plan.folder / 'controller-manager'}",
        *(f"--{use}={config}" for use in _KUBECONFIG_FLAGS),
        f"--root-ca-file={keys / 'ca.crt'}",
        f"--service-account-private-key-file={keys / 'service-account.key'}",
        f"--cluster-signing-cert-file={keys / 'ca.crt'}",
        f"--cluster-signing-key-file={keys / 'ca.key'}",
        f"--client-ca-file={keys / 'ca.crt'}",
        "--use-service-account-credentials=true",
        "--leader-elect=false",
        "--profiling=false",
        "--horizontal-pod-autoscaler-sync-period=1s",  # of 15 s: the tests wait for it
    ]


def scheduler(plan: Plan) -> list[str]:
    config = plan.folder / "scheduler.kubeconfig"
    return [
        str(plan.binaries / "kube-scheduler"),
        f"--bind-address={plan.family.loopback}",
        f"--secure-port={plan.scheduler_port}",
        f"--cert-dir={plan.folder / 'scheduler'}",
        *(f"--{use}={config}" for use in _KUBECONFIG_FLAGS),
        "--leader-elect=false",
        "--profiling=false",
    ]


_KUBECONFIG_FLAGS = ("kubeconfig", "authentication-kubeconfig", "authorization-kubeconfig")
