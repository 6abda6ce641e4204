"""`loghub fsck`: log data that the catalog does not know, and catalogs that do not belong to the log data."""

import json
import shutil
from collections.abc import Callable
from contextlib import closing
from pathlib import Path

import apsw
import pytest

from loghub_service.api import shards as api
from loghub_service.diagnosis import DataRefused
from loghub_service.engine import Engine
from loghub_service.errors import ServiceFault
from loghub_service.kafka.broker.store import NewTopic
from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.kafka.store.topics import LogstoreTopic, create_topic
from loghub_service.storage.database import DatabaseUnusable
from loghub_service.storage.schema import SCHEMA_VERSION
from tests.loghub_service.engines import STORE_ID, ManualClock, live, request
from tests.loghub_service.fsck_runs import (
    FIRST,
    Fsck,
    as_killed,
    files,
    first_groups,
    only_lists,
    put,
    segments,
    stored,
)


async def _split(engine: Engine) -> None:
    await api.change_shard(engine, request("POST", {"action": "split"}), ls="ls", shard="0")


def _split_and_filled(data: Path, clock: ManualClock) -> None:
    async def scenario(engine: Engine) -> None:
        await _split(engine)
        await put(engine, 2, shard=1, name="left")
        # The right child stays empty.

    live(data, clock, scenario)


def _without_catalog(data: Path) -> None:
    for path in data.glob("metadata.sqlite*"):
        path.unlink()


@pytest.mark.long
def test_logs_without_a_catalog_are_adopted_as_they_were(fsck: Fsck, data: Path, clock: ManualClock) -> None:
    _split_and_filled(data, clock)
    _without_catalog(data)
    reported = only_lists(fsck, data)
    assert reported.kinds == ["catalog_missing", "unknown_logs", "unknown_logs"]
    repaired = fsck("--accept-catalog", "--adopt", str(STORE_ID))
    assert (repaired.status, repaired.kinds) == (0, [])

    async def after(engine: Engine) -> None:
        store = engine.catalog.projects["p"].logstores["ls"]
        table = {number: (one.spec.read_only, one.spec.parents) for number, one in store.shards.items()}
        assert table == {0: (True, ()), 1: (False, (0,)), 2: (False, (0,))}
        assert store.saved.next_shard == 3
        assert stored(engine) == first_groups(*range(30))
        assert list(stored(engine, shard=1).values()) == [b"left 0", b"left 1"]
        assert engine.catalog.next_logstore_id == STORE_ID + 1
        await put(engine, 1, shard=2, name="right")

    live(data, clock, after)


def test_logs_are_adopted_under_another_name(fsck: Fsck, data: Path, clock: ManualClock) -> None:
    _without_catalog(data)
    repaired = fsck("--accept-catalog", "--adopt", f"{STORE_ID}=Other/found")  # a project has no case
    assert (repaired.status, repaired.kinds) == (0, [])

    async def after(engine: Engine) -> None:
        assert engine.catalog.projects["other"].logstores["found"].saved.ttl_days == 3650
        assert stored(engine) == first_groups(*range(30))

    live(data, clock, after)
    assert fsck().status == 0


@pytest.mark.parametrize(
    ("form", "described_by"), [(RecordForm.RAW, "this release"), (RecordForm.JSON, "an earlier one")]
)
def test_an_adopted_topic_keeps_the_form_of_its_records(
    fsck: Fsck, data: Path, clock: ManualClock, form: RecordForm, described_by: str
) -> None:
    """In another one, the keys and headers that Kafka clients write afterwards would be dropped."""
    new = NewTopic(name="events", partitions=2, retention_ms=None, form=form)
    settings: list[object] = []

    async def before(engine: Engine) -> None:
        await create_topic(engine, "p", new, check_only=False)

    async def look(engine: Engine) -> None:
        settings.append(LogstoreTopic(engine, engine.catalog.projects["p"].logstores["events"]).settings.form)

    live(data, clock, before)
    if described_by == "an earlier one":
        for path in data.glob("logs/00000002/*/shard.json"):
            described = json.loads(path.read_bytes())
            del described["form"]
            path.write_text(json.dumps(described))
        live(data, clock, look)
    _without_catalog(data)
    assert fsck("--accept-catalog", "--adopt", str(STORE_ID), "--adopt", "2").status == 0
    live(data, clock, look)
    assert set(settings) == {form}


