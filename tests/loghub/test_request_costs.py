"""What one client can cost: the most expensive request of each kind, alone and eight at once.

How late a heartbeat is, counts in CPU time of the event loop's thread between the heartbeat and its answer:
other programs on the machine do not change it. With ``-s``, the table of docs/performance.md is printed.
"""

import http.client
import socket
import threading
from collections import Counter
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path

import pytest

from loghub_service.http import routes
from loghub_service.kafka.broker.handlers import HANDLERS
from loghub_service.kafka.wire.apis import ApiKey
from loghub_service.log_setup import MAX_LINES
from loghub_service.pulsar.broker.handlers import HANDLERS as PULSAR_HANDLERS
from tests.loghub import expensive_requests
from tests.loghub.expensive_pulsar import PulsarCommand, PulsarConnection, names_of, of_pulsar
from tests.loghub.expensive_requests import KafkaConnection, Make
from tests.loghub.load import cpu_s
from tests.loghub_service.rawclient import RawClient
from tests.support import ServiceProcess, get, wait_until

pytestmark = pytest.mark.long

LATEST_CPU_S = 0.25
AT_ONCE = 8
# What the service takes besides its budgets: threads, pools of the allocator, what TLS and sockets hold.
BESIDE_BYTES = 64 << 20


@dataclass(slots=True)
class Beats:
    """Heartbeats, one after the other."""

    service: ServiceProcess
    late_cpu_s: list[float] = field(default_factory=list)
    over: threading.Event = field(default_factory=threading.Event)

    def run(self) -> None:
        with RawClient(self.service) as client:
            while not self.over.is_set():
                before = loop_cpu_s(self.service.pid)
                client.heartbeat("beats", [])
                self.late_cpu_s.append(loop_cpu_s(self.service.pid) - before)


def loop_cpu_s(pid: int) -> float:
    """The CPU time of the thread with the event loop, to the nanosecond."""
    return int(Path(f"/proc/{pid}/task/{pid}/schedstat").read_text().split()[0]) / 1e9


@contextmanager
def heartbeats(service: ServiceProcess) -> Iterator[Beats]:
    beats = Beats(service)
    thread = threading.Thread(target=beats.run, daemon=True)
    thread.start()
    wait_until(lambda: bool(beats.late_cpu_s) or not thread.is_alive(), "the first heartbeat")
    beats.late_cpu_s.clear()
    try:
        yield beats
    finally:
        done = len(beats.late_cpu_s)
        wait_until(lambda: len(beats.late_cpu_s) > done or not thread.is_alive(), "one more heartbeat")
        beats.over.set()
        thread.join(120)


def memory_bytes(pid: int, name: str) -> int:
    (line,) = [one for one in Path(f"/proc/{pid}/status").read_text().splitlines() if one.startswith(name)]
    return int(line.split()[1]) << 10


@dataclass(frozen=True, slots=True)
class Cost:
    cpu_s: float
    late_cpu_s: float
    added_bytes: int


def together(count: int, send: Callable[[], object]) -> None:
    failures: list[BaseException] = []

    def one() -> None:
        try:
            send()
        except BaseException as error:  # noqa: BLE001 - raised again by the test
            failures.append(error)

    threads = [threading.Thread(target=one, daemon=True) for _ in range(count)]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join(300)
    assert failures == []


def cost_of(service: ServiceProcess, count: int, send: Callable[[], object]) -> Cost:
    pid = service.pid
    Path(f"/proc/{pid}/clear_refs").write_text("5")  # the peak of its memory begins now
    before, cpu_before = memory_bytes(pid, "VmRSS"), cpu_s(pid)
    with heartbeats(service) as beats:
        together(count, send)
    peak = memory_bytes(pid, "VmHWM")
    return Cost((cpu_s(pid) - cpu_before) / count, max(beats.late_cpu_s), peak - before)


