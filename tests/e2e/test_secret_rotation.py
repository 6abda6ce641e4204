"""The Secret's key is changed, refused, and missing for a while, while a group runs.

The operator (with the permissions of deploy/: `get` on Secrets, no watch) uses the new key without a restart
and stops no worker. No key appears in any output.
"""

import asyncio
import base64
import json
import logging
from collections.abc import Callable
from pathlib import Path
from typing import Any, cast

import pytest

from loghub.client.port import Credentials, LogHub
from loghub.wire.errors import Code, LogHubError
from loghub_operator.clients.kube import (
    CONFIG_MAP,
    CONSUMER_GROUP,
    EVENT,
    POD,
    SECRET,
    SERVICE,
    STATEFUL_SET,
    AioKube,
    Kind,
    configured,
)
from loghub_operator.controller import app as program
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.harness import Stage, stage

pytestmark = pytest.mark.cluster

SECRET_NAME = "loghub-credentials"
SHOWN = (CONSUMER_GROUP, STATEFUL_SET, POD, SERVICE, CONFIG_MAP, EVENT)
ROUNDS = 5


def key(number: int) -> Credentials:
    """A key that differs from all other texts, so that it can be searched for."""
    return Credentials(
        access_key_id=f"LTAIrotating{number}KeyId",
        access_key_secret=f"rotating-{number}-Z9vQ/secret+",
        security_token=f"token-{number}-Xy7w",
    )


class KeyCheckedService:
    """A log service that accepts some keys, refuses others, and records which were used."""

    def __init__(self, on: Stage, *valid: Credentials) -> None:
        self._on = on
        self.valid = set(valid)
        self.used: list[Credentials] = []

    def connect(self, endpoint: str, project: str, credentials: Credentials) -> LogHub:
        return cast(
            LogHub, _KeyCheckedClient(self, credentials, self._on.connect(endpoint, project, credentials))
        )

    def check(self, credentials: Credentials) -> None:
        self.used.append(credentials)
        if credentials not in self.valid:
            raise LogHubError.of(Code.UNAUTHORIZED, "the access key is unknown")


class _KeyCheckedClient:
    def __init__(self, service: KeyCheckedService, credentials: Credentials, client: LogHub) -> None:
        self._service = service
        self._credentials = credentials
        self._client = client

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = getattr(self._client, name)

        def checked(*args: Any, **kwargs: Any) -> Any:
            self._service.check(self._credentials)
            return call(*args, **kwargs)

        return call if name == "close" else checked


class CountingKube(AioKube):
    """Counts how often a Secret was read."""

    reads = 0

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        result = await super().get(kind, namespace, name)
        self.reads += kind is SECRET
        return result


async def put_secret(on: Stage, credentials: Credentials) -> None:
    values = {
        "accessKeyId": credentials.access_key_id,
        "accessKeySecret": credentials.access_key_secret,
        "securityToken": credentials.security_token,
    }
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
    secret = {"name": SECRET_NAME, "namespace": on.namespace}
    await on.kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": secret, "data": data})


async def running_workers(on: Stage) -> dict[str, str]:
    """The uid of each pod, and the generation of the StatefulSet."""
    pods = await on.kube.list(POD, on.namespace, {})
    owner = await on.get(STATEFUL_SET) or {}
    uids = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
    return {**uids, "generation": str(owner["metadata"]["generation"])}


async def until_used(on: Stage, service: KeyCheckedService, expected: Credentials) -> int:
    """Wait until the recent calls use only this key; return the number of calls so far."""

    async def is_used() -> bool:
        before = len(service.used)
        await on.until_rounds(2)
        return set(service.used[before:]) == {expected}

    await on.until("the new key in use", is_used)
    return len(service.used)


async def everything(on: Stage) -> str:
    """Everything that the operator writes in this namespace."""
    return json.dumps([await on.kube.list(kind, on.namespace, {}) for kind in SHOWN])


async def followed_without_a_restart(on: Stage, service: KeyCheckedService) -> None:
    workers = await running_workers(on)
    service.valid = {key(1), key(2)}
    await put_secret(on, key(2))
    calls = await until_used(on, service, key(2))
    service.valid = {key(2)}
    await on.until_rounds(ROUNDS)
    assert set(service.used[calls:]) == {key(2)}, "the old key is no longer used"
    assert (await on.condition("GroupSynced"))["status"] == "True"
    assert await running_workers(on) == workers


async def refused_until_it_is_changed(on: Stage, service: KeyCheckedService) -> str:
    workers = await running_workers(on)
    service.valid = {key(3)}
    condition = await on.until_reason("GroupSynced", "AuthenticationFailed")
    assert SECRET_NAME in condition["message"]
    shown = await everything(on)
    await put_secret(on, key(3))
    await on.until_reason("GroupSynced", "UpToDate")
    assert await running_workers(on) == workers
    return shown


async def missing_for_a_while(on: Stage, kube: CountingKube) -> str:
    workers = await running_workers(on)
    await on.kube.delete(SECRET, on.namespace, SECRET_NAME)
    condition = await on.until_reason("GroupSynced", "CredentialsMissing")
    assert f"there is no Secret {SECRET_NAME} in namespace {on.namespace}" in condition["message"]
    reads = kube.reads

    async def is_read_again() -> bool:
        return kube.reads >= reads + ROUNDS

    await on.until("further reads", is_read_again)
    assert await running_workers(on) == workers
    assert (await on.condition("WorkersAvailable"))["status"] == "True"
    shown = await everything(on)
    await put_secret(on, key(4))
    await on.until_reason("GroupSynced", "UpToDate")
    assert await running_workers(on) == workers
    return shown


def test_the_operator_follows_a_key_that_is_changed_refused_and_missing(
    server: Apiserver,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def rotate(on: Stage) -> None:
        service, stop = KeyCheckedService(on, key(1)), asyncio.Event()
        await put_secret(on, key(1))
        async with CountingKube(await configured()) as kube:
            running = asyncio.create_task(program.run(on.settings, stop, connect=service.connect, kube=kube))
            try:
                await on.apply({"replicas": 2})
                await on.until_phase("Running", "2/2")
                await followed_without_a_restart(on, service)
                shown.append(await refused_until_it_is_changed(on, service))
                service.valid = {key(3), key(4)}
                shown.append(await missing_for_a_while(on, kube))
                shown.append(await everything(on))
                assert not running.done()
                assert on.player.stopped_without_leaving == []
            finally:
                stop.set()
                await running

    stage(server, tmp_path, rotate, secret=False, operator=False)
    output = capfd.readouterr()
    texts = [*shown, output.out, output.err, caplog.text]
    assert "CredentialsMissing" in "".join(texts), "the searched texts include the status"
    assert [value for value in spellings() if any(value in text for text in texts)] == []


def spellings() -> list[str]:
    """Each key as plain text, escaped as in JSON, and encoded as in a Secret."""
    plain = [
        value
        for credentials in map(key, range(1, 5))
        for value in (credentials.access_key_id, credentials.access_key_secret, credentials.security_token)
    ]
    return [
        *plain,
        *(json.dumps(value)[1:-1].replace("/", "\\/") for value in plain),
        *(base64.b64encode(value.encode()).decode().rstrip("=") for value in plain),
    ]
