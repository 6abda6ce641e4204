"""Several test processes: what they share, what they report, and what happens if one of them ends."""

import json
import re
import signal
from pathlib import Path

import pytest

from tests.suite import inner

pytestmark = pytest.mark.long

SHARED = """
import os, sys
from pathlib import Path
import pytest
NOTES = Path(__file__).parent / "notes"
def note(text):
    with NOTES.open("a") as file:
        file.write(f"{os.getpid()} {text}\\n")
@pytest.fixture(scope="session")
def server():
    note("server starts")
    yield
    note("server ends")
"""
FILE = """
import pytest
from conftest import note
@pytest.fixture(scope="module")
def topic(server):
    note(__name__ + " topic starts")
    yield
    note(__name__ + " topic ends")
@pytest.mark.parametrize("number", range(3))
def test_it(number, topic, tmp_path):
    note(__name__ + f" {number}")
"""


def notes(folder: Path) -> dict[str, list[str]]:
    """By process, in order."""
    by_process: dict[str, list[str]] = {}
    for line in (folder / "notes").read_text().splitlines():
        pid, _, text = line.partition(" ")
        by_process.setdefault(pid, []).append(text)
    return by_process


def test_a_file_is_run_in_one_process_which_starts_once_what_its_files_share(tmp_path: Path) -> None:
    inner.write(tmp_path, {"conftest.py": SHARED, **{f"test_{name}.py": FILE for name in "abcde"}})
    status, printed = inner.pytest(tmp_path, "-q", "--forks=2")
    assert status == 0, printed
    assert "15 passed" in printed
    processes = notes(tmp_path)
    assert len(processes) == 2
    files = []
    for first, *within, last in processes.values():
        assert (first, last) == ("server starts", "server ends")
        for position in range(0, len(within), 5):
            name, _, _ = within[position].partition(" ")
            steps = ["topic starts", "0", "1", "2", "topic ends"]
            assert within[position : position + 5] == [f"{name} {step}" for step in steps]
            files.append(name)
    assert sorted(files) == [f"test_{name}" for name in "abcde"]


def test_what_few_processes_may_run_comes_first_and_then_what_is_named(tmp_path: Path) -> None:
    plain = "def test_it(): print('ran', __name__)"
    marked = "import pytest\n@pytest.mark.spark\n" + plain
    inner.write(tmp_path, {"test_a.py": plain, "test_b.py": plain, "test_c.py": marked, "test_d.py": plain})
    status, printed = inner.pytest(tmp_path, "-q", "-s", "--forks=1", "--first=test_d.py")
    assert status == 0, printed
    assert re.findall(r"ran (\w+)", printed) == ["test_c", "test_d", "test_a", "test_b"]


MIXED = """
import pytest
from conftest import note
@pytest.mark.spark
def test_spark(): note(__name__ + " spark")
def test_fast(): note(__name__ + " fast")
@pytest.mark.deep
def test_story(): note(__name__ + " story")
@pytest.mark.skipif("__name__ != 'test_b'")
def test_bad(): assert 1 == 2
"""


def test_what_has_none_of_the_marks_comes_first_and_its_failures_are_shown_before_the_others_end(
    tmp_path: Path,
) -> None:
    """Of each file the others stay together. Each part has a record of its own."""
    inner.write(tmp_path, {"conftest.py": SHARED, **{f"test_{name}.py": MIXED for name in "abc"}})
    files = [tmp_path / "fast.json", tmp_path / "stories.json"]
    status, printed = inner.pytest(
        tmp_path,
        *("-v", "--forks=1", "--first-without=spark,deep", "--first=test_c.py"),
        LOGHUB_TEST_RECORD=":".join(map(str, files)),
    )
    assert status == 1
    ((*first, _1, _2, _3, _4, _5, _6),) = notes(tmp_path).values()
    assert sorted(first) == ["test_a fast", "test_b fast", "test_c fast"]
    ((*_, c1, c2, a1, a2, b1, b2),) = notes(tmp_path).values()
    assert (c1, c2) == ("test_c spark", "test_c story")
    assert (a1, a2, b1, b2) == ("test_a spark", "test_a story", "test_b spark", "test_b story")
    early, _, late = printed.partition("all tests without spark, deep have ended, 1 failed")
    assert "assert 1 == 2" in late.partition("test_spark PASSED")[0]
    assert "assert 1 == 2" not in early
    records = [json.loads(file.read_text()) for file in files]
    assert [one["outcomes"] for one in records] == [{"passed": 3, "failed": 1}, {"passed": 6}]
    assert [one["skipped"] != {} for one in records] == [True, False]
    assert 0 < records[0]["wall_s"] <= records[1]["wall_s"]
    assert all(one["cpu_s"] >= sum(cost["cpu_s"] for cost in one["costs"].values()) for one in records)


