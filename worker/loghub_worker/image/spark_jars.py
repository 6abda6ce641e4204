"""``python spark_jars.py LOCK [FOLDER]``: put the jars of a lock file into a folder, or among Spark's own.

The connector to Kafka is no part of pyspark. Its jars are named one by one in ``locks/jars.txt``, each as
``group:artifact:version sha256``, and dependencies are not followed: the versions that their authors name are
older than the ones that Spark has already. The program runs while the worker's image is built, and before the
tests. A worker fetches nothing.

Ivy fetches them. It is part of pyspark and knows Maven Central; ``DEFAULT_ARTIFACT_REPOSITORY`` is the URL of
another repository, as in Spark itself. If ``PIP_CERT`` names a file with certificates, they are trusted
instead of Java's. The program imports nothing of the worker, because the image has a layer for Spark below
the layer with the worker's code.
"""

import hashlib
import os
import shutil
import sys
import tempfile
from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from dataclasses import dataclass
from pathlib import Path
from typing import Any
from xml.sax.saxutils import quoteattr

import pyspark

ENV_REPOSITORY, ENV_CERTIFICATES = "DEFAULT_ARTIFACT_REPOSITORY", "PIP_CERT"
PASSWORD = "no secret"  # noqa: S105 - Java requires one; the file has public certificates only


class JarsError(Exception):
    """The lock file is invalid, or a jar could not be fetched or is not the one of the lock file."""


@dataclass(frozen=True, slots=True, kw_only=True)
class Jar:
    """One line of a lock file."""

    group: str
    artifact: str
    version: str
    sha256: str

    @property
    def file(self) -> str:
        return f"{self.artifact}-{self.version}.jar"


def read_lock(text: str) -> tuple[Jar, ...]:
    """The jars that a lock file names. Raises `JarsError`."""
    jars = []
    for line in text.splitlines():
        words = line.partition("#")[0].split()
        if not words:
            continue
        name = words[0].split(":")
        if len(words) != 2 or len(name) != 3 or len(words[1]) != 64:
            raise JarsError(f"not group:artifact:version sha256: {line}")
        group, artifact, version = name
        jars.append(Jar(group=group, artifact=artifact, version=version, sha256=words[1]))
    return tuple(jars)


def spark_folder() -> Path:
    """The folder of Spark's own jars."""
    return Path(pyspark.__file__).parent / "jars"


def missing(jars: Sequence[Jar], folder: Path) -> tuple[Jar, ...]:
    """The jars that are not in the folder."""
    return tuple(jar for jar in jars if not (folder / jar.file).exists())


def install(jars: Sequence[Jar], folder: Path, environment: Mapping[str, str]) -> bool:
    """Put the jars that are missing into the folder, and remove other versions of them. Returns whether that
    changed anything. Raises `JarsError`."""
    wanted = missing(jars, folder)
    if not wanted:
        return False
    folder.mkdir(parents=True, exist_ok=True)
    with tempfile.TemporaryDirectory() as scratch:
        fetched = _fetch(wanted, Path(scratch), environment)
        for jar in wanted:
            _check(jar, fetched.get(jar.artifact))
        for jar in wanted:
            # Complete from the first moment on: other processes may look for it.
            part = folder / f".{jar.file}.{os.getpid()}"
            shutil.copyfile(fetched[jar.artifact], part)
            part.rename(folder / jar.file)
            for other in folder.glob(f"{jar.artifact}-[0-9]*.jar"):
                if other.name != jar.file:
                    other.unlink()
    return True


def _check(jar: Jar, file: Path | None) -> None:
    if file is None:
        raise JarsError(f"{jar.file} was not fetched")
    digest = hashlib.sha256(file.read_bytes()).hexdigest()
    if digest != jar.sha256:
        raise JarsError(f"{jar.file} has the SHA-256 {digest}, and the lock file says {jar.sha256}")


