"""The bridge of the pods, made and removed in a network of its own (network namespace)."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

from tests.cluster import paths, require
from tests.cluster.ip_family import FAMILIES, IPV4, IPV6, IpFamily

GUARD_S = 120.0
ISOLATED = ("unshare", "--map-root-user", "--net")
_STORY = """
import json, socket, subprocess, sys
from pathlib import Path
from tests.cluster import host
from tests.cluster.ip_family import FAMILIES
from tests.ports import free_ports

def hardware_address():
    return json.loads(subprocess.check_output(["ip", "-j", "link", "show", host.BRIDGE]))[0]["address"]

folder, family = Path(sys.argv[1]), FAMILIES[sys.argv[2]]
before, found = family.forwarding.read_text(), {"conflict": host.conflict(family)}
host.make_bridge(folder, family)
found["forwarding"] = family.forwarding.read_text().strip()
found["free"] = len(free_ports(2, family.bridge))
first = hardware_address()
pod = ["ip", "link", "add", "pod", "address", "00:00:00:00:00:02", "type", "veth", "peer", "name", "inside"]
subprocess.run(pod, check=True)
subprocess.run(["ip", "link", "set", "pod", "master", host.BRIDGE], check=True)
found["kept"] = hardware_address() == first
host.remove_bridge(folder)
found["restored"] = family.forwarding.read_text() == before
found["left"] = [index_name[1] for index_name in socket.if_nameindex()]
print(json.dumps(found))
"""


_CONFLICT = """
import subprocess, sys
from tests.cluster import host
from tests.cluster.ip_family import FAMILIES

family, *route = sys.argv[1:]
subprocess.run(["ip", "link", "add", "other", "type", "bridge"], check=True)
subprocess.run(["ip", "link", "set", "other", "up"], check=True)
subprocess.run(["ip", "route", "add", *route, "dev", "other"], check=True)
print(host.conflict(FAMILIES[family]))
"""


def isolated(program: str, *arguments: str) -> str:
    """What a Python program prints in a network of its own, which ends with it."""
    if subprocess.run([*ISOLATED, "true"], capture_output=True, timeout=GUARD_S, check=False).returncode:
        require.absent("a network namespace needs Linux, and root or user namespaces")
    done = subprocess.run(
        [*ISOLATED, sys.executable, "-c", program, *arguments],
        cwd=paths.REPOSITORY,
        capture_output=True,
        text=True,
        timeout=GUARD_S,
        check=False,
    )
    assert done.returncode == 0, done.stderr
    return done.stdout.strip()


@pytest.mark.parametrize("family", FAMILIES)
def test_a_bridge_is_of_use_before_its_first_pod_and_keeps_its_address(family: str, tmp_path: Path) -> None:
    """A pod remembers the hardware address of its gateway, so none that comes later may change it."""
    assert json.loads(isolated(_STORY, str(tmp_path), family)) == {
        "conflict": "",
        "forwarding": "1",
        "free": 2,
        "kept": True,
        "restored": True,
        "left": ["lo"],
    }


@pytest.mark.parametrize(
    ("family", "route", "reason"),
    [
        (IPV4, IPV4.pods, f"{IPV4.pods} is in use by other"),
        (IPV6, IPV6.pods, f"{IPV6.pods} is in use by other"),
        (IPV6, "::/0 proto ra", "router advertisement"),
        (IPV4, IPV6.pods, ""),
        (IPV4, "::/0 proto ra", ""),
        (IPV6, "::/0 proto static", ""),
    ],
)
def test_a_network_that_would_be_harmed_is_refused(family: IpFamily, route: str, reason: str) -> None:
    found = isolated(_CONFLICT, family.name, *route.split())
    assert reason in found
    assert bool(found) == bool(reason)