def test_other_tests_begin_when_the_run_is_ready_and_first_ones_before(tmp_path: Path) -> None:
    """It is ready when a process waits for that."""
    waits = """
from pathlib import Path
from tests.suite import forks
READY = Path(__file__).with_name("ready")
hand_out = forks._Run._hand_out
def hand_out_and_see(run, child):
    hand_out(run, child)
    if child.waits:
        READY.touch()
forks._Run._hand_out = hand_out_and_see
"""
    text = """
import pytest
from conftest import READY
def test_first(): assert not READY.exists()
@pytest.mark.deep
def test_story(): assert READY.exists()
"""
    inner.write(tmp_path, {"conftest.py": waits, **{f"test_{name}.py": text for name in "abc"}})
    plugins = ("-p", "tests.suite.ready", f"--ready={tmp_path / 'ready'}")
    # One process runs all that come first before it can wait.
    status, printed = inner.pytest(tmp_path, *plugins, "--forks=1", "--first-without=deep")
    assert status == 0, printed
    assert "6 passed" in printed


def test_a_run_in_one_process_begins_when_it_is_ready(tmp_path: Path) -> None:
    waits = """
from pathlib import Path
from tests.suite import ready
ready.time.sleep = lambda _: Path(__file__).with_name("ready").touch()
"""
    test = "from pathlib import Path\ndef test_it(): assert Path(__file__).with_name('ready').exists()"
    inner.write(tmp_path, {"conftest.py": waits, "test_a.py": test})
    plugins = ("-p", "tests.suite.ready", f"--ready={tmp_path / 'ready'}")
    status, printed = inner.run(tmp_path, "-m", "pytest", *plugins)
    assert status == 0, printed


def test_reports_are_those_of_one_process(tmp_path: Path) -> None:
    text = """
import os, warnings
import pytest
warnings.warn("shown once, as the parent collects", DeprecationWarning)
def test_good(): pass
def test_bad():
    print("said by python")
    os.system("echo said by a program")
    assert 1 == 2
def test_skipped(): pytest.skip("no Java")
@pytest.fixture
def broken():
    yield
    raise OSError("no end")
def test_error(broken): pass
@pytest.mark.xfail
def test_known(): assert False
def test_warns(): warnings.warn("take care", DeprecationWarning)
"""
    inner.write(tmp_path, {"test_a.py": text, "test_b.py": text})
    status, printed = inner.pytest(tmp_path, "--forks=2", "-rs")
    assert status == 1
    assert "2 failed, 6 passed, 2 skipped, 2 xfailed, 4 warnings, 2 errors" in printed
    assert printed.count("\nsaid by python") == printed.count("\nsaid by a program") == 2
    assert printed.count("E       assert 1 == 2") == 2
    assert "no Java" in printed
    assert "take care" in printed


def test_a_test_whose_process_ends_has_failed_and_the_rest_of_its_file_runs(tmp_path: Path) -> None:
    text = """
import os, signal
import pytest
def test_before(): pass
def kill(): os.kill(os.getpid(), signal.SIGKILL)
def leave(): os._exit(0)
@pytest.mark.parametrize("end", [kill, leave])
def test_ends(end): end()
def test_after(): pass
"""
    inner.write(tmp_path, {"test_a.py": text, "test_b.py": "def test_good(): pass"})
    record = tmp_path / "record.json"
    status, printed = inner.pytest(tmp_path, "--forks=1", LOGHUB_TEST_RECORD=str(record))
    assert status == 1
    assert "2 failed, 3 passed" in printed
    failures = json.loads(record.read_text())["failures"]
    assert [(failure["nodeid"], failure["why"]) for failure in failures] == [
        ("test_a.py::test_ends[kill]", "the process of this test ended (SIGKILL)"),
        ("test_a.py::test_ends[leave]", "the process of this test ended (exit status 0)"),
    ]


def test_a_test_that_hangs_fails_with_the_stacks_of_its_threads(tmp_path: Path) -> None:
    text = """
import threading
import pytest
def test_before(): pass
@pytest.mark.timeout(1)
def test_hangs(): threading.Event().wait()
def test_after(): pass
"""
    inner.write(tmp_path, {"test_a.py": text})
    plugins = ("-p", "pytest_timeout", "-p", "tests.suite.hang_guard")
    options = ("--timeout=3600", "--timeout-method=thread", "--forks=1")
    status, printed = inner.pytest(tmp_path, *plugins, *options)
    assert status == 1
    assert "1 failed, 2 passed" in printed
    assert "threading.Event().wait()" in printed


