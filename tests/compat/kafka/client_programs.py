"""Kafka clients in processes of their own, driven by commands (`programs/client.py`), and their service."""

import json
import queue
import subprocess
import sys
import threading
from abc import ABC, abstractmethod
from collections.abc import Iterator, Sequence
from contextlib import contextmanager
from dataclasses import dataclass, field
from itertools import islice
from pathlib import Path
from typing import Any

from loghub.client.http import HttpLogHub
from tests.cluster import require
from tests.compat.kafka import other_languages
from tests.compat.kafka.reading import Record, faults
from tests.ports import free_port
from tests.support import ROOT, ServiceProcess, wait_until

PYTHON_LIBRARIES = ("confluent", "kafka-python", "aiokafka")
LIBRARIES = (*PYTHON_LIBRARIES, *other_languages.LIBRARIES)
PROJECT, TOPIC, GROUP = "demo", "access", "readers"
GUARD_S = 150.0
SESSION_S = 6  # of a member that a test kills, or that works for longer
PATIENT_S = 60  # of all others, so that no session ends on a busy machine
_PROGRAM = Path(__file__).with_name("programs") / "client.py"


@dataclass
class ClientProgram:
    """One running client. ``records`` has what it consumed so far, ``assigned`` its partitions, ``sent`` the
    values that it was asked to produce."""

    name: str
    library: str
    process: subprocess.Popen[bytes]
    errors: Path
    group: str = ""
    sent: list[str] = field(default_factory=list)
    records: list[Record] = field(default_factory=list)
    assigned: list[tuple[str, int]] = field(default_factory=list)
    history: list[set[int]] = field(default_factory=list)  # of its assignments, by partition
    _answers: "queue.SimpleQueue[dict[str, Any] | None]" = field(default_factory=queue.SimpleQueue)

    def read(self) -> None:
        """Runs in a thread until the program ends."""
        assert self.process.stdout is not None
        for line in self.process.stdout:
            if not line.endswith(b"\n"):
                break  # it was killed while it wrote this
            said = json.loads(line)
            if "records" in said:
                self.records += [tuple(one) for one in said["records"]]
            elif "assigned" in said:
                self.assigned = [(topic, partition) for topic, partition in said["assigned"]]
                self.history.append(self.partitions)
            else:
                self._answers.put(said)
        self._answers.put(None)

    def send(self, do: str, **more: Any) -> None:
        assert self.process.stdin is not None
        if do == "produce":
            self.sent += [value for _, _, value in more["records"]]
        self.process.stdin.write(json.dumps({"do": do, **more}).encode() + b"\n")
        self.process.stdin.flush()

    def ask(self, do: str, **more: Any) -> dict[str, Any]:
        self.send(do, **more)
        return self.answer(do)

    def answer(self, do: str) -> dict[str, Any]:
        said = self._answers.get(timeout=GUARD_S)
        assert said is not None, f"{self.name} ended:\n{self.errors.read_text()[-3000:]}"
        assert said["done"] == do
        return said

    def produce(self, values: list[str], *, partition: int = -1, topic: str = TOPIC) -> None:
        records = [[partition, value, value] for value in values]
        assert self.ask("produce", topic=topic, records=records)["failed"] == 0

    @property
    def values(self) -> list[str | None]:
        return [value for *_, value in list(self.records)]

    @property
    def partitions(self) -> set[int]:
        return {partition for _, partition in self.assigned}

    def leave(self) -> None:
        self.ask("close")
        self.process.wait(GUARD_S)

    def kill(self) -> None:
        self.process.kill()
        self.process.wait(GUARD_S)


def _command(library: str) -> list[str]:
    if library in PYTHON_LIBRARIES:
        return [sys.executable, str(_PROGRAM), library]
    if reason := other_languages.missing(library):
        require.absent(reason)
    return other_languages.command(library)


