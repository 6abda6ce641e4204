"""Every condition, row, trigger and call of the domain's rules is needed: without it, a test fails.

`mutants` changes the rules in one place at a time, and `mutant_run` runs a small search and the fast tests of
the domain on each change. `make test` tries every 31st, with each module and each kind of change among them,
`make check-deep` all. What nothing noticed must be listed with the reason in ``surviving_mutants.txt``. One
mutant again:

    python -m tests.properties.mutant_run 'balance.balance: no not in `not names`'
"""

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.properties.mutants import DOMAIN, KAFKA, Mutant, Subject, mutants

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

ROOT = Path(__file__).parents[2]
SURVIVORS = Path(__file__).with_name("surviving_mutants.txt")
SAMPLE = 31


def listed(path: Path) -> dict[str, str]:
    """Name -> why nothing can notice this mutant."""
    lines = path.read_text(encoding="utf-8").splitlines()
    return dict(line.split(" -- ") for line in lines if line and not line.startswith("#"))


def kind(mutant: Mutant) -> str:
    what = mutant.name.partition(": ")[2]
    first = what.split()[0]
    return first if first in ("drop", "negate", "no", "off", "row") else "another"


def sample(every: Sequence[Mutant], step: int) -> list[str]:
    """The names of every so many, and the first of each module and of each kind of change not among them."""
    chosen = list(every[::step])
    for aspect in (lambda mutant: mutant.module, kind):
        for mutant in every:
            if aspect(mutant) not in map(aspect, chosen):
                chosen.append(mutant)
    return [mutant.name for mutant in chosen]


def survivors(names: list[str], *options: str) -> set[str]:
    command = [sys.executable, "-m", "tests.properties.mutant_run", *options, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    results = [json.loads(line) for line in done.stdout.splitlines()]
    assert {result["name"] for result in results} == set(names)
    print(f"{len(results)} mutants, noticed by:", dict(Counter(r["noticed_by"] for r in results)))
    return {result["name"] for result in results if result["noticed_by"] == "nothing"}


def test_every_mutant_of_a_sample_is_noticed_or_explained() -> None:
    assert survivors(sample(mutants(), SAMPLE)) <= set(listed(SURVIVORS))


@pytest.mark.deep(minutes=10)
def test_every_mutant_is_noticed_or_explained() -> None:
    names = [mutant.name for mutant in mutants()]
    assert survivors(names) == set(listed(SURVIVORS))


def test_mutants_have_different_names_and_sources() -> None:
    every = mutants()
    assert len({mutant.name for mutant in every}) == len(every)
    assert len({(mutant.module, mutant.source) for mutant in every}) == len(every)


def test_every_explained_mutant_exists() -> None:
    assert set(listed(SURVIVORS)) <= {mutant.name for mutant in mutants()}


@pytest.mark.parametrize("subject", [DOMAIN, KAFKA], ids=["domain", "kafka"])
def test_what_a_mutant_swaps_exists(subject: Subject) -> None:
    """A mutant that used a missing name would be noticed by that, and show nothing of the tests."""
    names: dict[str, object] = {}
    for module in subject.modules:
        names |= vars(importlib.import_module(f"{subject.package}.{module}"))
    for row in (subject.first_row, subject.second_row):
        eval(row, names)
    for enum, swapped in subject.swapped.items():
        members = names[enum].__members__  # type: ignore[attr-defined]
        assert {*swapped, *swapped.values()} <= members.keys()
