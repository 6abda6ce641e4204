"""Every condition, row, trigger, error and call of the Kafka coordinator is needed: without it, a test fails.

As `tests.properties.test_mutants` for the domain. `make test` tries every 47th, `make check-deep` all. What
nothing noticed must be listed with the reason in ``surviving_mutants.txt``. One mutant again:

    python -m tests.properties.mutant_run --kafka 'rebalance.settle: negate `...`'
"""

from pathlib import Path

import pytest

from tests.properties.mutants import KAFKA, mutants
from tests.properties.test_mutants import listed, sample, survivors

pytestmark = [pytest.mark.long, pytest.mark.timeout(3600)]

SURVIVORS = Path(__file__).with_name("surviving_mutants.txt")
SAMPLE = 47


def test_every_mutant_of_a_sample_is_noticed_or_explained() -> None:
    assert survivors(sample(mutants(KAFKA), SAMPLE), "--kafka") <= set(listed(SURVIVORS))


@pytest.mark.deep(minutes=20)
def test_every_mutant_is_noticed_or_explained() -> None:
    names = [mutant.name for mutant in mutants(KAFKA)]
    assert survivors(names, "--kafka") == set(listed(SURVIVORS))


def test_mutants_have_different_names_and_sources() -> None:
    every = mutants(KAFKA)
    assert len({mutant.name for mutant in every}) == len(every)
    assert len({(mutant.module, mutant.source) for mutant in every}) == len(every)


def test_every_explained_mutant_exists() -> None:
    assert set(listed(SURVIVORS)) <= {mutant.name for mutant in mutants(KAFKA)}
