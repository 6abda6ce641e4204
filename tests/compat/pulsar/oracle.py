"""A real Pulsar broker, with which the scenarios are compared: one node with its bookie, on free ports.

Its jars are named in ``locks/pulsar-broker.txt`` and fetched into the cache folder by the first test that
needs them; only tests of `make check-deep` do. It keeps its metadata in RocksDB, in its folder.

``python -m tests.compat.pulsar.oracle``  fetch the jars
"""

import http.client
import json
import os
import subprocess
import sys
from collections.abc import Iterator
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path

from loghub_worker.image import spark_jars
from tests import java
from tests.cluster import paths, runs
from tests.ports import free_ports
from tests.support import ROOT, get, wait_until

LOCK = ROOT / "locks" / "pulsar-broker.txt"
GUARD_S = 300.0
FETCH_GUARD_S = 900.0
# Above the largest message, 5 MiB. By default it is below, and the first chunk breaks the bookie's client.
MAX_FRAME_BYTES = 5 * 1024 * 1024 + 10 * 1024
# Netty, Pulsar's measurement of its memory and RocksDB reach into Java's own classes.
_OPENED = (
    "java.base/sun.net",
    "java.base/java.nio",
    "java.base/jdk.internal.misc",
    "java.base/jdk.internal.platform",
    "java.base/java.lang",
    "java.management/sun.management",
    "jdk.management/com.sun.management.internal",
)
_SMALL = ("-Xmx512m", "-XX:MaxDirectMemorySize=512m", "-XX:+UseSerialGC", "-XX:TieredStopAtLevel=1")
_LOGGING = """
Configuration:
  Appenders:
    Console: {name: out, PatternLayout: {pattern: "%d %p %m (%c)%n"}}
  Loggers:
    Root: {level: WARN, AppenderRef: {ref: out}}
"""


def _jars() -> tuple[spark_jars.Jar, ...]:
    return spark_jars.read_lock(LOCK.read_text())


def folder() -> Path:
    """Where the jars are; the name has the version."""
    broker = next(jar for jar in _jars() if jar.artifact == "pulsar-broker")
    return paths.cache_folder() / f"pulsar-{broker.version}"


def install() -> None:
    """Fetch what is missing. Raises `RuntimeError`."""
    if reason := java.missing():
        raise RuntimeError(reason)
    lock = folder().with_name(f"{folder().name}.lock")
    with runs.locked(lock, guard_s=FETCH_GUARD_S, what="fetching Pulsar's broker"):
        try:
            spark_jars.install(_jars(), folder(), os.environ)
        except spark_jars.JarsError as error:
            raise RuntimeError(f"the jars of Pulsar's broker: {error}") from error


@dataclass(frozen=True, slots=True, kw_only=True)
class Oracle:
    """A running broker. ``url`` is for clients, ``admin`` the address of its HTTP API."""

    url: str
    admin: str
    log: Path
    pid: int

    def create_topic(self, name: str, *, partitions: int) -> None:
        self._request("PUT", f"/admin/v2/persistent/public/default/{name}/partitions", partitions)

    def set_partitions(self, name: str, partitions: int) -> None:
        """Raise the number of partitions."""
        self._request("POST", f"/admin/v2/persistent/public/default/{name}/partitions", partitions)

    def delete_topic(self, name: str) -> None:
        self._request("DELETE", f"/admin/v2/persistent/public/default/{name}/partitions?force=true", None)

    def _request(self, method: str, path: str, body: object) -> None:
        connection = http.client.HTTPConnection(self.admin, timeout=GUARD_S)
        try:
            text = "" if body is None else json.dumps(body)
            connection.request(method, path, text, {"Content-Type": "application/json"})
            answer = connection.getresponse()
            said = answer.read()
        finally:
            connection.close()
        assert answer.status < 300, f"{method} {path}: {answer.status} {said.decode(errors='replace')}"

    def is_ready(self) -> bool:
        """Whether it serves the namespace that clients use."""
        status, body = get(self.admin, "/admin/v2/namespaces/public")
        return status == 200 and "public/default" in json.loads(body)

    def log_tail(self) -> str:
        return self.log.read_text(errors="replace")[-3000:]


@contextmanager
def running_oracle(home: Path) -> Iterator[Oracle]:
    """A new broker, ended with the body."""
    home.mkdir(parents=True)
    binary, web, bookie = free_ports(3)
    settings = _settings(binary, web)
    (home / "standalone.conf").write_text("".join(f"{name}={value}\n" for name, value in settings.items()))
    (home / "log4j2.yaml").write_text(_LOGGING)
    opened = [word for package in _OPENED for word in ("--add-opens", f"{package}=ALL-UNNAMED")]
    command = ["java", *_SMALL, *opened, "-Dlog4j2.configurationFile=log4j2.yaml", "-cp", f"{folder()}/*"]
    options = [
        *("--config", "standalone.conf", "--no-functions-worker", "--no-stream-storage"),
        *("--metadata-dir", "metadata", "--bookkeeper-dir", "bookkeeper"),
        *("--bookkeeper-port", str(bookie), "--num-bookies", "1"),
    ]
    with (home / "log").open("wb") as log:
        process = subprocess.Popen(
            [*command, "org.apache.pulsar.PulsarStandaloneStarter", *options],
            cwd=home,
            stdout=log,
            stderr=log,
            # Without the options that another program's JVM may need.
            env={name: value for name, value in os.environ.items() if name != "JAVA_TOOL_OPTIONS"},
        )
    oracle = Oracle(
        url=f"pulsar://127.0.0.1:{binary}",
        admin=f"127.0.0.1:{web}",
        log=home / "log",
        pid=process.pid,
    )
    try:

        def answers() -> bool:
            assert process.poll() is None, oracle.log_tail()
            return oracle.is_ready()

        wait_until(answers, "Pulsar's broker", guard_s=GUARD_S, every_s=0.5)
        yield oracle
    finally:
        process.kill()
        process.wait()


def _settings(binary: int, web: int) -> dict[str, object]:
    return {
        "clusterName": "standalone",
        "brokerServicePort": binary,
        "webServicePort": web,
        "bindAddress": "127.0.0.1",
        "advertisedAddress": "127.0.0.1",
        "managedLedgerDefaultEnsembleSize": 1,
        "managedLedgerDefaultWriteQuorum": 1,
        "managedLedgerDefaultAckQuorum": 1,
        "ledgerStorageClass": "org.apache.bookkeeper.bookie.storage.ldb.DbLedgerStorage",
        "dbStorage_writeCacheMaxSizeMb": 32,
        "dbStorage_readAheadCacheMaxSizeMb": 32,
        "nettyMaxFrameSizeBytes": MAX_FRAME_BYTES,
        "transactionCoordinatorEnabled": "false",
        "systemTopicEnabled": "false",
        "topicLevelPoliciesEnabled": "false",
        "loadBalancerEnabled": "false",
        "brokerDeduplicationEnabled": "true",
        "acknowledgmentAtBatchIndexLevelEnabled": "true",
        "activeConsumerFailoverDelayTimeMillis": 0,
        "brokerDeleteInactiveTopicsEnabled": "false",
        # By default a delayed message comes up to a second early.
        "isDelayedDeliveryDeliverAtTimeStrict": "true",
        "delayedDeliveryTickTimeMillis": 100,
        # The bookie refuses to write on a disk that is fuller, by default from 95 % on.
        "diskUsageThreshold": 0.99,
        "diskUsageWarnThreshold": 0.99,
    }


def main() -> int:
    install()
    return 0


if __name__ == "__main__":
    sys.exit(main())
