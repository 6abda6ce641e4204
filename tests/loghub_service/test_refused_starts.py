"""The start of a service on data that is not whole: it is refused with words, and nothing is removed."""

import shutil
from collections.abc import Callable
from pathlib import Path

import pytest

from loghub.domain.group import SaveCheckpoint
from loghub_service.engine import Engine
from loghub_service.errors import ServiceFault
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live

FIRST = 1000


async def _put(engine: Engine, count: int) -> None:
    for number in range(count):
        await engine.append(engine.logs[STORE_ID, 0], b"%04d" % number * 100, logs=1)


async def _save(engine: Engine, cursor: int) -> None:
    group = engine.groups.of(STORE_ID)["g"]
    saved = SaveCheckpoint(consumer="", shard=0, cursor=cursor, force=True, updated_unix_us=7)
    await engine.groups.apply_durably(group, saved)


def _filled(data: Path, *, groups: int = 5, checkpoint: int | None = None) -> None:
    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine)
        await _put(engine, groups)
        if checkpoint is not None:
            await _save(engine, checkpoint)

    live(data, ManualClock(), scenario)


def _segments(data: Path) -> dict[str, bytes]:
    return {str(path.relative_to(data)): path.read_bytes() for path in data.glob("logs/*/*/*.seg")}


def _refused(data: Path) -> str:
    """The words of the refusal, after which the log data is as it was before."""

    async def nothing(engine: Engine) -> None:
        raise AssertionError("the service started")

    before = _segments(data)
    with pytest.raises(ServiceFault) as refusal:
        live(data, ManualClock(), nothing)
    assert _segments(data) == before
    assert "\n" not in str(refusal.value)
    return str(refusal.value)


def _flip_in_last_record(data: Path, *, groups: int) -> None:
    (segment,) = data.glob("logs/*/*/*.seg")
    content = segment.read_bytes()
    at = content.rindex(b"%04d" % (groups - 1))
    segment.write_bytes(content[:at] + bytes([content[at] ^ 1]) + content[at + 1 :])


def _without_wal(data: Path) -> None:
    """The database as it is copied from below a running service, without its write-ahead log."""
    (data / "metadata.sqlite-wal").unlink(missing_ok=True)


def test_log_data_without_metadata_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "d"
    _filled(data)
    (data / "metadata.sqlite").unlink()
    words = _refused(data)
    assert "metadata.sqlite" in words
    assert f"loghub fsck {data}" in words


def test_log_data_that_an_older_catalog_lacks_is_kept(tmp_path: Path) -> None:
    data = tmp_path / "d"

    async def nothing(engine: Engine) -> None:
        assert engine.logs == {}

    live(data, ManualClock(), nothing)
    shutil.copy(data / "metadata.sqlite", tmp_path / "yesterday.sqlite")
    _filled(data)
    shutil.copy(tmp_path / "yesterday.sqlite", data / "metadata.sqlite")
    words = _refused(data)
    assert "older" in words
    assert f"loghub fsck {data}" in words


@pytest.mark.parametrize("checkpoint", [None, FIRST + 5])
def test_a_flipped_bit_in_the_last_record_is_refused(tmp_path: Path, checkpoint: int | None) -> None:
    data = tmp_path / "d"
    _filled(data, groups=5, checkpoint=checkpoint)
    _flip_in_last_record(data, groups=5)
    words = _refused(data)
    assert "shard 0" in words
    assert f"loghub fsck {data}" in words


def _cut_last_record(data: Path) -> None:
    (segment,) = data.glob("logs/*/*/*.seg")
    content = segment.read_bytes()
    at = content.rindex(b"0004" * 100) - 32
    segment.write_bytes(content[:at] + bytes(len(content) - at))


def _remove_segments(data: Path) -> None:
    for segment in data.glob("logs/*/*/*.seg"):
        segment.unlink()


@pytest.mark.parametrize("lose", [_cut_last_record, _remove_segments])
@pytest.mark.parametrize("checkpoint", [None, FIRST + 5])
def test_a_tail_that_is_gone_is_refused(
    tmp_path: Path, lose: Callable[[Path], None], checkpoint: int | None
) -> None:
    """The record would be cut as torn, and its cursor given to another log group."""
    data = tmp_path / "d"
    _filled(data, groups=5, checkpoint=checkpoint)
    lose(data)
    words = _refused(data)
    assert "shard 0" in words
    assert str(FIRST + 5) in words


def test_a_refused_start_leaves_the_write_ahead_log_of_a_killed_service(tmp_path: Path) -> None:
    """Else the next start would take its commits for lost, although the first one has merged them."""
    data, killed = tmp_path / "d", tmp_path / "killed"
    _filled(data)

    async def kill(engine: Engine) -> None:
        await _put(engine, 1)
        shutil.copytree(data, killed)

    async def nothing(_: Engine) -> None:
        return

    live(data, ManualClock(), kill)
    stray = killed / "logs" / "00000009"
    shutil.copytree(killed / "logs" / f"{STORE_ID:08d}", stray)
    assert "does not know the shard" in _refused(killed)
    assert "does not know the shard" in _refused(killed)
    shutil.rmtree(stray)
    live(killed, ManualClock(), nothing)
