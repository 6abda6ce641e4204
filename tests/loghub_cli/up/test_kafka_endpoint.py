"""Kafka clients at the embedded service of this machine: `loghub up`, `serve`, `status` and `lag`."""

import asyncio
import json
import os
import re
import signal
import socket
import subprocess
import sys
from collections.abc import Callable, Iterator
from contextlib import contextmanager
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

import pytest
import yaml
from confluent_kafka import Consumer, Producer
from confluent_kafka.admin import AdminClient

from loghub.client.credentials_dir import read_key
from loghub.clock import SystemClock
from loghub_cli.main import main
from loghub_cli.up.embedded_service import KEYS, EmbeddedService, ServiceStartError
from loghub_cli.up.paths import Root
from loghub_cli.up.service_options import how_to_log_in
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


# --- finding and starting the service --------------------------------------------------------


def with_service(root: Root, kafka: str | None, act: Callable[[EmbeddedService], Any]) -> None:
    async def story() -> None:
        service = EmbeddedService(root, say=print, kafka=kafka)
        try:
            await service.ensure()
            await act(service)
        finally:
            await service.end()

    asyncio.run(story())


@pytest.mark.long
def test_kafka_is_found_by_others_and_is_as_before_after_a_crash_of_the_service(tmp_path: Path) -> None:
    root = Root(tmp_path / "state")

    async def act(service: EmbeddedService) -> None:
        address = service.kafka_address
        assert await asyncio.to_thread(topics, login(root, address)) == set()
        for wanted in (FREE, address):
            other = EmbeddedService(root, say=print, kafka=wanted)
            await other.ensure()
            assert (other.ours, other.kafka_address) == (False, address)
        elsewhere = EmbeddedService(root, say=print, kafka="127.0.0.1:1")
        with pytest.raises(ServiceStartError, match=f"at {address}, not at 127.0.0.1:1: end the `loghub up`"):
            await elsewhere.ensure()
        keeper = asyncio.create_task(service.keep_running())
        os.kill(int((service.data / "lock").read_text()), signal.SIGKILL)
        while service.ours:
            await asyncio.sleep(0.01)
        async with asyncio.timeout(GUARD_S):
            while not service.ours:
                await asyncio.sleep(0.01)
        assert await asyncio.to_thread(topics, login(root, address)) == set()
        keeper.cancel()

    with_service(root, FREE, act)

    async def plain(service: EmbeddedService) -> None:
        assert service.kafka_address == ""
        late = EmbeddedService(root, say=print, kafka=FREE)
        with pytest.raises(ServiceStartError, match="runs without a Kafka endpoint: end the `loghub up`"):
            await late.ensure()

    with_service(root, None, plain)  # it was requested by the first start only


