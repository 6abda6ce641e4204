"""A worker whose settings another release of the operator wrote."""

import json
from pathlib import Path
from typing import Any

import pytest
import structlog

from loghub.clock import SystemClock
from loghub.contract.worker import (
    CONTRACT_VERSION,
    ENV_CONFIG,
    ENV_TERMINATION_LOG,
    WorkerReason,
    parse_termination_message,
)
from loghub_worker import __main__ as program
from loghub_worker.settings import BadSettingsError, read_settings
from loghub_worker.worker import WorkerRuntime
from tests.loghub_worker.test_environment import environment


def written(folder: Path, **changed: Any) -> dict[str, str]:
    """The environment of a worker whose settings have these changes."""
    variables = environment(folder) | {ENV_TERMINATION_LOG: str(folder / "termination")}
    path = Path(variables[ENV_CONFIG])
    path.write_text(json.dumps(json.loads(path.read_text()) | changed))
    return variables


def test_settings_that_this_release_does_not_know_are_ignored_and_reported(tmp_path: Path) -> None:
    settings = read_settings(
        written(tmp_path, surprise=1, sink={"kind": "parquet", "path": "/s", "level": 9})
    )
    assert settings.ignored == ("sink.level", "surprise")
    status = WorkerRuntime(settings, SystemClock()).status()
    assert (status.contract_version, status.ignored_settings) == (
        CONTRACT_VERSION,
        ["sink.level", "surprise"],
    )


def test_known_settings_leave_nothing_to_report(tmp_path: Path) -> None:
    assert WorkerRuntime(read_settings(written(tmp_path)), SystemClock()).status().ignored_settings == []


@pytest.mark.parametrize(
    ("changed", "named"),
    [
        ({"contract_version": CONTRACT_VERSION + 1}, f"contract {CONTRACT_VERSION + 1}"),
        ({"sink": {"kind": "pulsar", "topic": "x"}}, "pulsar"),
        ({"max_bytes": "many"}, "max_bytes"),
    ],
    ids=str,
)
def test_settings_that_this_release_cannot_carry_out_are_named_in_the_termination_message(
    changed: dict[str, Any], named: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    """For example of a user's image with an older worker. The log alone would not reach the status."""
    variables = written(tmp_path, **changed)
    with pytest.raises(BadSettingsError, match=named):
        read_settings(variables)
    for name, value in variables.items():
        monkeypatch.setenv(name, value)
    try:
        assert program.main() == program.INVALID_SETTINGS
    finally:
        structlog.reset_defaults()
    parsed = parse_termination_message((tmp_path / "termination").read_text())
    assert parsed is not None
    reason, message = parsed
    assert reason == WorkerReason.UNSUPPORTED_SETTINGS
    assert named in message
    assert "image" in message


def test_settings_that_cannot_be_read_are_no_settings_of_another_release(tmp_path: Path) -> None:
    variables = written(tmp_path)
    Path(variables[ENV_CONFIG]).unlink()
    with pytest.raises(BadSettingsError, match=f"^{ENV_CONFIG}"):
        read_settings(variables)
