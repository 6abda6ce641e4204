"""The vendor's consumer libraries for Java, Go and Python, unmodified, and ours, each in a process.

A small program for each (`programs`) consumes a logstore. It reads its settings as one JSON object from its
standard input, prints a JSON object for each batch (``shard``, ``lines``) and then saves the checkpoint, so
what it printed may come again if it is killed. Its settings:

``holdFile``
    While this file exists, a batch does not end.
``rollBackAt``, ``rollBackTo``
    The batch that has this line returns this cursor, once, and saves no checkpoint.
``from``
    ``begin``, ``end`` or unix seconds, for shards without a checkpoint.

The libraries put the project before the endpoint's host name. Go and Python find the service as an HTTP
proxy; Java has no proxy, so the service listens on port 80 of a loopback address of its own, to which Java
resolves the name by a file of hosts. The jars are those of ``locks/compat-java.txt``, and the Go module is
pinned by ``programs/go/go.sum``.
"""

import hashlib
import json
import os
import signal
import subprocess
import sys
import threading
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loghub_worker import spark_jars
from tests import java
from tests.cluster import compiling, paths, runs
from tests.cluster.compiling import Recipe
from tests.compat.sdk import GROUP, LOGSTORE, PROJECT
from tests.support import ROOT, ServiceProcess, wait_until

LANGUAGES = ("go", "java", "python")
BASE_NAME = "sls.invalid"
HEARTBEAT_S, TIMEOUT_S = 1, 6
STOP_GUARD_S = 120.0
PROGRAMS = Path(__file__).with_name("programs")
GO = Recipe(
    what="consumers with the vendor's Go library",
    prefix="compat-go-",
    source=PROGRAMS / "go",
    inputs=("go.mod", "go.sum", "main.go", "count/main.go"),
    flags="",
    arguments=(".", "./count"),
    programs=("go", "count"),
)
JAVA_LOCK = ROOT / "locks" / "compat-java.txt"
JAVA_SOURCE = PROGRAMS / "java" / "Consume.java"


def install() -> None:
    """Fetch the libraries and compile the programs, once. Raises `RuntimeError`."""
    compiling.ensure(GO)
    try:
        spark_jars.install(_jars(), _jar_folder(), os.environ)
    except spark_jars.JarsError as error:
        raise RuntimeError(f"the jars of the Java consumer: {error}") from error
    _compile_java()


def missing() -> str:
    """Why the consumers cannot run here; empty if they can."""
    if reason := java.missing():
        return reason
    lacking = [] if GO.built() else [GO.what]
    lacking += [jar.file for jar in spark_jars.missing(_jars(), _jar_folder())]
    lacking += [] if _classes().exists() else ["the compiled Consume.java"]
    return f"`make test` makes {', '.join(lacking)}" if lacking else ""


def _jars() -> tuple[spark_jars.Jar, ...]:
    return spark_jars.read_lock(JAVA_LOCK.read_text())


def _jar_folder() -> Path:
    library = next(jar for jar in _jars() if jar.artifact == "loghub-client-lib")
    return paths.cache_folder() / f"compat-java-{library.version}"


def _classes() -> Path:
    contents = JAVA_SOURCE.read_bytes() + JAVA_LOCK.read_bytes()
    return _jar_folder() / f"classes-{hashlib.sha256(contents).hexdigest()[:16]}"


def _compile_java() -> None:
    """By Eclipse's compiler, which is a jar: a JRE has none."""
    with runs.locked(_classes().with_suffix(".lock"), guard_s=600, what="compiling Consume.java"):
        if _classes().exists():
            return
        part = _classes().with_suffix(".part")
        jars = ":".join(str(_jar_folder() / jar.file) for jar in _jars())
        compiler = next(_jar_folder() / jar.file for jar in _jars() if jar.artifact == "ecj")
        command = ["java", "-jar", str(compiler), "-17", "-proc:none", "-cp", jars]
        done = subprocess.run(
            [*command, "-d", str(part), str(JAVA_SOURCE)], capture_output=True, text=True, check=False
        )
        if done.returncode:
            raise RuntimeError(f"Consume.java does not compile: {done.stdout}{done.stderr}")
        part.rename(_classes())


class ServiceOnPort80(ServiceProcess):
    """The service on port 80 of a loopback address that nobody else uses."""

    def __init__(self, folder: Path, *, address: str, extra: tuple[str, ...] = ()) -> None:
        super().__init__(folder, port=80, extra=("--base-name", BASE_NAME, *extra))
        self._address = address

    @property
    def host(self) -> str:
        return self._address


