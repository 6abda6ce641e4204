"""The creation of a Delta table, when other workers create it too."""

from pathlib import Path
from typing import Any

import pytest
from deltalake import DeltaTable
from deltalake.exceptions import CommitFailedError

from tests.loghub_worker.sink.delta_tables import table_sink


def test_a_table_that_another_worker_creates_at_the_same_time_is_used(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """delta-rs looks whether the table exists, and then creates it; the other one was between."""
    create = DeltaTable.create

    def create_second(*arguments: Any, **options: Any) -> None:
        create(*arguments, **options)
        raise CommitFailedError("Protocol changed since last commit")

    monkeypatch.setattr(DeltaTable, "create", create_second)
    table_sink(str(tmp_path / "table"), tmp_path / "one")
    assert DeltaTable(str(tmp_path / "table")).version() == 0

    def fail(*_arguments: Any, **_options: Any) -> None:
        raise CommitFailedError("the volume is full")

    monkeypatch.setattr(DeltaTable, "create", fail)
    with pytest.raises(OSError, match="the volume is full"):
        table_sink(str(tmp_path / "other"), tmp_path / "two")
