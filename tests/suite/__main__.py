"""Runs a tier of the suite: ``python -m tests.suite check|test|cluster|deep``.

A part is one pytest, or the first tests of one. What runs at the same time is shown when the first one has
ended. A test that fails is run once more at the end, alone: if it passes then, the run is green and names it
as unsteady, and the first failure is kept in ``build/unsteady``.
``LOGHUB_TEST_STRICT=1`` turns that off.
"""

import argparse
import os
import secrets
import shlex
import shutil
import sys
import time
from collections.abc import Sequence
from pathlib import Path

from tests.suite import cpu, record, report, seed
from tests.suite.commands import Commands
from tests.suite.parts import CLUSTER, FAST, IPV6, STORIES, Part, deep_part
from tests.suite.record import Failure
from tests.suite.report import Ran, Run
from tests.support import ROOT

PREPARE = ("-m", "tests.cluster.prepare")
ENV_STRICT = "LOGHUB_TEST_STRICT"
# More failures than that are no chance, and running them again only takes time.
MAX_RUN_AGAIN = 10
# The cluster over IPv6 takes a third of an hour: every eighth slice has it, if it is long enough.
IPV6_EVERY = 8
IPV6_FROM_MINUTES = 60


class Suite:
    """One run of some parts; ``build/suite`` of the checkout gets their records."""

    def __init__(self, checkout: Path = ROOT) -> None:
        self.run = Run()
        self._folder = checkout / "build" / "suite"
        self._unsteady = checkout / "build" / "unsteady"
        self._commands = Commands(self._folder, cwd=checkout)
        self._started_s = time.monotonic()
        self._machine_s = cpu.of_machine_s()
        shutil.rmtree(self._folder, ignore_errors=True)
        self._folder.mkdir(parents=True)

    def prepare(self, *arguments: str) -> None:
        """Wait for programs and images. The tests that lack one are skipped, or fail if all are required."""
        if not self._commands.interrupted:
            self._commands.run({"prepare": [sys.executable, *PREPARE, *arguments]})

    def run_parts(self, *parts: Part) -> None:
        """Run them at the same time."""
        self._run(parts, {})

    def prepare_and_run(self, *parts: Part) -> None:
        """The same, while programs and images are made ready: only tests that come first begin before."""
        ready = self._folder / "ready"
        waits = ("-p", "tests.suite.ready", f"--ready={ready}")
        prepare = shlex.join([sys.executable, *PREPARE, "--nice"])
        # Whatever becomes of it, the tests go on and say what they lack; it cleans up after an interrupt.
        command = ["sh", "-c", f"trap : INT; {prepare}; touch {shlex.quote(str(ready))}"]
        self._run(parts, {"prepare": command}, waits)

    def _run(self, parts: Sequence[Part], others: dict[str, list[str]], more: Sequence[str] = ()) -> None:
        if self._commands.interrupted:
            return
        ended = self._commands.run({part.name: self._command(part, *more) for part in parts} | others)
        for part in parts:
            if part.first is not None:
                result = record.read(self._file(part.first))
                wall_s = 0.0 if result is None else result.wall_s
                self.run.parts.append(Ran(part=part.first, record=result, wall_s=wall_s))
            result = record.read(self._file(part))
            self.run.parts.append(Ran(part=part, record=result, wall_s=ended[part.name].wall_s))

    def _file(self, part: Part) -> Path:
        return self._folder / f"{part.name}.json"

    def _command(self, part: Part, *more: str) -> list[str]:
        files = [str(self._file(one)) for one in (part.first, part) if one is not None]
        settings = {record.ENV_RECORD: os.pathsep.join(files), **part.environment}
        variables = [f"{key}={value}" for key, value in settings.items()]
        return [
            "env",
            *variables,
            sys.executable,
            "-m",
            "pytest",
            "-p",
            "tests.suite.record",
            *more,
            *part.arguments,
        ]

    def run_failed_again(self) -> None:
        """Each alone; what passes is unsteady."""
        failures = self.run.failures()
        tests = [failure for failure in failures if failure.is_a_test]
        if os.environ.get(ENV_STRICT) == "1" or len(tests) > MAX_RUN_AGAIN or self._commands.interrupted:
            return
        for number, failure in enumerate(tests):
            print(f"\nonce more, alone: {failure.nodeid}", flush=True)
            again = Part(name=f"again-{number}", arguments=("-q", failure.nodeid))
            self._commands.run({again.name: self._command(again)})
            result = record.read(self._file(again))
            if result is not None and not result.failures and result.outcomes:
                self.run.unsteady.append(failure.nodeid)
                keep(failure, self._unsteady)

    def finish(self) -> int:
        """Print the report; the exit status of the run."""
        self.run.wall_s = time.monotonic() - self._started_s
        if self._machine_s is not None:
            self.run.machine_cpu_s = (cpu.of_machine_s() or 0.0) - self._machine_s
        print("\n" + "\n".join(report.lines(self.run)), flush=True)
        return int(bool(self._commands.interrupted or self.run.failures() or self.run.missing()))


def keep(failure: Failure, folder: Path) -> None:
    folder.mkdir(parents=True, exist_ok=True)
    name = "".join(letter if letter.isalnum() or letter in "-_." else "_" for letter in failure.nodeid)
    # The longest name of a file on Linux has 255 bytes.
    (folder / f"{name[-200:]}.txt").write_text(f"{failure.nodeid}\n\n{failure.why}\n\n{failure.output}\n")


def check() -> int:
    suite = Suite()
    suite.run_parts(FAST)
    suite.run_failed_again()
    return suite.finish()


def test() -> int:
    suite = Suite()
    suite.prepare_and_run(STORIES, CLUSTER)
    suite.run_failed_again()
    return suite.finish()


def cluster() -> int:
    suite = Suite()
    suite.prepare("--cluster")
    suite.run_parts(CLUSTER)
    suite.run_failed_again()
    return suite.finish()


def deep(minutes: float | None, number: int) -> int:
    os.environ[seed.ENV_SEED] = str(number)
    again = f"make check-deep{f' MINUTES={minutes:g}' if minutes else ''} SEED={number}"
    print(f"seed {number}; the same again: {again}", flush=True)
    suite = Suite()
    with_ipv6 = minutes is None or (minutes >= IPV6_FROM_MINUTES and number % IPV6_EVERY == 0)
    suite.prepare()
    if with_ipv6 and minutes:
        minutes -= IPV6_FROM_MINUTES / 2
    suite.run_parts(deep_part(number, minutes))
    if with_ipv6:
        suite.run_parts(IPV6)
    status = suite.finish()
    print(f"seed {number}; the same again: {again}", flush=True)
    return status


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.suite")
    parser.add_argument("tier", choices=["check", "test", "cluster", "deep"])
    parser.add_argument("--minutes", type=float, help="of the long tests, as many as fit")
    parser.add_argument("--seed", type=int, help="of the long tests; a new one by default")
    options = parser.parse_args()
    if options.tier == "deep":
        number = secrets.randbelow(1_000_000) if options.seed is None else options.seed
        return deep(options.minutes, number)
    return {"check": check, "test": test, "cluster": cluster}[options.tier]()


if __name__ == "__main__":
    sys.exit(main())
