"""TLS between a worker and PostgreSQL: the server is verified, and a client may have a certificate."""

from collections.abc import Iterator
from pathlib import Path
from typing import Any

import msgspec
import pytest

from loghub_worker.sink.batch_sink import InvalidSinkError, SinkUnreachableError
from loghub_worker.sink.postgresql.database import SinkDatabase
from loghub_worker.sink.sink_start import CredentialFiles
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_worker.sink.postgresql.line_worker import sink_settings
from tests.postgresql_server import PASSWORDS, USER, PostgresqlServer, running_postgresql, write_credentials

pytestmark = pytest.mark.long  # for a real server

SERVERS, CLIENTS, OTHERS = Authority("servers"), Authority("clients"), Authority("others")
ONLY_TLS = f"""
hostssl all certified 127.0.0.1/32 cert
hostssl all {USER} 127.0.0.1/32 scram-sha-256
host all admin 127.0.0.1/32 scram-sha-256
"""


@pytest.fixture(scope="module")
def tls_server() -> Iterator[PostgresqlServer]:
    with running_postgresql() as server:
        server.execute("CREATE ROLE certified LOGIN")
        pair = SERVERS.pair("localhost")
        server.settings |= {
            "ssl": "on",
            "ssl_cert_file": f"'{server.put('server.crt', pair.certificate)}'",
            "ssl_key_file": f"'{server.put('server.key', pair.key)}'",
            "ssl_ca_file": f"'{server.put('clients.crt', CLIENTS.pem)}'",
        }
        (server.data / "pg_hba.conf").write_text(ONLY_TLS)
        server.stop()
        server.start()
        yield server


def user_over_tls(server: PostgresqlServer, credentials: Path, **settings: Any) -> tuple[object, ...] | None:
    """The user and whether TLS is used, by the server's account of this connection."""
    given = {"host": "localhost", "ssl_mode": "verify-full"} | settings
    sink = msgspec.structs.replace(sink_settings(server.port), **given)
    database = SinkDatabase(sink, CredentialFiles(credentials), client="test", statement_timeout_s=60.0)
    with database.transaction() as connection:
        query = "SELECT current_user::text, ssl FROM pg_stat_ssl WHERE pid = pg_backend_pid()"
        return connection.execute(query).fetchone()


def test_the_server_is_verified_with_the_authority_of_the_secret(
    tls_server: PostgresqlServer, tmp_path: Path
) -> None:
    credentials = write_credentials(tmp_path, **{"ca.crt": SERVERS.pem.decode()})
    assert user_over_tls(tls_server, credentials) == (USER, True)


def test_a_certificate_for_another_host_is_refused_unless_only_the_authority_counts(
    tls_server: PostgresqlServer, tmp_path: Path
) -> None:
    credentials = write_credentials(tmp_path, **{"ca.crt": SERVERS.pem.decode()})
    with pytest.raises(SinkUnreachableError, match="does not match host name"):
        user_over_tls(tls_server, credentials, host="127.0.0.1")
    assert user_over_tls(tls_server, credentials, host="127.0.0.1", ssl_mode="verify-ca") == (USER, True)


@pytest.mark.parametrize("authority", [OTHERS, None])
@pytest.mark.parametrize("mode", ["verify-full", "verify-ca"])
def test_a_certificate_of_an_unknown_authority_is_refused(
    tls_server: PostgresqlServer, tmp_path: Path, authority: Authority | None, mode: str
) -> None:
    known = {} if authority is None else {"ca.crt": authority.pem.decode()}
    credentials = write_credentials(tmp_path, **known)
    with pytest.raises(SinkUnreachableError, match="certificate verify failed") as caught:
        user_over_tls(tls_server, credentials, ssl_mode=mode)
    assert PASSWORDS[USER] not in str(caught.value)


def test_without_tls_only_where_the_object_says_so(tls_server: PostgresqlServer, tmp_path: Path) -> None:
    credentials = write_credentials(tmp_path)
    with pytest.raises(SinkUnreachableError, match="no encryption"):
        user_over_tls(tls_server, credentials, ssl_mode="disable")


def test_a_client_certificate_takes_the_place_of_a_password(
    tls_server: PostgresqlServer, tmp_path: Path
) -> None:
    CLIENTS.write_pair(tmp_path, "certified", clients_ca=SERVERS)
    (tmp_path / "tls.key").chmod(0o600)
    (tmp_path / "username").write_text("certified\n")
    assert user_over_tls(tls_server, tmp_path) == ("certified", True)
    (tmp_path / "tls.key").unlink()
    database = SinkDatabase(
        msgspec.structs.replace(sink_settings(tls_server.port), ssl_mode="verify-full"),
        CredentialFiles(tmp_path),
        client="test",
        statement_timeout_s=60.0,
    )
    with pytest.raises(InvalidSinkError, match=r"have tls\.crt but not tls\.key"):
        database.check_credentials()
