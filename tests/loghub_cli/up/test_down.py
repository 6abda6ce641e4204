"""`loghub down` of a group that nobody runs, with a file that was saved since."""

from pathlib import Path

import pytest
import yaml

from loghub_cli.main import main
from loghub_cli.up.object_store import LocalObject
from loghub_cli.up.paths import Root
from tests.loghub_operator.support.examples import document


@pytest.mark.parametrize(("known", "saved"), [("Delete", "Retain"), ("Retain", "Delete"), ("Delete", None)])
def test_a_policy_that_nothing_has_applied_is_neither_taken_nor_passed_over(
    known: str, saved: str | None, tmp_path: Path, capsys: pytest.CaptureFixture[str]
) -> None:
    """Otherwise a user who saves Retain before `down` loses the checkpoints."""
    folder = Root(tmp_path).group("access")
    LocalObject.accept(folder, document({"deletionPolicy": known}))
    file = tmp_path / "cr.yaml"
    file.write_text(yaml.safe_dump(document({"deletionPolicy": saved})))
    assert main(["down", "-f", str(file), "--state-dir", str(tmp_path)]) == 1
    said = capsys.readouterr().err
    assert f"has deletionPolicy {saved or 'Retain'}, but access was last up with {known}" in said
    assert "--name access" in said
    left = LocalObject.load(folder)
    assert left is not None
    assert left.resource().metadata.deletion_timestamp is None
