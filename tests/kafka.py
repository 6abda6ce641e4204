"""A real Kafka broker for the tests: one node that is its own controller, on free ports of the loopback.

Its jars are named in ``locks/kafka-broker.txt`` and fetched once into the cache folder. The listeners:
`plain` for everybody, `sasl` with a login, `tls` with a certificate of the broker's own authority,
`sasl_tls` with both. Everybody without a login and the user `alice` may do everything; other users have the
rights that a test gives them.

``python -m tests.kafka``  fetch the jars, the connector's too
"""

import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager, suppress
from dataclasses import dataclass, field
from datetime import UTC, datetime, timedelta
from functools import cached_property
from ipaddress import ip_address
from pathlib import Path
from typing import Any

from confluent_kafka import Consumer, KafkaException, Message, TopicPartition
from confluent_kafka.admin import AdminClient, NewTopic
from cryptography import x509
from cryptography.hazmat.primitives import hashes, serialization
from cryptography.hazmat.primitives.asymmetric import ec
from cryptography.x509.oid import NameOID

from loghub.contract.worker import ENV_CLASS_ARCHIVE
from loghub_worker.image import spark_jars
from tests.cluster import paths
from tests.ports import free_ports
from tests.support import ROOT, wait_until

BROKER_LOCK, CONNECTOR_LOCK = ROOT / "locks" / "kafka-broker.txt", ROOT / "locks" / "jars.txt"
GUARD_S = 240.0
PASSWORDS = {"alice": 'a "quoted\\ secret', "bob": "bobs-secret"}  # of the mechanism PLAIN
SCRAM_USER, SCRAM_PASSWORD = "carol", "carols-secret"
CLUSTER_ID = "MkU3OEVBNTcwNTJENDM2Qg"
MAX_MESSAGE = 3 << 20
_SMALL = ("-Xmx256m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")  # a JVM that starts soon


def place_of(record: Message) -> tuple[int, int, int]:
    """Where its log was read: shard, cursor, index."""
    found = dict(record.headers() or [])
    shard, cursor, index = (int(found[name]) for name in ("__shard__", "__cursor__", "__index__"))
    return shard, cursor, index


def folder() -> Path:
    """Where the broker's jars are; the name has the version."""
    broker = next(jar for jar in _lock(BROKER_LOCK) if jar.artifact.startswith("kafka_"))
    return paths.cache_folder() / f"kafka-{broker.version}"


def _lock(file: Path) -> tuple[spark_jars.Jar, ...]:
    return spark_jars.read_lock(file.read_text())


def missing() -> str:
    """Why the broker or the connector cannot run here; empty if both can."""
    lacking = (
        *spark_jars.missing(_lock(CONNECTOR_LOCK), spark_jars.spark_folder()),
        *spark_jars.missing(_lock(BROKER_LOCK), folder()),
    )
    way = "`make test` fetches them, and so does python -m tests.kafka"
    return f"{len(lacking)} jars of Kafka are missing: {way}" if lacking else ""


def install() -> None:
    """Fetch what is missing. Raises `RuntimeError`."""
    try:
        if spark_jars.install(_lock(CONNECTOR_LOCK), spark_jars.spark_folder(), os.environ):
            # A class archive is of the jars that were there when it was made.
            with suppress(KeyError, FileNotFoundError):
                Path(os.environ[ENV_CLASS_ARCHIVE]).unlink()
        spark_jars.install(_lock(BROKER_LOCK), folder(), os.environ)
    except spark_jars.JarsError as error:
        raise RuntimeError(f"the jars of Kafka: {error}") from error


