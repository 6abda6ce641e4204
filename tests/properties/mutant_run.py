"""Runs each mutant of the rules against a search and the fast tests of these rules, until it is noticed.

    python -m tests.properties.mutant_run SUBJECT [NAME ...]

prints one line of JSON per mutant of a subject (``domain``, ``kafka``, ``subscription``): its name and what
noticed it (``search``, ``tests``, ``nothing``). It is a process of its own, which has not imported the rules,
and forks one child per mutant; in the child the changed module takes the place of the production one. A child
that computes for `ENDLESS` times as long as the unchanged rules, or for `FIRST_ENDLESS` times as long before
the longer search, counts as noticed: it does not end.

What is cheap comes first: the first events of each setup, then the tests, those of the changed module before
the others, and only then a longer search.
"""

import importlib.abc
import importlib.machinery
import io
import json
import math
import os
import resource
import sys
import time
from collections.abc import Sequence
from contextlib import redirect_stderr, redirect_stdout
from importlib import import_module
from pathlib import Path
from types import ModuleType

import hypothesis
import pytest

from tests.properties.mutants import Mutant, Subject, mutants
from tests.properties.search import search

ROOT = Path(__file__).parents[2]
FIRST_SYSTEMS, SYSTEMS = 30, 400  # of the two searches, for each setup
# Times the processor time, which does not pass while other processes run, that the unchanged rules need until
# the tests have passed, such as 1 s. The longer search takes three times as much as what is before it.
FIRST_ENDLESS, ENDLESS = 5, 15
PARALLEL = 2
NOTHING, SEARCH, PYTEST, UNENDING = 0, 1, 2, 3
NOTICED_BY = {NOTHING: "nothing", SEARCH: "search", PYTEST: "tests"}


class _MutantFinder(importlib.abc.MetaPathFinder, importlib.abc.Loader):
    def __init__(self, subject: Subject, mutant: Mutant) -> None:
        self._module = f"{subject.package}.{mutant.module}"
        self._source = mutant.source

    def find_spec(
        self, name: str, path: Sequence[str] | None, target: ModuleType | None = None
    ) -> importlib.machinery.ModuleSpec | None:
        return importlib.machinery.ModuleSpec(name, self) if name == self._module else None

    def create_module(self, spec: importlib.machinery.ModuleSpec) -> None:
        """The default."""

    def exec_module(self, module: ModuleType) -> None:
        exec(compile(self._source, f"<mutant of {self._module}>", "exec"), module.__dict__)


def _is_found(subject: Subject, systems: int) -> bool:
    try:
        for model in import_module(f"tests.properties.{subject.name}.test_search").models():
            search(model, systems=systems)
    except Exception:  # noqa: BLE001 - any failure means that the mutant was noticed
        return True
    return False


def _is_found_in_lives(subject: Subject) -> bool:
    """Of subjects that have random lives of their own."""
    module = import_module(f"tests.properties.{subject.name}.test_search")
    try:
        for live in getattr(module, "lives", tuple)():
            live()
    except Exception:  # noqa: BLE001
        return True
    return False


def _fails(subject: Subject, *, first_module: str) -> bool:
    """Without the project's settings and the plugins that these need; no failure is reported."""
    in_order = sorted(subject.tests, key=lambda name: name != first_module)
    tests = (f"{subject.test_folder}/test_{name}.py" for name in in_order)
    options = ["-x", "-q", "--tb=no", "--assert=plain", "--import-mode=importlib", "-c", os.devnull]
    options += ["--rootdir", str(ROOT), "--noconftest", "-p", "no:cacheprovider"]
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        return pytest.main([*options, *tests]) != pytest.ExitCode.OK


def _unchanged_s(subject: Subject) -> float:
    """The processor time of a child with the unchanged rules until the tests have passed."""
    reader, writer = os.pipe()
    pid = os.fork()
    if pid == 0:
        try:
            if not _is_found(subject, FIRST_SYSTEMS) and not _fails(subject, first_module=""):
                os.write(writer, str(time.process_time()).encode())
        finally:
            os._exit(0)
    os.close(writer)
    os.waitpid(pid, 0)
    with open(reader, encoding="ascii") as pipe:
        measured = pipe.read()
    assert measured, "the unchanged rules do not pass"
    return float(measured)


def _try(subject: Subject, mutant: Mutant, unchanged_s: float) -> int:
    limit_s = math.ceil(ENDLESS * unchanged_s)
    resource.setrlimit(resource.RLIMIT_CPU, (math.ceil(FIRST_ENDLESS * unchanged_s), limit_s))
    assert not any(name.startswith(f"{subject.package}.") for name in sys.modules)
    sys.meta_path.insert(0, _MutantFinder(subject, mutant))
    if _is_found(subject, FIRST_SYSTEMS):
        return SEARCH
    if _fails(subject, first_module=mutant.module):
        return PYTEST
    resource.setrlimit(resource.RLIMIT_CPU, (limit_s, limit_s))
    return SEARCH if _is_found_in_lives(subject) or _is_found(subject, SYSTEMS) else NOTHING


def _start(subject: Subject, mutant: Mutant, unchanged_s: float) -> int:
    pid = os.fork()
    if pid == 0:
        code = PYTEST
        try:
            code = _try(subject, mutant, unchanged_s)
        finally:
            os._exit(code)
    return pid


def _wait_for_one(running: dict[int, Mutant]) -> None:
    pid, status = os.wait()
    code = os.waitstatus_to_exitcode(status)
    noticed = NOTICED_BY.get(code, "it does not end")
    print(json.dumps({"name": running.pop(pid).name, "noticed_by": noticed}), flush=True)


def main(subject_name: str, names: Sequence[str]) -> None:
    os.chdir(ROOT)
    os.environ["PYTEST_DISABLE_PLUGIN_AUTOLOAD"] = "1"
    # The same examples in every run, and no deadline: other work on the machine must not count as noticing.
    # Nor does anyone read the smallest example of a failure.
    generate = (hypothesis.Phase.explicit, hypothesis.Phase.generate)
    hypothesis.settings.register_profile(
        "steady", deadline=None, derandomize=True, database=None, phases=generate
    )
    hypothesis.settings.load_profile("steady")
    subject = import_module(f"tests.properties.{subject_name}.subject").SUBJECT
    unchanged_s = _unchanged_s(subject)
    running: dict[int, Mutant] = {}
    for mutant in mutants(subject):
        if not names or mutant.name in names:
            if len(running) >= PARALLEL:
                _wait_for_one(running)
            running[_start(subject, mutant, unchanged_s)] = mutant
    while running:
        _wait_for_one(running)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
