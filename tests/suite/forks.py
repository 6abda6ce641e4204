"""Runs the tests of one pytest in several processes: ``pytest -p tests.suite.forks --forks=3``.

pytest-xdist lets each of its processes import and collect everything, which costs eight CPU seconds a process
here, and passes each report through two more layers. Here one process collects and then forks: a child has
all modules and tests already. Each child takes one file after the other and runs its tests in their order, so
that what a module shares is started once, and what a session shares once a process. Reports return as JSON.

A child that dies fails the test that it was running, and a new one takes the rest of the file. Tests that
share a Spark session (`tests/spark_session.py`) are all run by the first child, so that they start one JVM;
others with Spark go to as many children as there are cores, since JVMs compute while most tests wait. A child
takes first what the fewest may run, and what is named by `--first`, so that none is left alone at the end.

With ``--first-without=long,spark`` the tests that have none of these marks come before all others, and what
failed of them is shown as soon as the last one has ended. A child that has nothing else to do begins with the
others once the run is ready (`tests.suite.ready`).

With ``--minutes`` tests are handed out one by one, and none that is expected to take longer than what is left
(``deep(minutes=30)``, 1 without).
"""

import atexit
import contextlib
import json
import os
import random
import selectors
import signal
import socket
import sys
import time
import traceback
import warnings
from collections import deque
from collections.abc import Generator, Iterable
from dataclasses import dataclass, field
from pathlib import Path
from typing import IO, Any

import pytest
from _pytest.terminal import TerminalReporter

from tests.suite.beginning import comes_first, is_ready

# Each gives its Python processes ten seconds to start, which are too short once too many start together.
SPARK_PROCESSES = max(2, os.cpu_count() or 1)
LOOK_AFTER_CHILDREN_S = 1.0


def pytest_addoption(parser: pytest.Parser) -> None:
    group = parser.getgroup("forks", "several processes")
    group.addoption("--forks", type=int, default=0, help="run the tests in so many processes")
    group.addoption("--first", action="append", default=[], help="begin with what is below this path")
    group.addoption("--first-without", default="", help="begin with the tests that have none of these marks")
    group.addoption("--minutes", type=float, default=None, help="start no test that would take longer in all")


@pytest.hookimpl(tryfirst=True)
def pytest_runtestloop(session: pytest.Session) -> bool | None:
    config = session.config
    collected_in_vain = session.testsfailed and not config.option.continue_on_collection_errors
    if not config.option.forks or config.option.collectonly or collected_in_vain:
        return None
    return _Run(session, config.option.forks, config.option.minutes).run()


def expected_minutes(item: pytest.Item) -> float:
    mark = item.get_closest_marker("deep")
    return float(mark.kwargs.get("minutes", 1)) if mark else 1.0


def _processes_for(item: pytest.Item) -> int:
    """How many children may run such tests: those with a lower number."""
    if "spark" in getattr(item, "fixturenames", ()):
        return 1
    return SPARK_PROCESSES if item.get_closest_marker("spark") else sys.maxsize


@dataclass(slots=True)
class _Child:
    number: int
    pid: int
    link: socket.socket
    # Tests that it was given, as indices; it runs the first one once it has said so.
    tests: deque[int] = field(default_factory=deque)
    started: bool = False
    # It requested more, and none of what is left may begin yet.
    waits: bool = False
    # It has no more to do; it ends what its session shares.
    dismissed: bool = False
    ended: bool = False
    received: bytearray = field(default_factory=bytearray)


