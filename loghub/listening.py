"""Listening sockets of every server: the service, the operator and the workers.

An IPv6-only cluster has no IPv4 address to listen on, and an IPv4-only one may have no IPv6 at all. So "every
address" is one socket for both families where the kernel has both.
"""

import errno
import socket

_EVERY = ("", "::")
_NO_IPV6 = (errno.EAFNOSUPPORT, errno.EADDRNOTAVAIL)
# Connections that the kernel accepts before the program does; Linux cuts larger numbers to net.core.somaxconn
BACKLOG = 128


def listen(host: str, port: int, *, backlog: int = BACKLOG) -> socket.socket:
    """A listening TCP socket; port 0 chooses a free port. Raises OSError.

    ``host`` is a name, or an address with or without brackets; "" or ``::`` is every address of this machine,
    of IPv6 and IPv4, or of IPv4 alone if there is no IPv6.
    """
    host = host.strip("[]")
    if host not in _EVERY:
        family = socket.AF_INET6 if ":" in host else socket.AF_INET
        return socket.create_server((host, port), family=family, backlog=backlog)
    if socket.has_dualstack_ipv6():
        try:
            return socket.create_server(
                ("", port), family=socket.AF_INET6, dualstack_ipv6=True, backlog=backlog
            )
        except OSError as error:
            if error.errno not in _NO_IPV6:
                raise
    return socket.create_server(("", port), backlog=backlog)
