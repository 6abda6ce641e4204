"""Checkpoint backups are written once, and read like the ConfigMaps of a cluster."""

import json
from pathlib import Path

import pytest

from loghub_cli.up.backend import CheckpointBackups
from loghub_operator.model.observed import CheckpointBackup
from loghub_operator.resources import backup_in, checkpoint_backup
from tests.loghub_operator.support.examples import resource

RECORD = CheckpointBackup(
    requested_at="2026-01-01T00:00:00Z", before={0: "MQ==", 12: ""}, targets={0: "Mg==", 12: "Mw=="}
)
OTHER = CheckpointBackup(requested_at="2026-01-02T00:00:00Z", before={}, targets={})


def test_a_backup_is_written_once(tmp_path: Path) -> None:
    backups = CheckpointBackups(tmp_path / "not-there-yet")
    assert (backups.read("a"), backups.source("a"), backups.source(None)) == (None, None, None)
    backups.keep("a", RECORD)
    backups.keep("a", OTHER)
    assert backups.read("a") == RECORD
    assert backups.source("a") == {"0": "MQ==", "12": ""}


def test_the_format_of_the_files(tmp_path: Path) -> None:
    """They undo a reset, so the keys do not follow the names in the code."""
    text = """{
  "requestedAt": "2026-01-01T00:00:00Z",
  "before": {"0": "MQ==", "12": ""},
  "targets": {"0": "Mg==", "12": "Mw=="}
}"""
    (tmp_path / "a.json").write_text(text)
    backups = CheckpointBackups(tmp_path)
    assert backups.read("a") == RECORD
    backups.keep("b", RECORD)
    assert json.loads((tmp_path / "b.json").read_text()) == json.loads(text)


def test_an_edited_backup_is_reported(tmp_path: Path) -> None:
    backups = CheckpointBackups(tmp_path)
    backups.keep("a", RECORD)
    (tmp_path / "a.json").write_text("{")
    with pytest.raises(ValueError, match=r"a\.json cannot be read"):
        backups.read("a")


def test_the_config_map_has_the_same_content() -> None:
    document = checkpoint_backup(resource(uid="uid-1"), "access-undo-n", RECORD)
    assert backup_in(document) == RECORD
    assert document["data"] == {"0": "MQ==", "12": ""}
    assert document["immutable"] is True
    assert document["metadata"]["ownerReferences"][0]["uid"] == "uid-1"


@pytest.mark.parametrize("moved_to", ["", "[]", "5", '{"x": "MQ=="}'])
def test_a_config_map_without_our_annotations_is_no_backup(moved_to: str) -> None:
    document = checkpoint_backup(resource(uid="uid-1"), "access-undo-n", RECORD)
    document["metadata"]["annotations"]["loghub.dev/target-checkpoints"] = moved_to
    assert backup_in(document) is None
    del document["metadata"]["annotations"]
    assert backup_in(document) is None
