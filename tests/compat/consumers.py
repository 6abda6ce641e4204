"""The vendor's consumer libraries for Java, Go and Python, unmodified, and ours, each in a process.

A small program for each (`programs`) consumes a logstore, whose logs begin with a number (`mixed_logs`). It
reads its settings as one JSON object from its standard input, prints a JSON object for each batch (``shard``,
``lines``: its texts) and then saves the checkpoint, so what it printed may come again if it is killed. Its
settings:

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
import secrets
import signal
import socket
import subprocess
import sys
import threading
from collections import Counter
from collections.abc import Callable, Iterable, Iterator, Sequence, Set
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

from loghub_worker.image import spark_jars
from tests import java
from tests.cluster import compiling, paths, runs
from tests.cluster.compiling import Recipe
from tests.compat import mixed_logs
from tests.compat.sdk import GROUP, LOGSTORE, PROJECT
from tests.support import ROOT, ServiceProcess, wait_until

LANGUAGES = ("go", "java", "python")
BASE_NAME = "sls.invalid"
HEARTBEAT_S, TIMEOUT_S = 1, 6
STOP_GUARD_S = 120.0
CONSUMED_GUARD_S = 420.0  # a million logs on a busy machine
PROGRAMS = Path(__file__).with_name("programs")
GO = Recipe(
    what="programs with the vendor's Go library",
    prefix="compat-go-",
    source=PROGRAMS / "go",
    inputs=("go.mod", "go.sum", "main.go", "count/main.go", "produce/main.go"),
    flags="",
    arguments=(".", "./count", "./produce"),
    programs=("go", "count", "produce"),
)
JAVA_LOCK = ROOT / "locks" / "compat-java.txt"
JAVA_SOURCES = (PROGRAMS / "java" / "Consume.java", PROGRAMS / "java" / "Produce.java")


def install() -> None:
    """Fetch the libraries and compile the programs, once. Raises `RuntimeError`."""
    compiling.ensure(GO)
    try:
        spark_jars.install(_jars(), _jar_folder(), os.environ)
    except spark_jars.JarsError as error:
        raise RuntimeError(f"the jars of the Java consumer: {error}") from error
    compile_java(JAVA_SOURCES, [_jar_folder() / jar.file for jar in _jars()], _classes())


def missing() -> str:
    """Why the consumers cannot run here; empty if they can."""
    if reason := java.missing() or port_80_refused(loopback_address()):
        return reason
    lacking = [] if GO.built() else [GO.what]
    lacking += [jar.file for jar in spark_jars.missing(_jars(), _jar_folder())]
    lacking += [] if _classes().exists() else ["the compiled Java programs"]
    return f"`make test` makes {', '.join(lacking)}" if lacking else ""


def loopback_address() -> str:
    """One of 16 million, so that nobody else uses it."""
    return ".".join(map(str, (127, *(secrets.randbelow(250) + 2 for _ in range(3)))))


def port_80_refused(address: str) -> str:
    """Why nothing may listen on port 80 of this address; empty if one may."""
    with socket.socket() as probe:
        probe.setsockopt(socket.SOL_SOCKET, socket.SO_REUSEADDR, 1)
        try:
            probe.bind((address, 80))
            probe.listen()
        except OSError as error:
            return (
                f"the Java consumer knows only port 80, and this process may not listen on {address}:80: "
                f"{error.strerror}. It needs root, the capability CAP_NET_BIND_SERVICE or "
                "net.ipv4.ip_unprivileged_port_start=80, and no other program that listens there"
            )
    return ""


def _jars() -> tuple[spark_jars.Jar, ...]:
    return spark_jars.read_lock(JAVA_LOCK.read_text())


def _jar_folder() -> Path:
    library = next(jar for jar in _jars() if jar.artifact == "loghub-client-lib")
    return paths.cache_folder() / f"compat-java-{library.version}"


def compiler() -> Path:
    """Eclipse's compiler for Java, which is a jar: a JRE has none."""
    return next(_jar_folder() / jar.file for jar in _jars() if jar.artifact == "ecj")


def _classes() -> Path:
    contents = b"".join(file.read_bytes() for file in (*JAVA_SOURCES, JAVA_LOCK))
    return _jar_folder() / f"classes-{hashlib.sha256(contents).hexdigest()[:16]}"


def compile_java(sources: Sequence[Path], jars: Iterable[Path], classes: Path) -> None:
    """Compile the sources into the folder ``classes``, once. Raises `RuntimeError`."""
    with runs.locked(classes.with_suffix(".lock"), guard_s=600, what="compiling the Java programs"):
        if classes.exists():
            return
        part = classes.with_suffix(".part")
        path = ":".join(map(str, jars))
        command = ["java", "-jar", str(compiler()), "-17", "-proc:none", "-cp", path, "-d", str(part)]
        done = subprocess.run([*command, *map(str, sources)], capture_output=True, text=True, check=False)
        if done.returncode:
            raise RuntimeError(f"the Java programs do not compile: {done.stdout}{done.stderr}")
        part.rename(classes)


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
    """One running program, whose output a thread reads."""

    name: str
    language: str
    process: subprocess.Popen[bytes]
    hold_file: Path
    errors: Path
    on_batch: Callable[[int, list[str]], list[int]]
    reader: threading.Thread | None = None
    _printed: Counter[int] = field(default_factory=Counter)

    @property
    def seen(self) -> Counter[int]:
        """The numbers that it printed so far, and how often. A copy, since the thread goes on."""
        return self._printed.copy()

    def has(self, numbers: Set[int]) -> bool:
        """Whether it printed all of these."""
        return is_in(numbers, self._printed)

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
            self._printed.update(self.on_batch(batch["shard"], batch["lines"]))


