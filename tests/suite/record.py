"""What a run of pytest leaves for the report over all parts: outcomes, and what each test cost.

``LOGHUB_TEST_RECORD=FILE pytest`` writes a `Record` to that file at its end. A part of the suite without one
did not run to its end. With ``FILE:FILE`` one pytest has two parts: the first file gets the tests that come
first (`tests.suite.forks`), the second one all others.
"""

import os
import time
from collections import Counter
from collections.abc import Generator
from dataclasses import dataclass
from pathlib import Path

import msgspec
import pytest

from tests.suite import cpu
from tests.suite.beginning import comes_first

ENV_RECORD = "LOGHUB_TEST_RECORD"
# Shorter ones do not start processes that are worth a look into /proc, of which there are ten thousand.
SHORT_S = 0.05
Report = pytest.TestReport | pytest.CollectReport
_RAN = ("passed", "failed", "error", "xfailed", "xpassed")


class Cost(msgspec.Struct):
    """``wall_s`` is on the clock, ``cpu_s`` of all processes of the test, fixtures included."""

    wall_s: float = 0.0
    cpu_s: float = 0.0


class Failure(msgspec.Struct):
    """``why`` is the traceback, ``output`` what was captured. ``nodeid`` names a test or a file."""

    nodeid: str
    why: str
    output: str
    # A file that cannot be collected, or the end of a process, is no test that could run again.
    is_a_test: bool = True


class Record(msgspec.Struct):
    """One run of pytest. Numbers of tests by outcome, of skipped ones by reason. ``cpu_s`` is all it took, or
    what its tests took if others follow; ``wall_s`` is from the start of pytest to the end of the last test.
    """

    outcomes: dict[str, int] = msgspec.field(default_factory=dict)
    skipped: dict[str, int] = msgspec.field(default_factory=dict)
    costs: dict[str, Cost] = msgspec.field(default_factory=dict)
    failures: list[Failure] = msgspec.field(default_factory=list)
    cpu_s: float = 0.0
    wall_s: float = 0.0


def read(file: Path) -> Record | None:
    """None if the run did not come to its end."""
    try:
        return msgspec.json.decode(file.read_bytes(), type=Record)
    except FileNotFoundError:
        return None


@dataclass(slots=True)
class Meter:
    """CPU seconds since the last look."""

    process_s: float = 0.0
    descendants_s: float = 0.0

    def start(self) -> None:
        self.process_s = cpu.of_process_s()

    def lap(self, wall_s: float) -> float:
        process_s, descendants_s = cpu.of_process_s(), self.descendants_s
        if wall_s >= SHORT_S:
            descendants_s = cpu.of_descendants_s()
        # One whose parent has ended before it is missed from then on, so that the sum may fall.
        used = process_s - self.process_s + max(0.0, descendants_s - self.descendants_s)
        self.process_s, self.descendants_s = process_s, descendants_s
        return used


_METER = Meter()


_STARTED_S = time.monotonic()
_FIRST: set[str] = set()
# When the last test that comes first has ended, and the last of the others.
_ENDED_S = [_STARTED_S, _STARTED_S]


def pytest_collection_finish(session: pytest.Session) -> None:
    _FIRST.update(item.nodeid for item in session.items if comes_first(item))


def pytest_runtest_logreport(report: pytest.TestReport) -> None:
    _ENDED_S[_part_of(report)] = time.monotonic()


def _part_of(report: Report) -> int:
    """What is no test, such as the end of a process, belongs to the last part."""
    return 0 if report.nodeid in _FIRST else 1


@pytest.hookimpl(wrapper=True, tryfirst=True)
def pytest_runtest_protocol() -> Generator[None, object, object]:
    _METER.start()
    return (yield)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    report.cpu_s = _METER.lap(report.duration)  # type: ignore[attr-defined]
    return report


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """Only the process that gets all reports has a terminal."""
    files = [Path(name) for name in os.environ.get(ENV_RECORD, "").split(os.pathsep) if name]
    cpu_s = cpu.of_process_s() + cpu.of_descendants_s()
    for number, file in enumerate(files):
        is_last = number == len(files) - 1
        record = Record(wall_s=(max(_ENDED_S) if is_last else _ENDED_S[number]) - _STARTED_S)
        for outcome, reports in terminalreporter.stats.items():
            _add(record, outcome, [one for one in reports if min(_part_of(one), len(files) - 1) == number])
        record.cpu_s = cpu_s if is_last else sum(cost.cpu_s for cost in record.costs.values())
        cpu_s -= record.cpu_s
        file.parent.mkdir(parents=True, exist_ok=True)
        file.write_bytes(msgspec.json.encode(record))


def _add(record: Record, outcome: str, reports: list[Report]) -> None:
    for report in reports:
        if isinstance(report, pytest.TestReport):
            cost = record.costs.setdefault(report.nodeid, Cost())
            cost.wall_s += report.duration
            cost.cpu_s += getattr(report, "cpu_s", 0.0)
        if outcome in ("failed", "error"):
            record.failures.append(_failure(report))
    if reports and outcome in _RAN:
        record.outcomes[outcome] = len(reports)
    elif reports and outcome == "skipped":
        record.skipped = dict(Counter(map(_reason, reports)))


def _failure(report: Report) -> Failure:
    output = "\n".join(f"[{title}]\n{text.rstrip()}" for title, text in report.sections)
    is_a_test = isinstance(report, pytest.TestReport) and "::" in report.nodeid
    return Failure(report.nodeid, report.longreprtext, output, is_a_test)


def _reason(report: Report) -> str:
    # A file, a line and the reason.
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())
