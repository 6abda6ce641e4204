"""The Secret's key is changed, refused, and missing for a while under a group that runs.

The operator (with the rights of deploy/: `get` on Secrets, no watch) follows without a restart and
stops no worker; no key is ever shown.
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
    """Told apart from everything else that is written anywhere."""
    return Credentials(
        access_key_id=f"LTAIrotating{number}KeyId",
        access_key_secret=f"rotating-{number}-Z9vQ/secret+",
        security_token=f"token-{number}-Xy7w",
    )


class Locked:
    """A log service that takes some keys and refuses others, and notes which were used."""

    def __init__(self, on: Stage, *valid: Credentials) -> None:
        self._on = on
        self.valid = set(valid)
        self.used: list[Credentials] = []

    def connect(self, endpoint: str, project: str, credentials: Credentials) -> LogHub:
        return cast(LogHub, _Door(self, credentials, self._on.connect(endpoint, project, credentials)))

    def let_in(self, credentials: Credentials) -> None:
        self.used.append(credentials)
        if credentials not in self.valid:
            raise LogHubError.of(Code.UNAUTHORIZED, "the access key is unknown")


class _Door:
    def __init__(self, lock: Locked, credentials: Credentials, client: LogHub) -> None:
        self._lock = lock
        self._credentials = credentials
        self._client = client

    def __getattr__(self, name: str) -> Any:
        call: Callable[..., Any] = getattr(self._client, name)

        def locked(*args: Any, **kwargs: Any) -> Any:
            self._lock.let_in(self._credentials)
            return call(*args, **kwargs)

        return call if name == "close" else locked


class Looking(AioKube):
    """Counts how often a Secret was asked for."""

    looks = 0

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        found = await super().get(kind, namespace, name)
        self.looks += kind is SECRET
        return found


async def put_secret(on: Stage, held: Credentials) -> None:
    values = {
        "accessKeyId": held.access_key_id,
        "accessKeySecret": held.access_key_secret,
        "securityToken": held.security_token,
    }
    data = {name: base64.b64encode(value.encode()).decode() for name, value in values.items()}
    about = {"name": SECRET_NAME, "namespace": on.namespace}
    await on.kube.apply({"apiVersion": "v1", "kind": "Secret", "metadata": about, "data": data})


async def running_workers(on: Stage) -> dict[str, str]:
    """Each pod's incarnation, and that of what it is made from."""
    pods = await on.kube.list(POD, on.namespace, {})
    owner = await on.get(STATEFUL_SET) or {}
    made = {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in pods}
    return {**made, "generation": str(owner["metadata"]["generation"])}


async def until_used(on: Stage, lock: Locked, wanted: Credentials) -> int:
    """The log service was asked with this key, in the last rounds only; how many calls there were."""

    async def holds() -> bool:
        before = len(lock.used)
        await on.until_rounds(2)
        return set(lock.used[before:]) == {wanted}

    await on.until("the new key in use", holds)
    return len(lock.used)


async def everything(on: Stage) -> str:
    """All that the operator writes in this namespace."""
    return json.dumps([await on.kube.list(kind, on.namespace, {}) for kind in SHOWN])


async def followed_without_a_restart(on: Stage, lock: Locked) -> None:
    workers = await running_workers(on)
    lock.valid = {key(1), key(2)}
    await put_secret(on, key(2))
    mark = await until_used(on, lock, key(2))
    lock.valid = {key(2)}
    await on.until_rounds(ROUNDS)
    assert set(lock.used[mark:]) == {key(2)}, "the old key is used no more"
    assert (await on.condition("GroupSynced"))["status"] == "True"
    assert await running_workers(on) == workers


async def refused_until_it_is_changed(on: Stage, lock: Locked) -> str:
    workers = await running_workers(on)
    lock.valid = {key(3)}
    told = await on.until_reason("GroupSynced", "AuthenticationFailed")
    assert SECRET_NAME in told["message"]
    shown = await everything(on)
    await put_secret(on, key(3))
    await on.until_reason("GroupSynced", "UpToDate")
    assert await running_workers(on) == workers
    return shown


async def missing_for_a_while(on: Stage, kube: Looking) -> str:
    workers = await running_workers(on)
    await on.kube.delete(SECRET, on.namespace, SECRET_NAME)
    told = await on.until_reason("GroupSynced", "CredentialsMissing")
    assert f"there is no Secret {SECRET_NAME} in namespace {on.namespace}" in told["message"]
    seen = kube.looks

    async def looked_on() -> bool:
        return kube.looks >= seen + ROUNDS

    await on.until("further looks", looked_on)
    assert await running_workers(on) == workers
    assert (await on.condition("WorkersAvailable"))["status"] == "True"
    shown = await everything(on)
    await put_secret(on, key(4))
    await on.until_reason("GroupSynced", "UpToDate")
    assert await running_workers(on) == workers
    return shown


def test_a_key_is_changed_refused_and_missing(
    server: Apiserver,
    tmp_path: Path,
    capfd: pytest.CaptureFixture[str],
    caplog: pytest.LogCaptureFixture,
) -> None:
    caplog.set_level(logging.DEBUG)
    shown: list[str] = []

    async def story(on: Stage) -> None:
        lock, stop = Locked(on, key(1)), asyncio.Event()
        await put_secret(on, key(1))
        async with Looking(await configured()) as kube:
            running = asyncio.create_task(program.run(on.settings, stop, connect=lock.connect, kube=kube))
            try:
                await on.apply({"replicas": 2})
                await on.until_phase("Running", "2/2")
                await followed_without_a_restart(on, lock)
                shown.append(await refused_until_it_is_changed(on, lock))
                lock.valid = {key(3), key(4)}
                shown.append(await missing_for_a_while(on, kube))
                shown.append(await everything(on))
                assert not running.done()
                assert on.player.stopped_without_leaving == []
            finally:
                stop.set()
                await running

    stage(server, tmp_path, story, secret=False, operator=False)
    told = capfd.readouterr()
    texts = [*shown, told.out, told.err, caplog.text]
    assert "CredentialsMissing" in "".join(texts), "what is searched is what was told"
    assert [value for value in spellings() if any(value in text for text in texts)] == []


def spellings() -> list[str]:
    """Each key in plain text, as a JSON text has it, and as a Secret has it."""
    plain = [
        value
        for held in map(key, range(1, 5))
        for value in (held.access_key_id, held.access_key_secret, held.security_token)
    ]
    return [
        *plain,
        *(json.dumps(value)[1:-1].replace("/", "\\/") for value in plain),
        *(base64.b64encode(value.encode()).decode().rstrip("=") for value in plain),
    ]
