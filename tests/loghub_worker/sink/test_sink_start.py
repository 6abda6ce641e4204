"""The start of a sink: one factory for the type of its settings, which loads that sink and no other; its
credentials, one file each, read whenever they are needed; and a target that cannot be used, in virtual time.
"""

import json
import subprocess
import sys
from collections.abc import Callable
from pathlib import Path
from typing import get_args

import pytest

from loghub.backoff import without_jitter
from loghub.contract.sinks import NoSink, Sink
from loghub_consumer.errors import FatalError
from loghub_worker.sink.batch_sink import InvalidSinkError
from loghub_worker.sink.sink_start import NO_CREDENTIALS, CredentialFiles, SinkStart
from loghub_worker.sink.sinks import FACTORIES
from tests.support import ROOT, HandClock

OUTAGE_S = 900.0


class Start:
    """A start whose pauses move a clock."""

    def __init__(self, before_a_pause: Callable[[], None] = lambda: None) -> None:
        self.clock = HandClock(100.0)
        self.pauses: list[float] = []
        self.reasons: set[str] = set()
        self._before_a_pause = before_a_pause
        self.sink_start = SinkStart(self._wait, random=without_jitter)

    def _wait(self, seconds: float) -> None:
        self._before_a_pause()
        self.reasons.add(self.sink_start.error.reason)
        self.pauses.append(seconds)
        self.clock.now += seconds


def test_a_target_that_comes_back_after_a_quarter_of_an_hour_lets_the_start_continue() -> None:
    start = Start()
    back_s = start.clock.now + OUTAGE_S

    def step() -> str:
        if start.clock.now < back_s:
            raise NotADirectoryError(20, "Not a directory", "/sink")
        return "the sink"

    assert start.sink_start.take(step) == "the sink"
    assert start.pauses[:7] == [1, 2, 4, 8, 16, 30, 30]
    assert set(start.pauses[7:]) == {30}
    assert start.reasons == {"SinkUnavailable"}
    assert start.sink_start.error.reason == ""


def test_what_no_retry_resolves_ends_the_start() -> None:
    start = Start()

    def step() -> None:
        raise InvalidSinkError("no such topic")

    with pytest.raises(FatalError, match="no such topic") as raised:
        start.sink_start.take(step)
    assert (raised.value.reason, start.pauses) == ("InvalidSink", [])


def test_a_stop_ends_the_start_while_it_waits() -> None:
    def stop() -> None:
        raise KeyboardInterrupt

    def step() -> None:
        raise ConnectionError("no answer")

    start = Start(before_a_pause=stop)
    with pytest.raises(KeyboardInterrupt):
        start.sink_start.take(step)
    assert start.sink_start.error.message == "no answer"


GUARD_S = 300
LIBRARIES = ("pyspark", "psycopg", "deltalake", "obstore")
LOADED = """
import json, sys
import loghub_worker.sink.sinks
print(json.dumps(sorted(sys.modules)))
"""


def test_every_sink_of_the_contract_has_a_factory() -> None:
    assert set(FACTORIES) == set(get_args(Sink)) - {NoSink}


def test_the_table_of_factories_loads_neither_a_sink_nor_its_library() -> None:
    done = subprocess.run(
        [sys.executable, "-c", LOADED], cwd=ROOT, capture_output=True, text=True, check=True, timeout=GUARD_S
    )
    loaded = set(json.loads(done.stdout))
    prefix = "loghub_worker.sink."
    assert {name.removeprefix(prefix) for name in loaded if name.startswith(prefix)} == {
        "batch_sink",
        "sink_start",
        "sinks",
    }
    assert loaded.isdisjoint(LIBRARIES)


def test_a_rotated_key_is_read(tmp_path: Path) -> None:
    credentials = CredentialFiles(tmp_path)
    for value in ("one", "two"):
        (tmp_path / "password").write_text(f"{value}\n")
        assert credentials.require("password") == value


@pytest.mark.parametrize("content", [None, "", "\n"])
def test_an_absent_or_empty_value_is_refused_with_what_to_do(tmp_path: Path, content: str | None) -> None:
    if content is not None:
        (tmp_path / "password").write_text(content)
    with pytest.raises(InvalidSinkError, match=r"needs 'password'.*credentialsSecret.*LOGHUB_SINK_CRED"):
        CredentialFiles(tmp_path).require("password")


def test_a_value_that_is_not_needed_may_be_absent(tmp_path: Path) -> None:
    assert CredentialFiles(tmp_path).get("token") is None
    assert NO_CREDENTIALS.get("token") is None


def test_a_value_that_cannot_be_read_is_an_outage(tmp_path: Path) -> None:
    (tmp_path / "password").mkdir()
    with pytest.raises(OSError, match="password"):
        CredentialFiles(tmp_path).get("password")


def test_all_values_of_a_mounted_secret_are_read_without_the_kubelets_folders(tmp_path: Path) -> None:
    data = tmp_path / "..2026_01_31"
    data.mkdir()
    (tmp_path / "..data").symlink_to(data.name)
    for name in ("user", "password"):
        (data / name).write_text(f"my-{name}\n")
        (tmp_path / name).symlink_to(f"..data/{name}")
    assert CredentialFiles(tmp_path).all() == {"user": "my-user", "password": "my-password"}
    assert NO_CREDENTIALS.all() == {}
