"""The rules for the names of projects, logstores, consumer groups and consumers (docs/sls-protocol.md 2.5),
and the project in the Host header, which is its first label (docs/sls-protocol.md 1.1).

There is one rule for each kind: the service, the clients, the command line and the schema of the operator's
resource all use it. The rules that SLS documents are narrower. These rules are what the vendor's clients let
through, because the embedded service must answer those clients, and because an object consumes whatever
logstore the service once created: for example a logstore of 70 characters that is a topic of Kafka clients.
SLS itself refuses a name that it does not take. A project name is also a DNS label.

The service reads the project from a Host, and the client writes it. A Host is ``<project>.<base name>`` or,
for ListProjects and the service's own paths, the bare base name. Python sends it without the port, Go with
it; an absolute-form request may add a port.
"""

import re
from collections.abc import Iterable
from dataclasses import dataclass
from fnmatch import fnmatchcase
from ipaddress import ip_address
from urllib.parse import urlsplit

from loghub.wire.errors import MalformedName, UnknownHost


@dataclass(frozen=True, slots=True, kw_only=True)
class NameRule:
    """``pattern`` matches the whole name, of any length, in the syntax that Python, Rust and RE2 share;
    ``characters`` explains it to the user."""

    kind: str
    shortest: int
    longest: int
    pattern: str
    characters: str
    has_case: bool = True  # without, capitals are small letters

    @property
    def description(self) -> str:
        return f"{self.shortest} to {self.longest} {self.characters}"

    def check(self, name: str) -> str:
        """The name as it is kept. Raises MalformedName with the description of the rule."""
        if not self.allows(name):
            raise MalformedName(f"{name[:200]!r} is not a valid {self.kind} name: {self.description}")
        return self._kept(name)

    def allows(self, name: str) -> bool:
        right_length = self.shortest <= len(name) <= self.longest
        return right_length and re.fullmatch(self.pattern, self._kept(name), re.ASCII) is not None

    def _kept(self, name: str) -> str:
        return name if self.has_case or not name.isascii() else name.lower()


PROJECT = NameRule(
    kind="project",
    shortest=1,
    longest=128,
    pattern=r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?",
    characters="letters and digits, with - and _ inside",
    has_case=False,  # as in a Host; an object compares names as they are written, so it has the small letters
)
LOGSTORE = NameRule(
    kind="logstore",
    # Java refuses names of one character and of more than 80.
    shortest=2,
    longest=80,
    pattern=r"[a-z0-9]([a-z0-9_-]*[a-z0-9])?",
    characters="lower-case letters and digits, with - and _ inside",
)
CONSUMER_GROUP = NameRule(
    kind="consumer group",
    shortest=1,
    longest=128,
    pattern=r"[A-Za-z0-9_-]+",
    characters="letters, digits, - and _",
)
SUBSCRIPTION = NameRule(
    kind="subscription",
    # The rule for clients of Pulsar, which name the same subscriptions (docs/pulsar.md).
    shortest=1,
    longest=128,
    pattern=r"[A-Za-z0-9_.-]+",
    characters="letters, digits, -, _ and .",
)
CONSUMER = NameRule(
    kind="consumer",
    # No client checks it, and users put host names, addresses and times in it; the rule refuses only
    # what would break a log line or a header.
    shortest=1,
    longest=256,
    pattern=r"[\x21-\x7e]([\x20-\x7e]*[\x21-\x7e])?",
    characters="printable ASCII characters, no space at either end",
)


_PORTS = {"http": 80, "https": 443}
_SLS = ".log.aliyuncs.com"
_FROM_WITHIN = ("-intranet", "-internal")
# The metadata address of Alibaba Cloud (page "View instance metadata"), and the one of AWS over IPv6. Other
# clouds use a link-local address.
_METADATA = ("100.100.100.200", "fd00:ec2::254")
# Loopback, and the addresses of a service that listens on all addresses of its machine.
_THIS_MACHINE = tuple(map(ip_address, ("127.0.0.1", "::1", "0.0.0.0", "::")))  # noqa: S104 - compared only
_OF_CLUSTERS = (".svc", ".svc.cluster.local")


def strip_port(host: str) -> str:
    """The name in a Host, in lower case, without port and trailing dot; ``demo.[::1]:80`` gives
    ``demo.[::1]``."""
    name = host.strip().lower()
    before, bracket, _ = name.partition("]")
    if bracket:
        return before + bracket
    return name.partition(":")[0].rstrip(".")


def bracketed(name: str) -> str:
    """The name as in a URL or a Host: an IPv6 address is in brackets."""
    return f"[{name}]" if ":" in name and not name.startswith("[") else name


