"""Settings and command lines of the node: containerd, kubelet, kube-proxy, CoreDNS.

Pure functions from a `Plan` to the contents of files and to argument lists. docs/test-cluster.md explains
each unusual setting.
"""

import json
from pathlib import Path

from tests.cluster.control_plane import CLUSTER_DOMAIN, NODE_NAME, Plan
from tests.cluster.images import PAUSE
from tests.cluster.ip_family import host_port

BRIDGE = "loghub0"
CNI_NAME = "loghub-test"
CNI_PROGRAMS = "/usr/lib/cni"


def containerd_socket(plan: Plan) -> Path:
    return plan.folder / "containerd.sock"


def containerd_config(plan: Plan, *, root: Path, with_pods: bool) -> str:
    """TOML for containerd; without the pod plugin it only keeps images (to clean up and import)."""
    cri = f"""
[plugins."io.containerd.grpc.v1.cri"]
  restrict_oom_score_adj = true
  disable_apparmor = true
  netns_mounts_under_state_dir = true
  sandbox_image = "{PAUSE}"
  [plugins."io.containerd.grpc.v1.cri".cni]
    bin_dir = "{CNI_PROGRAMS}"
    conf_dir = "{plan.folder / "cni"}"
  [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc]
    runtime_type = "io.containerd.runc.v2"
    [plugins."io.containerd.grpc.v1.cri".containerd.runtimes.runc.options]
      SystemdCgroup = false
"""
    disabled = "[]" if with_pods else '["io.containerd.grpc.v1.cri"]'
    return f"""version = 2
root = "{root}"
state = "{plan.folder / "containerd-state"}"
disabled_plugins = {disabled}
[grpc]
  address = "{containerd_socket(plan)}"
{cri if with_pods else ""}"""


def cni_config(plan: Plan) -> str:
    """Pods on one bridge, which is also the gateway; a pod can reach itself by its Service."""
    bridge = {
        "type": "bridge",
        "bridge": BRIDGE,
        "isGateway": True,
        "hairpinMode": True,
        "ipam": {
            "type": "host-local",
            "dataDir": str(plan.folder / "addresses"),
            "ranges": [[{"subnet": plan.family.pods, "gateway": plan.family.bridge}]],
            "routes": [{"dst": plan.family.everywhere}],
        },
    }
    return json.dumps({"cniVersion": "0.4.0", "name": CNI_NAME, "plugins": [bridge]})


def kubelet_config(plan: Plan) -> str:
    keys = plan.pki
    return json.dumps(
        {
            "apiVersion": "kubelet.config.k8s.io/v1beta1",
            "kind": "KubeletConfiguration",
            "address": plan.address,
            "port": plan.kubelet_port,
            "readOnlyPort": 0,
            "healthzPort": 0,
            "tlsCertFile": str(keys / "kubelet-server.crt"),
            "tlsPrivateKeyFile": str(keys / "kubelet-server.key"),
            "authentication": {
                "anonymous": {"enabled": False},
                "webhook": {"enabled": False},
                "x509": {"clientCAFile": str(keys / "ca.crt")},
            },
            "authorization": {"mode": "AlwaysAllow"},  # whom the certificate authority knows
            "clusterDNS": [plan.family.bridge],
            "clusterDomain": CLUSTER_DOMAIN,
            "resolvConf": str(plan.folder / "resolv.conf"),
            "containerRuntimeEndpoint": f"unix://{containerd_socket(plan)}",
            "podLogsDir": str(plan.folder / "pod-logs"),
            "failCgroupV1": False,
            "failSwapOn": False,
            "cgroupDriver": "cgroupfs",
            "cgroupsPerQOS": False,
            "enforceNodeAllocatable": [],
            "featureGates": {"KubeletInUserNamespace": True},
            "makeIPTablesUtilChains": False,
            "evictionHard": {"memory.available": "100Mi", "nodefs.available": "1%"},
            "imageMinimumGCAge": "24h",
            "imageGCHighThresholdPercent": 100,
            "syncFrequency": "10s",
            "shutdownGracePeriod": "0s",
        }
    )


