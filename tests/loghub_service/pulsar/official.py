"""The messages of Pulsar as its own project describes them, for tests: the coder that ours is compared with.

The description is in the code of Pulsar's client for Go, which is fetched as a Go module with the checksum of
``SUM``; nothing of it is compiled. Google's protobuf makes the classes. Two fields are newer than that client
and are in Pulsar's clients for Java from 4.0 on (PIP-344), so they are added here.
"""

import json
import os
import re
import subprocess
from functools import cache
from pathlib import Path
from typing import Any

from google.protobuf import descriptor_pb2, descriptor_pool, message_factory

from tests.cluster import compiling, paths, require, runs

MODULE, SUM = "github.com/apache/pulsar-client-go@v0.19.0", "h1:NHqYXgIUAEpuyBSVAUmYgcM6VFHFygsthxa9a0CrCvg="
SOURCE = "pulsar/internal/pulsar_proto/PulsarApi.pb.go"
DESCRIPTION = re.compile(r"file_PulsarApi_proto_rawDesc = \[\]byte\{([^}]*)\}")
PACKAGE = "pulsar.proto"
NEWER = {
    "FeatureFlags": ("supports_get_partitioned_metadata_without_auto_creation", 5, "false"),
    "CommandPartitionedTopicMetadata": ("metadata_auto_creation_enabled", 6, "true"),
}
FETCH_GUARD_S = 600


def install() -> None:
    """Fetch the description, once. Raises `RuntimeError`."""
    if _file().exists():
        return
    go = compiling.find_go("the description of Pulsar's messages")
    with runs.locked(_file().with_suffix(".lock"), guard_s=FETCH_GUARD_S, what="fetching Pulsar's messages"):
        if not _file().exists():
            part = _file().with_suffix(".part")
            part.write_bytes(_described_in(_fetched(go)))
            part.replace(_file())


def _file() -> Path:
    return paths.cache_folder() / f"pulsar-messages-{MODULE.rpartition('@')[2]}"


def _fetched(go: str) -> Path:
    """The folder of the module. Raises `RuntimeError` unless it is the one that is pinned."""
    done = subprocess.run(
        [go, "mod", "download", "-json", MODULE],
        capture_output=True,
        text=True,
        timeout=FETCH_GUARD_S,
        check=False,
        cwd="/",
        env={**os.environ, "GOFLAGS": "-mod=mod"},
    )
    found = json.loads(done.stdout or "{}")
    if found.get("Sum") != SUM:
        raise RuntimeError(f"{MODULE} with the sum {SUM}: {found.get('Error') or found or done.stderr}")
    return Path(found["Dir"])


def _described_in(module: Path) -> bytes:
    found = DESCRIPTION.search((module / SOURCE).read_text())
    assert found is not None, "the module has no description of its messages"
    return bytes(int(number, 16) for number in found[1].split(",") if number.strip())


@cache
def messages() -> dict[str, type[Any]]:
    """The classes by their names, such as ``BaseCommand``. The fast tests need them before `make test` has
    fetched anything."""
    try:
        install()
    except (RuntimeError, OSError, subprocess.SubprocessError) as error:
        require.absent(f"Pulsar's messages have no description: {error}")
    described = descriptor_pb2.FileDescriptorProto.FromString(_file().read_bytes())
    for message in described.message_type:
        if message.name in NEWER:
            name, number, default = NEWER[message.name]
            message.field.add(
                name=name,
                number=number,
                default_value=default,
                type=descriptor_pb2.FieldDescriptorProto.TYPE_BOOL,
                label=descriptor_pb2.FieldDescriptorProto.LABEL_OPTIONAL,
            )
    pool = descriptor_pool.DescriptorPool()
    pool.Add(described)
    return {
        message.name: message_factory.GetMessageClass(pool.FindMessageTypeByName(f"{PACKAGE}.{message.name}"))
        for message in described.message_type
    }