class _Run:
    def __init__(self, session: pytest.Session, count: int, minutes: float | None) -> None:
        self._session = session
        self._config = session.config
        self._ends_at = None if minutes is None else time.monotonic() + 60 * minutes
        self._first_left = {index for index, item in enumerate(session.items) if comes_first(item)}
        self._one_of_two = 0 < len(self._first_left) < len(session.items)
        units = _units(session.items, one_by_one=minutes is not None)
        self._units = self._in_order(units) if minutes is None else list(units)
        self._children: dict[int, _Child] = {}
        self._count = min(count, len(self._units))
        self._selector = selectors.DefaultSelector()

    def _in_order(self, units: Iterable[list[int]]) -> list[list[int]]:
        first = [self._config.rootpath / path for path in self._config.option.first]

        def rank(unit: list[int]) -> tuple[bool, int, bool]:
            path = self._session.items[unit[0]].path
            named = any(path.is_relative_to(one) for one in first)
            return unit[0] not in self._first_left, self._processes_for(unit), not named

        return sorted(units, key=rank)

    def _processes_for(self, unit: list[int]) -> int:
        return min(_processes_for(self._session.items[index]) for index in unit)

    def run(self) -> bool:
        # One folder for all, made before they could make it at the same time.
        self._config._tmp_path_factory.getbasetemp()
        if isinstance(
            reporter := self._config.pluginmanager.get_plugin("terminalreporter"), TerminalReporter
        ):
            reporter.showfspath = False  # the tests of several files come mixed
        link = self._start_children()
        return True if link is None else _serve(self._session, link)

    def _start_children(self) -> socket.socket | None:
        """Returns in the parent when all have ended, with None, and in each child, with its connection."""
        try:
            for number in range(self._count):
                if (link := self._fork(number)) is not None:
                    return link
            while self._children:
                for number in self._step():
                    if (link := self._fork(number)) is not None:
                        return link
                self._hand_out_to_waiting()
                self._stop_if_asked()
        except BaseException:
            self._interrupt()
            raise
        return None

    def _fork(self, number: int) -> socket.socket | None:
        """Start a child; in the child, its end of the connection."""
        ours, theirs = socket.socketpair()
        sys.stdout.flush()
        sys.stderr.flush()
        pid = os.fork()
        if pid == 0:
            # Ctrl-C reaches the parent alone, which interrupts each child once, so that it cleans up.
            os.setpgid(0, 0)
            ours.close()
            for other in self._children.values():
                other.link.close()
            self._selector.close()
            return theirs
        theirs.close()
        child = _Child(number, pid, ours)
        self._children[number] = child
        self._selector.register(ours, selectors.EVENT_READ, child)
        self._hand_out(child)
        return None

    def _hand_out_to_waiting(self) -> None:
        if is_ready(self._config):
            for child in self._children.values():
                if child.waits:
                    self._hand_out(child)

    def _hand_out(self, child: _Child) -> None:
        unit = self._take(child.number)
        child.waits = not unit and not is_ready(self._config) and bool(self._units)
        if child.waits:
            return
        child.tests.extend(unit)
        child.dismissed = not unit
        with contextlib.suppress(OSError):  # it has died, which is noticed in its turn
            child.link.sendall(json.dumps(unit).encode() + b"\n")

    def _take(self, number: int) -> list[int]:
        """The next unit for this child; empty if there is none."""
        for position, unit in enumerate(self._units):
            if number >= self._processes_for(unit):
                continue
            if unit[0] not in self._first_left and not is_ready(self._config):
                continue
            if self._ends_at is not None:
                minutes_left = (self._ends_at - time.monotonic()) / 60
                if sum(expected_minutes(self._session.items[index]) for index in unit) > minutes_left:
                    continue
            del self._units[position]
            return unit
        return []

    def _step(self) -> list[int]:
        """Handle what children say, or that they have ended; the numbers of those to start again."""
        for key, _ in self._selector.select(LOOK_AFTER_CHILDREN_S):
            self._receive(key.data)
        return [child.number for child in list(self._children.values()) if self._is_to_replace(child)]

    def _receive(self, child: _Child) -> None:
        for line in self._read(child):
            self._handle(child, json.loads(line))

    def _read(self, child: _Child) -> list[bytes]:
        """The lines that are there; there must be something, or the end."""
        try:
            data = child.link.recv(1 << 20)
        except OSError:
            data = b""
        if not data and not child.ended:
            self._selector.unregister(child.link)
            child.ended = True
        child.received += data
        *lines, rest = child.received.split(b"\n")
        child.received = bytearray(rest)
        return [bytes(line) for line in lines]

    def _handle(self, child: _Child, message: dict[str, Any]) -> None:
        if "report" in message:
            hook = self._config.hook
            report = hook.pytest_report_from_serializable(config=self._config, data=message["report"])
            if isinstance(report.longrepr, list):  # file, line and reason of a skip, which JSON has as a list
                report.longrepr = tuple(report.longrepr)
            hook.pytest_runtest_logreport(report=report)
        elif "warning" in message:
            self._warn(message["warning"])
        elif "unfinished" in message:
            self._report("the end of a test process", message["unfinished"])
        elif message["event"] == "started":
            child.started = True
        elif message["event"] == "ended":
            item = self._end_first_test(child)
            child.started = False
            for when, duration, cpu_s in message["passed"]:
                passed = pytest.TestReport(
                    item.nodeid, item.location, {}, "passed", None, when, duration=duration
                )
                passed.cpu_s = cpu_s  # type: ignore[attr-defined]
                self._config.hook.pytest_runtest_logreport(report=passed)
            self._show_first_failures()
        elif message["event"] == "idle":
            self._hand_out(child)

    def _end_first_test(self, child: _Child) -> pytest.Item:
        index = child.tests.popleft()
        self._first_left.discard(index)
        return self._session.items[index]

    def _show_first_failures(self) -> None:
        """Once: as the last of those that come first has ended."""
        if self._first_left or not self._one_of_two:
            return
        self._one_of_two = False
        if isinstance(
            reporter := self._config.pluginmanager.get_plugin("terminalreporter"), TerminalReporter
        ):
            failed = sum(len(reporter.stats.get(outcome, ())) for outcome in ("failed", "error"))
            marks = self._config.option.first_without.replace(",", ", ")
            reporter.line("")
            reporter.write_line(f"all tests without {marks} have ended, {failed} failed")
            reporter.summary_errors()
            reporter.summary_failures()

    def _warn(self, said: dict[str, Any]) -> None:
        location = said.pop("location")
        shown = warnings.WarningMessage(said.pop("text"), Warning, said.pop("file"), said.pop("line"))
        self._config.hook.pytest_warning_recorded.call_historic(
            kwargs={"warning_message": shown, "location": location and tuple(location), **said}
        )

    def _is_to_replace(self, child: _Child) -> bool:
        """Whether it has died and left tests; one that has ended is taken from the list."""
        pid, status = os.waitpid(child.pid, os.WNOHANG)
        if pid == 0:
            return False
        while not child.ended:  # what it said last; what it has started may hold the connection open
            if not self._selector_has(child):
                break
            self._receive(child)
        self._close(child)
        code = os.waitstatus_to_exitcode(status)
        if child.tests:
            self._report_death(child, code)
        elif code not in (pytest.ExitCode.OK, pytest.ExitCode.TESTS_FAILED):
            self._report("the end of a test process", f"it ended with the exit status {code}")
        return bool(self._units) and not child.dismissed

    def _selector_has(self, child: _Child) -> bool:
        return any(key.data is child for key, _ in self._selector.select(0))

    def _close(self, child: _Child) -> None:
        if not child.ended:
            self._selector.unregister(child.link)
        child.link.close()
        del self._children[child.number]

    def _report_death(self, child: _Child, code: int) -> None:
        how = signal.Signals(-code).name if code < 0 else f"exit status {code}"
        if child.started:
            item = self._end_first_test(child)
            self._report(item.nodeid, f"the process of this test ended ({how})", item.location)
        else:
            self._report("between two tests", f"a test process ended ({how})")
        self._show_first_failures()
        if child.tests:
            self._units.insert(0, list(child.tests))

    def _report(self, nodeid: str, why: str, location: tuple[str, int | None, str] = ("", None, "")) -> None:
        report = pytest.TestReport(nodeid, location, {}, "failed", why, "call")
        self._config.hook.pytest_runtest_logreport(report=report)

    def _stop_if_asked(self) -> None:
        if self._session.shouldfail:
            raise self._session.Failed(self._session.shouldfail)
        if self._session.shouldstop:
            raise self._session.Interrupted(self._session.shouldstop)

    def _interrupt(self) -> None:
        """Let each child clean up; a further interrupt kills them."""
        self._units.clear()
        how = signal.SIGINT
        while self._children:
            for child in self._children.values():
                with contextlib.suppress(ProcessLookupError):
                    os.kill(child.pid, how)
            try:
                while self._children:
                    # Read, or a child could not write its last reports.
                    for key, _ in self._selector.select(LOOK_AFTER_CHILDREN_S):
                        self._read(key.data)
                    for child in list(self._children.values()):
                        if os.waitpid(child.pid, os.WNOHANG) != (0, 0):
                            self._close(child)
            except KeyboardInterrupt:
                how = signal.SIGKILL


