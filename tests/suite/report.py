"""The last lines of a run: what each part cost, the dearest tests, what failed and why, how many ran."""

from collections import Counter
from collections.abc import Iterable, Mapping
from dataclasses import dataclass, field

from tests.suite.parts import Part
from tests.suite.record import Cost, Failure, Record

DEAREST = 10
# A failed run is read by its last 60 lines, and 20 of them are the table and the dearest tests.
FAILURE_LINES = 36
MAX_LINES_OF_ONE = 18
MAX_COLUMNS = 160


@dataclass(slots=True, kw_only=True)
class Ran:
    """A part that was run; ``record`` is None if it did not come to its end."""

    part: Part
    record: Record | None
    wall_s: float


@dataclass(slots=True, kw_only=True)
class Run:
    """All parts of a run. ``unsteady`` are names of tests that failed, and passed when run again, alone."""

    parts: list[Ran] = field(default_factory=list)
    unsteady: list[str] = field(default_factory=list)
    wall_s: float = 0.0
    machine_cpu_s: float | None = None

    def failures(self) -> list[Failure]:
        """Those that count, one for each test."""
        first = {
            failure.nodeid: failure
            for ran in reversed(self.parts)
            if ran.record is not None
            for failure in reversed(ran.record.failures)
        }
        return [failure for nodeid, failure in reversed(first.items()) if nodeid not in self.unsteady]

    def missing(self) -> list[str]:
        return [ran.part.name for ran in self.parts if ran.record is None]

    def outcomes(self) -> Counter[str]:
        totals: Counter[str] = Counter()
        for ran in self.parts:
            totals.update(ran.record.outcomes if ran.record else {})
        return totals


def lines(run: Run) -> list[str]:
    said = [*_table(run), "", *_dearest(run)]
    if failures := run.failures():
        said += ["", *failure_lines(failures)]
    said.append("")
    if run.unsteady:
        said.append(
            f"unsteady: {len(run.unsteady)} failed, and passed when run again, alone (build/unsteady):"
        )
        said += [f"  {name}" for name in run.unsteady]
    said.append(count_line(run))
    said += _over_budget(run)
    return said


def count_line(run: Run) -> str:
    """Numbers of test functions and of their cases; unsteady ones have passed."""
    outcomes, skipped, functions = run.outcomes(), Counter[str](), set[str]()
    for ran in run.parts:
        if ran.record is not None:
            skipped.update(ran.record.skipped)
            functions |= {nodeid.partition("[")[0] for nodeid in ran.record.costs}
    again = len(run.unsteady)
    failed = outcomes["failed"] + outcomes["error"] - again
    passed = outcomes["passed"] + outcomes["xfailed"] + again
    text = f"{len(functions)} test functions, {passed + failed} cases ran ({passed} passed, {failed} failed)"
    text += f", {skipped.total()} skipped"
    if skipped:
        text += ": " + "; ".join(f"{number} because {reason}" for reason, number in skipped.most_common())
    return text + (f"; not run to the end: {', '.join(missing)}" if (missing := run.missing()) else "")


def _table(run: Run) -> Iterable[str]:
    yield f"{'part':10}{'cases':>8}{'wall':>9}{'CPU':>9}   budget (wall, CPU)"
    for ran in run.parts:
        record = ran.record or Record()
        budget = f"{_clock(ran.part.wall_s)}, {_clock(ran.part.cpu_s)}" if ran.part.wall_s else ""
        costs = f"{_clock(ran.wall_s):>9}{_clock(record.cpu_s):>9}"
        yield f"{ran.part.name:10}{sum(record.outcomes.values()):8}{costs}   {budget}".rstrip()
    machine = f"   (CPU of the whole machine: {_clock(run.machine_cpu_s)})" if run.machine_cpu_s else ""
    cpu_s = sum(ran.record.cpu_s for ran in run.parts if ran.record)
    yield f"{'in all':10}{run.outcomes().total():8}{_clock(run.wall_s):>9}{_clock(cpu_s):>9}{machine}"


def _dearest(run: Run) -> Iterable[str]:
    costs: dict[str, Cost] = {}
    for ran in run.parts:
        costs |= ran.record.costs if ran.record else {}
    yield f"the {DEAREST} dearest tests (CPU s, wall s):"
    for nodeid, cost in dearest(costs):
        yield f"{cost.cpu_s:7.1f}{cost.wall_s:8.1f}  {nodeid}"[:MAX_COLUMNS]


def dearest(costs: Mapping[str, Cost]) -> list[tuple[str, Cost]]:
    return sorted(costs.items(), key=lambda entry: -entry[1].cpu_s)[:DEAREST]


def failure_lines(failures: list[Failure]) -> list[str]:
    """What failed and why, with the end of what was captured, in `FAILURE_LINES` lines and a few."""
    each = max(2, min(MAX_LINES_OF_ONE, FAILURE_LINES // len(failures)))
    shown = failures[: FAILURE_LINES // 2]
    said = [line for failure in shown for line in _cut(failure, each)]
    if len(failures) > len(shown):
        said.append(f"and {len(failures) - len(shown)} more")
    return said


def _cut(failure: Failure, maximum: int) -> list[str]:
    """The name, the lines of the error, then the end of the output."""
    why = [line.rstrip() for line in failure.why.splitlines() if line.strip()]
    # pytest marks the lines of the error itself with an E; the last line of others says what happened.
    errors = [line for line in why if line.startswith("E ")] or why[-1:]
    place = [line for line in why[-1:] if line not in errors]
    said = [f"FAILED {failure.nodeid}", *(errors + place)[: max(1, (maximum - 1) // 2)]]
    output = [line.rstrip() for line in failure.output.splitlines() if line.strip()]
    room = maximum - len(said)
    said += [f"    | {line}" for line in output[-room:]] if room > 0 else []
    return [line[:MAX_COLUMNS] for line in said]


def _over_budget(run: Run) -> list[str]:
    over = [
        f"{ran.part.name} took {_clock(ran.wall_s)} of {_clock(ran.part.wall_s)}"
        for ran in run.parts
        if ran.part.wall_s and ran.wall_s > 1.5 * ran.part.wall_s
    ]
    return [f"over budget by half or more: {'; '.join(over)}"] if over else []


def _clock(seconds: float | None) -> str:
    """Minutes and seconds."""
    if seconds is None:
        return ""
    minutes, rest = divmod(round(seconds), 60)
    return f"{minutes}:{rest:02}"
