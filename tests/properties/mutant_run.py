"""Runs each mutant of a coordinator against a small search and then against the fast tests of its rules.

    python -m tests.properties.mutant_run SUBJECT [NAME ...]

prints one line of JSON per mutant of a subject (``domain``, ``kafka``): its name and what noticed it
(``search``, ``tests``, ``nothing``). It is a process of its own, which has not imported the rules, and forks
one child per mutant; in the child the changed module takes the place of the production one. A child that
computes for `CPU_LIMIT_S` counts as noticed: it does not end.
"""

import importlib.abc
import importlib.machinery
import io
import json
import os
import resource
import sys
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
SYSTEMS = 400  # of the search, for each setup
CPU_LIMIT_S = 60  # of processor time, which does not pass while other processes run
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


def _search(subject: Subject) -> None:
    for model in import_module(f"tests.properties.{subject.name}.test_search").models():
        search(model, systems=SYSTEMS)


def _try(subject: Subject, mutant: Mutant) -> int:
    resource.setrlimit(resource.RLIMIT_CPU, (CPU_LIMIT_S, CPU_LIMIT_S))
    assert not any(name.startswith(f"{subject.package}.") for name in sys.modules)
    sys.meta_path.insert(0, _MutantFinder(subject, mutant))
    try:
        _search(subject)
    except Exception:  # noqa: BLE001 - any failure means that the mutant was noticed
        return SEARCH
    options = ["-x", "-q", "--noconftest", "-p", "no:cacheprovider"]
    tests = (f"{subject.test_folder}/test_{name}.py" for name in subject.tests)
    with redirect_stdout(io.StringIO()), redirect_stderr(io.StringIO()):
        passed = pytest.main([*options, *tests]) == pytest.ExitCode.OK
    return NOTHING if passed else PYTEST


def _start(subject: Subject, mutant: Mutant) -> int:
    pid = os.fork()
    if pid == 0:
        code = PYTEST
        try:
            code = _try(subject, mutant)
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
    # The same examples in every run, and no deadline: other work on the machine must not count as noticing.
    hypothesis.settings.register_profile("steady", deadline=None, derandomize=True, database=None)
    hypothesis.settings.load_profile("steady")
    subject = import_module(f"tests.properties.{subject_name}.subject").SUBJECT
    running: dict[int, Mutant] = {}
    for mutant in mutants(subject):
        if not names or mutant.name in names:
            if len(running) >= PARALLEL:
                _wait_for_one(running)
            running[_start(subject, mutant)] = mutant
    while running:
        _wait_for_one(running)


if __name__ == "__main__":
    main(sys.argv[1], sys.argv[2:])
