"""A service process with TLS, whose certificate is replaced while it runs."""

import http.client
import json
import ssl
from pathlib import Path

import pytest

from loghub_consumer.service_process import ServiceEndedError
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_service.rawclient import GUARD_S, RawClient
from tests.loghub_service.test_admin import admin_address, fetch
from tests.support import ServiceProcess, running_service, wait_until

pytestmark = pytest.mark.long


def client_of(service: ServiceProcess, authority: Authority) -> RawClient:
    client = RawClient(service)
    context = ssl.create_default_context(cadata=authority.pem.decode())
    client.connection = http.client.HTTPSConnection(
        "localhost", service.port, timeout=GUARD_S, context=context
    )
    return client


def accepts(service: ServiceProcess, authority: Authority) -> bool:
    with client_of(service, authority) as client:
        try:
            return client.send("GET", "/").status == 200
        except ssl.SSLCertVerificationError:
            return False


def test_a_replaced_certificate_is_used_without_a_restart(tmp_path: Path) -> None:
    old, new = Authority("old"), Authority("new")
    old.write_pair(tmp_path, "localhost")
    key = (tmp_path / "tls.key").read_text()
    extra = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with running_service(tmp_path, extra=(*extra, "--admin-listen", "127.0.0.1:0")) as service:
        with client_of(service, old) as client:
            client.create()
            assert accepts(service, old)
            assert fetch(admin_address(service), "/healthz")[0] == 200  # the admin port has no TLS
            (tmp_path / "tls.crt").write_bytes(b"incomplete")
            wait_until(
                lambda: "TLS certificate not read" in service.log.read_text(), "the problem in the log"
            )
            assert accepts(service, old)
            new.write_pair(tmp_path, "localhost")
            wait_until(lambda: accepts(service, new), "the new certificate")
            assert not accepts(service, old)
            assert client.send("GET", "/").status == 200  # on the connection of the old one
        assert service.terminate() == 0
        log = service.log.read_text()
        events = [json.loads(line)["event"] for line in log.splitlines() if line.startswith("{")]
        assert "TLS certificate changed" in events
        body = key.splitlines()[1]
        assert body not in log
        assert body not in (tmp_path / "tls.key").read_text()


def test_a_certificate_that_cannot_be_used_is_reported_in_one_line(tmp_path: Path) -> None:
    (tmp_path / "tls.crt").write_text("not PEM")
    extra = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "none"))
    with (
        pytest.raises(ServiceEndedError, match=r"loghub_service: TLS with .*tls\.crt"),
        running_service(tmp_path, extra=extra),
    ):
        pass
