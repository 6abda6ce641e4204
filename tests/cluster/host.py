"""What the upstream cluster changes on the machine, and how it is undone.

The pods' bridge, forwarding, and the sweep that removes everything that a run (even a killed one) has left:
containers, mounts, the bridge, kube-proxy's tables, address leases. All of it is found by names and folders
that only this cluster uses.
"""

import contextlib
import json
import os
import signal
import subprocess
import time
from pathlib import Path

from tests.cluster import mounts
from tests.cluster.containerd import NAMESPACE
from tests.cluster.ip_family import IpFamily
from tests.cluster.node import BRIDGE, CNI_NAME
from tests.cluster.processes import wait_until

PROXY_TABLES = (("ip", "kube-proxy"), ("ip6", "kube-proxy"))
POD_SHARES = 8192
_CGROUP_ROOT = Path("/sys/fs/cgroup")
_CONTAINER_LOGS = Path("/var/log/containers")
_CNI_RESULTS = Path("/var/lib/cni/results")
_HARDWARE_ADDRESS = "02:00:00:00:02:44"  # administered locally
_NOTE = "forwarding.json"


def conflict(family: IpFamily) -> str:
    """Why this machine's network cannot host the cluster, or an empty text.

    Ask after `sweep`: what is found then belongs to another user.
    """
    routes = _routes(family, "root", family.pods)
    if any(route.get("dev") != BRIDGE for route in routes):
        return f"the pods' address range {family.pods} is in use by {routes[0].get('dev')}"
    if any(route.get("protocol") == "ra" for route in _routes(family, "default")):
        # The kernel drops such a route when forwarding starts (RFC 4861 6.2.1: a router takes none).
        return "this machine has its default route from a router advertisement; forwarding would end it"
    if any(_succeeds(["nft", "list", "table", *table]) for table in PROXY_TABLES):
        return "another kube-proxy works on this machine (nftables table kube-proxy)"
    return ""


def make_bridge(folder: Path, family: IpFamily) -> None:
    """The bridge with its address, and forwarding on; what was before is noted in ``folder``."""
    (folder / _NOTE).write_text(json.dumps({str(family.forwarding): family.forwarding.read_text()}))
    family.forwarding.write_text("1")
    address = f"{family.bridge}/{family.pods.partition('/')[2]}"
    # Without a pod the bridge has no carrier, so the search for a duplicate would never end.
    unsearched = ["nodad"] if family.version == 6 else []
    # By itself a bridge takes the lowest hardware address of its links, so a new pod's could change what
    # the other pods remember of their gateway: for half a minute they would reach nobody beyond the bridge.
    _run(["ip", "link", "add", BRIDGE, "address", _HARDWARE_ADDRESS, "type", "bridge"])
    _run(["ip", "address", "add", address, "dev", BRIDGE, *unsearched])
    _run(["ip", "link", "set", BRIDGE, "up"])


def _routes(family: IpFamily, *selector: str) -> list[dict[str, str]]:
    said = _output(["ip", "-j", f"-{family.version}", "route", "show", *selector])
    routes: list[dict[str, str]] = json.loads(said or "[]")
    return routes


def weigh_pods() -> None:
    """Let all pods together have the CPU weight of several busy processes, not of a single one.

    The kubelet would do this for its own tree of control groups, which is off here. Version 1 only:
    there a group competes with every other process.
    """
    group = _CGROUP_ROOT / "cpu" / NAMESPACE
    if group.parent.is_dir():
        group.mkdir(exist_ok=True)
        (group / "cpu.shares").write_text(str(POD_SHARES))


def sweep(folder: Path) -> None:
    """Undo everything of the run in ``folder`` but the folder itself. Safe to repeat."""
    end_containers(folder)
    mounts.unmount_below(folder)
    remove_bridge(folder)
    _remove_marks(folder)


def end_containers(folder: Path) -> None:
    """Kill the processes of this run's containers (by their control groups) and their shims."""
    groups = _cgroups(container_ids(folder))
    wait_until(lambda: _no_process_left(groups), what="the pods' processes have ended", guard_s=30)
    for pid in _shims(folder):
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    for group in groups:
        for path in _from_the_leaves(group):
            _remove_cgroup(path)
        with contextlib.suppress(OSError):
            group.parent.rmdir()  # unless another user's containers are in it


