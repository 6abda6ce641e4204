"""The programs with Pulsar's libraries for Python, Go and Java (`programs/client.py`), and what drives them.

``locks/dev.txt`` has Python's library and ``locks/compat-pulsar.txt`` Java's; ``programs/go/go.sum`` pins the
Go module. The compiler for Java is in ``locks/compat-java.txt``.
"""

import hashlib
import json
import os
import queue
import subprocess
import sys
import threading
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from loghub_worker.image import spark_jars
from tests import java
from tests.cluster import compiling, paths, require
from tests.cluster.compiling import Recipe
from tests.compat import consumers
from tests.support import ROOT

LANGUAGES = ("python", "go", "java")
GUARD_S = 180.0
PROGRAMS = Path(__file__).with_name("programs")
GO = Recipe(
    what="the program with Pulsar's library for Go",
    prefix="compat-pulsar-go-",
    source=PROGRAMS / "go",
    inputs=("go.mod", "go.sum", "main.go", "command.go", "producer.go", "consumer.go"),
    flags="",
    arguments=(".",),
    programs=("go",),
)
JAVA_LOCK = ROOT / "locks" / "compat-pulsar.txt"
JAVA_SOURCES = tuple(PROGRAMS / "java" / f"{name}.java" for name in ("Program", "Producing", "Consuming"))
FRUGAL = ("-Xmx256m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")


def install() -> None:
    """Fetch the jars and compile the programs, once. Raises `RuntimeError`."""
    compiling.ensure(GO)
    try:
        spark_jars.install(_jars(), _jar_folder(), os.environ)
    except spark_jars.JarsError as error:
        raise RuntimeError(f"the jars of Pulsar's client: {error}") from error
    jars = [_jar_folder() / jar.file for jar in _jars()]
    consumers.compile_java(JAVA_SOURCES, jars, _classes())


def missing(language: str) -> str:
    """Why the program of this language cannot run here; empty if it can."""
    if language == "python":
        return ""
    if language == "go":
        return "" if GO.built() else f"`make test` makes {GO.what}"
    if reason := java.missing():
        return reason
    lacking = [jar.file for jar in spark_jars.missing(_jars(), _jar_folder())]
    lacking += [] if _classes().exists() else ["the compiled Java program of Pulsar"]
    return f"`make test` makes {', '.join(lacking)}" if lacking else ""


def _command(language: str) -> list[str]:
    if reason := missing(language):
        require.absent(reason)
    if language == "python":
        return [sys.executable, str(PROGRAMS / "client.py")]
    if language == "go":
        return [str(GO.folder() / GO.programs[0])]
    return ["java", *FRUGAL, "-cp", f"{_classes()}:{_jar_folder()}/*", "Program"]


def _jars() -> tuple[spark_jars.Jar, ...]:
    return spark_jars.read_lock(JAVA_LOCK.read_text())


def _jar_folder() -> Path:
    library = next(jar for jar in _jars() if jar.artifact == "pulsar-client")
    return paths.cache_folder() / f"compat-pulsar-{library.version}"


def _classes() -> Path:
    contents = b"".join(file.read_bytes() for file in (*JAVA_SOURCES, JAVA_LOCK))
    return paths.cache_folder() / f"compat-pulsar-classes-{hashlib.sha256(contents).hexdigest()[:16]}"


class RefusedError(Exception):
    """The library has raised an error; the text has its name."""


@dataclass
class Program:
    """A running program. The scenario names its objects; ``active`` has what their listeners report."""

    language: str
    log: Path
    active: list[tuple[str, int, bool]] = field(default_factory=list)  # object, partition, active

    def __post_init__(self) -> None:
        self._ids = iter(range(1, sys.maxsize))
        self._answers: dict[int, queue.SimpleQueue[dict[str, Any] | None]] = {}
        self._lock = threading.Lock()
        with self.log.open("ab") as log:
            self.process = subprocess.Popen(
                _command(self.language), stdin=subprocess.PIPE, stdout=subprocess.PIPE, stderr=log, cwd=ROOT
            )
        threading.Thread(target=self._read, daemon=True).start()

    def _read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed while it wrote this
            said = json.loads(line)
            if "active" in said:
                self.active.append((said["of"], said["partition"], said["active"]))
            else:
                self._answers[said["id"]].put(said)
        with self._lock:
            for waiting in self._answers.values():
                waiting.put(None)

    def send(self, do: str, of: str, **more: Any) -> int:
        """Send a command and return its id, for `answer`."""
        assert self.process.stdin is not None
        given = {name: value for name, value in more.items() if value is not None}
        with self._lock:
            number = next(self._ids)
            self._answers[number] = queue.SimpleQueue()
            self.process.stdin.write(json.dumps({"id": number, "do": do, "of": of, **given}).encode() + b"\n")
            self.process.stdin.flush()
        return number

    def answer(self, number: int) -> dict[str, Any]:
        """Wait for the answer. Raises `RefusedError`."""
        said = self._answers[number].get(timeout=GUARD_S)
        assert said is not None, f"the program in {self.language} ended:\n{self.log_tail()}"
        del self._answers[number]
        if "error" in said:
            raise RefusedError(f"{said['error']}: {said['text']}")
        return said

    def ask(self, do: str, of: str, **more: Any) -> dict[str, Any]:
        return self.answer(self.send(do, of, **more))

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(GUARD_S)
