"""The address family of a test cluster: IPv4 alone, or IPv6 with no IPv4 address in any pod.

``LOGHUB_TEST_IP_FAMILY=ipv4|ipv6`` chooses, for both providers; the default is IPv4. The addresses of the
upstream cluster are private ones (RFC 1918, RFC 4193).
"""

import ipaddress
import os
from dataclasses import dataclass
from pathlib import Path

from loghub.wire.names import bracketed
from tests.cluster.provider import ClusterUnavailableError

OVERRIDE = "LOGHUB_TEST_IP_FAMILY"


@dataclass(frozen=True, slots=True, kw_only=True)
class IpFamily:
    """``name`` is the one that kind uses; ``pods`` and ``services`` are ranges of addresses in CIDR notation.

    ``reverse_zone`` is where DNS has the names of addresses, ``forwarding`` the setting of the kernel.
    """

    name: str
    loopback: str
    pods: str
    services: str
    everywhere: str
    reverse_zone: str
    forwarding: Path

    @property
    def version(self) -> int:
        """4 or 6."""
        return ipaddress.ip_address(self.loopback).version

    @property
    def bridge(self) -> str:
        """The address of the pods' bridge: their gateway, the node, the apiserver and DNS."""
        return str(ipaddress.ip_network(self.pods)[1])

    @property
    def first_service(self) -> str:
        """The address that the apiserver gives to its own Service."""
        return str(ipaddress.ip_network(self.services)[1])


IPV4 = IpFamily(
    name="ipv4",
    loopback="127.0.0.1",
    pods="10.244.0.0/24",
    services="10.96.0.0/16",
    everywhere="0.0.0.0/0",
    reverse_zone="in-addr.arpa",
    forwarding=Path("/proc/sys/net/ipv4/ip_forward"),
)
IPV6 = IpFamily(
    name="ipv6",
    loopback="::1",
    pods="fd00:10:244::/64",
    services="fd00:10:96::/112",
    everywhere="::/0",
    reverse_zone="ip6.arpa",
    forwarding=Path("/proc/sys/net/ipv6/conf/all/forwarding"),
)
FAMILIES = {family.name: family for family in (IPV4, IPV6)}


def chosen() -> IpFamily:
    """The family of the environment. Raises `ClusterUnavailableError` for another word."""
    name = os.environ.get(OVERRIDE) or IPV4.name
    if name not in FAMILIES:
        raise ClusterUnavailableError(f"{OVERRIDE}={name}: it is {' or '.join(FAMILIES)}")
    return FAMILIES[name]


def host_port(address: str, port: int) -> str:
    """As in a URL: an IPv6 address is in brackets."""
    return f"{bracketed(address)}:{port}"
