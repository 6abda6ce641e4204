"""Both adapters sign for a real service with the version that the key and the service choose."""

import contextlib
import json
from pathlib import Path

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.http import HttpLogHub
from loghub.client.port import Credentials
from loghub.wire.errors import LogHubError
from tests.loghub.client.adapters import BODY, OVER_HTTP
from tests.support import running_service

pytestmark = pytest.mark.long

STS = Credentials(access_key_id="sts", access_key_secret="a-secret", security_token="a-token")


def connect(adapter: str, endpoint: str, key: Credentials) -> contextlib.closing[HttpLogHub | AliyunLogHub]:
    return contextlib.closing(OVER_HTTP[adapter](endpoint, "demo", credentials=key))


@pytest.mark.parametrize("adapter", OVER_HTTP)
def test_requests_are_taken_with_and_without_a_region_and_with_a_token(tmp_path: Path, adapter: str) -> None:
    (tmp_path / "credentials").mkdir()
    entry = {
        "accessKeyId": STS.access_key_id,
        "accessKeySecret": STS.access_key_secret,
        "securityToken": STS.security_token,
        "projects": ["*"],
        "rights": ["read", "write"],
    }
    (tmp_path / "credentials" / "accessKeys.json").write_text(json.dumps([entry]))
    with running_service(tmp_path) as service:
        with connect(adapter, service.endpoint, service.credentials) as client:
            client.create_project("ü 1+1=2")
            client.create_logstore("access", shards=1)
        for region in ("", "cn-hangzhou"):
            key = Credentials(
                access_key_id="sts", access_key_secret="a-secret", security_token="a-token", region=region
            )
            with connect(adapter, service.endpoint, key) as client:
                client.put_logs("access", BODY, hash_key="0" * 32)
                cursor = client.get_cursor("access", 0, "begin")
                assert client.pull_logs("access", 0, cursor=cursor, count=1).count == 1
            wrong = Credentials(
                access_key_id="sts", access_key_secret="a-secret", security_token="other", region=region
            )
            with (
                connect(adapter, service.endpoint, wrong) as client,
                pytest.raises(LogHubError, match="the security token is wrong"),
            ):
                client.list_shards("access")
            other = Credentials(
                access_key_id="sts", access_key_secret="other", security_token="a-token", region=region
            )
            with (
                connect(adapter, service.endpoint, other) as client,
                pytest.raises(LogHubError, match="SignatureNotMatch"),
            ):
                client.put_logs("access", BODY)