def container_ids(folder: Path) -> list[str]:
    """The containers that the containerd of ``folder`` has a task folder for."""
    tasks = folder / "containerd-state" / "io.containerd.runtime.v2.task" / NAMESPACE
    return sorted(path.name for path in tasks.glob("*"))


def _cgroups(ids: list[str]) -> list[Path]:
    """Their control groups in every hierarchy (version 1) or the only one (version 2)."""
    pids = [path for one in ids for path in _CGROUP_ROOT.glob(f"*/{NAMESPACE}/{one}")]
    return pids + [path for one in ids if (path := _CGROUP_ROOT / NAMESPACE / one).is_dir()]


def _no_process_left(groups: list[Path]) -> bool:
    pids = {pid for group in groups for pid in _pids_below(group)}
    for pid in pids:
        with contextlib.suppress(ProcessLookupError):
            os.kill(pid, signal.SIGKILL)
    return not pids


def _pids_below(group: Path) -> set[int]:
    pids: set[int] = set()
    for path in _from_the_leaves(group):
        with contextlib.suppress(OSError):
            pids |= {int(line) for line in (path / "cgroup.procs").read_text().split()}
    return pids


def _from_the_leaves(group: Path) -> list[Path]:
    """The group and those below it, inner ones first. A shim may remove them meanwhile: what is
    gone is passed over (`Path.rglob` would raise)."""
    return [Path(path) for path, _, _ in os.walk(group, topdown=False)]


def _remove_cgroup(path: Path) -> None:
    for _ in range(20):
        try:
            path.rmdir()
        except FileNotFoundError:
            return
        except OSError:
            time.sleep(0.05)  # the kernel lets go of an emptied group a moment later
        else:
            return


def _shims(folder: Path) -> list[int]:
    """Shim processes that serve the containerd of ``folder``."""
    pids = []
    for path in Path("/proc").glob("[0-9]*/cmdline"):
        with contextlib.suppress(OSError):
            arguments = path.read_bytes().split(b"\0")
            if (
                arguments[0].endswith(b"containerd-shim-runc-v2")
                and os.fsencode(folder / "containerd.sock") in arguments
            ):
                pids.append(int(path.parent.name))
    return pids


def remove_bridge(folder: Path) -> None:
    """The bridge, the pods' links, kube-proxy's tables; forwarding as it was."""
    note = folder / _NOTE
    if not note.exists():
        return  # this run never came as far as the network
    # A pod's link can outlive its processes for minutes, held by a connection without an answer.
    for link in json.loads(_output(["ip", "-j", "link", "show", "master", BRIDGE]) or "[]"):
        _succeeds(["ip", "link", "delete", link["ifname"]])
    _succeeds(["ip", "link", "delete", BRIDGE])
    for table in PROXY_TABLES:
        _succeeds(["nft", "delete", "table", *table])
    for setting, before in json.loads(note.read_text()).items():
        Path(setting).write_text(before)
    note.unlink()


def _remove_marks(folder: Path) -> None:
    """Files outside the folder: the kubelet's links to logs, the network plugins' results."""
    for link in _CONTAINER_LOGS.glob("*.log"):
        if link.is_symlink() and Path(os.readlink(link)).is_relative_to(folder):
            link.unlink()
    for result in _CNI_RESULTS.glob(f"{CNI_NAME}-*-eth0"):
        pod = result.name.removeprefix(f"{CNI_NAME}-").removesuffix("-eth0")
        (_CNI_RESULTS / f"cni-loopback-{pod}-lo").unlink(missing_ok=True)
        result.unlink()


def _run(command: list[str]) -> None:
    done = subprocess.run(command, capture_output=True, text=True, timeout=60, check=False)
    if done.returncode != 0:
        raise RuntimeError(f"{' '.join(command)}: {done.stderr.strip()}")


def _succeeds(command: list[str]) -> bool:
    return subprocess.run(command, capture_output=True, timeout=60, check=False).returncode == 0


def _output(command: list[str]) -> str:
    return subprocess.run(command, capture_output=True, text=True, timeout=60, check=False).stdout
