"""One line over all parts of `make test`: how many tests ran, how many were skipped, and why.

`make test` runs pytest several times. Each run that has ``LOGHUB_TEST_TOTALS=FILE`` in its environment
records its outcomes in that file, and at the end

``python -m tests.totals FOLDER PART...``

adds up the files ``FOLDER/PART.json``. A part without a file did not run to its end.
"""

import argparse
import json
import os
from collections import Counter
from dataclasses import dataclass, field
from pathlib import Path

import pytest

ENV_TOTALS = "LOGHUB_TEST_TOTALS"
_RAN = ("passed", "failed", "error", "xfailed", "xpassed")


@dataclass(slots=True)
class Totals:
    """Numbers of tests by outcome, and of skipped ones by reason."""

    outcomes: Counter[str] = field(default_factory=Counter)
    skipped: Counter[str] = field(default_factory=Counter)
    missing: list[str] = field(default_factory=list)

    def line(self) -> str:
        numbers = [f"{self.outcomes[name]} {name}" for name in _RAN if self.outcomes[name]]
        text = f"{self.outcomes.total()} tests ran ({', '.join(numbers) or 'none'})"
        reasons = "; ".join(f"{number} because {reason}" for reason, number in self.skipped.most_common())
        text += f", {self.skipped.total()} skipped" + (f": {reasons}" if reasons else "")
        return text + (f"; not run to the end: {', '.join(self.missing)}" if self.missing else "")


def pytest_terminal_summary(terminalreporter: pytest.TerminalReporter) -> None:
    """With pytest-xdist only the process that collects all reports has a terminal."""
    file = os.environ.get(ENV_TOTALS)
    if not file:
        return
    stats = terminalreporter.stats
    outcomes = {name: len(stats[name]) for name in _RAN if name in stats}
    skipped = Counter(_reason(report) for report in stats.get("skipped", []))
    Path(file).parent.mkdir(parents=True, exist_ok=True)
    Path(file).write_text(json.dumps({"outcomes": outcomes, "skipped": skipped}))


def _reason(report: pytest.TestReport | pytest.CollectReport) -> str:
    # A file, a line and the reason.
    text = report.longrepr[2] if isinstance(report.longrepr, tuple) else str(report.longrepr)
    return " ".join(text.removeprefix("Skipped: ").split())


def add_up(folder: Path, parts: list[str]) -> Totals:
    totals = Totals()
    for part in parts:
        try:
            record = json.loads((folder / f"{part}.json").read_text())
        except FileNotFoundError:
            totals.missing.append(part)
            continue
        totals.outcomes.update(record["outcomes"])
        totals.skipped.update(record["skipped"])
    return totals


def main() -> int:
    parser = argparse.ArgumentParser(prog="python -m tests.totals")
    parser.add_argument("folder", type=Path)
    parser.add_argument("parts", nargs="+")
    options = parser.parse_args()
    print(add_up(options.folder, options.parts).line())
    return 0


if __name__ == "__main__":
    raise SystemExit(main())