@pytest.mark.long
def test_a_port_that_is_taken_is_reported_with_what_to_do(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    root = Root(tmp_path / "state")
    with socket.create_server(("127.0.0.1", 0)) as taken:
        address = f"127.0.0.1:{taken.getsockname()[1]}"
        with pytest.raises(ServiceStartError, match=f"{address}: .* choose another address with --kafka"):
            asyncio.run(EmbeddedService(root, say=print, kafka=address).ensure())
        assert main(["serve", "--state-dir", str(root.folder), "--kafka", address]) == 1
    assert "Address already in use; choose another address" in capsys.readouterr().err


# --- what is refused -------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("arguments", "message"),
    [
        (("serve", "--kafka", "9092"), "'9092' is not HOST:PORT"),
        (("serve", "--kafka", "127.0.0.1:99999"), "is not HOST:PORT"),
        (("serve", "--kafka", "0.0.0.0:9092"), "clients send their secret in clear without TLS"),
        (("serve", "--kafka", ":9092"), "--kafka-plaintext where the network is trusted"),
        (("serve", "--kafka-advertise", "a:1"), "need --kafka"),
        (("serve", "--kafka-plaintext"), "need --kafka"),
        (("serve", "--tls-cert", __file__), "--tls-cert and --tls-key belong together"),
        (("serve", "--tls-cert", "missing", "--tls-key", __file__), "'missing' does not exist"),
        (("serve", "--", "--data=/x"), "--data=/x: write it before --, or leave it to `loghub serve`"),
        (("serve", "9092"), "'9092' is no flag of the service; write its flags after --"),
        (("up", "-f", "cr.yaml", "--kafka", "0.0.0.0:9092"), "of this machine only"),
    ],
)
def test_a_contradiction_is_refused_before_anything_starts(
    arguments: tuple[str, ...], message: str, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    with pytest.raises(SystemExit) as ended:
        main([*arguments, "--state-dir", str(tmp_path / "state")])
    assert ended.value.code == 2
    assert message in " ".join(capsys.readouterr().err.split())
    assert not (tmp_path / "state").exists()


def test_a_group_elsewhere_has_no_kafka_endpoint_of_ours(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    file = write(tmp_path / "cr.yaml", document({"endpoint": "https://cn-hangzhou.log.aliyuncs.com"}))
    assert main(["up", "-f", str(file), "--state-dir", str(tmp_path / "state"), "--kafka"]) == 1
    assert "--kafka is for the embedded service of this machine" in capsys.readouterr().err


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

    def kafka_address(self) -> str:
        file = self.root.service / "kafka-address"

        def is_there() -> bool:
            assert self.process.poll() is None, self.log.read_text()
            return file.exists()

        wait_until(is_there, "the Kafka endpoint")
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
def test_a_real_client_writes_and_reads_at_serve_and_lag_and_status_show_it(
    tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    limits = ("--", "--max-shards=1", "--max-shards-at-creation", "1")
    with serving(tmp_path, "--kafka", FREE, *limits) as serve:
        address = serve.kafka_address()
        here = [*serve.where, "--project", PROJECT]
        assert main(["project", "create", PROJECT, *serve.where]) == 0
        assert main(["logstore", "create", TOPIC, "--shards", "2", *here]) == 1
        assert main(["logstore", "create", TOPIC, "--shards", "1", *here]) == 0
        settings = login(serve.root, address)
        write_and_read(settings)
        capsys.readouterr()
        assert main(["lag", TOPIC, "readers", "-o", "json", *here]) == 0
        lag = json.loads(capsys.readouterr().out)
        assert (lag["kind"], lag["lagLogs"]) == ("kafka", 3)
        for form in (("--json",), ("-o", "json"), ("-o", "yaml")):
            assert main(["status", *form, *serve.where]) == 0
            (group,) = yaml.safe_load(capsys.readouterr().out)
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
        head, row = shown.splitlines()[-2:]
        assert head.split() == ["KAFKA", "GROUP", "PROJECT", "STATE", "MEMBERS", "LOGSTORE", "LAG", "LOGS"]
        assert row.split() == ["readers", PROJECT, "Empty", "0", TOPIC, "3"]
        assert "embedded service: http://127.0.0.1:" in shown
        assert f"Kafka clients: {address}, SASL_PLAINTEXT, mechanism PLAIN, user: the project" in shown
        assert main(["serve", *serve.where]) == 1
        assert f"end process {serve.process.pid} first" in capsys.readouterr().err
        assert main(["status", *serve.where]) == 0
        assert address in capsys.readouterr().out, "the second one has changed nothing"
        secret = read_key(serve.root.service / KEYS).access_key_secret
        assert secret not in shown + serve.log.read_text()
        assert "a free port, which `loghub status` shows" in serve.log.read_text()
    assert main(["status", *serve.where]) == 1


@pytest.mark.long
def test_with_a_certificate_http_and_kafka_are_encrypted_and_the_commands_find_them(
    tmp_path: Path, capsys: pytest.CaptureFixture[str], monkeypatch: pytest.MonkeyPatch
) -> None:
    authority = Authority("tests")
    authority.write_pair(tmp_path, "127.0.0.1")
    (tmp_path / "ca.crt").write_bytes(authority.pem)
    tls = ("--tls-cert", str(tmp_path / "tls.crt"), "--tls-key", str(tmp_path / "tls.key"))
    with serving(tmp_path, "--kafka", FREE, *tls) as serve:
        address = serve.kafka_address()
        assert main(["project", "create", PROJECT, *serve.where]) == 1
        assert "certificate" in capsys.readouterr().err
        monkeypatch.setenv("SSL_CERT_FILE", str(tmp_path / "ca.crt"))
        assert main(["project", "create", PROJECT, *serve.where]) == 0
        assert main(["logstore", "create", TOPIC, *serve.where, "--project", PROJECT]) == 0
        assert main(["status", *serve.where]) == 0
        shown = capsys.readouterr().out
        assert "embedded service: https://127.0.0.1:" in shown
        assert f"Kafka clients: {address}, SASL_SSL" in shown
        encrypted = {"security.protocol": "SASL_SSL", "ssl.ca.location": str(tmp_path / "ca.crt")}
        assert topics(login(serve.root, address, **encrypted)) == {TOPIC}


def run_example_of_the_page(home: Path, root: Root, address: str) -> str:
    """What it prints; word for word but for the port."""
    example = re.search(r"```python\n(from pathlib.*?)```", (ROOT / "docs/kafka.md").read_text(), re.DOTALL)
    assert example is not None
    state = home / ".local" / "state"
    state.mkdir(parents=True)
    (state / "loghub").symlink_to(root.folder)
    program = example[1].replace("127.0.0.1:9092", address)
    assert program != example[1]
    done = subprocess.run(
        [sys.executable, "-c", program], env={**os.environ, "HOME": str(home)},
        capture_output=True, text=True, check=False, timeout=GUARD_S,
    )  # fmt: skip
    assert done.returncode == 0, done.stderr
    return done.stdout


@pytest.mark.long
def test_up_serves_kafka_clients_and_says_where(tmp_path: Path, capsys: pytest.CaptureFixture[str]) -> None:
    file = write(tmp_path / "cr.yaml", document({"replicas": 1}))
    run = Up(tmp_path, file, "--create-logstore", "--kafka", FREE)
    try:
        run.until("access-0 is ready")
        said = next(line for line in run.reported().splitlines() if "Kafka clients: " in line)
        address = said.split("Kafka clients: ")[1].split(",")[0]
        assert str(run.root.service / KEYS) in said
        printed = run_example_of_the_page(tmp_path, run.root, address)
        assert printed == "b'hello'\n"
        assert main(["lag", TOPIC, "readers", "--project", PROJECT, *run.where, "-o", "json"]) == 0
        lag = json.loads(capsys.readouterr().out)
        assert (lag["state"], [one["lagLogs"] for one in lag["shards"]]) == ("Empty", [0])
        assert main(["status", "--json", "access", *run.where]) == 0
        assert json.loads(capsys.readouterr().out)["kafka"] == address
        run.process.send_signal(signal.SIGINT)
        assert run.process.wait(GUARD_S) == 0
    finally:
        run.end()


@pytest.mark.parametrize("live", [True, False])
def test_how_to_log_in_stays_in_the_live_view_and_is_not_cut_off(
    live: bool, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    sentence = how_to_log_in("127.0.0.1:9092", tmp_path / KEYS, tls=False)
    with WaitingScreen(
        "a group", wait_for=None, live=live, clock=SystemClock(), stop=asyncio.Event()
    ) as screen:
        screen.keep(sentence)
        for number in range(100):
            screen.say(f"event {number}")
    shown = capsys.readouterr().out
    assert sentence.replace(" ", "") in re.sub(r"\s", "", shown)
