"""``python -m loghub_worker check``: what a worker's start would refuse is found without one."""

import os
import signal
import sys
from collections.abc import Iterator
from pathlib import Path

import msgspec
import pytest
import structlog

from loghub.contract.dry_run import CHECK
from loghub.contract.processor import ProcessorPipeline
from loghub.contract.sinks import ParquetSink
from loghub.contract.worker import Pipeline, PythonPipeline, SqlPipeline
from loghub_worker import __main__ as program
from tests.loghub_worker.support import worker_config, worker_environment

NOBODY = "http://127.0.0.1:1"  # a request to a log service would fail

RIGHT = """
from loghub_consumer import Processor
class P(Processor):
    def process(self, logs, tracker): ...
"""
pytestmark = pytest.mark.timeout(1800)


@pytest.fixture
def as_before() -> Iterator[None]:
    """Restore what the program replaces for its process."""
    handlers = {number: signal.getsignal(number) for number in (signal.SIGTERM, signal.SIGINT)}
    path = list(sys.path)
    yield
    sys.path[:] = path
    for number, handler in handlers.items():
        signal.signal(number, handler)
    structlog.reset_defaults()


def tried(folder: Path, pipeline: Pipeline, monkeypatch: pytest.MonkeyPatch) -> tuple[int, str]:
    """The exit status and the termination message."""
    config = worker_config(NOBODY, ParquetSink(path=str(folder / "sink")), pipeline=pipeline)
    (folder / "config.json").write_bytes(msgspec.json.encode(config))
    given = os.environ | worker_environment(folder, name="w-trial", credentials_dir=folder)
    for name, value in given.items():
        monkeypatch.setenv(name, value)
    monkeypatch.setattr(sys, "argv", ["loghub_worker", CHECK])
    status = program.main()
    message = folder / "termination"
    return status, message.read_text() if message.exists() else ""


@pytest.mark.spark
@pytest.mark.usefixtures("spark", "as_before")
@pytest.mark.parametrize(
    ("pipeline", "refused"),
    [
        (SqlPipeline(text="SELECT contents['line'] AS line FROM logs"), ""),
        (SqlPipeline(text="SELEC line FROM logs"), "InvalidPipeline: [PARSE_SYNTAX_ERROR]"),
        (SqlPipeline(text="SELECT nope FROM logs"), "InvalidPipeline: [UNRESOLVED_COLUMN"),
        (SqlPipeline(text="SELECT count(*) FROM logs"), "InvalidPipeline: "),  # without perBatch
        (
            PythonPipeline(function="mine:rows", files={"mine.py": "def rows(logs): return logs.nope"}),
            "InvalidPipeline: ",
        ),
    ],
    ids=["right", "no SQL", "no column", "no batch", "no function"],
)
def test_a_query_is_parsed_and_analysed_without_a_log_service(
    pipeline: Pipeline, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    status, message = tried(tmp_path, pipeline, monkeypatch)
    assert message.startswith(refused)
    assert bool(message) == bool(refused)
    assert status == (program.FATAL if refused else program.STOPPED)


@pytest.mark.usefixtures("as_before")
@pytest.mark.parametrize(
    ("code", "refused"),
    [
        (
            RIGHT,
            "",
        ),
        ("class P: ...", "InvalidPipeline: mine_too:P: the class is not derived"),
        ("def P(: ...", "InvalidPipeline: mine_too:P: SyntaxError"),
    ],
    ids=["right", "no processor", "no Python"],
)
def test_a_processor_is_loaded(
    code: str, refused: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch
) -> None:
    monkeypatch.delitem(sys.modules, "mine_too", raising=False)
    pipeline = ProcessorPipeline(factory="mine_too:P", files={"mine_too.py": code})
    status, message = tried(tmp_path, pipeline, monkeypatch)
    assert message.startswith(refused)
    assert status == (program.FATAL if refused else program.STOPPED)