def no_description(path: Path) -> None:
    path.unlink()


def no_hash_key(path: Path) -> None:
    described = json.loads(path.read_bytes())
    path.write_text(json.dumps(described | {"begin_key": "z" * 32}))


def no_text(path: Path) -> None:
    path.write_bytes(b"\xff" * 100)


@pytest.mark.long
@pytest.mark.parametrize("damage", [no_description, no_hash_key, no_text])
def test_logs_without_a_description_are_read_to_their_end_while_new_shards_take_writes(
    fsck: Fsck, data: Path, clock: ManualClock, damage: Callable[[Path], None]
) -> None:
    _without_catalog(data)
    [description] = data.glob("logs/*/*/shard.json")
    damage(description)
    refused = fsck("--accept-catalog", "--adopt", str(STORE_ID))
    assert refused.status == 2
    assert "ID=PROJECT/LOGSTORE" in refused.error
    assert fsck("--adopt", f"{STORE_ID}=p/ls").status == 0

    async def after(engine: Engine) -> None:
        store = engine.catalog.projects["p"].logstores["ls"]
        assert {number: one.spec.read_only for number, one in store.shards.items()} == {0: True, 1: False}
        assert stored(engine) == first_groups(*range(30))
        await put(engine, 1, shard=1, name="new")
        assert min(stored(engine, shard=1)) >= FIRST + 30

    live(data, clock, after)


def test_the_children_of_a_split_are_adopted_into_an_older_catalog(
    fsck: Fsck, data: Path, clock: ManualClock, tmp_path: Path
) -> None:
    shutil.copy(data / "metadata.sqlite", tmp_path / "older")
    _split_and_filled(data, clock)
    _without_catalog(data)
    shutil.copy(tmp_path / "older", data / "metadata.sqlite")
    assert only_lists(fsck, data).kinds == ["catalog_older", "unknown_logs"]
    assert fsck("--accept-catalog", "--adopt", str(STORE_ID)).status == 0

    async def after(engine: Engine) -> None:
        store = engine.catalog.projects["p"].logstores["ls"]
        table = {number: (one.spec.read_only, one.spec.parents) for number, one in store.shards.items()}
        assert table == {0: (True, ()), 1: (False, (0,)), 2: (False, (0,))}
        assert stored(engine) == first_groups(*range(30))
        assert list(stored(engine, shard=1).values()) == [b"left 0", b"left 1"]

    live(data, clock, after)


def test_unknown_logs_are_dropped_only_on_request(fsck: Fsck, data: Path, clock: ManualClock) -> None:
    _without_catalog(data)
    assert fsck("--accept-catalog").kinds == ["unknown_logs"]
    assert segments(data)
    assert fsck("--drop", f"{STORE_ID}/0").status == 0
    assert not segments(data)

    async def after(engine: Engine) -> None:
        assert engine.catalog.projects == {}

    live(data, clock, after)


def test_logs_of_the_catalog_cannot_be_dropped(fsck: Fsck, data: Path) -> None:
    before = files(data)
    reported = fsck("--drop", str(STORE_ID))
    assert reported.status == 2
    assert "only log data that the catalog does not know" in reported.error
    assert files(data) == before


def test_a_catalog_of_another_folder_is_detected(
    fsck: Fsck, data: Path, clock: ManualClock, tmp_path: Path
) -> None:
    async def nothing(engine: Engine) -> None:
        assert engine.logs == {}

    live(tmp_path / "other", clock, nothing)
    _without_catalog(data)
    shutil.copy(tmp_path / "other" / "metadata.sqlite", data / "metadata.sqlite")
    assert only_lists(fsck, data).kinds == ["catalog_of_another_folder", "unknown_logs"]


def test_a_missing_write_ahead_log_is_detected(
    fsck: Fsck, data: Path, clock: ManualClock, tmp_path: Path
) -> None:
    as_killed(data, clock, tmp_path)
    assert fsck().status == 0
    (data / "metadata.sqlite-wal").unlink()
    assert "write_ahead_log_missing" in only_lists(fsck, data).kinds