@dataclass
class Broker:
    """A broker that can be stopped and started again; its data stays."""

    home: Path
    ports: dict[str, int]
    authority: str  # PEM
    java: tuple[str, ...]
    process: "subprocess.Popen[bytes] | None" = field(default=None)

    @property
    def plain(self) -> str:
        return f"127.0.0.1:{self.ports['plain']}"

    @property
    def sasl(self) -> str:
        return f"127.0.0.1:{self.ports['sasl']}"

    @property
    def tls(self) -> str:
        return f"127.0.0.1:{self.ports['tls']}"

    @property
    def sasl_tls(self) -> str:
        return f"127.0.0.1:{self.ports['sasl_tls']}"

    @cached_property
    def admin(self) -> AdminClient:
        return AdminClient(self._client)

    @property
    def _client(self) -> dict[str, Any]:
        return {"bootstrap.servers": self.plain, "log_level": 0}

    def start(self) -> None:
        with (self.home / "log").open("ab") as log:
            self.process = subprocess.Popen(
                [*_java(self.java), "kafka.Kafka", str(self.home / "server.properties")],
                cwd=self.home,
                stdout=log,
                stderr=log,
                env=_environment(),
            )
        wait_until(self._answers, "the Kafka broker", guard_s=GUARD_S)

    def _answers(self) -> bool:
        assert self.process is not None
        assert self.process.poll() is None, self.log_tail()
        with suppress(KafkaException):
            return bool(self.admin.list_topics(timeout=2).brokers)
        return False

    def stop(self) -> None:
        """As the death of its node: nothing is handed over."""
        if self.process is not None:
            self.process.kill()
            self.process.wait()
            self.process = None

    def log_tail(self) -> str:
        return (self.home / "log").read_text(errors="replace")[-3000:]

    def create_topic(self, name: str, *, partitions: int = 2) -> str:
        topic = NewTopic(name, partitions, 1, config={"max.message.bytes": str(MAX_MESSAGE)})
        done = self.admin.create_topics([topic])
        done[name].result(GUARD_S)
        found = self.admin.list_topics
        wait_until(lambda: len(found(name, 9).topics[name].partitions) == partitions, name, guard_s=GUARD_S)
        return name

    def delete_topic(self, name: str) -> None:
        done = self.admin.delete_topics([name])
        done[name].result(GUARD_S)

    def records(self, topic: str) -> list[Message]:
        """All records of the topic, each partition in its order."""
        consumer = Consumer(self._client | {"group.id": "tests", "enable.auto.commit": False})
        try:
            numbers = consumer.list_topics(topic, timeout=30).topics[topic].partitions
            starts = [TopicPartition(topic, number, 0) for number in numbers]
            ends = {part.partition: consumer.get_watermark_offsets(part, timeout=30)[1] for part in starts}
            consumer.assign(starts)
            found: list[Message] = []
            while len(found) < sum(ends.values()):
                message = consumer.poll(30)
                assert message is not None, f"{len(found)} of {ends}"
                if message.error() is None and message.offset() < ends[message.partition()]:
                    found.append(message)
            return sorted(found, key=lambda one: (one.partition(), one.offset()))
        finally:
            consumer.close()


@contextmanager
def running_broker(home: Path, *, java: tuple[str, ...] = _SMALL) -> Iterator[Broker]:
    """A new broker, ended with the body. ``java`` are options of its JVM."""
    home.mkdir(parents=True)
    ports = dict(zip(("plain", "sasl", "tls", "sasl_tls", "controller"), free_ports(5), strict=True))
    authority, chain = _certificates()
    (home / "server.pem").write_text(chain)
    (home / "server.properties").write_text(_properties(home, ports))
    (home / "log4j2.yaml").write_text(_LOGGING)
    broker = Broker(home=home, ports=ports, authority=authority, java=java)
    scram = f"SCRAM-SHA-512=[name={SCRAM_USER},password={SCRAM_PASSWORD},iterations=4096]"
    command = [*_java(_SMALL), "kafka.tools.StorageTool", "format", "-t", CLUSTER_ID, "--add-scram", scram]
    subprocess.run(
        [*command, "-c", str(home / "server.properties")],
        check=True,
        capture_output=True,
        env=_environment(),
        timeout=GUARD_S,
    )
    try:
        broker.start()
        yield broker
    finally:
        broker.stop()


def _java(options: tuple[str, ...]) -> list[str]:
    return ["java", *options, "-Dlog4j2.configurationFile=log4j2.yaml", "-cp", f"{folder()}/*"]