class KafkaPlace(ABC):
    """Where Kafka clients are served, and the clients of a test."""

    is_real = False  # is it a Kafka broker?
    authority = ""  # the file with the certificate that clients trust; without one they connect without TLS
    was_split = False  # from then on, what is sent to a read-only partition is stored in another one

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self.clients: list[ClientProgram] = []

    @property
    @abstractmethod
    def servers(self) -> str:
        """Its address, ``host:port``."""

    @property
    @abstractmethod
    def login(self) -> tuple[str, str]:
        """User and password."""

    @property
    def librdkafka(self) -> dict[str, Any]:
        """How a client of librdkafka connects without TLS."""
        user, password = self.login
        return {
            "bootstrap.servers": self.servers,
            "security.protocol": "SASL_PLAINTEXT",
            "sasl.mechanisms": "PLAIN",
            "sasl.username": user,
            "sasl.password": password,
        }

    @abstractmethod
    def create(self, *, shards: int, topic: str = TOPIC) -> None:
        """A topic with so many partitions."""

    @abstractmethod
    def split(self, shard: int, *, topic: str = TOPIC) -> None:
        """Afterwards the topic has two partitions more."""

    def generation(self) -> int:
        """How many times the group has rebalanced; 0 where nobody says so."""
        return 0

    @abstractmethod
    def kill(self) -> None:
        """As a crash; the data stays."""

    @abstractmethod
    def start_again(self) -> None:
        """After `kill`, at the same address."""

    def start(self, library: str, **settings: Any) -> ClientProgram:
        """``settings`` are those of the command ``open``."""
        name = f"{library}-{len(self.clients)}"
        errors = self.folder / f"{name}.log"
        with errors.open("wb") as log:
            process = subprocess.Popen(
                _command(library),
                stdin=subprocess.PIPE,
                stdout=subprocess.PIPE,
                stderr=log,
                cwd=ROOT,
            )
        client = ClientProgram(name, library, process, errors, group=settings.get("group", ""))
        self.clients.append(client)
        threading.Thread(target=client.read, daemon=True).start()
        user, password = self.login
        client.send(
            "open",
            **{
                "servers": self.servers,
                "user": user,
                "password": password,
                "ca": self.authority,
                "group": "",
                "autoCommit": False,
                "instance": "",
                "assignor": "",
                "reset": "",
                "codec": "",
                "sessionS": PATIENT_S,
                "lingerMs": 5,
            }
            | settings,
        )
        return client

    def consumer(
        self, library: str, *, group: str = GROUP, topics: Sequence[str] = (TOPIC,), **more: Any
    ) -> ClientProgram:
        client = self.start(library, group=group, **more)
        client.answer("open")
        client.ask("subscribe", topics=topics)
        return client

    def producer(self, library: str, **more: Any) -> ClientProgram:
        client = self.start(library, **more)
        client.answer("open")
        return client

    def consumed(self) -> list[str | None]:
        """The values that all clients of the test have printed."""
        return [value for client in self.clients for value in client.values]

    def wait_for(self, values: set[str], *clients: ClientProgram) -> None:
        """Until each value was consumed, by one of the clients if any are given."""

        def is_there() -> bool:
            found = [value for client in clients for value in client.values] if clients else self.consumed()
            return values <= set(found)

        wait_until(is_there, f"{len(values)} values", guard_s=GUARD_S, every_s=0.1)

    def check_read(
        self, producer: ClientProgram, *, partitions: Sequence[int], crashed: bool = False, group: str = GROUP
    ) -> None:
        """The group has read each value that was sent, in order, and once unless a process has ``crashed``.

        What would come twice comes before the last record of a partition, so that one is sent and awaited.
        """
        for partition in partitions:
            producer.produce([f"the last of {partition}"], partition=partition)
        members = [one for one in self.clients if one.group == group]
        self.wait_for({value for one in self.clients for value in one.sent}, *members)
        found = faults(
            [one.sent for one in self.clients],
            [list(one.records) for one in members],
            crashed=crashed,
            in_sent_order=self.is_real or not self.was_split,
        )
        assert not (shown := list(islice(found, 20))), "\n".join(shown)

    def wait_shared(self, *clients: ClientProgram, total: int) -> None:
        """Until these clients have all partitions, each one some and none two owners."""

        def is_so() -> bool:
            held = [partition for client in clients for partition in client.partitions]
            return sorted(held) == list(range(total)) and all(client.partitions for client in clients)

        wait_until(is_so, f"{total} partitions shared by {len(clients)}", guard_s=GUARD_S)

    def end(self) -> None:
        for client in self.clients:
            if client.process.poll() is None:
                client.kill()

    def explain(self) -> str:
        return "\n".join(f"--- {one.name}: {one.errors.read_text()[-1500:]}" for one in self.clients)


class ServicePlace(KafkaPlace):
    """A service with a Kafka endpoint."""

    def __init__(self, service: ServiceProcess, folder: Path) -> None:
        super().__init__(folder)
        self.service = service
        self.port_file = folder / "kafka-port"
        self.http = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)

    @property
    def servers(self) -> str:
        return self.port_file.read_text().strip()

    @property
    def login(self) -> tuple[str, str]:
        credentials = self.service.credentials
        return PROJECT, f"{credentials.access_key_id}#{credentials.access_key_secret}"

    def create(self, *, shards: int, topic: str = TOPIC) -> None:
        self.http.create_logstore(topic, shards=shards)

    def split(self, shard: int, *, topic: str = TOPIC) -> None:
        self.http.split_shard(topic, shard)
        self.was_split = True

    def generation(self) -> int:
        (group,) = self.http.list_kafka_groups(TOPIC, GROUP)
        return group.generation

    def kill(self) -> None:
        self.service.kill9()

    def start_again(self) -> None:
        self.service.start()

    def explain(self) -> str:
        return super().explain() + self.service.log_tail()


@contextmanager
def a_kafka_place(folder: Path, *, extra: tuple[str, ...] = (), **program: Any) -> Iterator[ServicePlace]:
    """A service and its project ``demo``, ended with the body. ``extra`` are arguments, ``program`` what else
    `ServiceProcess` takes."""
    port_file = folder / "kafka-port"
    arguments = (
        *("--kafka", f"127.0.0.1:{free_port()}"),
        *("--kafka-port-file", str(port_file)),
        *("--kafka-rebalance-delay", "0"),
    )
    service = ServiceProcess(folder, extra=(*arguments, *extra), **program)
    folder.mkdir(parents=True, exist_ok=True)
    service.start()
    place = ServicePlace(service, folder)
    try:
        wait_until(port_file.exists, "the Kafka endpoint")
        place.http.create_project()
        yield place
    except BaseException:
        print(place.explain())
        raise
    finally:
        place.end()
        if service.running:
            service.kill9()
