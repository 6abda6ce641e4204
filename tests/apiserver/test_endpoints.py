"""Which endpoints the operator refuses, over a real apiserver."""

from dataclasses import replace
from pathlib import Path

import pytest

from loghub.client.port import Credentials, LogHub
from loghub_operator.clients.kube import STATEFUL_SET
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import Stage, stage

pytestmark = pytest.mark.cluster

PUBLIC = "http://logs.example.com"


def test_http_to_a_public_host_is_refused_until_it_is_allowed(
    server: Apiserver, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    connected: list[str] = []
    connect = Stage.connect

    def remembered(on: Stage, endpoint: str, project: str, credentials: Credentials) -> LogHub:
        connected.append(endpoint)
        return connect(on, endpoint, project, credentials)

    async def story(on: Stage) -> None:
        await on.apply({"endpoint": PUBLIC, "deletionPolicy": "Delete"})
        reported = await on.until_reason("GroupSynced", "InsecureEndpoint")
        assert f"{PUBLIC} is not encrypted" in reported["message"]
        assert "allowedHttpHosts" in reported["message"]
        assert (await on.status())["phase"] == "Pending"
        assert await on.get(STATEFUL_SET) is None
        assert connected == []

        await on.stop_operator()
        monkeypatch.setattr(Stage, "settings", replace(on.settings, allowed_http_hosts=("*.example.com",)))
        on.start_operator()
        await on.until_phase("Running", "1/1")
        assert set(connected) == {PUBLIC}
        await on.remove()
        await on.until_deleted()

    monkeypatch.setattr(Stage, "connect", remembered)
    stage(server, tmp_path, story)


def test_a_refused_group_can_be_deleted(server: Apiserver, tmp_path: Path) -> None:
    async def story(on: Stage) -> None:
        await on.apply({"endpoint": PUBLIC, "deletionPolicy": "Delete"})
        await on.until_reason("GroupSynced", "InsecureEndpoint")
        await on.remove()
        await on.until_deleted()

    stage(server, tmp_path, story)
