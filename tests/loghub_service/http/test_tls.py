"""TLS of the listener: certificates that are replaced while it runs, and connections that never finish a
handshake."""

import os
import socket
import ssl
from pathlib import Path

import pytest

from loghub_service.http.server import BadCertificate, ServerTls
from loghub_service.settings import Limits
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_service.http.served import GUARD_S, Served, answering, is_closed, serving
from tests.support import wait_until

GET = b"GET / HTTP/1.1\r\nhost: x\r\n\r\n"


def tls_of(folder: Path) -> ServerTls:
    return ServerTls(str(folder / "tls.crt"), str(folder / "tls.key"))


def connect(served: Served, authority: Authority, *, name: str | None = "localhost") -> ssl.SSLSocket:
    """Connect with TLS; without a name, the client sends none and does not check it."""
    context = ssl.create_default_context(cadata=authority.pem.decode())
    context.check_hostname = name is not None
    return context.wrap_socket(served.connect(), server_hostname=name)


def common_name(connection: ssl.SSLSocket) -> str:
    certificate = connection.getpeercert()
    assert certificate is not None
    return str(certificate["issuer"][0][0][1])


@pytest.mark.parametrize("name", ["localhost", None])
def test_new_handshakes_use_a_replaced_certificate_and_open_connections_continue(
    tmp_path: Path, name: str | None
) -> None:
    old, new = Authority("old"), Authority("new")
    old.write_pair(tmp_path, "localhost")
    tls = tls_of(tmp_path)
    with serving(answering(), tls=tls.context) as served, connect(served, old, name=name) as first:
        assert common_name(first) == "old"
        assert tls.refresh() is False
        new.write_pair(tmp_path, "localhost")
        assert tls.refresh() is True
        with connect(served, new, name=name) as second:
            assert common_name(second) == "new"
        with pytest.raises(ssl.SSLCertVerificationError):
            connect(served, old, name=name)
        first.sendall(GET)
        assert first.recv(65536).startswith(b"HTTP/1.1 200")


def test_an_incomplete_rotation_changes_nothing(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    old.write_pair(tmp_path, "localhost")
    tls = tls_of(tmp_path)
    with serving(answering(), tls=tls.context) as served:
        pair = new.pair("localhost")
        (tmp_path / "tls.crt").write_bytes(pair.certificate)  # the old key does not fit
        assert tls.refresh() is False
        assert "tls.crt" in tls.problem
        os.remove(tmp_path / "tls.key")
        assert tls.refresh() is False
        with connect(served, old) as connection:
            assert common_name(connection) == "old"
        (tmp_path / "tls.key").write_bytes(pair.key)
        assert tls.refresh() is True
        assert tls.problem == ""
        with connect(served, new) as connection:
            assert common_name(connection) == "new"


@pytest.mark.parametrize("content", [None, b"", b"not PEM"])
def test_files_that_cannot_be_used_are_named(tmp_path: Path, content: bytes | None) -> None:
    Authority("a").write_pair(tmp_path, "localhost")
    if content is None:
        os.remove(tmp_path / "tls.key")
    else:
        (tmp_path / "tls.key").write_bytes(content)
    with pytest.raises(BadCertificate, match=r"tls\.key"):
        tls_of(tmp_path)


def test_an_encrypted_key_is_refused_without_a_question(tmp_path: Path) -> None:
    from cryptography.hazmat.primitives import serialization as pem
    from cryptography.hazmat.primitives.asymmetric import ec

    Authority("a").write_pair(tmp_path, "localhost")
    key = ec.generate_private_key(ec.SECP256R1())
    encrypted = key.private_bytes(
        pem.Encoding.PEM, pem.PrivateFormat.PKCS8, pem.BestAvailableEncryption(b"word")
    )
    (tmp_path / "tls.key").write_bytes(encrypted)
    with pytest.raises(BadCertificate):
        tls_of(tmp_path)


def test_connections_without_a_handshake_are_bounded_too(tmp_path: Path) -> None:
    authority = Authority("a")
    authority.write_pair(tmp_path, "localhost")
    limits = Limits(connections=3)
    with serving(answering(), tls=tls_of(tmp_path).context, limits=limits) as served:
        silent = [served.connect() for _ in range(10)]
        assert all(is_closed(connection) for connection in silent[:7])
        wait_until(lambda: served.open_connections == 3, "the bound to be reached")
        with connect(served, authority) as connection:
            connection.sendall(GET)
            assert connection.recv(65536).startswith(b"HTTP/1.1 200")
        for connection_ in silent:
            connection_.close()
        wait_until(lambda: served.open_connections == 0, "all to be forgotten")


def test_plain_http_gets_no_answer_and_is_forgotten(tmp_path: Path) -> None:
    Authority("a").write_pair(tmp_path, "localhost")
    with serving(answering(), tls=tls_of(tmp_path).context) as served:
        with socket.create_connection(served.address, GUARD_S) as connection:
            connection.sendall(GET)
            assert is_closed(connection)
        wait_until(lambda: served.open_connections == 0, "it to be forgotten")
