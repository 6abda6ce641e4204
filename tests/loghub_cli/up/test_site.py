"""`loghub up`: what a worker gets from the manifest and the folders of this machine instead of a cluster."""

from pathlib import Path
from typing import Any

import pytest
import yaml

from loghub.contract.processor import ProcessorPipeline
from loghub.contract.sinks import JsonSink
from loghub.contract.worker import (
    DeadLetterFolder,
    LogFile,
    LogSettings,
    PythonPipeline,
    decode_settings,
    encode_settings,
)
from loghub_cli.up.backend import ProcessEnvironment, local_placement, reject_cluster_references, variables_of
from loghub_cli.up.manifest import CrFile
from loghub_operator.api import InvalidResourceError, parse_resource
from loghub_operator.model.observed import UserCodeFiles
from loghub_operator.resources.worker_config import config_hash, worker_config
from tests.loghub_cli.up.test_cli import refused, write
from tests.loghub_cli.up.test_supervisor import Theatre, play
from tests.loghub_operator.support.examples import document, resource
from tests.support import ROOT

EXAMPLES = sorted((ROOT / "deploy" / "examples").glob("*.yaml"))
CODE = {"enrich.py": "def run(logs):\n    return logs\n"}
PYTHON = {"sql": None, "python": {"function": "enrich:run", "configMap": {"name": "enrich"}}}


def config_map(data: dict[str, str], name: str = "enrich") -> dict[str, Any]:
    return {"apiVersion": "v1", "kind": "ConfigMap", "metadata": {"name": name}, "data": data}


def read(path: Path, *documents: Any) -> tuple[CrFile, Any]:
    file = CrFile(write(path, *documents), None)
    return file, parse_resource(file.read())


def test_the_code_is_read_from_the_same_file(tmp_path: Path) -> None:
    group = document({"pipeline": PYTHON})
    others = (config_map({"a.py": ""}, "other"), {"kind": "Secret", "apiVersion": "v1"}, "text", None)
    file, parsed = read(tmp_path / "cr.yaml", group, *others, config_map(CODE))
    assert file.code(parsed) == UserCodeFiles(files=CODE)
    site = local_placement(parsed, endpoint="http://x", volumes=tmp_path, code=file.code(parsed))
    config = worker_config(parsed, site)
    assert config.pipeline == PythonPipeline(function="enrich:run", files=CODE)
    reject_cluster_references(parsed, file.code(parsed))


@pytest.mark.parametrize("example", EXAMPLES, ids=lambda path: path.stem)
def test_every_example_runs_on_this_machine(tmp_path: Path, example: Path) -> None:
    file = CrFile(example, None, embedded="http://127.0.0.1:1")
    group = parse_resource(file.read())
    code = file.code(group)
    reject_cluster_references(group, code)
    site = local_placement(group, endpoint=group.spec.endpoint, volumes=tmp_path, code=code)
    config = ProcessEnvironment().worker_spec(group, worker_config(group, site, last_initial_shard=0)).config
    assert config.endpoint == "http://127.0.0.1:1"
    assert (config.project, config.logstore) == (group.spec.project, group.spec.logstore)
    assert decode_settings(encode_settings(config)) == (config, ())


def test_the_code_of_a_processor_is_read_from_the_same_file(tmp_path: Path) -> None:
    given = {
        "sql": None,
        "sink": None,
        "processor": {"factory": "enrich:run", "configMap": {"name": "enrich"}},
    }
    file, parsed = read(tmp_path / "cr.yaml", document({"pipeline": given}), config_map(CODE))
    site = local_placement(parsed, endpoint="http://x", volumes=tmp_path, code=file.code(parsed))
    assert worker_config(parsed, site).pipeline == ProcessorPipeline(factory="enrich:run", files=CODE)
    reject_cluster_references(parsed, file.code(parsed))
    missing, parsed = read(tmp_path / "other.yaml", document({"pipeline": given}))
    with pytest.raises(InvalidResourceError, match=r"spec\.pipeline\.processor\.configMap"):
        reject_cluster_references(parsed, missing.code(parsed))


