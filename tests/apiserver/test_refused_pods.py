"""The operator's rights suffice to read why pods are refused, and the API server selects by the object."""

import asyncio
import json
from pathlib import Path

import pytest

from loghub_operator.clients.kube import AioKube, configured
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.harness import make_namespace

pytestmark = pytest.mark.cluster


def test_the_warnings_about_one_object_are_listed(server: Apiserver, tmp_path: Path) -> None:
    namespace = make_namespace(server)

    def event(name: str, kind: str, uid: str) -> Document:
        """As the controller of StatefulSets records it."""
        about = {"kind": "StatefulSet", "name": "access", "namespace": namespace, "uid": uid}
        return {
            "apiVersion": "v1",
            "kind": "Event",
            "metadata": {"name": name, "namespace": namespace},
            "involvedObject": about,
            "type": kind,
            "reason": "FailedCreate",
            "message": f"exceeded quota: {name}",
            "lastTimestamp": "2026-01-02T00:00:00Z",
        }

    async def listed() -> list[Document]:
        async with AioKube(await configured(str(server.as_the_operator(tmp_path)))) as kube:
            return await kube.warnings(namespace, "uid-1")

    for given in (event("a", "Warning", "uid-1"), event("b", "Normal", "uid-1"), event("c", "Warning", "2")):
        done = server.run("create", "-f", "-", text=json.dumps(given))
        assert done.returncode == 0, done.stderr
    (found,) = asyncio.run(listed())
    assert found["note"] == "exceeded quota: a"
    assert found["deprecatedLastTimestamp"] == "2026-01-02T00:00:00Z"