def _fetch(jars: Sequence[Jar], scratch: Path, environment: Mapping[str, str]) -> dict[str, Path]:
    """The files of the jars in `scratch`, by artifact."""
    settings, module = scratch / "settings.xml", scratch / "module.xml"
    settings.write_text(_settings(scratch / "cache", environment.get(ENV_REPOSITORY)))
    module.write_text(_module(jars))
    with _gateway() as gateway:
        jvm = gateway.jvm
        if certificates := environment.get(ENV_CERTIFICATES):
            _trust(gateway, Path(certificates), scratch / "certificates")
        messages = jvm.org.apache.ivy.util.DefaultMessageLogger(0)  # errors only
        messages.setShowProgress(False)
        jvm.org.apache.ivy.util.Message.setDefaultLogger(messages)
        ivy = jvm.org.apache.ivy.Ivy.newInstance()
        ivy.configure(jvm.java.io.File(str(settings)))
        report = ivy.resolve(jvm.java.io.File(str(module)))
        if report.hasError():
            raise JarsError("; ".join(str(problem) for problem in report.getAllProblemMessages()))
        return {
            str(artifact.getArtifact().getModuleRevisionId().getName()): Path(str(artifact.getLocalFile()))
            for artifact in report.getAllArtifactsReports()
        }


def _settings(cache: Path, repository: str | None) -> str:
    """Without the descriptions that Maven publishes with the jars: these would name further jars."""
    root = f" root={quoteattr(repository)}" if repository else ""
    maven = 'm2compatible="true" usepoms="false" useMavenMetadata="false"'
    return f"""<ivysettings>
  <settings defaultResolver="maven"/>
  <caches defaultCacheDir={quoteattr(str(cache))}/>
  <resolvers><ibiblio name="maven" {maven}{root}/></resolvers>
</ivysettings>
"""


def _module(jars: Sequence[Jar]) -> str:
    lines = "".join(
        f"    <dependency org={quoteattr(jar.group)} name={quoteattr(jar.artifact)}"
        f' rev={quoteattr(jar.version)} transitive="false" conf="default"/>\n'
        for jar in jars
    )
    return f"""<ivy-module version="2.0">
  <info organisation="loghub" module="jars"/>
  <dependencies>
{lines}  </dependencies>
</ivy-module>
"""


@contextmanager
def _gateway() -> Iterator[Any]:
    """A JVM with Spark's jars, in which no Spark has started."""
    from pyspark.java_gateway import launch_gateway

    os.environ.setdefault("SPARK_LOCAL_IP", "127.0.0.1")  # during an image build the host may have no address
    gateway: Any = launch_gateway()  # type: ignore[no-untyped-call]
    try:
        yield gateway
    finally:
        gateway.shutdown()
        gateway.proc.stdin.close()
        gateway.proc.wait()


def _trust(gateway: Any, certificates: Path, store: Path) -> None:
    """Let the JVM trust the certificates of a PEM file."""
    jvm = gateway.jvm
    keys = jvm.java.security.KeyStore.getInstance("PKCS12")
    keys.load(None, None)
    factory = jvm.java.security.cert.CertificateFactory.getInstance("X.509")
    for number, certificate in enumerate(
        factory.generateCertificates(jvm.java.io.FileInputStream(str(certificates)))
    ):
        keys.setCertificateEntry(str(number), certificate)
    output = jvm.java.io.FileOutputStream(str(store))
    password = gateway.new_array(jvm.char, len(PASSWORD))
    for number, letter in enumerate(PASSWORD):
        password[number] = letter
    keys.store(output, password)
    output.close()
    for name, value in (("", str(store)), ("Type", "PKCS12"), ("Password", PASSWORD)):
        jvm.java.lang.System.setProperty(f"javax.net.ssl.trustStore{name}", value)


def main(arguments: Sequence[str]) -> int:
    """Put the jars of the lock file into the folder and return 0, or 1 if that fails."""
    folder = Path(arguments[1]) if len(arguments) > 1 else spark_folder()
    try:
        install(read_lock(Path(arguments[0]).read_text(encoding="utf-8")), folder, os.environ)
    except JarsError as error:
        sys.stderr.write(f"{error}\n")
        return 1
    return 0


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
