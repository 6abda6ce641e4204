"""Each condition, row, trigger, error and call of the rules is needed: without it, a test fails.

`mutants` changes the rules in one place at a time, and `mutant_run` runs a small search and the fast tests of
the rules on each change. `make test` tries a sample, with each module and each kind of change among them,
`make check-deep` all. What nothing noticed must be listed with the reason in ``surviving_mutants.txt`` of the
subject's folder. One mutant again:

    python -m tests.properties.mutant_run domain 'balance.balance: no not in `not names`'
"""

import importlib
import json
import subprocess
import sys
from collections import Counter
from collections.abc import Sequence
from pathlib import Path

import pytest

from tests.properties.domain.subject import SUBJECT as DOMAIN
from tests.properties.kafka.subject import SUBJECT as KAFKA
from tests.properties.mutants import Mutant, Subject, mutants
from tests.properties.subscription.subject import SUBJECT as SUBSCRIPTION

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

HERE = Path(__file__).parent
ROOT = HERE.parents[1]
SUBJECTS = (DOMAIN, KAFKA, SUBSCRIPTION)
for_each_subject = pytest.mark.parametrize("subject", SUBJECTS, ids=[subject.name for subject in SUBJECTS])


def listed(subject: Subject) -> dict[str, str]:
    """Name -> why nothing can notice this mutant."""
    lines = (HERE / subject.name / "surviving_mutants.txt").read_text(encoding="utf-8").splitlines()
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


def noticed(subject: Subject, names: list[str]) -> dict[str, str]:
    """What has noticed each of these mutants, by name; ``nothing`` for a survivor."""
    command = [sys.executable, "-m", "tests.properties.mutant_run", subject.name, *names]
    done = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    results = {result["name"]: result["noticed_by"] for result in map(json.loads, done.stdout.splitlines())}
    assert results.keys() == set(names)
    print(f"{len(results)} mutants, noticed by:", dict(Counter(results.values())))
    return results


def survivors(results: dict[str, str]) -> set[str]:
    return {name for name, noticed_by in results.items() if noticed_by == "nothing"}


@pytest.mark.parametrize(
    ("subject", "step"),
    [(DOMAIN, 31), (KAFKA, 95), (SUBSCRIPTION, 131)],
    ids=["domain", "kafka", "subscription"],
)
def test_every_mutant_of_a_sample_is_noticed_or_explained(subject: Subject, step: int) -> None:
    names = sample(mutants(subject), step)
    results = noticed(subject, names)
    assert survivors(results) == set(listed(subject)) & set(names)
    # A search that cannot even begin would seem to notice all of them.
    assert {"search", "tests"} <= set(results.values())


@pytest.mark.deep(minutes=20)
@for_each_subject
def test_every_mutant_is_noticed_or_explained(subject: Subject) -> None:
    names = [mutant.name for mutant in mutants(subject)]
    assert survivors(noticed(subject, names)) == set(listed(subject))


@for_each_subject
def test_mutants_have_different_names_and_sources(subject: Subject) -> None:
    every = mutants(subject)
    assert len({mutant.name for mutant in every}) == len(every)
    assert len({(mutant.module, mutant.source) for mutant in every}) == len(every)


@for_each_subject
def test_every_explained_mutant_exists(subject: Subject) -> None:
    assert set(listed(subject)) <= {mutant.name for mutant in mutants(subject)}


@for_each_subject
def test_what_a_mutant_swaps_and_the_tests_that_it_meets_exist(subject: Subject) -> None:
    """A mutant that used a missing name would be noticed by that, and show nothing of the tests."""
    assert all((ROOT / subject.test_folder / f"test_{name}.py").exists() for name in subject.tests)
    names: dict[str, object] = {}
    for module in subject.modules:
        names |= vars(importlib.import_module(f"{subject.package}.{module}"))
    for row in (subject.first_row, subject.second_row):
        eval(row, names)
    for enum, swapped in subject.swapped.items():
        members = names[enum].__members__  # type: ignore[attr-defined]
        assert {*swapped, *swapped.values()} <= members.keys()
