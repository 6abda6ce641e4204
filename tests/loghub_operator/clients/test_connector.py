"""Which client the operator makes for an endpoint, and that the SDK is loaded for no other."""

import subprocess
import sys
from pathlib import Path

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from loghub_operator.clients.log_service import connector
from loghub_operator.settings import Client, Settings
from tests.support import running_service

SLS, EMBEDDED = "https://cn-hangzhou.log.aliyuncs.com", "http://loghub.svc"
KEY = Credentials(access_key_id="id", access_key_secret="secret")
LOADED = """
import sys
from loghub.client.port import Credentials
from loghub_operator.clients.log_service import connector
from loghub_operator.settings import Settings

connect = connector(Settings().uses_sdk, Settings().address_of)
for endpoint in sys.argv[1:]:
    connect(endpoint, "demo", Credentials(access_key_id="id", access_key_secret="secret")).close()
    print("aliyun.log" in sys.modules)
"""


@pytest.mark.parametrize(
    ("choice", "endpoint", "kind"),
    [
        (Client.AUTO, SLS, AliyunLogHub),
        (Client.AUTO, EMBEDDED, HttpLogHub),
        (Client.SDK, EMBEDDED, HttpLogHub),  # at an address that the SDK cannot use
        (Client.SDK, "http://127.0.0.1:8080", AliyunLogHub),
        (Client.HTTP, SLS, HttpLogHub),
    ],
)
def test_each_endpoint_gets_the_right_client(choice: Client, endpoint: str, kind: type) -> None:
    settings = Settings(client=choice)
    client = connector(settings.uses_sdk, settings.address_of)(endpoint, "demo", KEY)
    client.close()
    assert type(client) is kind


@pytest.mark.long
def test_a_project_of_the_embedded_service_is_reached_without_a_name_of_its_own(tmp_path: Path) -> None:
    with running_service(tmp_path, extra=("--base-name", "loghub.svc")) as service:
        settings = Settings(embedded_endpoint=EMBEDDED, embedded_address=f"127.0.0.1:{service.port}")
        client = connector(settings.uses_sdk, settings.address_of)(EMBEDDED, "demo", service.credentials)
        client.create_project()
        assert client.project_exists()
        client.close()


@pytest.mark.long
def test_the_sdk_is_loaded_for_the_first_endpoint_that_needs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, EMBEDDED, SLS], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["False", "True"]
