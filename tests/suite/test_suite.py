"""A run of several parts with a failing test: run again, alone, and kept if it passes then."""

import os
import re
from pathlib import Path

import pytest

from tests.suite import inner
from tests.suite.__main__ import Suite
from tests.suite.parts import Part
from tests.suite.record import Failure, Record
from tests.suite.report import Ran

pytestmark = pytest.mark.long

ONCE = """
import os
from pathlib import Path
def test_good(): pass
def test_by_chance():
    runs = Path("runs")
    with runs.open("a") as file:
        file.write("run\\n")
    print("what was captured")
    assert runs.read_text().count("run") > 1
"""
BAD = "def test_bad(): assert False"
ENDS = "def test_ends():\n    import os\n    os._exit(0)"


def files_in(folder: Path) -> list[str]:
    return os.listdir(folder) if folder.exists() else []


def test_a_test_that_passes_alone_is_unsteady_and_its_failure_is_kept(tmp_path: Path) -> None:
    inner.write(tmp_path, {"first/test_a.py": ONCE, "second/test_b.py": "def test_good(): pass"})
    status, printed = inner.suite(tmp_path, "first,second")
    assert status == 0, printed
    assert "once more, alone: first/test_a.py::test_by_chance" in printed
    assert printed.splitlines()[-3:] == [
        "unsteady: 1 failed, and passed when run again, alone (build/unsteady):",
        "  first/test_a.py::test_by_chance",
        "3 test functions, 3 cases ran (3 passed, 0 failed), 0 skipped",
    ]
    (kept,) = files_in(tmp_path / "build" / "unsteady")
    text = (tmp_path / "build" / "unsteady" / kept).read_text()
    assert "first/test_a.py::test_by_chance" in text
    assert "what was captured" in text
    assert 'assert runs.read_text().count("run") > 1' in text


def test_what_fails_twice_is_not_collected_or_does_not_end_fails_the_run(tmp_path: Path) -> None:
    files = {"first": BAD, "second": ONCE, "third": "import no_such_module", "fourth": ENDS}
    inner.write(tmp_path, {f"{part}/test_{part}.py": text for part, text in files.items()})
    status, printed = inner.suite(tmp_path, ",".join(files))
    assert status == 1
    report = printed.split("the 10 dearest")[1]
    assert "FAILED first/test_first.py::test_bad" in report
    assert "FAILED third/test_third.py" in report
    assert "  second/test_second.py::test_by_chance" in report
    last = "3 test functions, 4 cases ran (2 passed, 2 failed), 0 skipped; not run to the end: fourth"
    assert printed.splitlines()[-1] == last
    assert len(files_in(tmp_path / "build" / "unsteady")) == 1


def test_each_of_these_alone_fails_the_run(tmp_path: Path) -> None:
    failure = Failure("test_a", "why", "")
    for record in (Record(failures=[failure]), None):
        suite = Suite(tmp_path)
        suite.run.parts.append(Ran(part=Part(name="first", arguments=()), record=record, wall_s=1))
        assert suite.finish() == 1


def test_a_strict_run_repeats_nothing(tmp_path: Path) -> None:
    inner.write(tmp_path, {"first/test_a.py": ONCE})
    status, printed = inner.suite(tmp_path, "first", LOGHUB_TEST_STRICT="1")
    assert status == 1
    assert "once more" not in printed
    assert printed.splitlines()[-1] == "2 test functions, 2 cases ran (1 passed, 1 failed), 0 skipped"


def test_more_failures_than_chance_explains_are_not_repeated(tmp_path: Path) -> None:
    many = "import pytest\n@pytest.mark.parametrize('n', range(11))\ndef test_bad(n): assert False"
    inner.write(tmp_path, {"first/test_a.py": many})
    status, printed = inner.suite(tmp_path, "first")
    assert status == 1
    assert "once more" not in printed


@pytest.mark.parametrize("prepare", ["open('prepared', 'w')", "import os; os.kill(os.getpid(), 9)"])
def test_stories_and_cluster_begin_when_all_is_prepared_and_fast_tests_before(
    prepare: str, tmp_path: Path
) -> None:
    """They begin, too, if the preparation is killed."""
    waits = "import time\nfrom pathlib import Path\n"
    waits += "for _ in range(1200):\n    if Path('fast').exists(): break\n    time.sleep(0.1)\n"
    stories = """
from pathlib import Path
import pytest
def test_fast(): Path("fast").touch()
@pytest.mark.deep
def test_story(): assert Path("prepared").exists()
"""
    cluster = "from pathlib import Path\ndef test_cluster(): assert Path('prepared').exists()"
    inner.write(tmp_path, {"stories/test_a.py": stories, "cluster/test_b.py": cluster})
    program = f"""
import sys
from dataclasses import replace
from pathlib import Path
from tests.suite import __main__ as main, parts
main.PREPARE = ("-c", {waits + prepare!r})
suite = main.Suite(Path.cwd())
forks = (*parts.FORKS, "--forks=2", "--first-without=deep")
suite.prepare_and_run(
    replace(parts.STORIES, arguments=(*forks, "stories")), replace(parts.CLUSTER, arguments=("cluster",))
)
sys.exit(suite.finish())
"""
    status, printed = inner.run(tmp_path, "-c", program)
    failed = [] if "prepared" in prepare else ["test_story", "test_cluster"]
    assert status == bool(failed), printed
    report = printed.split("the 10 dearest")[1]
    assert re.findall(r"FAILED .*::(\w+)", report) == failed
    table = [line.split()[:2] for line in printed.split("part ")[-1].splitlines()[1:4]]
    assert table == [["fast", "1"], ["stories", "1"], ["cluster", "1"]]
    assert f"3 cases ran ({3 - len(failed)} passed, {len(failed)} failed)" in printed


def test_a_test_is_charged_for_the_cpu_of_the_processes_that_it_starts(tmp_path: Path) -> None:
    text = """
import subprocess, sys
import pytest
SPIN = "import time\\nend = time.process_time() + 0.3\\nwhile time.process_time() < end: pass\\n"
def test_ended(): subprocess.run([sys.executable, "-c", SPIN], check=True)
@pytest.fixture
def living():
    command = [sys.executable, "-c", SPIN + "print(flush=True); input()"]
    with subprocess.Popen(command, stdin=-1, stdout=-1) as child:
        child.stdout.readline()
        yield
        child.stdin.close()
def test_living(living): pass
def test_cheap(): pass
"""
    inner.write(tmp_path, {"first/test_a.py": text})
    _, printed = inner.suite(tmp_path, "first", "-p", "tests.suite.forks", "--forks=2")
    cpu_s = {
        line.split()[2]: float(line.split()[0]) for line in printed.splitlines() if "test_a.py::" in line
    }
    assert cpu_s["first/test_a.py::test_ended"] >= 0.3
    assert cpu_s["first/test_a.py::test_living"] >= 0.3
    assert cpu_s["first/test_a.py::test_cheap"] < 0.3