def is_address(name: str) -> bool:
    """Whether the name is an IP literal, with or without brackets."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_direct(name: str) -> bool:
    """Whether a client connects to this name as it is, because no DNS serves ``<project>.<address>``."""
    return is_address(name) or name == "localhost"


def is_loopback(name: str) -> bool:
    """Whether the name is this machine itself."""
    return name == "localhost" or (is_address(name) and ip_address(name.strip("[]")).is_loopback)


def is_internal(name: str) -> bool:
    """Whether the name is surely not of the public internet: a Service of a cluster, this machine, or an
    address that is not routed publicly (RFC 1918, RFC 4193, RFC 6598)."""
    name = name.lower().strip("[]")
    if not is_address(name):
        return name == "localhost" or name.endswith(_OF_CLUSTERS)
    address = ip_address(name)
    return not (getattr(address, "ipv4_mapped", None) or address).is_global


def serves_a_node(name: str) -> bool:
    """Whether the name is an address that means another machine on each node, so that no log service is
    there: a link-local address (RFC 3927, RFC 4291 2.5.6), or an address at which a cloud gives a node its
    credentials."""
    name = name.strip("[]")
    if not is_address(name):
        return False
    address = ip_address(name)
    address = getattr(address, "ipv4_mapped", None) or address
    return address.is_link_local or str(address) in _METADATA


def with_scheme(endpoint: str) -> str:
    """The endpoint as a URL. SLS gives its endpoints as bare host names, which are reached by https; a name
    that is surely not of the public internet is reached by http, as our own service is."""
    text = endpoint.strip()
    if "://" in text:
        return text
    return f"{'http' if is_internal(strip_port(text)) else 'https'}://{text}"


def is_exposed(endpoint: str, allowed: Iterable[str]) -> bool:
    """Whether requests to the endpoint, with keys and logs, are readable on the public internet: http to a
    host that is neither internal nor ``allowed``. An allowed host is a name, ``*.<domain>``, or ``*``.
    A text that is not a URL is exposed, unless it begins with ``https:``."""
    text = with_scheme(endpoint).lower()
    if text.startswith("https:"):
        return False
    try:
        host = host_in(text)
    except ValueError:
        return True
    return not is_internal(host) and not any(fnmatchcase(host, one.lower()) for one in allowed)


def host_in(endpoint: str) -> str:
    """The host of an endpoint, in lower case and without brackets. Raises ValueError if it is not a URL."""
    return urlsplit(with_scheme(endpoint).lower()).hostname or ""


def project_of(host: str, base_names: Iterable[str]) -> str | None:
    """The project that a Host names, in lower case; None for a bare base name.

    The longest matching base name wins. Raises UnknownHost when none matches or the label before it is
    not a project name.
    """
    name = strip_port(host)
    fitting = [base for base in map(strip_port, base_names) if name == base or name.endswith("." + base)]
    if not fitting:
        raise UnknownHost(f"Host {host[:300]!r} does not end in a name of this endpoint")
    base = max(fitting, key=len)
    if name == base:
        return None
    project = name[: -len(base) - 1]
    if not PROJECT.allows(project):
        raise UnknownHost(f"Host {host[:300]!r} has no valid project name before {base!r}")
    return project


def host_of(project: str, endpoint_host: str) -> str:
    """The Host of a project at an endpoint, without port, as Python and Java send it. ``endpoint_host`` is
    as in a URL, an IPv6 address in brackets: without them its end would read as a port."""
    return f"{project}.{endpoint_host}" if project else endpoint_host


def log_service(endpoint: str) -> str:
    """A key that is equal for two URLs that surely name the same log service, regardless of spelling.

    The key is scheme, host and port in lower case, an address in its shortest form. What listens at a port
    of this machine is one service, whichever of its own names a client uses. For SLS's own hosts the key is
    only the region, which can be reached by ``<region>.log.aliyuncs.com``, from within by
    ``<region>-intranet`` and, from a VPC only, ``<region>-internal`` (the vendor's pages "Endpoints" and
    "VPC-specific internal domain names"), each by http and by https. A text that is not a URL equals only
    itself.
    """
    text = endpoint.strip().lower()
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return text
    host = (parts.hostname or "").rstrip(".")
    if not host.endswith(_SLS):
        return f"{parts.scheme}://{_one_spelling(host)}:{port}"
    region = host.removesuffix(_SLS)
    for ending in _FROM_WITHIN:
        region = region.removesuffix(ending)
    return region + _SLS


def _one_spelling(host: str) -> str:
    if not is_address(host):
        return host
    address = ip_address(host)
    address = getattr(address, "ipv4_mapped", None) or address
    return "localhost" if address in _THIS_MACHINE else str(address)
