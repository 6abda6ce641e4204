"""Every address of a cluster is of the chosen family, in what the providers would run."""

import json
import socket
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path

import pytest

from tests.cluster import control_plane, ip_family, kind, node, paths, provider
from tests.cluster.control_plane import Plan
from tests.cluster.ip_family import FAMILIES, IPV4, IPV6, IpFamily
from tests.ports import free_ports
from tests.suite.parts import IPV6 as IPV6_PART

OTHER = {IPV4: IPV6, IPV6: IPV4}
of_both_families = pytest.mark.parametrize("family", FAMILIES.values(), ids=FAMILIES)


def plan_of(family: IpFamily) -> Plan:
    return Plan(
        binaries=Path("/bin-folder"),
        folder=Path("/run-folder"),
        family=family,
        address=family.bridge,
        api_port=6443,
        etcd_port=2379,
        etcd_peer_port=2380,
    )


@of_both_families
@pytest.mark.parametrize(
    "command_of", [control_plane.controller_manager, control_plane.scheduler, control_plane.etcd]
)
def test_everything_but_the_apiserver_listens_on_loopback_only(
    family: IpFamily, command_of: Callable[[Plan], list[str]]
) -> None:
    addresses = [one for one in command_of(plan_of(family)) if "bind-address" in one or "listen" in one]
    assert addresses
    assert all(family.loopback in one for one in addresses)


@of_both_families
def test_the_apiserver_listens_on_an_address_that_pods_reach(family: IpFamily) -> None:
    assert f"--bind-address={family.bridge}" in control_plane.apiserver(plan_of(family))


@of_both_families
def test_nothing_of_a_cluster_names_the_other_family(family: IpFamily) -> None:
    plan = plan_of(family)
    commands = (
        *(control_plane.etcd(plan), control_plane.apiserver(plan), control_plane.controller_manager(plan)),
        *(control_plane.scheduler(plan), control_plane.apiserver_names(plan), node.kubelet(plan)),
    )
    files = (node.kubelet_config(plan), node.cni_config(plan), node.proxy_config(plan), node.corefile(plan))
    text = "\n".join((plan.url, *files, *map(" ".join, commands)))
    assert _places(family) == [one for one in _places(family) if one in text]
    assert not [one for one in _places(OTHER[family]) if one in text]


def _places(family: IpFamily) -> list[str]:
    ranges = [family.pods, family.services, family.everywhere, family.reverse_zone]
    return [family.loopback, family.bridge, family.first_service, *ranges]


def test_an_address_of_ipv6_is_in_brackets_in_a_url() -> None:
    urls = [(plan_of(family).url, plan_of(family).etcd_url) for family in (IPV4, IPV6)]
    assert urls == [
        ("https://10.244.0.1:6443", "http://127.0.0.1:2379"),
        ("https://[fd00:10:244::1]:6443", "http://[::1]:2379"),
    ]


@of_both_families
def test_free_ports_are_of_the_address(family: IpFamily) -> None:
    (port,) = free_ports(1, family.loopback)
    socket_family = socket.AF_INET6 if family is IPV6 else socket.AF_INET
    socket.create_server((family.loopback, port), family=socket_family).close()


# --- the choice ----------------------------------------------------------------------------------


def test_the_environment_chooses_and_the_default_is_ipv4(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.delenv(ip_family.OVERRIDE, raising=False)
    assert ip_family.chosen() is IPV4
    monkeypatch.setenv(ip_family.OVERRIDE, "ipv6")
    assert ip_family.chosen() is IPV6
    monkeypatch.setenv(ip_family.OVERRIDE, "dual")
    with pytest.raises(provider.ClusterUnavailableError, match="ipv4 or ipv6"):
        ip_family.chosen()


@pytest.mark.long
def test_the_deep_tests_include_those_on_a_cluster_of_ipv6() -> None:
    assert IPV6_PART.environment == {ip_family.OVERRIDE: IPV6.name}
    result = subprocess.run(
        [sys.executable, "-m", "pytest", *IPV6_PART.arguments, "--collect-only", "-q"],
        cwd=paths.REPOSITORY,
        capture_output=True,
        text=True,
        check=False,
    )
    for file in ("test_whole_life", "test_first_light"):  # one is in `make test` too, one is not
        assert f"tests/cluster/{file}.py::" in result.stdout, result.stdout + result.stderr


@of_both_families
def test_kind_makes_a_cluster_of_the_family_and_uses_none_of_the_other(
    family: IpFamily, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    def run(command: list[str]) -> str:
        return kind.NAME if command[1] == "get" else ""

    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    monkeypatch.setenv(ip_family.OVERRIDE, family.name)
    kind.Kind(run).up()
    config = json.loads((tmp_path / "loghub-operator" / "run" / "kind" / "kind.yaml").read_text())
    assert config["networking"]["ipFamily"] == family.name
    assert kind.Kind(run).running() is not None
    monkeypatch.setenv(ip_family.OVERRIDE, OTHER[family].name)
    assert kind.Kind(run).running() is None
