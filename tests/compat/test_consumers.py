"""What is said where the real clients cannot run."""

import errno
import os
import socket

import pytest

from tests.cluster import require
from tests.compat import consumers


def test_a_port_80_that_another_program_has_is_named() -> None:
    address = consumers.loopback_address()
    if reason := consumers.port_80_refused(address):
        require.absent(reason)
    with socket.socket() as other:
        other.bind((address, 80))
        other.listen()
        reason = consumers.port_80_refused(address)
    assert f"{address}:80: Address already in use" in reason


def test_the_missing_right_to_port_80_is_named(monkeypatch: pytest.MonkeyPatch) -> None:
    def refuse(*_: object) -> None:
        raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))

    monkeypatch.setattr(consumers.java, "missing", lambda: "")
    monkeypatch.setattr(socket.socket, "bind", refuse)
    reason = consumers.missing()
    assert "port 80" in reason
    assert "Permission denied" in reason
    assert "CAP_NET_BIND_SERVICE" in reason
