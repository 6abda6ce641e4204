"""The credentials of a sink: one file each, read whenever they are needed."""

from pathlib import Path

import pytest

from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.sink_credentials import NO_CREDENTIALS, SinkCredentials


def test_a_rotated_key_is_read(tmp_path: Path) -> None:
    credentials = SinkCredentials(tmp_path)
    for value in ("one", "two"):
        (tmp_path / "password").write_text(f"{value}\n")
        assert credentials.require("password") == value


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_an_absent_or_empty_value_is_refused_with_what_to_do(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "password").write_text(content)
    with pytest.raises(InvalidSinkError, match=r"needs 'password'.*credentialsSecret.*LOGHUB_SINK_CRED"):
        SinkCredentials(tmp_path).require("password")


def test_a_value_that_is_not_needed_may_be_absent(tmp_path: Path) -> None:
    assert SinkCredentials(tmp_path).get("token") is None
    assert NO_CREDENTIALS.get("token") is None


def test_a_value_that_cannot_be_read_is_an_outage(tmp_path: Path) -> None:
    (tmp_path / "password").mkdir()
    with pytest.raises(OSError, match="password"):
        SinkCredentials(tmp_path).get("password")
