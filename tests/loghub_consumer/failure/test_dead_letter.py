"""Dead letters in a logstore and in a folder, on the fake log service."""

import base64
import json
from dataclasses import replace
from pathlib import Path
from typing import Any

import pytest

from loghub.client.port import Pulled
from loghub.wire import loggroup
from loghub.wire.cursor import decode
from loghub.wire.cursor import encode as encode_cursor
from loghub.wire.errors import Code, LogHubError
from loghub.wire.loggroup import Log, LogGroup, encode
from loghub_consumer.failure.dead_letter import (
    TAG_PREFIX,
    DeadLetters,
    FolderTarget,
    LogstoreTarget,
    Rejection,
    description,
)
from loghub_consumer.failure.retry_logstore import Origin
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer

ORIGIN = Origin(project="proj", logstore="source", consumer_group="readers")
LOG = Log(time=1_700_000_000, contents=(("id", b"\xff"), ("status", "-")), time_ns=123)
GROUP = LogGroup(logs=(LOG,), topic="t", source="s", tags=(("host", "h"),), machine_uuid="u")


@pytest.fixture
def client() -> MemoryLogHub:
    client = MemoryServer().client("proj")
    client.create_project()
    client.create_logstore("source", shards=1)
    client.create_logstore("rejected", shards=1)
    return client


def rejection(cursor: int) -> Rejection:
    return Rejection(
        shard=0,
        cursor=cursor,
        reason="PipelineFailed",
        message="CAST_INVALID_INPUT\ud83d" + "x" * 5000,
        attempts=5,
        rejected_unix_s=1_767_225_600.9,
    )


def put(client: MemoryLogHub) -> int:
    """Put three log groups; return the cursor of the second one."""
    for group in (b"", encode(GROUP), b""):
        client.put_logs("source", group or encode(LogGroup(logs=(Log(time=1, contents=()),))))
    return decode(client.get_cursor("source", 0, "begin")) + 1


def test_a_log_group_in_a_logstore_keeps_its_bytes_and_gets_tags(client: MemoryLogHub) -> None:
    cursor = put(client)
    dead_letters = DeadLetters(client, ORIGIN, LogstoreTarget(client, "rejected", ORIGIN))
    dead_letters.check()
    assert dead_letters.write(rejection(cursor))
    pulled = client.pull_logs("rejected", 0, cursor=client.get_cursor("rejected", 0, "begin"), count=9)
    (body,) = loggroup.split(pulled.body)
    assert bytes(body).startswith(encode(GROUP))
    group = loggroup.decode(body)
    assert (group.logs[0].time_ns, group.topic, group.source, group.machine_uuid) == (123, "t", "s", "u")
    tags = dict(group.tags)
    assert tags.pop("host") == "h"
    message = tags.pop(f"{TAG_PREFIX}message")
    assert message.startswith("CAST_INVALID_INPUT?xxx")
    assert len(message) == 1000
    assert tags == {
        f"{TAG_PREFIX}project": "proj",
        f"{TAG_PREFIX}logstore": "source",
        f"{TAG_PREFIX}consumer_group": "readers",
        f"{TAG_PREFIX}shard": "0",
        f"{TAG_PREFIX}cursor": encode_cursor(cursor),
        f"{TAG_PREFIX}reason": "PipelineFailed",
        f"{TAG_PREFIX}attempts": "5",
        f"{TAG_PREFIX}time": "2026-01-01T00:00:00Z",
    }


@pytest.mark.parametrize(
    ("logs", "maximum", "written"), [(8, 400, [4, 4]), (8, 200, [2] * 4), (7, 400, [4, 3])]
)
def test_a_log_group_that_is_too_large_with_its_tags_is_written_in_halves(
    client: MemoryLogHub, logs: int, maximum: int, written: list[int]
) -> None:
    """``most`` bytes are accepted besides the tags; eight logs have about 500."""
    put_logs = client.put_logs

    def limited(logstore: str, log_group: bytes, *, hash_key: str | None = None) -> None:
        if len(log_group) - len(tags) > maximum:
            raise LogHubError(Code.POST_BODY_TOO_LARGE, 400, "the body may have 10485760 bytes")
        put_logs(logstore, log_group, hash_key=hash_key)

    client.put_logs = limited  # type: ignore[method-assign]
    target = LogstoreTarget(client, "rejected", ORIGIN)
    described = description(ORIGIN, rejection(7)).items()
    tags = encode(
        LogGroup(logs=(), tags=tuple((f"{TAG_PREFIX}{name}", str(value)) for name, value in described))
    )
    group = LogGroup(
        logs=tuple(Log(time=number, contents=(("text", b"x" * 50),)) for number in range(logs)), topic="t"
    )
    target.write(encode(group), rejection(7))
    begin = client.get_cursor("rejected", 0, "begin")
    found = [
        loggroup.decode(body)
        for body in loggroup.split(client.pull_logs("rejected", 0, cursor=begin, count=99).body)
    ]
    assert [len(one.logs) for one in found] == written
    assert tuple(log for one in found for log in one.logs) == group.logs
    assert all(dict(one.tags)[f"{TAG_PREFIX}cursor"] == encode_cursor(7) for one in found)
    assert {one.topic for one in found} == {"t"}
    # One log that is too large alone is not cut, and the error says how large it is.
    with pytest.raises(LogHubError, match="a log group of"):
        target.write(encode(LogGroup(logs=(Log(time=1, contents=(("text", "x" * 900),)),))), rejection(8))


