"""A project is reached at an address that needs no name of the project, over TLS with its own certificate."""

import ssl
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from loghub.client.target import EndpointAt
from loghub.wire.errors import EndpointUnreachable
from tests.loghub_operator.support.certificates import Authority
from tests.support import running_service

BASE_NAME = "loghub.svc"  # nothing resolves it here


def client_of(service_port: int, credentials: Credentials, scheme: str = "http") -> HttpLogHub:
    endpoint = EndpointAt(url=f"{scheme}://{BASE_NAME}", address=f"127.0.0.1:{service_port}")
    return HttpLogHub(endpoint, "demo", credentials=credentials)


def test_a_project_without_a_name_in_dns_is_created_and_found(tmp_path: Path) -> None:
    with running_service(tmp_path, extra=("--base-name", BASE_NAME)) as service:
        client = client_of(service.port, service.credentials)
        assert not client.project_exists()
        client.create_project()
        assert client.project_exists()
        assert client.has_extensions()
        client.close()


@pytest.mark.long
@pytest.mark.parametrize(("name", "valid"), [("demo.loghub.svc", True), ("localhost", False)])
def test_the_certificate_must_be_that_of_the_projects_host(
    name: str, valid: bool, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority("test")
    authority.write_pair(tmp_path, name)
    trusted = tmp_path / "ca.crt"
    trusted.write_bytes(authority.pem)
    monkeypatch.setenv(ssl.get_default_verify_paths().openssl_cafile_env, str(trusted))
    extra = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with running_service(tmp_path, extra=("--base-name", BASE_NAME, *extra)) as service:
        client = client_of(service.port, service.credentials, "https")
        if valid:
            assert not client.project_exists()
        else:
            with pytest.raises(EndpointUnreachable, match=r"loghub\.svc.*demo\.loghub\.svc"):
                client.project_exists()
        client.close()
