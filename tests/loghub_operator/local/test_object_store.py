"""The stored objects are the same in memory and on disk, whatever happens to a write."""

import errno
from pathlib import Path

import pytest

from loghub_operator.api import Phase, Status
from loghub_operator.api.adoption import GroupRecord
from loghub_operator.local import object_store as record_module
from loghub_operator.local.object_store import Record
from loghub_operator.local.paths import GroupFolder
from tests.loghub_operator.support.examples import document


def test_a_failed_write_changes_nothing(tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    record = Record.accept(GroupFolder(tmp_path), document())

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
    assert record.document == Record.load(GroupFolder(tmp_path)).document  # type: ignore[union-attr]
    assert (record.group_record, record.resource().metadata.deletion_timestamp) == (None, None)

    record.set_status(Status(phase=Phase.RUNNING))
    record.set_group_record(GroupRecord("Created", 3))
    record.set_deleted(1.0)
    result = Record.load(GroupFolder(tmp_path))
    assert result is not None
    assert result.document == record.document
    assert (result.group_record, result.resource().status.phase) == (GroupRecord("Created", 3), Phase.RUNNING)
    assert result.resource().metadata.deleted_at_unix_s() == 1.0
