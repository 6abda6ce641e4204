"""Where Pulsar clients are served: by the service, or by a real broker to compare it with."""

from abc import ABC, abstractmethod
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from pathlib import Path
from typing import Any, TypeVar

from loghub.client.http import HttpLogHub
from tests.compat.pulsar import oracle
from tests.compat.pulsar.client_programs import Program
from tests.compat.pulsar.clients import Client
from tests.compat.pulsar.differences import DIFFERENCES
from tests.ports import free_port
from tests.support import ServiceProcess, wait_until

T = TypeVar("T")
PROJECT = "demo"


class Place(ABC):
    """A place with its topics and its clients. Programs are shared by all tests that use the place."""

    is_real = False  # is it a Pulsar broker?
    suffix = ""  # of a topic's name, which chooses the form of its logs

    def __init__(self, folder: Path) -> None:
        self.folder = folder
        self._programs: dict[str, Program] = {}
        self._own: list[Program] = []
        self._clients: list[Client] = []
        self._topics = 0
        self._made = 0

    @property
    @abstractmethod
    def url(self) -> str:
        """Its address for clients."""

    @property
    @abstractmethod
    def token(self) -> str:
        """The login of its clients; empty where none is needed."""

    @property
    @abstractmethod
    def pid(self) -> int:
        """Its process."""

    @abstractmethod
    def create(self, name: str, *, partitions: int) -> None: ...

    @abstractmethod
    def delete(self, topic: str) -> None: ...

    @abstractmethod
    def add_partitions(self, topic: str) -> None:
        """Two partitions more, which take what was sent to the first one of a topic with one partition."""

    def topic(self, partitions: int = 1, *, prefix: str = "t") -> str:
        """A new topic, and its name."""
        self._topics += 1
        name = f"{prefix}{self._topics}"
        self.create(name, partitions=partitions)
        return name + self.suffix

    def partition(self, number: int = 0, *, topic: str | None = None) -> str:
        """The name of a partition of the topic, or of a new topic with one partition. Its consumer has one
        receiver queue, while the consumer of a topic has a second one before those of its partitions."""
        return f"{topic or self.topic()}-partition-{number}"

    def expects(self, difference: str, *, ours: T, real: T) -> T:
        """What a scenario expects where the service and Pulsar differ, as `DIFFERENCES` says."""
        assert difference in DIFFERENCES
        return real if self.is_real else ours

    def client(self, language: str, *, own: bool = False, **options: Any) -> Client:
        """A client of the program in this language, which all tests share, or of its ``own`` program."""
        if own:
            program = self._started(language, f"{language}-{len(self._own)}")
            self._own.append(program)
        else:
            program = self._programs.get(language) or self._started(language, language)
            self._programs[language] = program
        self._made += 1
        client = Client(program, f"client{self._made}")
        client.ask("connect", **{"url": self.url, "token": self.token, **options})
        self._clients.append(client)
        return client

    def _started(self, language: str, name: str) -> Program:
        return Program(language, self.folder / f"{name}.log")

    def end_test(self) -> None:
        """Close the clients of a test, and end its own programs."""
        for program in self._own:
            program.kill()
        for client in self._clients:
            if client.program.process.poll() is None:
                client.send_command("close")  # Java takes seconds to answer
        self._own.clear()
        self._clients.clear()

    def end(self) -> None:
        for program in (*self._own, *self._programs.values()):
            program.kill()

    def explain(self) -> str:
        programs = {**self._programs, **{program.log.stem: program for program in self._own}}
        return "\n".join(f"--- {name}: {program.log_tail()}" for name, program in programs.items())


class OraclePlace(Place):
    """A real broker. It has no shards: a split is two partitions more."""

    is_real = True

    def __init__(self, broker: oracle.Oracle, folder: Path) -> None:
        super().__init__(folder)
        self.broker = broker
        self._partitions: dict[str, int] = {}

    @property
    def url(self) -> str:
        return self.broker.url

    @property
    def token(self) -> str:
        return ""

    @property
    def pid(self) -> int:
        return self.broker.pid

    def create(self, name: str, *, partitions: int) -> None:
        self.broker.create_topic(name, partitions=partitions)
        self._partitions[name] = partitions

    def delete(self, topic: str) -> None:
        self.broker.delete_topic(topic)

    def add_partitions(self, topic: str) -> None:
        self._partitions[topic] += 2
        self.broker.set_partitions(topic, self._partitions[topic])

    def explain(self) -> str:
        return super().explain() + self.broker.log_tail()


class ServicePlace(Place):
    """A service with its Pulsar endpoint. Logs of the form ``raw`` keep keys and properties."""

    suffix = ".raw"

    def __init__(self, service: ServiceProcess, folder: Path) -> None:
        super().__init__(folder)
        self.service = service
        self.port_file = folder / "pulsar-port"
        self.http = HttpLogHub(service.endpoint, PROJECT, credentials=service.credentials)

    @property
    def url(self) -> str:
        return f"pulsar://{self.port_file.read_text().strip()}"

    @property
    def token(self) -> str:
        credentials = self.service.credentials
        return f"{PROJECT}#{credentials.access_key_id}#{credentials.access_key_secret}"

    @property
    def pid(self) -> int:
        return self.service.pid

    def create(self, name: str, *, partitions: int) -> None:
        self.http.create_logstore(name, shards=partitions)

    def delete(self, topic: str) -> None:
        self.http.delete_logstore(topic.removesuffix(self.suffix))

    def add_partitions(self, topic: str) -> None:
        self.http.split_shard(topic.removesuffix(self.suffix), 0)

    def explain(self) -> str:
        return super().explain() + self.service.log_tail()


@contextmanager
def a_place(made: Place) -> Iterator[Place]:
    """The place, with what its programs have said where the body fails."""
    try:
        yield made
    except BaseException:
        print(made.explain())
        raise
    finally:
        made.end()


@contextmanager
def a_service_place(
    folder: Path,
    *,
    extra: tuple[str, ...] = (),
    port: int = 0,
    module: str = "loghub_service",
    environment: dict[str, str] | None = None,
) -> Iterator[ServicePlace]:
    """A service with the project ``demo``. ``extra`` are arguments; it keeps its port over restarts.
    ``module`` is the program, ``environment`` are further variables of it."""
    folder.mkdir(parents=True, exist_ok=True)
    port_file = folder / "pulsar-port"
    listen = f"127.0.0.1:{port or free_port()}"
    arguments = ("--pulsar", listen, "--pulsar-port-file", str(port_file))
    service = ServiceProcess(folder, extra=(*arguments, *extra), module=module, environment=environment)
    service.start()
    try:
        wait_until(port_file.exists, "the Pulsar endpoint")
        place = ServicePlace(service, folder)
        place.http.create_project()
        with a_place(place):
            yield place
    finally:
        if service.running:
            service.kill9()


@contextmanager
def an_oracle_place(folder: Path) -> Iterator[OraclePlace]:
    """A real broker. Raises `RuntimeError`."""
    oracle.install()
    with oracle.running_oracle(folder / "broker") as broker:
        place = OraclePlace(broker, folder)
        with a_place(place):
            yield place


OPENED: dict[str, Callable[[Path], Any]] = {"service": a_service_place, "oracle": an_oracle_place}
