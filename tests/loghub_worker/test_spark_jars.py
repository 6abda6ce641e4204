"""Jars are fetched by name and hash, by the real Ivy from a repository in a folder."""

import hashlib
import os
from contextlib import nullcontext
from pathlib import Path

import pytest

from loghub_worker.image import spark_jars
from loghub_worker.image.spark_jars import ENV_REPOSITORY, Jar, JarsError, install, missing, read_lock
from tests.support import ROOT

SHA = "0" * 64


def published(repository: Path, name: str, content: bytes) -> str:
    """Put a jar into the repository; returns its line of a lock file."""
    group, artifact, version = name.split(":")
    folder = repository / group.replace(".", "/") / artifact / version
    folder.mkdir(parents=True)
    (folder / f"{artifact}-{version}.jar").write_bytes(content)
    # What Maven says about it would bring another jar, which is not there.
    dependency = (
        "<dependency><groupId>g</groupId><artifactId>absent</artifactId><version>1</version></dependency>"
    )
    (folder / f"{artifact}-{version}.pom").write_text(
        f"<project><dependencies>{dependency}</dependencies></project>"
    )
    return f"{name} {hashlib.sha256(content).hexdigest()}"


@pytest.mark.parametrize("line", ["a:b:1", f"a:b {SHA}", "a:b:1 123", f"a:b:1:c {SHA}", f"a:b:1 {SHA} x"])
def test_a_line_that_is_not_a_name_with_a_hash_is_refused(line: str) -> None:
    with pytest.raises(JarsError, match="not group:artifact:version sha256"):
        read_lock(f"# comment\n\n{line}\n")


@pytest.mark.parametrize(
    "name", ["jars", "kafka-broker", "compat-java", "spark-delta", "compat-pulsar", "pulsar-broker"]
)
def test_the_lock_files_are_read_and_name_each_jar_once(name: str) -> None:
    jars = read_lock((ROOT / "locks" / f"{name}.txt").read_text())
    assert len({jar.artifact for jar in jars}) == len(jars) > 3


@pytest.mark.spark
def test_jars_are_fetched_checked_and_replace_other_versions(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    with spark_jars._gateway() as gateway:  # one JVM for all
        monkeypatch.setattr(spark_jars, "_gateway", lambda: nullcontext(gateway))
        check_jars(tmp_path)


def check_jars(tmp_path: Path) -> None:
    repository, folder = tmp_path / "repository", tmp_path / "jars"
    lines = [published(repository, "org.a:tool_2.13:1.2", b"tool"), published(repository, "b:lib:3", b"lib")]
    environment = {ENV_REPOSITORY: repository.as_uri()}
    folder.mkdir()
    for other in ("tool_2.13-1.1.jar", "tool_2.13-extra-1.jar", "lib-3.jar"):
        (folder / other).write_bytes(b"old")
    jars = read_lock("\n".join(lines))
    assert [jar.artifact for jar in missing(jars, folder)] == ["tool_2.13"]
    assert install(jars, folder, environment)
    assert {path.name: path.read_bytes() for path in folder.iterdir()} == {
        "tool_2.13-1.2.jar": b"tool",
        "tool_2.13-extra-1.jar": b"old",
        "lib-3.jar": b"old",
    }
    assert not install(jars, folder, environment)
    wrong = Jar(group="b", artifact="lib", version="3", sha256=SHA)
    with pytest.raises(JarsError, match=f"lib-3.jar has the SHA-256 .* and the lock file says {SHA}"):
        install([wrong], tmp_path / "other", environment)
    absent = Jar(group="b", artifact="absent", version="3", sha256=SHA)
    with pytest.raises(JarsError, match="absent"):
        install([absent], tmp_path / "other", environment)
    assert list((tmp_path / "other").iterdir()) == []


def test_the_program_says_what_is_wrong(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    (tmp_path / "lock").write_text("nonsense\n")
    assert spark_jars.main([str(tmp_path / "lock"), str(tmp_path)]) == 1
    assert "nonsense" in capsys.readouterr().err
    (tmp_path / "lock").write_text("# nothing\n")
    assert spark_jars.main([str(tmp_path / "lock"), str(tmp_path)]) == 0
    assert os.listdir(tmp_path) == ["lock"]
