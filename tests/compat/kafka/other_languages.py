"""The client programs with Kafka's own library for Java and with franz-go for Go, and Kafka's own tools.

The Java library and the tools are jars of ``locks/kafka-broker.txt``; the compiler is that of
``locks/compat-java.txt``. The Go module is pinned by ``programs/go/go.sum``.
"""

import hashlib
from pathlib import Path

from tests import java, kafka
from tests.cluster import compiling, paths
from tests.cluster.compiling import Recipe
from tests.compat import consumers

LIBRARIES = ("java", "franz-go")
PROGRAMS = Path(__file__).with_name("programs")
GO = Recipe(
    what="the Kafka client with franz-go",
    prefix="compat-kafka-go-",
    source=PROGRAMS / "go",
    inputs=("go.mod", "go.sum", "main.go"),
    flags="",
    arguments=(".",),
    programs=("go",),
)
JAVA_SOURCES = tuple(PROGRAMS / "java" / f"{name}.java" for name in ("Client", "GroupTool"))
FRUGAL = ("-Xmx128m", "-XX:TieredStopAtLevel=1", "-XX:+UseSerialGC", "-XX:-UsePerfData")
# Without a logging library: its default writes to the standard output, which has the answers.
LIBRARY_JARS = ("kafka-clients", "jackson-", "lz4-java", "snappy-java", "zstd-jni", "slf4j-api")


def install() -> None:
    """Compile the programs, once; the jars are there already. Raises `RuntimeError`."""
    compiling.ensure(GO)
    consumers.compile_java(JAVA_SOURCES, _jars(), _classes())


def missing(library: str) -> str:
    """Why the program of this library cannot run here; empty if it can."""
    if library == "franz-go":
        return "" if GO.built() else f"`make test` makes {GO.what}"
    if reason := java.missing() or kafka.missing():
        return reason
    return "" if _classes().exists() else "`make test` compiles Client.java and GroupTool.java"


def command(library: str) -> list[str]:
    """The program; its standard input and output are those of ``programs/client.py``."""
    if library == "franz-go":
        return [str(GO.folder() / GO.programs[0])]
    return ["java", *FRUGAL, "-cp", f"{_classes()}:{_library()}", "Client"]


def group_tool() -> list[str]:
    """Kafka's tool for groups; each line of its input is a run (``programs/java/GroupTool.java``)."""
    return ["java", *FRUGAL, "-cp", f"{_classes()}:{kafka.folder()}/*", "GroupTool"]


def _library() -> str:
    return ":".join(str(jar) for jar in _jars() if jar.name.startswith(LIBRARY_JARS))


def _jars() -> list[Path]:
    return sorted(kafka.folder().glob("*.jar"))


def _classes() -> Path:
    contents = b"".join(file.read_bytes() for file in (*JAVA_SOURCES, kafka.BROKER_LOCK))
    return paths.cache_folder() / f"compat-kafka-classes-{hashlib.sha256(contents).hexdigest()[:16]}"