def test_a_log_group_in_a_folder_is_one_file_however_often_it_is_written(
    client: MemoryLogHub, tmp_path: Path
) -> None:
    cursor = put(client)
    dead_letters = DeadLetters(client, ORIGIN, FolderTarget(tmp_path, ORIGIN))
    dead_letters.check()
    assert list(tmp_path.rglob("*.*")) == []
    for _ in range(2):
        assert dead_letters.write(rejection(cursor))
    (file,) = tmp_path.rglob("*.json")
    assert file.parent.relative_to(tmp_path) == Path("proj", "source", "readers")
    assert file.name.startswith(f"0-{cursor}-")
    found = json.loads(file.read_text())
    assert base64.b64decode(found["logGroup"]) == encode(GROUP)
    assert found["logs"] == [{"time": 1_700_000_000, "contents": [["id", "\ufffd"], ["status", "-"]]}]
    assert (found["shard"], found["cursor"], found["attempts"]) == (0, encode_cursor(cursor), 5)


def test_no_dead_letter_replaces_another_one(tmp_path: Path) -> None:
    """Neither one of the same cursor, nor of the same bytes."""
    target = FolderTarget(tmp_path, ORIGIN)
    meant = [(content, part) for content in (b"one", b"two") for part in ("", "1", "1,2", "0-7-")]
    for content, part in [*meant, *meant]:
        target.write(content, replace(rejection(7), part=part))
    assert len(list(tmp_path.rglob("*.json"))) == len(meant), "the same ones have the same file"


def test_a_log_group_that_cannot_be_decoded_is_kept_as_well(client: MemoryLogHub, tmp_path: Path) -> None:
    FolderTarget(tmp_path, ORIGIN).write(b"\xff\xff", rejection(7))
    (file,) = tmp_path.rglob("*.json")
    found = json.loads(file.read_text())
    assert (found["logs"], base64.b64decode(found["logGroup"])) == (None, b"\xff\xff")


def test_an_expired_log_group_is_not_written(client: MemoryLogHub, tmp_path: Path) -> None:
    """The service answers with the oldest log group that it has, which is another one."""
    cursor = put(client)
    oldest: Any = client.pull_logs("source", 0, cursor=encode_cursor(cursor + 1), count=1)
    for answer in (oldest, Pulled(body=b"", count=0, next_cursor=oldest.next_cursor, end_of_shard=True)):
        client.pull_logs = lambda *_, answer=answer, **__: answer  # type: ignore[method-assign]
        assert not DeadLetters(client, ORIGIN, FolderTarget(tmp_path, ORIGIN)).write(rejection(cursor))
    assert list(tmp_path.rglob("*.json")) == []


@pytest.mark.parametrize("moved", [0, -1])
def test_an_answer_without_the_log_group_at_an_unmoved_cursor_is_no_proof_that_it_expired(
    client: MemoryLogHub, tmp_path: Path, moved: int
) -> None:
    """A log service that was restored answers so; the cursor gets other logs later."""
    cursor = put(client)
    nothing = Pulled(body=b"", count=0, next_cursor=encode_cursor(cursor + moved), end_of_shard=True)
    client.pull_logs = lambda *_, **__: nothing  # type: ignore[method-assign]
    with pytest.raises(LogHubError, match=f"nothing at cursor {cursor}"):
        DeadLetters(client, ORIGIN, FolderTarget(tmp_path, ORIGIN)).write(rejection(cursor))


def test_a_folder_that_cannot_be_used_is_found_at_the_start(tmp_path: Path) -> None:
    (tmp_path / "proj").write_text("a file")
    with pytest.raises(OSError, match="proj"):
        FolderTarget(tmp_path, ORIGIN).check()