def _units(items: list[pytest.Item], *, one_by_one: bool) -> Iterable[list[int]]:
    """The tests of each file that may begin at the same time, as indices."""
    if one_by_one:
        return [[index] for index in range(len(items))]
    units: dict[tuple[Path, bool], list[int]] = {}
    for index, item in enumerate(items):
        units.setdefault((item.path, comes_first(item)), []).append(index)
    return units.values()


# --- in a child -----------------------------------------------------------------------------------


class _Parent:
    """Passes reports and warnings on to the parent."""

    def __init__(self, config: pytest.Config, link: socket.socket) -> None:
        self._config = config
        self._lines: IO[str] = link.makefile("rw", encoding="utf-8")
        self._passed: list[tuple[str | None, float, float]] = []  # parts of the test that runs

    def say(self, *, at_once: bool = True, **message: object) -> None:
        """What need not be said at once waits for what must: each line that is sent wakes the parent."""
        self._lines.write(json.dumps(message) + "\n")
        if at_once:
            self._lines.flush()

    def next_unit(self) -> list[int]:
        """Empty at the end, also if the parent is gone."""
        line = self._lines.readline()
        unit: list[int] = json.loads(line) if line else []
        return unit

    def say_ended(self) -> None:
        self.say(event="ended", passed=self._passed, at_once=False)
        self._passed.clear()

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        has_more = report.sections or report.user_properties or hasattr(report, "wasxfail")
        if report.passed and not has_more:  # as most, of which a report as JSON has nothing to say
            self._passed.append((report.when, report.duration, getattr(report, "cpu_s", 0.0)))
            return
        data = self._config.hook.pytest_report_to_serializable(config=self._config, report=report)
        self.say(report=data, at_once=not report.passed)

    @pytest.hookimpl(wrapper=True, tryfirst=True)
    def pytest_sessionfinish(self, session: pytest.Session) -> Generator[None]:
        """Here ends what a session shares: with a single process, that belongs to its last test."""
        try:
            yield
        except Exception:  # noqa: BLE001 - whatever a fixture raises
            self.say(unfinished=traceback.format_exc())

    @pytest.hookimpl(trylast=True)
    def pytest_unconfigure(self) -> None:
        """Skip the end of the interpreter, where libraries crash whose threads stayed in the parent."""
        with contextlib.suppress(OSError):
            self._lines.flush()
        atexit._run_exitfuncs()
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(pytest.ExitCode.OK)

    def pytest_warning_recorded(
        self, warning_message: warnings.WarningMessage, when: str, nodeid: str, location: object
    ) -> None:
        if when != "runtest":  # shown by the parent; pytest repeats to a new plugin what it missed
            return
        said = {"text": str(warning_message.message), "file": warning_message.filename}
        said |= {"line": warning_message.lineno, "when": when, "nodeid": nodeid, "location": location}
        self.say(warning=said)