def test_an_end_of_a_session_that_fails_is_a_failure(tmp_path: Path) -> None:
    text = """
import pytest
@pytest.fixture(scope="session")
def server():
    yield
    raise OSError("it does not end")
def test_good(server): pass
"""
    inner.write(tmp_path, {"test_a.py": text})
    status, printed = inner.pytest(tmp_path, "--forks=2")
    assert status == 1
    assert "1 failed, 1 passed" in printed
    assert "it does not end" in printed


def test_the_run_stops_at_the_first_failure_if_asked(tmp_path: Path) -> None:
    inner.write(tmp_path, {"test_a.py": "def test_bad(): assert False\ndef test_next(): pass"})
    status, printed = inner.pytest(tmp_path, "--forks=1", "-x")
    assert status == 1
    assert "1 failed in" in printed


def test_a_file_that_cannot_be_collected_fails_the_run(tmp_path: Path) -> None:
    inner.write(tmp_path, {"test_a.py": "import no_such_module", "test_b.py": "def test_good(): pass"})
    status, printed = inner.pytest(tmp_path, "--forks=2")
    assert status == 2
    assert "no_such_module" in printed


@pytest.mark.parametrize("ends", ["pass", "os.kill(os.getpid(), signal.SIGKILL)"], ids=["first", "replaced"])
def test_an_interrupt_lets_every_process_clean_up(ends: str, tmp_path: Path) -> None:
    """Those that have replaced others that died too; what they report may be more than a connection takes."""
    text = """
import os, signal, sys, time
import pytest
def test_first(): ENDS
@pytest.fixture
def server():
    yield
    print("cleaned up", file=sys.__stderr__)
def test_long(server):
    print("x" * 2_000_000)
    open(__name__, "w").close()
    for _ in range(600):  # an interrupt just before a wait begins does not end the wait, so each is short
        time.sleep(0.1)
"""
    text = text.replace("ENDS", ends)
    inner.write(tmp_path, {"test_a.py": text, "test_b.py": text})
    with inner.start(tmp_path, "-m", "pytest", "-p", "tests.suite.forks", "--forks=2") as running:
        inner.wait_for(tmp_path / "test_a", tmp_path / "test_b")
        running.send_signal(signal.SIGINT)
        printed, _ = running.communicate(timeout=inner.GUARD_S)
    assert running.returncode == 2
    assert printed.count("cleaned up") == 2


MARKED = "import pytest\nfrom conftest import note\n@pytest.mark.spark\ndef test_it(): note('spark')"
SHARES_A_SESSION = "from conftest import note\ndef test_it(spark): note('spark')"


@pytest.mark.parametrize("with_spark", [MARKED, SHARES_A_SESSION], ids=["marked", "shares a session"])
def test_spark_is_in_as_few_processes_as_it_needs(with_spark: str, tmp_path: Path) -> None:
    files = {f"test_{number}.py": with_spark for number in range(8)}
    patch = "from tests.suite import forks\nforks.SPARK_PROCESSES = 1\n"
    session = "@pytest.fixture(scope='session')\ndef spark(): pass\n"
    inner.write(tmp_path, {"conftest.py": patch + SHARED + session, **files, "test_plain.py": FILE})
    status, printed = inner.pytest(tmp_path, "--forks=3")
    assert status == 0, printed
    assert sum("spark" in said for said in notes(tmp_path).values()) == 1


def test_a_slice_is_chosen_by_its_seed_and_ends_in_time(tmp_path: Path) -> None:
    text = """
import pytest
@pytest.mark.deep
@pytest.mark.parametrize("number", range(9))
def test_short(number): pass
@pytest.mark.deep(minutes=3)
def test_long(): pass
"""
    inner.write(tmp_path, {"test_a.py": text})

    def order(seed: int, minutes: int) -> list[str]:
        arguments = ("--forks=1", f"--minutes={minutes}", "-p", "tests.suite.slices", "-v")
        _, printed = inner.pytest(tmp_path, *arguments, LOGHUB_TEST_SEED=str(seed))
        assert f"the seed {seed}" in printed
        return re.findall(r"(test_\w+(?:\[\d\])?) PASSED", printed)

    first = order(1, 5)
    assert sorted(first) == sorted(["test_long", *(f"test_short[{number}]" for number in range(9))])
    assert order(1, 5) == first
    assert order(2, 5) != first
    assert "test_long" not in order(1, 2)
