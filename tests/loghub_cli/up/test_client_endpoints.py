"""Clients of Kafka and Pulsar at the embedded service of this machine: `up`, `serve`, `status` and `lag`."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pulsar
import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from loghub.client.credentials_dir import read_key
from loghub.clock import SystemClock
from loghub_cli.main import main
from loghub_cli.up.client_endpoint import KAFKA, PROTOCOLS, PULSAR, ClientProtocol
from loghub_cli.up.embedded_service import KEYS, EmbeddedService, ServiceStartError
from loghub_cli.up.paths import Root
from loghub_cli.up.waiting import WaitingScreen
from tests.loghub_cli.up.test_cli import GUARD_S, OWN, Up, write
from tests.loghub_operator.support.certificates import Authority
from tests.loghub_operator.support.examples import document
from tests.support import ROOT, START_GUARD_S, wait_until

FREE = "127.0.0.1:0"
PROJECT, TOPIC = "demo", "access"


def login(root: Root, address: str, **more: Any) -> dict[str, Any]:
    """The settings of a client."""
    key = read_key(root.service / KEYS)
    return {
        "bootstrap.servers": address,
        "security.protocol": "SASL_PLAINTEXT",
        "sasl.mechanisms": "PLAIN",
        "sasl.username": PROJECT,
        "sasl.password": f"{key.access_key_id}#{key.access_key_secret}",
        **more,
    }


def topics(settings: dict[str, Any]) -> set[str]:
    return set(AdminClient(settings).list_topics(timeout=START_GUARD_S).topics)


def write_and_read(settings: dict[str, Any]) -> None:
    """Five records are written, and the first two of them read and committed."""
    producer = Producer(settings)
    for number in range(5):
        producer.produce(TOPIC, f"{number}", partition=0)
    assert producer.flush(START_GUARD_S) == 0
    group = {"group.id": "readers", "auto.offset.reset": "earliest", "enable.auto.commit": False}
    consumer = Consumer({**settings, **group})
    try:
        consumer.subscribe([TOPIC])
        taken = consumer.consume(5, timeout=START_GUARD_S)
        assert [one.value() for one in taken] == [b"0", b"1", b"2", b"3", b"4"]
        consumer.commit(taken[1], asynchronous=False)
    finally:
        consumer.close()


def read_by_pulsar(root: Root, url: str, *, messages: int, **tls: str) -> set[bytes]:
    """The payloads of so many messages, which a real client of Pulsar acknowledges."""
    key = read_key(root.service / KEYS)
    token = f"{PROJECT}#{key.access_key_id}#{key.access_key_secret}"
    client = pulsar.Client(url, authentication=pulsar.AuthenticationToken(token), **tls)
    try:
        consumer = client.subscribe(
            TOPIC,
            "readers",
            consumer_type=pulsar.ConsumerType.Shared,
            initial_position=pulsar.InitialPosition.Earliest,
        )
        payloads = set()
        for _ in range(messages):
            message = consumer.receive(timeout_millis=int(START_GUARD_S * 1000))
            payloads.add(message.data())
            consumer.acknowledge(message)
        return payloads
    finally:
        client.close()


# --- finding and starting the service --------------------------------------------------------


def with_service(root: Root, endpoints: Mapping[str, str], act: Callable[[EmbeddedService], Any]) -> None:
    async def story() -> None:
        service = EmbeddedService(root, say=print, endpoints=endpoints)
        try:
            await service.ensure()
            await act(service)
        finally:
            await service.end()

    asyncio.run(story())


@pytest.mark.long
def test_endpoints_are_found_by_others_and_are_as_before_after_a_crash_of_the_service(tmp_path: Path) -> None:
    root = Root(tmp_path / "state")

    async def act(service: EmbeddedService) -> None:
        addresses = dict(service.addresses)
        assert addresses.keys() == {protocol.name for protocol in PROTOCOLS}
        assert await asyncio.to_thread(topics, login(root, addresses["kafka"])) == set()
        for wanted in ({"kafka": FREE, "pulsar": FREE}, addresses):
            other = EmbeddedService(root, say=print, endpoints=wanted)
            await other.ensure()
            assert (other.ours, other.addresses) == (False, addresses)
        for name, address in addresses.items():
            elsewhere = EmbeddedService(root, say=print, endpoints={name: "127.0.0.1:1"})
            with pytest.raises(ServiceStartError, match=f"at {address}, not at 127.0.0.1:1: end the"):
                await elsewhere.ensure()
        keeper = asyncio.create_task(service.keep_running())
        os.kill(int((service.data / "lock").read_text()), signal.SIGKILL)
        while service.ours:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(GUARD_S):
            while not service.ours:
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(topics, login(root, addresses["kafka"])) == set()
        later = EmbeddedService(root, say=print, endpoints=addresses)
        await later.ensure()
        assert later.addresses == addresses
        keeper.cancel()

    with_service(root, {"kafka": FREE, "pulsar": FREE}, act)

    async def plain(service: EmbeddedService) -> None:
        assert service.addresses == {}
        for protocol in PROTOCOLS:
            late = EmbeddedService(root, say=print, endpoints={protocol.name: FREE})
            words = f"runs without a {protocol.title} endpoint: end the `loghub up`"
            with pytest.raises(ServiceStartError, match=words):
                await late.ensure()

    with_service(root, {}, plain)  # they were requested by the first start only


@pytest.mark.long
@pytest.mark.parametrize("protocol", PROTOCOLS, ids=lambda protocol: protocol.name)
def test_a_port_that_is_taken_is_reported_with_what_to_do(
    protocol: ClientProtocol, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Root(tmp_path / "state")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        words = f"{address}: .* choose another address with {protocol.flag()}"
        with pytest.raises(ServiceStartError, match=words):
            asyncio.run(EmbeddedService(root, say=print, endpoints={protocol.name: address}).ensure())
        assert main(["serve", "--state-dir", str(root.folder), protocol.flag(), address]) == 1
    assert "Address already in use; choose another address" in capsys.readouterr().err


def test_two_endpoints_at_one_port_are_reported_before_anything_starts(tmp_path: Path) -> None:
    root = Root(tmp_path / "state")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
    service = EmbeddedService(root, say=print, endpoints={"kafka": address, "pulsar": address})
    with pytest.raises(ServiceStartError, match=f"Pulsar clients cannot be served at {address}"):
        asyncio.run(service.ensure())
    assert not (root.service / "options.json").exists()


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "--{name}", "9092"), "'9092' is not HOST:PORT"),
        (("serve", "--{name}", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("serve", "--{name}", "0.0.0.0:9092"), "clients send their secret in clear without TLS"),
        (("serve", "--{name}", ":9092"), "--{name}-plaintext where the network is trusted"),
        (("serve", "--{name}-advertise", "a:1"), "need --{name}"),
        (("serve", "--{name}-plaintext"), "need --{name}"),
        (("serve", "--", "--{name}=:1"), "--{name}=:1: write it before --"),
        (("up", "-f", "cr.yaml", "--{name}", "0.0.0.0:9092"), "of this machine only"),
        (("serve", "--tls-cert", __file__), "--tls-cert and --tls-key belong together"),
        (("serve", "--tls-cert", "missing", "--tls-key", __file__), "'missing' does not exist"),
        (("serve", "--", "--data=/x"), "--data=/x: write it before --, or leave it to `loghub serve`"),
        (("serve", "9092"), "'9092' is no flag of the service; write its flags after --"),
    ],
)
def test_a_contradiction_is_refused_before_anything_starts(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    for name in ("kafka", "pulsar"):
        with pytest.raises(SystemExit) as ended:
            main([*(part.format(name=name) for part in arguments), "--state-dir", str(tmp_path / "state")])
        assert ended.value.code == 2
        assert message.format(name=name) in " ".join(capsys.readouterr().err.split())
        assert not (tmp_path / "state").exists()


@pytest.mark.parametrize("flag", ["--kafka", "--pulsar"])
def test_a_group_elsewhere_has_no_endpoint_of_ours(
    flag: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "cr.yaml", document({"endpoint": "https://cn-hangzhou.log.aliyuncs.com"}))
    assert main(["up", "-f", str(file), "--state-dir", str(tmp_path / "state"), flag]) == 1
    assert f"{flag} is for the embedded service of this machine" in capsys.readouterr().err


# --- the commands ----------------------------------------------------------------------------


@dataclass
class Serve:
    """`loghub serve` in a process of its own."""

    root: Root
    more: tuple[str, ...] = ()
    process: "subprocess.Popen[bytes]" = field(init=False)

    def __post_init__(self) -> None:
        with self.log.open("ab") as output:
            self.process = subprocess.Popen(
                [*(sys.executable, "-m", "loghub_cli"), "serve", *self.where, *self.more],
                cwd=ROOT,
                env={**os.environ, "PYTHONPATH": OWN},
                stdout=output,
                stderr=subprocess.STDOUT,
            )

    @property
    def log(self) -> Path:
        return self.root.folder.with_name("serve.log")

    @property
    def where(self) -> list[str]:
        return ["--state-dir", str(self.root.folder)]

    def address(self, protocol: ClientProtocol) -> str:
        file = protocol.address_file(self.root.service)

        def is_there() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return file.exists()

        wait_until(is_there, f"the {protocol.title} endpoint")
        return file.read_text().strip()


@contextmanager
def serving(folder: Path, *more: str) -> Iterator[Serve]:
    running = Serve(Root(folder / "state"), more)
    try:
        yield running
    finally:
        running.process.kill()
        running.process.wait(GUARD_S)


@pytest.mark.long
def test_real_clients_write_and_read_at_serve_and_lag_and_status_show_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ("--", "--max-shards=1", "--max-shards-at-creation", "1")
    with serving(tmp_path, "--kafka", FREE, "--pulsar", FREE, *limits) as serve:
        address, of_pulsar = serve.address(KAFKA), serve.address(PULSAR)
        here = [*serve.where, "--project", PROJECT]
        assert main(["project", "create", PROJECT, *serve.where]) == 0
        assert main(["logstore", "create", TOPIC, "--shards", "2", *here]) == 1
        assert main(["logstore", "create", TOPIC, "--shards", "1", *here]) == 0
        settings = login(serve.root, address)
        write_and_read(settings)
        written = {f"{number}".encode() for number in range(5)}
        assert read_by_pulsar(serve.root, f"pulsar://{of_pulsar}", messages=5) == written
        capsys.readouterr()
        assert main(["lag", TOPIC, "readers", "-o", "json", *here]) == 0
        lag = json.loads(capsys.readouterr().out)
        assert (lag["kind"], lag["lagLogs"]) == ("kafka", 3)
        for form in (("--json",), ("-o", "json"), ("-o", "yaml")):
            assert main(["status", *form, *serve.where]) == 0
            group, subscription = yaml.safe_load(capsys.readouterr().out)
            assert (subscription["kind"], subscription["metadata"]["name"]) == ("Subscription", "readers")
            assert subscription["spec"]["type"] == "Shared"
            assert (group["kind"], group["metadata"]["name"]) == ("KafkaGroup", "readers")
            assert group["spec"] == {"project": PROJECT}
            assert group["status"] == {
                "state": "Empty",
                "generation": lag["generation"],
                "assignor": None,
                "members": 0,
                "lag": {"logs": 3},
                "logstores": [{"name": TOPIC, "lagLogs": 3}],
            }
        assert main(["status", *serve.where]) == 0
        shown = capsys.readouterr().out
        head, row, _, head_of_pulsar, row_of_pulsar = shown.splitlines()[-5:]
        assert head_of_pulsar.split()[:2] == ["SUBSCRIPTION", "PROJECT"]
        assert row_of_pulsar.split()[:4] == ["readers", PROJECT, TOPIC, "Shared"]
        assert head.split() == ["KAFKA", "GROUP", "PROJECT", "STATE", "MEMBERS", "LOGSTORE", "LAG", "LOGS"]
        assert row.split() == ["readers", PROJECT, "Empty", "0", TOPIC, "3"]
        assert "embedded service: http://127.0.0.1:" in shown
        assert f"Kafka clients: {address}, SASL_PLAINTEXT, mechanism PLAIN, user: the project" in shown
        assert f"Pulsar clients: {of_pulsar}, pulsar://, token: <project>#<accessKeyId>#" in shown
        assert main(["serve", *serve.where]) == 1
        assert f"end process {serve.process.pid} first" in capsys.readouterr().err
        assert main(["status", *serve.where]) == 0
        assert address in capsys.readouterr().out, "the second one has changed nothing"
        secret = read_key(serve.root.service / KEYS).access_key_secret
        assert secret not in shown + serve.log.read_text()
        assert "a free port, which `loghub status` shows" in serve.log.read_text()
    assert main(["status", *serve.where]) == 1


@pytest.mark.long
def test_with_a_certificate_all_endpoints_are_encrypted_and_the_commands_find_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority("tests")
    authority.write_pair(tmp_path, "127.0.0.1")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    tls = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with serving(tmp_path, "--kafka", FREE, "--pulsar", FREE, *tls) as serve:
        address, of_pulsar = serve.address(KAFKA), serve.address(PULSAR)
        assert main(["project", "create", PROJECT, *serve.where]) == 1
        assert "certificate" in capsys.readouterr().err
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
        assert main(["project", "create", PROJECT, *serve.where]) == 0
        assert main(["logstore", "create", TOPIC, *serve.where, "--project", PROJECT]) == 0
        assert main(["status", *serve.where]) == 0
        shown = capsys.readouterr().out
        assert "embedded service: https://127.0.0.1:" in shown
        assert f"Kafka clients: {address}, SASL_SSL" in shown
        assert f"Pulsar clients: {of_pulsar}, pulsar+ssl://" in shown
        encrypted = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(tmp_path / "ca.crt")}
        settings = login(serve.root, address, **encrypted)
        assert topics(settings) == {TOPIC}
        write_and_read(settings)
        trusted = {"tls_trust_certs_file_path": str(tmp_path / "ca.crt")}
        assert len(read_by_pulsar(serve.root, f"pulsar+ssl://{of_pulsar}", messages=5, **trusted)) == 5


def run_example_of_the_page(protocol: ClientProtocol, home: Path, address: str) -> list[str]:
    """The lines that it prints; word for word but for the port."""
    page = (ROOT / protocol.page).read_text()
    example = re.search(r"```python\n(from pathlib.*?)```", page, re.DOTALL)
    assert example is not None
    program = example[1].replace(protocol.default_address, address)
    assert program != example[1]
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "HOME": str(home)},
        capture_output=True, text=True, check=False, timeout=GUARD_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout.splitlines()


@pytest.mark.long
def test_up_serves_clients_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "cr.yaml", document({"replicas": 1}))
    run = Up(tmp_path, file, "--create-logstore", "--kafka", FREE, "--pulsar", FREE)
    state = tmp_path / ".local" / "state"
    state.mkdir(parents=True)
    (state / "loghub").symlink_to(run.root.folder)
    try:
        run.until("access-0 is ready")
        addresses = {}
        for protocol in PROTOCOLS:
            words = f"{protocol.title} clients: "
            said = next(line for line in run.reported().splitlines() if words in line)
            assert str(run.root.service / KEYS) in said
            addresses[protocol.name] = said.split(words)[1].split(",")[0]
            printed = run_example_of_the_page(protocol, tmp_path, addresses[protocol.name])
            assert "b'hello'" in printed
            if protocol is KAFKA:
                assert main(["lag", TOPIC, "readers", "--project", PROJECT, *run.where, "-o", "json"]) == 0
                lag = json.loads(capsys.readouterr().out)
                assert (lag["state"], [one["lagLogs"] for one in lag["shards"]]) == ("Empty", [0])
        assert main(["status", "--json", "access", *run.where]) == 0
        shown = json.loads(capsys.readouterr().out)
        assert {name: shown[name] for name in addresses} == addresses
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(GUARD_S) == 0
    finally:
        run.end()


@pytest.mark.parametrize("live", [True, False])
def test_how_to_log_in_stays_in_the_live_view_and_is_not_cut_off(
    live: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = KAFKA.how_to_log_in("127.0.0.1:9092", tmp_path / KEYS, tls=False)
    with WaitingScreen(
        "a group", wait_for=None, live=live, clock=SystemClock(), stop=asyncio.Event()
    ) as screen:
        screen.keep(sentence)
        for number in range(100):
            screen.say(f"event {number}")
    shown = capsys.readouterr().out
    assert sentence.replace(" ", "") in re.sub(r"\s", "", shown)
