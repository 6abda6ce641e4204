"""The stored objects are the same in memory and on disk, whatever happens to a write."""

import errno
from pathlib import Path

import pytest

from loghub_cli.up import object_store as record_module
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import GroupFolder
from loghub_operator.api import Phase, Status
from loghub_operator.api.adoption import ANNOTATION_LAST_INITIAL_SHARD, ANNOTATION_ORIGIN, GroupRecord
from tests.loghub_operator.support.examples import document


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = LocalObject.accept(GroupFolder(tmp_path), document())

    def full(*_: object) -> None:
        raise OSError(errno.ENOSPC, "No space left on device")

    with monkeypatch.context() as patch:
        patch.setattr(record_module, "replace_file", full)
        with pytest.raises(OSError, match="No space"):
            record.set_status(Status(phase=Phase.RUNNING))
        with pytest.raises(OSError, match="No space"):
            record.set_group_record(GroupRecord("Created", 3))
        with pytest.raises(OSError, match="No space"):
            record.set_deleted(1.0)
    assert record.document == LocalObject.load(GroupFolder(tmp_path)).document  # type: ignore[union-attr]
    assert (record.group_record, record.resource().metadata.deletion_timestamp) == (None, None)

    record.set_status(Status(phase=Phase.RUNNING))
    record.set_group_record(GroupRecord("Created", 3))
    record.set_deleted(1.0)
    result = LocalObject.load(GroupFolder(tmp_path))
    assert result is not None
    assert result.document == record.document
    assert (result.group_record, result.resource().status.phase) == (GroupRecord("Created", 3), Phase.RUNNING)
    assert result.resource().metadata.deleted_at_unix_s() == 1.0


COPIED = {
    "uid": "6f0c",
    "resourceVersion": "815",
    "generation": 7,
    "creationTimestamp": "2026-01-01T00:00:00Z",
    "deletionTimestamp": "2026-01-02T00:00:00Z",
    "deletionGracePeriodSeconds": 0,
    "finalizers": ["loghub.dev/consumer-group"],
    "managedFields": [{"manager": "kubectl"}],
    "ownerReferences": [{"name": "app"}],
    "labels": {"team": "logs"},
    "annotations": {"team": "logs", ANNOTATION_ORIGIN: "Created", ANNOTATION_LAST_INITIAL_SHARD: "9"},
}


@pytest.mark.parametrize("is_known", [False, True])
def test_of_a_file_that_kubectl_wrote_only_what_a_user_sets_counts(tmp_path: Path, is_known: bool) -> None:
    """An object that was being deleted there would otherwise be deleted here at once, with its group."""
    record = GroupRecord("Adopted", None)
    if is_known:
        LocalObject.accept(GroupFolder(tmp_path), document()).set_group_record(record)
    accepted = LocalObject.accept(GroupFolder(tmp_path), document(**COPIED))
    annotations = accepted.document["metadata"].pop("annotations")
    assert accepted.document["metadata"].keys() == {"name", "namespace", "labels", "uid", "generation"}
    assert accepted.resource().metadata.deletion_timestamp is None
    assert (accepted.resource().metadata.generation, accepted.resource().metadata.uid == "6f0c") == (1, False)
    assert (annotations["team"], ANNOTATION_LAST_INITIAL_SHARD in annotations) == ("logs", False)
    assert accepted.document["metadata"]["labels"] == {"team": "logs"}
    accepted.document["metadata"]["annotations"] = annotations
    assert accepted.group_record == (record if is_known else None)


@pytest.mark.parametrize(("ended_by", "stays"), [("Ctrl-C", True), ("down", False), ("by hand", False)])
def test_the_state_of_workers_is_that_of_one_object(tmp_path: Path, ended_by: str, stays: bool) -> None:
    """Another object of the name would begin where the state ends, and not at its start position."""
    folder = GroupFolder(tmp_path)
    record = LocalObject.accept(folder, document())
    ledger = folder.worker("access-0").state / "stateful" / "ledger.json"
    ledger.parent.mkdir(parents=True)
    ledger.write_text("{}")
    folder.worker("access-0").log.write_text("what happened")
    if ended_by == "down":
        record.forget()
        assert not ledger.exists()
    elif ended_by == "by hand":
        folder.object.unlink()
    LocalObject.accept(folder, document({"replicas": 2}))
    assert (ledger.exists(), folder.worker("access-0").log.exists()) == (stays, True)