@dataclass
class Consumer:
    """One running program. ``batches`` has what it printed so far: shard and lines."""

    name: str
    language: str
    process: subprocess.Popen[bytes]
    hold_file: Path
    errors: Path
    on_batch: Callable[[int, list[str]], None]
    batches: list[tuple[int, list[str]]] = field(default_factory=list)
    reader: threading.Thread | None = None

    @property
    def lines(self) -> list[str]:
        return [line for _, lines in list(self.batches) for line in lines]

    @property
    def log(self) -> str:
        return self.errors.read_text(errors="replace")

    def hold(self) -> None:
        """From now on no batch ends, until `let_go`."""
        self.hold_file.touch()

    def let_go(self) -> None:
        self.hold_file.unlink(missing_ok=True)

    def kill(self) -> None:
        self.process.kill()
        self._wait()

    def stop(self) -> None:
        """As Kubernetes does, by SIGTERM."""
        self.process.send_signal(signal.SIGTERM)
        self._wait()

    def _wait(self) -> None:
        try:
            self.process.wait(STOP_GUARD_S)
        finally:
            if self.process.poll() is None:
                self.process.kill()
                self.process.wait(STOP_GUARD_S)
        if self.reader is not None:
            self.reader.join(STOP_GUARD_S)

    def read(self) -> None:
        assert self.process.stdout is not None
        for line in self.process.stdout:
            batch = json.loads(line)
            self.batches.append((batch["shard"], batch["lines"]))
            self.on_batch(batch["shard"], batch["lines"])


class Consumers:
    """The consumers of one test; all are ended with it."""

    def __init__(self, service: ServiceProcess, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self.all: list[Consumer] = []
        self._lock = threading.Lock()
        self.in_order: list[tuple[int, str]] = []  # shard and line, as they were printed by all of them

    def _printed(self, shard: int, lines: list[str]) -> None:
        with self._lock:
            self.in_order += [(shard, line) for line in lines]

    def start(
        self,
        language: str,
        name: str,
        *,
        group: str = GROUP,
        in_order: bool = False,
        start: str = "begin",
        roll_back: tuple[str, str] = ("", ""),
        sign_v4: bool = False,
    ) -> Consumer:
        """``roll_back``: at this line to this cursor."""
        number = len(self.all)
        hold_file, errors = self._folder / f"hold-{number}", self._folder / f"{name}-{number}.log"
        settings = {
            # Ours can address a service by its number, and uses no proxy for that.
            "endpoint": self._service.endpoint if language == "ours" else f"http://{BASE_NAME}",
            "project": PROJECT,
            "logstore": LOGSTORE,
            "group": group,
            "consumer": name,
            "keyId": self._service.credentials.access_key_id,
            "keySecret": self._service.credentials.access_key_secret,
            "heartbeatS": HEARTBEAT_S,
            "timeoutS": TIMEOUT_S,
            "inOrder": in_order,
            "from": start,
            "holdFile": str(hold_file),
            "rollBackAt": roll_back[0],
            "rollBackTo": roll_back[1],
            "signV4": sign_v4,
        }
        with errors.open("wb") as log:
            process = subprocess.Popen(
                self._command(language),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self._environment(),
                cwd=ROOT,
            )
        consumer = Consumer(name, language, process, hold_file, errors, self._printed)
        self.all.append(consumer)
        consumer.reader = threading.Thread(target=consumer.read, daemon=True)
        consumer.reader.start()
        assert process.stdin is not None
        process.stdin.write(json.dumps(settings).encode())
        process.stdin.close()
        return consumer

    def _command(self, language: str) -> list[str]:
        if language == "go":
            return [str(GO.folder() / GO.programs[0])]
        if language == "python":
            return [sys.executable, str(PROGRAMS / "consume.py")]
        if language == "ours":
            return [sys.executable, str(PROGRAMS / "consume_ours.py")]
        hosts = self._folder / "hosts"
        hosts.write_text(f"{self._service.host} {BASE_NAME} {PROJECT}.{BASE_NAME}\n")
        frugal = ["-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        path = f"{_classes()}:{_jar_folder()}/*"
        return ["java", *frugal, f"-Djdk.net.hosts.file={hosts}", "-cp", path, "Consume"]

    def _environment(self) -> dict[str, str]:
        proxies = ("NO_PROXY", "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY")
        kept = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
        return {**kept, "HTTP_PROXY": self._service.endpoint, "http_proxy": self._service.endpoint}

    @property
    def lines(self) -> list[str]:
        """What all consumers of the test have printed, those that have ended included."""
        return [line for consumer in self.all for line in consumer.lines]

    def wait_for(self, lines: set[str]) -> None:
        """Until each of these lines was consumed."""
        wait_until(lambda: lines <= set(self.lines), f"{len(lines)} lines", guard_s=STOP_GUARD_S)

    def explain(self) -> str:
        """The end of what each wrote to its log."""
        return "\n".join(f"--- {each.name}: {each.log[-1500:]}" for each in self.all)

    def end(self) -> None:
        for consumer in self.all:
            consumer.let_go()
            if consumer.process.poll() is None:
                consumer.kill()


@contextmanager
def consumers_of(service: ServiceProcess, folder: Path) -> Iterator[Consumers]:
    consumers = Consumers(service, folder)
    try:
        yield consumers
    except BaseException:
        print(consumers.explain())
        raise
    finally:
        consumers.end()
