"""Ports for programs whose port is chosen before they listen.

A listener with port 0 gets one of the kernel's, which nobody can take from it. These here are for programs
that listen later, or again. So they are not of the range from which the kernel takes a port for each outgoing
connection (32768 and up on Linux), nor of the NodePorts of Kubernetes.
"""

import secrets
import socket
from contextlib import ExitStack

RANGE = range(10_000, 30_000)


def free_ports(count: int, address: str = "127.0.0.1") -> list[int]:
    """Ports that are free now, all different."""
    family = socket.AF_INET6 if ":" in address else socket.AF_INET
    found: list[int] = []
    with ExitStack() as stack:
        while len(found) < count:
            probe = stack.enter_context(socket.socket(family))
            port = secrets.choice(RANGE)
            try:
                probe.bind((address, port))
            except OSError:  # it is in use
                continue
            found.append(port)
    return found


def free_port() -> int:
    """A port of loopback that is free now."""
    (port,) = free_ports(1)
    return port