@dataclass(slots=True)
class Place:
    service: ServiceProcess
    kafka: str
    pulsar: str
    admin: str
    actions: dict[str, Make]
    frames: dict[str, Make]
    commands: Mapping[str, PulsarCommand]
    size: int = 0  # of the last request

    def cost(self, name: str, count: int) -> Cost:
        if name in self.commands:
            command = self.commands[name]
            cost = cost_of(self.service, count, lambda: self._of_pulsar(command))
            self.size = command.size
            return cost
        is_kafka = name in self.frames
        request = (self.frames if is_kafka else self.actions)[name]()
        self.size, send = len(request), self._of_kafka if is_kafka else self._over_http
        return cost_of(self.service, count, lambda: send(request))

    def _over_http(self, request: bytes) -> None:
        with socket.create_connection((self.service.host, self.service.port), timeout=300) as connection:
            connection.sendall(request)
            response = http.client.HTTPResponse(connection)
            response.begin()
            response.read()
            assert response.status != 500  # a budget may be used up, and says so

    def _of_kafka(self, request: bytes) -> None:
        with KafkaConnection(self.kafka, self.service) as connection:
            connection.exchange(request)

    def _of_pulsar(self, command: PulsarCommand) -> None:
        with PulsarConnection(self.pulsar, self.token) as connection:
            command.send(connection)

    @property
    def token(self) -> str:
        """Of a Pulsar client."""
        key = self.service.credentials
        return f"demo#{key.access_key_id}#{key.access_key_secret}"

    def budgets_bytes(self) -> int:
        """The sum of what the service states."""
        lines = get(self.admin, "/metrics")[1].decode().splitlines()
        limits = [one for one in lines if one.startswith("loghub_service_memory_limit_bytes{")]
        return int(sum(float(one.split()[1]) for one in limits))

    def lines(self) -> Counter[str]:
        """How many lines of each kind its log has."""
        return Counter(line["event"] for line in self.service.events())


@pytest.fixture(scope="module")
def place(tmp_path_factory: pytest.TempPathFactory) -> Iterator[Place]:
    folder = tmp_path_factory.mktemp("costs")
    extra = ("--kafka", "127.0.0.1:0", "--kafka-port-file", str(folder / "kafka"))
    extra += ("--pulsar", "127.0.0.1:0", "--pulsar-port-file", str(folder / "pulsar"))
    service = ServiceProcess(folder, extra=(*extra, "--admin-listen", "127.0.0.1:0"))
    service.start()
    try:
        for port in ("kafka", "pulsar"):
            wait_until((folder / port).exists, f"the port of {port}")
        kafka, pulsar = ((folder / port).read_text().strip() for port in ("kafka", "pulsar"))
        (admin,) = [line["address"] for line in service.await_events("admin port")]
        expensive_requests.prepare(service, kafka)
        yield Place(
            service,
            kafka,
            pulsar,
            admin,
            expensive_requests.over_http(service),
            expensive_requests.of_kafka(),
            of_pulsar(),
        )
    finally:
        service.terminate()


HTTP = sorted(routes.NAMES)
KAFKA = sorted({api.name for api in HANDLERS} | {"PRODUCE", "PRODUCE of many partitions"})
PULSAR = names_of(tuple(PULSAR_HANDLERS))
IN_BRIEF = ("PRODUCE of many partitions", "OFFSET_FETCH")  # both were done in one piece


def test_each_action_and_each_api_has_an_expensive_request(place: Place) -> None:
    assert sorted(place.actions) == HTTP
    assert sorted(place.frames) == KAFKA
    assert sorted(place.commands) == PULSAR
    assert {api.name for api in ApiKey} - set(place.frames) == {
        "API_VERSIONS",  # before the login, and without anything to choose
        "SASL_HANDSHAKE",
        "SASL_AUTHENTICATE",
    }


@pytest.mark.parametrize("name", IN_BRIEF)
def test_a_heartbeat_waits_for_a_part_of_an_expensive_request_only(place: Place, name: str) -> None:
    """It would otherwise wait for all of it."""
    cost = place.cost(name, 1)
    assert cost.late_cpu_s <= max(cost.cpu_s / 2, LATEST_CPU_S)


@pytest.mark.deep(minutes=20)
@pytest.mark.timeout(3600)
def test_no_request_delays_heartbeats_or_takes_more_memory_than_the_budgets(place: Place) -> None:
    print("\n| request | bytes | CPU s | latest heartbeat, CPU s | the same, 8 at once | memory, 8 at once |")
    print("| --- | --- | --- | --- | --- | --- |")
    budgets, late, large = place.budgets_bytes(), [], []
    for name in [
        *KAFKA,
        *PULSAR,
        *(name for name in HTTP if name not in ("DeleteLogStore",)),
        "DeleteLogStore",
    ]:
        alone, together = place.cost(name, 1), place.cost(name, AT_ONCE)
        print(
            f"| {name} | {place.size:,} | {alone.cpu_s:.2f} | {alone.late_cpu_s:.3f} "
            f"| {together.late_cpu_s:.3f} | {max(together.added_bytes, 0) >> 20} MiB |",
            flush=True,
        )
        late += [name for one in (alone, together) if one.late_cpu_s > LATEST_CPU_S]
        large += [name for one in (alone, together) if one.added_bytes > budgets + BESIDE_BYTES]
    assert (late, large) == ([], [])
    assert {kind: count for kind, count in place.lines().items() if count > 20 * MAX_LINES} == {}
