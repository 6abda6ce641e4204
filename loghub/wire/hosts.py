"""The project in the Host header: its first label (docs/sls-protocol.md 1.1).

The service reads the project from a Host, and the client writes it. A Host is ``<project>.<base name>``
or, for ListProjects and the service's own paths, the bare base name. Python sends it without the port,
Go with it; an absolute-form request may add a port.
"""

from collections.abc import Iterable
from ipaddress import ip_address
from urllib.parse import urlsplit

from loghub.wire import names
from loghub.wire.errors import UnknownHost

_PORTS = {"http": 80, "https": 443}
_SLS = ".log.aliyuncs.com"
_FROM_WITHIN = ("-intranet", "-internal")


def strip_port(host: str) -> str:
    """The name in a Host, in lower case, without port and trailing dot; ``[::1]:80`` gives ``[::1]``."""
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0].rstrip(".")


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
    if not names.PROJECT.allows(project):
        raise UnknownHost(f"Host {host[:300]!r} has no valid project name before {base!r}")
    return project


def host_of(project: str, endpoint_host: str) -> str:
    """The Host of a project at an endpoint, without port, as Python and Java send it."""
    return f"{project}.{endpoint_host}" if project else endpoint_host


def log_service(endpoint: str) -> str:
    """A key that is equal for two URLs that surely name the same log service, regardless of spelling.

    The key is scheme, host and port in lower case. For SLS's own hosts it is only the region, which can
    be reached by ``<region>.log.aliyuncs.com``, from within by ``<region>-intranet`` and, from a VPC
    only, ``<region>-internal`` (the vendor's pages "Endpoints" and "VPC-specific internal domain
    names"), each by http and by https. A text that is not a URL equals only itself.
    """
    text = endpoint.strip().lower()
    try:
        parts = urlsplit(text)
        port = parts.port or _PORTS[parts.scheme]
    except (ValueError, KeyError):
        return text
    host = (parts.hostname or "").rstrip(".")
    if not host.endswith(_SLS):
        return f"{parts.scheme}://{host}:{port}"
    region = host.removesuffix(_SLS)
    for ending in _FROM_WITHIN:
        region = region.removesuffix(ending)
    return region + _SLS
