"""The code of a pipeline in a ConfigMap, over a real apiserver and with the rights of the manifests."""

import json
from pathlib import Path
from typing import Any

import pytest

from loghub_operator.api.labels import ANNOTATION_REVISION, worker_selector
from loghub_operator.clients.kube import CONFIG_MAP, POD, STATEFUL_SET
from loghub_operator.model.revision import Revision
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import GROUP, Stage, stage

pytestmark = [pytest.mark.cluster, pytest.mark.timeout(900)]
PYTHON = {
    "replicas": 2,
    "pipeline": {"sql": None, "python": {"function": "enrich:run", "configMap": {"name": "enrich"}}},
}


async def write(on: Stage, text: str) -> None:
    metadata = {"name": "enrich", "namespace": on.namespace}
    document = {"apiVersion": "v1", "kind": "ConfigMap", "metadata": metadata, "data": {"enrich.py": text}}
    await on.kube.apply(document)


async def pods(on: Stage) -> dict[str, str]:
    """Pod -> its uid."""
    result = await on.kube.list(POD, on.namespace, worker_selector(GROUP))
    return {pod["metadata"]["name"]: pod["metadata"]["uid"] for pod in result}


async def code_of_pods(on: Stage) -> list[Any]:
    """The text that each ready pod was started with."""
    texts = []
    for pod in await on.kube.list(POD, on.namespace, worker_selector(GROUP)):
        name = f"{GROUP}-{Revision.parse(pod['metadata']['annotations'][ANNOTATION_REVISION]).settings}"
        settings = await on.kube.get(CONFIG_MAP, on.namespace, name)
        assert settings is not None
        texts.append(json.loads(settings["data"]["worker.json"])["pipeline"]["files"]["enrich.py"])
    return texts


def test_user_code_is_awaited_reloaded_and_may_be_deleted_while_running(
    server: Apiserver, tmp_path: Path
) -> None:
    async def story(on: Stage) -> None:
        await on.apply(PYTHON)
        reported = await on.until_reason("WorkersAvailable", "PipelineCodeNotFound")
        assert reported["message"] == f"there is no ConfigMap enrich in namespace {on.namespace}"
        assert await on.get(STATEFUL_SET) is None

        await write(on, "first")
        await on.until_phase("Running", "2/2")
        assert await code_of_pods(on) == ["first", "first"]

        async def second() -> bool:
            return await code_of_pods(on) == ["second", "second"]

        await write(on, "second")
        await on.until("both with the second code", second)
        await on.until_phase("Running", "2/2")

        before = await pods(on)
        await on.kube.delete(CONFIG_MAP, on.namespace, "enrich")
        reported = await on.until_reason("WorkersAvailable", "PipelineCodeNotFound")
        assert "running workers continue with the code that they have" in reported["message"]
        await on.until_rounds(3)
        assert await pods(on) == before

    stage(server, tmp_path, story)