def test_a_claim_of_the_log_file_is_a_folder(tmp_path: Path) -> None:
    file = {"volumeClaim": "logs", "path": "a"}
    parsed = resource({"worker": {"log": {"file": file}}})
    site = local_placement(parsed, endpoint="http://x", volumes=tmp_path, code=UserCodeFiles())
    assert worker_config(parsed, site).log == LogSettings(file=LogFile(folder=str(tmp_path / "logs" / "a")))


def test_a_change_of_the_code_is_a_change_of_the_settings(tmp_path: Path) -> None:
    def hash_with(data: dict[str, str]) -> str:
        file, parsed = read(tmp_path / "cr.yaml", document({"pipeline": PYTHON}), config_map(data))
        site = local_placement(parsed, endpoint="http://x", volumes=tmp_path, code=file.code(parsed))
        return config_hash(worker_config(parsed, site))

    assert hash_with(CODE) == hash_with(CODE) != hash_with({"enrich.py": CODE["enrich.py"] + "\n"})


def test_without_the_code_no_worker_starts(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "cr.yaml", document({"pipeline": PYTHON}))
    status, reported = refused(tmp_path, capsys, "-f", str(file))
    assert status == 2
    assert "* spec.pipeline.python.configMap: there is no ConfigMap enrich" in reported
    assert "it must be a document in the same file" in reported
    assert not (tmp_path / "state").exists()


def test_variables_from_secrets_are_rejected() -> None:
    reference = {"secretKeyRef": {"name": "token", "key": "value"}}
    given = resource(
        {"worker": {"env": [{"name": "A", "value": "1"}, {"name": "B", "valueFrom": reference}]}}
    )
    with pytest.raises(
        InvalidResourceError, match=r"spec\.worker\.env\[1\]\.valueFrom: there are no Secrets"
    ):
        reject_cluster_references(given, UserCodeFiles())
    assert variables_of(resource({"worker": {"env": [{"name": "A", "value": "1"}, {"name": "E"}]}})) == {
        "A": "1",
        "E": "",
    }


def test_volume_claims_are_folders(tmp_path: Path) -> None:
    python = {"function": "enrich:run", "volumeClaim": {"name": "shared", "path": "lib"}}
    sink = {"parquet": None, "json": {"path": "out", "volumeClaim": "data"}}
    folder = {"path": "a", "volumeClaim": "rejected"}
    on_failure = {"policy": "DeadLetter", "deadLetter": {"folder": folder}}
    given = resource({"pipeline": {"sql": None, "python": python, "sink": sink, "onFailure": on_failure}})
    config = worker_config(
        given, local_placement(given, endpoint="http://x", volumes=tmp_path, code=UserCodeFiles())
    )
    assert config.pipeline == PythonPipeline(function="enrich:run", folder=str(tmp_path / "shared" / "lib"))
    assert config.sink == JsonSink(path=str(tmp_path / "data" / "out"))
    assert config.on_failure.dead_letter == DeadLetterFolder(path=str(tmp_path / "rejected" / "a"))


def test_other_variables_replace_the_worker(tmp_path: Path) -> None:
    def environment(pid: int | None) -> list[bytes]:
        return Path(f"/proc/{pid}/environ").read_bytes().split(b"\0")

    async def story(on: Theatre) -> None:
        on.apply(1, LEVEL="one", HOME="/elsewhere")
        await on.until_ready(1)
        first = on.pid(0)
        assert {b"LEVEL=one", b"HOME=/elsewhere"} <= set(environment(first))
        on.apply(1, LEVEL="one", HOME="/elsewhere")
        assert on.pid(0) == first
        on.apply(1, LEVEL="two")
        await on.until(lambda: on.pid(0) not in (None, first), "another process")
        await on.until_ready(1)
        assert b"LEVEL=two" in environment(on.pid(0))
        assert b"HOME=/elsewhere" not in environment(on.pid(0))

    play(tmp_path, story)


def test_a_config_map_without_metadata_is_ignored(tmp_path: Path) -> None:
    path = tmp_path / "cr.yaml"
    path.write_text(
        yaml.safe_dump_all([document({"pipeline": PYTHON}), {"kind": "ConfigMap", "apiVersion": "v1"}])
    )
    file = CrFile(path, None)
    assert "there is no ConfigMap enrich" in file.code(parse_resource(file.read())).error
