"""The last lines of a run, from recorded parts."""

import pytest

from tests.suite import cpu
from tests.suite.parts import Part
from tests.suite.record import SHORT_S, Cost, Failure, Meter, Record
from tests.suite.report import FAILURE_LINES, Ran, Run, count_line, lines

WHY = """
    def test_it():
>       assert answer == 200
E       assert 500 == 200

tests/test_web.py:7: AssertionError
"""


def ran(name: str, *, wall_s: float = 50, failures: tuple[str, ...] = (), **more: object) -> Ran:
    output = "[Captured stdout]\n" + "line of output\n" * 100 + "the end"
    record = Record(
        outcomes={"passed": 3, "failed": len(failures)},
        failures=[Failure(nodeid, WHY, output) for nodeid in failures],
        cpu_s=100,
        **more,  # type: ignore[arg-type]
    )
    return Ran(part=Part(name=name, arguments=(), wall_s=60, cpu_s=120), record=record, wall_s=wall_s)


def test_each_part_has_its_cost_and_its_budget() -> None:
    run = Run(parts=[ran("fast"), ran("stories", wall_s=61)], wall_s=115, machine_cpu_s=230.4)
    table = lines(run)[:4]
    assert [line.split() for line in table] == [
        ["part", "cases", "wall", "CPU", "budget", "(wall,", "CPU)"],
        ["fast", "3", "0:50", "1:40", "1:00,", "2:00"],
        ["stories", "3", "1:01", "1:40", "1:00,", "2:00"],
        ["in", "all", "6", "1:55", "3:20", "(CPU", "of", "the", "whole", "machine:", "3:50)"],
    ]


def test_the_dearest_tests_of_all_parts_are_named() -> None:
    costs = {f"test_{number}": Cost(wall_s=number, cpu_s=100 - number) for number in range(20)}
    said = lines(Run(parts=[ran("fast", costs=costs), ran("stories", costs={"test_last": Cost(1, 99.5)})]))
    start = next(number for number, line in enumerate(said) if "dearest" in line) + 1
    assert said[start].split() == ["100.0", "0.0", "test_0"]
    assert said[start + 1].split() == ["99.5", "1.0", "test_last"]
    assert said[start + 10] == ""


def test_a_process_that_ends_in_a_short_test_is_charged_once(monkeypatch: pytest.MonkeyPatch) -> None:
    """A short test does not look at other processes: what they took is charged to the next one that does."""
    clock = {"process": 0.0, "descendants": 0.0}
    monkeypatch.setattr(cpu, "of_process_s", lambda: clock["process"])
    monkeypatch.setattr(cpu, "of_descendants_s", lambda: clock["descendants"])
    meter, charged = Meter(), []
    for process_s, descendants_s, wall_s in ((1, 4, 1.0), (2, 5, SHORT_S / 2), (3, 6, 1.0), (4, 0, 1.0)):
        clock |= {"process": process_s, "descendants": descendants_s}
        charged.append(meter.lap(wall_s))
    assert charged == [5, 1, 3, 1]


def test_the_last_line_counts_all_parts_with_the_reasons_of_skips() -> None:
    skipped = {"no Java: install it": 3}
    run = Run(
        parts=[
            ran("fast", failures=("test_a",), skipped=skipped),
            ran("stories", skipped={"no etcd": 1}),
        ]
    )
    run.parts.append(Ran(part=Part(name="cluster", arguments=()), record=None, wall_s=3))
    assert lines(run)[-1] == (
        "0 test functions, 7 cases ran (6 passed, 1 failed), 4 skipped: "
        "3 because no Java: install it; 1 because no etcd; not run to the end: cluster"
    )


def test_a_function_is_counted_once_and_each_of_its_cases() -> None:
    cases = {
        name: Cost() for name in ("test_a.py::test_x[1-[]]", "test_a.py::test_x[2]", "test_a.py::test_y")
    }
    run = Run(parts=[ran("fast", costs=cases), ran("stories", costs={"test_b.py::test_x[1]": Cost()})])
    assert count_line(run) == "3 test functions, 6 cases ran (6 passed, 0 failed), 0 skipped"


def test_an_unsteady_test_has_passed_and_is_named() -> None:
    run = Run(parts=[ran("fast", failures=("test_a", "test_b"))], unsteady=["test_b"])
    assert [failure.nodeid for failure in run.failures()] == ["test_a"]
    said = lines(run)
    assert said[-1] == count_line(run) == "0 test functions, 5 cases ran (4 passed, 1 failed), 0 skipped"
    assert said[-3:-1] == [
        "unsteady: 1 failed, and passed when run again, alone (build/unsteady):",
        "  test_b",
    ]


def test_a_part_over_its_budget_by_half_is_named_last() -> None:
    within, over = ran("fast", wall_s=89), ran("stories", wall_s=91)
    assert lines(Run(parts=[within, over]))[-1] == "over budget by half or more: stories took 1:31 of 1:00"
    assert "over budget" not in lines(Run(parts=[within]))[-1]


def test_a_failure_is_named_with_its_error_its_place_and_the_end_of_its_output() -> None:
    said = lines(Run(parts=[ran("fast", failures=("test_a",))]))
    start = said.index("FAILED test_a")
    assert said[start + 1 : start + 3] == ["E       assert 500 == 200", "tests/test_web.py:7: AssertionError"]
    assert "    | the end" in said


def test_the_last_60_lines_have_every_failure_that_there_is_room_for() -> None:
    for number in (1, 2, 5, 17, 18, 400):
        names = tuple(f"test_{index}" for index in range(number))
        said = lines(Run(parts=[ran("fast", failures=names), ran("stories"), ran("cluster")]))
        assert len(said) - said.index("FAILED test_0") <= 60
        shown = [line for line in said if line.startswith("FAILED")]
        assert len(shown) == min(number, FAILURE_LINES // 2)
        assert (f"and {number - len(shown)} more" in said) == (number > len(shown))