class _Terminal:
    """Where pytest-timeout writes the stacks of a test that hangs, before it ends the process."""

    def __init__(self, config: pytest.Config) -> None:
        from _pytest.config import create_terminal_writer

        self._tw = create_terminal_writer(config, sys.__stderr__)


class _OtherFile(pytest.Item):
    """Stands for the next test at the end of a file, which ends what the file shares, not the session."""

    def runtest(self) -> None:
        raise NotImplementedError


def _serve(session: pytest.Session, link: socket.socket) -> bool:
    """Run what the parent hands out. The session then ends as that of any pytest, without its summary."""
    config = session.config
    plugins = config.pluginmanager
    if (capture := plugins.getplugin("capturemanager")) is not None:
        # The file that it captures to is shared with the parent.
        capture.stop_global_capturing()
        capture.start_global_capturing()
    if (reporter := plugins.unregister(name="terminalreporter")) is not None:
        reporter._show_progress_info = False  # it still ends this loop with "100%"
    plugins.register(_Terminal(config), "terminalreporter")
    parent = _Parent(config, link)
    plugins.register(parent, "forks-parent")
    random.seed()
    elsewhere = _OtherFile.from_parent(session, name="elsewhere")
    while unit := parent.next_unit():
        for index, following in zip(unit, [*unit[1:], None], strict=True):
            parent.say(event="started")
            next_item = elsewhere if following is None else session.items[following]
            config.hook.pytest_runtest_protocol(item=session.items[index], nextitem=next_item)
            parent.say_ended()
            if session.shouldfail or session.shouldstop:
                return True
        parent.say(event="idle")
    return True