def _environment() -> dict[str, str]:
    """Without the options that another program's JVM may need."""
    return {name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"}


_LOGGING = """
Configuration:
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "%d %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
"""


def _properties(home: Path, ports: dict[str, int]) -> str:
    users = " ".join(f"user_{name}={_quoted(password)}" for name, password in PASSWORDS.items())
    listeners = {"PLAIN": "plain", "SASL": "sasl", "TLS": "tls", "SASL_TLS": "sasl_tls"}
    addresses = [f"{name}://127.0.0.1:{ports[port]}" for name, port in listeners.items()]
    login = "org.apache.kafka.common.security"
    by_password = f"{login}.plain.PlainLoginModule required {users};"
    settings = {
        "process.roles": "broker,controller",
        "node.id": "1",
        "controller.quorum.voters": f"1@127.0.0.1:{ports['controller']}",
        "controller.listener.names": "CONTROLLER",
        "listeners": ",".join([*addresses, f"CONTROLLER://127.0.0.1:{ports['controller']}"]),
        "advertised.listeners": ",".join(addresses),
        "inter.broker.listener.name": "PLAIN",
        "listener.security.protocol.map": (
            "PLAIN:PLAINTEXT,CONTROLLER:PLAINTEXT,SASL:SASL_PLAINTEXT,TLS:SSL,SASL_TLS:SASL_SSL"
        ),
        "sasl.enabled.mechanisms": "PLAIN,SCRAM-SHA-512",
        "listener.name.sasl.plain.sasl.jaas.config": by_password,
        "listener.name.sasl_tls.plain.sasl.jaas.config": by_password,
        "listener.name.sasl.scram-sha-512.sasl.jaas.config": f"{login}.scram.ScramLoginModule required;",
        "listener.name.sasl_tls.sasl.enabled.mechanisms": "PLAIN",
        "ssl.keystore.type": "PEM",
        "ssl.keystore.location": str(home / "server.pem"),
        "authorizer.class.name": "org.apache.kafka.metadata.authorizer.StandardAuthorizer",
        "super.users": f"User:ANONYMOUS;User:alice;User:{SCRAM_USER}",
        "log.dirs": str(home / "data"),
        "auto.create.topics.enable": "false",
        "offsets.topic.replication.factor": "1",
        "transaction.state.log.replication.factor": "1",
        "transaction.state.log.min.isr": "1",
        "group.initial.rebalance.delay.ms": "0",
        # A broker that was killed is let in again only once the controller has given up its predecessor.
        "broker.heartbeat.interval.ms": "100",
        "broker.session.timeout.ms": "1000",
    }
    return "".join(f"{name}={value.replace(chr(92), chr(92) * 2)}\n" for name, value in settings.items())


def _quoted(value: str) -> str:
    return '"' + value.replace("\\", "\\\\").replace('"', '\\"') + '"'


def _certificates() -> tuple[str, str]:
    """The authority's certificate, and the broker's key and certificate for 127.0.0.1, as PEM."""
    now = datetime.now(UTC)
    key = ec.generate_private_key(ec.SECP256R1())
    name = x509.Name([x509.NameAttribute(NameOID.COMMON_NAME, "broker of the tests")])
    certificate = (
        x509.CertificateBuilder()
        .subject_name(name)
        .issuer_name(name)
        .public_key(key.public_key())
        .serial_number(x509.random_serial_number())
        .not_valid_before(now - timedelta(days=1))
        .not_valid_after(now + timedelta(days=2))
        .add_extension(x509.BasicConstraints(ca=True, path_length=None), critical=True)
        .add_extension(x509.SubjectAlternativeName([x509.IPAddress(ip_address("127.0.0.1"))]), critical=False)
        .sign(key, hashes.SHA256())
    )
    text = certificate.public_bytes(serialization.Encoding.PEM).decode()
    private = key.private_bytes(
        serialization.Encoding.PEM, serialization.PrivateFormat.PKCS8, serialization.NoEncryption()
    )
    return text, private.decode() + text


def main() -> int:
    install()
    return 0


if __name__ == "__main__":
    sys.exit(main())