def kubelet(plan: Plan) -> list[str]:
    return [
        str(plan.binaries / "kubelet"),
        f"--config={plan.folder / 'kubelet.json'}",
        f"--kubeconfig={plan.folder / 'kubelet.kubeconfig'}",
        f"--hostname-override={NODE_NAME}",
        f"--node-ip={plan.address}",
        f"--root-dir={plan.folder / 'kubelet'}",
        f"--cert-dir={plan.pki}",
    ]


def proxy_config(plan: Plan) -> str:
    return json.dumps(
        {
            "apiVersion": "kubeproxy.config.k8s.io/v1alpha1",
            "kind": "KubeProxyConfiguration",
            "mode": "nftables",
            "bindAddress": plan.address,
            "healthzBindAddress": "",
            "metricsBindAddress": host_port(plan.family.loopback, plan.proxy_metrics_port),
            "clusterCIDR": plan.family.pods,
            "hostnameOverride": NODE_NAME,
            "clientConnection": {"kubeconfig": str(plan.folder / "proxy.kubeconfig")},
            "conntrack": {
                "maxPerCore": 0,
                "min": 0,
                "tcpEstablishedTimeout": "0s",
                "tcpCloseWaitTimeout": "0s",
            },
            # Two pods of one bridge answer each other directly, past the translation of
            # Service addresses, where the kernel lacks br_netfilter; so every caller is masked.
            "nftables": {"masqueradeAll": True},
        }
    )


def proxy(plan: Plan) -> list[str]:
    return [str(plan.binaries / "kube-proxy"), f"--config={plan.folder / 'proxy.json'}"]


def corefile(plan: Plan) -> str:
    return f""".:53 {{
  bind {plan.family.bridge}
  errors
  kubernetes {CLUSTER_DOMAIN} {plan.family.reverse_zone} {{
    kubeconfig {plan.folder / "dns.kubeconfig"}
    pods insecure
  }}
  cache 5
}}
"""


def coredns(plan: Plan) -> list[str]:
    return [str(plan.binaries / "coredns"), "-conf", str(plan.folder / "Corefile")]


def dns_role() -> list[dict[str, object]]:
    """What CoreDNS may read, as the stock deployment grants it."""
    api = "rbac.authorization.k8s.io"
    watch = ["list", "watch"]
    rules = [
        {"apiGroups": [""], "resources": ["services", "pods", "namespaces"], "verbs": watch},
        {"apiGroups": ["discovery.k8s.io"], "resources": ["endpointslices"], "verbs": watch},
    ]
    meta = {"name": "system:coredns"}
    role: dict[str, object] = {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRole",
        "metadata": meta,
        "rules": rules,
    }
    binding: dict[str, object] = {
        "apiVersion": f"{api}/v1",
        "kind": "ClusterRoleBinding",
        "metadata": meta,
        "roleRef": {"apiGroup": api, "kind": "ClusterRole", "name": "system:coredns"},
        "subjects": [{"apiGroup": api, "kind": "User", "name": "system:coredns"}],
    }
    return [role, binding]


def write_files(plan: Plan, *, containerd_root: Path) -> None:
    """Every settings file of the node, under the run's folder."""
    (plan.folder / "cni").mkdir(parents=True, exist_ok=True)
    files = {
        "containerd.toml": containerd_config(plan, root=containerd_root, with_pods=True),
        "containerd-images.toml": containerd_config(plan, root=containerd_root, with_pods=False),
        "cni/10-loghub.conflist": cni_config(plan),
        "kubelet.json": kubelet_config(plan),
        "proxy.json": proxy_config(plan),
        "Corefile": corefile(plan),
        "resolv.conf": "",
    }
    for name, content in files.items():
        (plan.folder / name).write_text(content)
