"""Which client is opened: our own or the vendor's SDK, by one word."""

from typing import Any

import pytest

from loghub.client.aliyun import AliyunLogHub
from loghub.client.choice import ClientKind, check_client, open_client
from loghub.client.http import HttpLogHub
from loghub.client.target import BadEndpoint, EndpointAt
from tests.loghub.client.adapters import KEY


@pytest.mark.parametrize(("kind", "adapter"), [("http", HttpLogHub), ("sdk", AliyunLogHub)])
def test_the_word_names_the_client(kind: ClientKind, adapter: type) -> None:
    check_client(kind)
    client = open_client(kind, "http://127.0.0.1:1", "demo", credentials=KEY)
    client.close()
    assert type(client) is adapter


def test_another_word_is_refused_with_those_that_there_are() -> None:
    other: Any = "java"
    with pytest.raises(ValueError, match="client is 'java'; it must be one of http, sdk"):
        check_client(other)


def test_the_sdk_is_refused_at_an_address_that_it_does_not_connect_to() -> None:
    place = EndpointAt(url="http://loghub.svc", address="127.0.0.1:1")
    open_client("http", place, "demo", credentials=KEY).close()
    with pytest.raises(BadEndpoint, match="only to the host name of a project"):
        open_client("sdk", place, "demo", credentials=KEY)
