"""The Kafka clients' own tests, as they are published: of franz-go for Go and of kafka-python.

Both come from where the tests' clients come from, at the same versions: the module that is pinned by
``programs/go/go.sum``, and the source archive whose hash ``locks/dev.txt`` has. They are copied into the
cache folder, and the few lines changed that assume what this service does not have; `FRANZ_GO` and
`KAFKA_PYTHON` say which and why.
"""

import shutil
import sys
import tarfile
from pathlib import Path

from tests import locked
from tests.cluster import compiling, runs
from tests.compat.kafka import other_languages
from tests.compat.peers import GUARD_S, Change, copied, folder_of, run

OURS = other_languages.PROGRAMS / "peers"


FRANZ_GO = (
    # Offsets jump from one log group to the next.
    Change(
        file="pkg/kgo/group_test.go",
        before="if ok && r.Offset != current+1 {",
        after="if ok && r.Offset <= current {",
    ),
)
KAFKA_PYTHON = (
    # The name of a logstore has small letters, and begins with one or a digit.
    Change(file="test/testutil.py", before="string.ascii_letters", after="string.ascii_lowercase"),
    Change(
        file="test/integration/conftest.py",
        before="topic_name[:TOPIC_MAX_LENGTH - 11] + '_' + random_string(10)",
        after="'t-' + random_string(10)",
    ),
    Change(
        file="test/integration/test_producer_integration.py",
        before="assert offsets == list(range(messages))",
        after="assert offsets == sorted(set(offsets))",
    ),
    # A topic is never created by asking for it.
    Change(
        file="test/integration/test_producer_integration.py",
        before="topic = random_string(5)",
        after="topic = __import__('peer_plugin').created(random_string(5))",
    ),
)


def franz_go() -> tuple[Path, Path]:
    """The compiled tests of franz-go and the folder where they run. Raises `RuntimeError`."""
    go = compiling.find_go("franz-go's tests")
    ours = OURS / "aa_login_test.go"
    folder = folder_of("franz-go", (other_languages.GO.source / "go.mod").read_text(), ours, FRANZ_GO)
    with runs.locked(folder.with_suffix(".lock"), guard_s=GUARD_S, what="compiling franz-go's tests"):
        if not folder.exists():
            run([go, "mod", "download"], other_languages.GO.source)
            listed = [go, "list", "-m", "-f", "{{.Dir}}", "github.com/twmb/franz-go"]
            part = copied(Path(run(listed, other_languages.GO.source).strip()), folder, FRANZ_GO)
            shutil.copy(ours, part / "pkg" / "kgo")
            run([go, "test", "-c", "-o", "kgo.test", "./pkg/kgo"], part)
            part.rename(folder)
    return folder / "kgo.test", folder / "pkg" / "kgo"


def kafka_python() -> Path:
    """The folder with kafka-python and its tests. Raises `RuntimeError`."""
    wanted = locked.blocks((locked.LOCKS / "dev.txt").read_text())["kafka-python"]
    folder = folder_of("kafka-python", wanted, OURS / "peer_plugin.py", KAFKA_PYTHON)
    with runs.locked(folder.with_suffix(".lock"), guard_s=GUARD_S, what="fetching kafka-python's tests"):
        if not folder.exists():
            download = folder.with_suffix(".download")
            shutil.rmtree(download, ignore_errors=True)
            download.mkdir(parents=True)
            (download / "wanted.txt").write_text(wanted)
            options = ["--no-deps", "--no-binary", ":all:", "--require-hashes", "-r", "wanted.txt"]
            run([sys.executable, "-m", "pip", "download", "--quiet", *options], download)
            with tarfile.open(next(download.glob("*.tar.gz"))) as archive:
                archive.extractall(download, filter="data")
            part = copied(next(download.glob("kafka_python-*/")), folder, KAFKA_PYTHON)
            (part / "test" / "__init__.py").touch()  # else `test` is that of Python's library
            part.rename(folder)
            shutil.rmtree(download)
    return folder