def is_in(numbers: Set[int], seen: Counter[int]) -> bool:
    """Cheap while much is missing: tests ask again and again."""
    return len(seen) >= len(numbers) and numbers <= seen.keys()


class Consumers:
    """The consumers of one test; all are ended with it."""

    def __init__(self, service: ServiceProcess, folder: Path) -> None:
        self._service = service
        self._folder = folder
        self.all: list[Consumer] = []
        self._lock = threading.Lock()
        self.timeout_s = TIMEOUT_S
        # What others in the group have consumed, which are no processes of this class.
        self.others: list[Callable[[], Counter[int]]] = []
        self._seen: Counter[int] = Counter()
        self.texts: dict[int, str] = {}  # of the logs that say more than their number
        self._wrong: list[str] = []  # what no log says
        self.in_order: list[tuple[int, list[int]]] = []  # the batches of all of them: shard and numbers

    def _printed(self, shard: int, lines: list[str]) -> list[int]:
        """The numbers of these logs."""
        numbers = list(map(mixed_logs.number_of, lines))
        wrong = [line for number, line in zip(numbers, lines, strict=True) if line != self.text(number)]
        with self._lock:
            self._seen.update(numbers)
            self._wrong += wrong
            if numbers:  # Go and Java call the processor for an empty pull too
                self.in_order.append((shard, numbers))
        return numbers

    def text(self, number: int) -> str:
        """What the log of this number says."""
        return self.texts.get(number, str(number))

    def check_texts(self) -> None:
        """Each consumer has printed what was written."""
        assert not self._wrong

    def start(
        self,
        language: str,
        name: str,
        *,
        group: str = GROUP,
        in_order: bool = False,
        start: str = "begin",
        roll_back: tuple[int, str] | None = None,
        sign_v4: bool = False,
    ) -> Consumer:
        """``roll_back``: at this number to this cursor."""
        number = len(self.all)
        hold_file, errors = self._folder / f"hold-{number}", self._folder / f"{name}-{number}.log"
        command, place = self.program(language, "consume")
        settings = place | {
            "group": group,
            "consumer": name,
            "heartbeatS": HEARTBEAT_S,
            "timeoutS": self.timeout_s,
            "inOrder": in_order,
            "from": start,
            "holdFile": str(hold_file),
            "rollBackAt": self.text(roll_back[0]) if roll_back else "",
            "rollBackTo": roll_back[1] if roll_back else "",
            "signV4": sign_v4,
        }
        with errors.open("wb") as log:
            process = subprocess.Popen(
                command,
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                env=self.environment(),
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

    def program(self, language: str, what: str) -> tuple[list[str], dict[str, object]]:
        """The command of the program that does ``what`` (consume or produce), and where the logstore is."""
        place: dict[str, object] = {
            # Ours can address a service by its number, and uses no proxy for that.
            "endpoint": self._service.endpoint if language == "ours" else f"http://{BASE_NAME}",
            "project": PROJECT,
            "logstore": LOGSTORE,
            "keyId": self._service.credentials.access_key_id,
            "keySecret": self._service.credentials.access_key_secret,
        }
        return self._command(language, what), place

    def _command(self, language: str, what: str) -> list[str]:
        if language == "go":
            return [str(GO.folder() / {"consume": "go"}.get(what, what))]
        if language == "python":
            return [sys.executable, str(PROGRAMS / f"{what}.py")]
        if language == "ours":
            return [sys.executable, str(PROGRAMS / "consume_ours.py")]
        hosts = self._folder / "hosts"
        hosts.write_text(f"{self._service.host} {BASE_NAME} {PROJECT}.{BASE_NAME}\n")
        frugal = ["-Xmx512m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC"]
        path = f"{_classes()}:{_jar_folder()}/*"
        return ["java", *frugal, f"-Djdk.net.hosts.file={hosts}", "-cp", path, what.capitalize()]

    def environment(self) -> dict[str, str]:
        proxies = ("NO_PROXY", "ALL_PROXY", "HTTP_PROXY", "HTTPS_PROXY")
        kept = {name: value for name, value in os.environ.items() if name.upper() not in proxies}
        return {**kept, "HTTP_PROXY": self._service.endpoint, "http_proxy": self._service.endpoint}

    @property
    def seen(self) -> Counter[int]:
        """What all of them have consumed, those that have ended included. A copy, since they go on."""
        with self._lock:
            return sum((other() for other in self.others), self._seen.copy())

    def shards(self) -> set[int]:
        """Those of which a log was consumed."""
        with self._lock:
            return {shard for shard, _ in self.in_order}

    def _have(self, numbers: Set[int]) -> bool:
        return is_in(numbers, self.seen if self.others else self._seen)

    def wait_for(self, numbers: Set[int]) -> None:
        """Until each of these was consumed."""
        wait_until(lambda: self._have(numbers), f"{len(numbers)} logs", guard_s=CONSUMED_GUARD_S)

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
    finally:
        consumers.end()
        print(consumers.explain())  # pytest shows it where a test failed