def damage_everything(database: Path) -> None:
    database.write_bytes(b"not a database" * 1000)


def damage_one_table(database: Path) -> None:
    """The file can be opened: each table begins in a page of its own."""
    (page,) = apsw.Connection(str(database)).execute("SELECT rootpage FROM sqlite_schema WHERE name='shard'")
    content = bytearray(database.read_bytes())
    begin = 4096 * (page[0] - 1)
    content[begin : begin + 4096] = b"\xff" * 4096
    database.write_bytes(content)


@pytest.mark.parametrize("damage", [damage_everything, damage_one_table])
def test_a_damaged_catalog_is_named(fsck: Fsck, data: Path, damage: Callable[[Path], None]) -> None:
    damage(data / "metadata.sqlite")
    with pytest.raises(DatabaseUnusable, match=str(data)):
        live(data, ManualClock(), nothing)
    listed = only_lists(fsck, data)
    assert "catalog_unusable" in listed.kinds
    assert str(data / "metadata.sqlite") in listed.document["findings"][0]["text"]
    refused = fsck("--accept-catalog")
    assert (refused.status, "move it out of the folder" in refused.error) == (2, True)


def newer_schema(data: Path) -> None:
    with closing(apsw.Connection(str(data / "metadata.sqlite"))) as database:
        database.pragma("user_version", SCHEMA_VERSION + 1)


def newer_segments(data: Path) -> None:
    for path in segments(data):
        path.write_bytes(b"LOGHUB4\n" + path.read_bytes()[8:16] + bytes(48) + path.read_bytes()[64:])


@pytest.mark.parametrize(
    ("become", "words"),
    [
        (newer_schema, f"schema version {SCHEMA_VERSION + 1}, and this release knows {SCHEMA_VERSION}"),
        (newer_segments, "does not know the segment's format"),
    ],
)
@pytest.mark.parametrize(
    "repair", [(), ("--check-data",), ("--accept-catalog",), ("--accept-loss", "all"), ("--drop", "1")]
)
def test_a_folder_of_a_newer_release_is_refused_and_stays_as_it_is(
    fsck: Fsck, data: Path, become: Callable[[Path], None], words: str, repair: tuple[str, ...]
) -> None:
    become(data)
    before = files(data)
    refused = fsck(*repair)
    assert (refused.status, refused.document) == (3, {})
    assert words in refused.error
    assert "use the release that has written it, or a newer one" in refused.error
    assert files(data) == before
    with pytest.raises(ServiceFault, match="use the release that has written it, or a newer one"):
        live(data, ManualClock(), nothing)


def no_catalog(data: Path) -> None:
    for path in data.glob("metadata.sqlite*"):
        path.unlink()


def damaged_catalog(data: Path) -> None:
    (data / "metadata.sqlite").write_bytes(bytes(5000))


@pytest.mark.parametrize("become", [no_catalog, damaged_catalog])
@pytest.mark.parametrize("repair", [(), ("--accept-catalog",), ("--drop", str(STORE_ID))])
def test_logs_of_a_newer_release_are_refused_without_a_catalog_that_knows_them_too(
    fsck: Fsck, data: Path, become: Callable[[Path], None], repair: tuple[str, ...]
) -> None:
    become(data)
    newer_segments(data)
    before = files(data)
    refused = fsck(*repair)
    assert (refused.status, refused.document) == (3, {})
    assert "use the release that has written it, or a newer one" in refused.error
    assert files(data) == before


@pytest.mark.parametrize("content", [b"", b"{}", b'{"folder": "\xff"}', bytes(100)])
def test_a_damaged_state_of_the_folder_is_named_and_replaced_on_request(
    fsck: Fsck, data: Path, clock: ManualClock, content: bytes
) -> None:
    (data / "logs" / "folder.json").write_bytes(content)
    with pytest.raises(DataRefused, match=r"folder\.json is damaged"):
        live(data, clock, nothing)
    assert only_lists(fsck, data).kinds == ["folder_state_damaged"]
    assert fsck("--accept-catalog").status == 0

    async def after(engine: Engine) -> None:
        assert stored(engine) == first_groups(*range(30))

    live(data, clock, after)


async def nothing(engine: Engine) -> None:
    raise AssertionError("the service started")
