"""Where the project stands: the first label of the Host (docs/sls-protocol.md 1.1).

What for: the service reads the project from a Host, the client writes one. What it must not
know: sockets, DNS. Read next: `names`, `loghub.client.http`.

A Host is ``<project>.<base name>`` or, for ListProjects and the service's own paths, the bare
base name. Python sends it without the port, Go with it; an absolute-form request may add one.
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
    """The name of a Host, lower case, without port and trailing dot; ``[::1]:80`` gives ``[::1]``."""
    name = host.strip().lower()
    if name.startswith("["):
        return name.partition("]")[0] + "]"
    return name.partition(":")[0].rstrip(".")


def is_address(name: str) -> bool:
    """An IP literal, bracketed or not."""
    try:
        ip_address(name.strip("[]"))
    except ValueError:
        return False
    return True


def is_direct(name: str) -> bool:
    """A name that a client connects to as it is: no DNS serves ``<project>.<address>``."""
    return is_address(name) or name == "localhost"


def is_loopback(name: str) -> bool:
    """This machine itself."""
    return name == "localhost" or (is_address(name) and ip_address(name.strip("[]")).is_loopback)


def project_of(host: str, base_names: Iterable[str]) -> str | None:
    """The project that a Host names, in lower case; None where it is a bare base name.

    The longest base name that fits wins. Raises UnknownHost when none fits or the label before
    it is no project name.
    """
    name = strip_port(host)
    fitting = [base for base in map(strip_port, base_names) if name == base or name.endswith("." + base)]
    if not fitting:
        raise UnknownHost(f"Host {host[:300]!r} ends in no name of this endpoint")
    base = max(fitting, key=len)
    if name == base:
        return None
    project = name[: -len(base) - 1]
    if not names.PROJECT.allows(project):
        raise UnknownHost(f"Host {host[:300]!r} has no project name before {base!r}")
    return project


def host_of(project: str, endpoint_host: str) -> str:
    """The Host of a project at an endpoint, without port, as Python and Java send it."""
    return f"{project}.{endpoint_host}" if project else endpoint_host


def log_service(endpoint: str) -> str:
    """Equal for two URLs that surely name the same log service, whatever their spelling.

    Scheme, host and port, in lower case. Of SLS's own hosts the region alone: it is reached by
    ``<region>.log.aliyuncs.com``, from within by ``<region>-intranet`` and, from a VPC only,
    ``<region>-internal`` (the vendor's pages "Endpoints" and "VPC-specific internal domain names"),
    and each by http and by https. What is no URL is only itself.
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
