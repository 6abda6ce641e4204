"""Which client the operator makes for an endpoint, and that the SDK is loaded for no other."""

import subprocess
import sys

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from loghub_operator.clients.connector import connector
from loghub_operator.settings import Client, Settings

SLS, EMBEDDED = "https://cn-hangzhou.log.aliyuncs.com", "http://loghub.svc"
KEY = Credentials(access_key_id="id", access_key_secret="secret")
LOADED = """
import sys
from loghub.client.port import Credentials
from loghub_operator.clients.connector import connector
from loghub_operator.settings import Settings

connect = connector(Settings().uses_sdk)
for endpoint in sys.argv[1:]:
    connect(endpoint, "demo", Credentials(access_key_id="id", access_key_secret="secret")).close()
    print("aliyun.log" in sys.modules)
"""


@pytest.mark.parametrize(
    ("choice", "endpoint", "kind"),
    [
        (Client.AUTO, SLS, AliyunLogHub),
        (Client.AUTO, EMBEDDED, HttpLogHub),
        (Client.SDK, EMBEDDED, AliyunLogHub),
        (Client.HTTP, SLS, HttpLogHub),
    ],
)
def test_each_endpoint_gets_the_right_client(choice: Client, endpoint: str, kind: type) -> None:
    client = connector(Settings(client=choice).uses_sdk)(endpoint, "demo", KEY)
    client.close()
    assert type(client) is kind


def test_the_sdk_is_loaded_for_the_first_endpoint_that_needs_it() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED, EMBEDDED, SLS], capture_output=True, text=True, timeout=120, check=True
    )
    assert done.stdout.split() == ["False", "True"]
