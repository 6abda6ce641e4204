"""An order of the tests that the run's seed chooses: ``pytest -p tests.suite.slices``.

With ``--minutes`` (`tests.suite.forks`) a run is a slice of the long tests, each day another one. The same
seed gives the same order and the same cases in each test (`tests.suite.seed`).
"""

import random

import pytest

from tests.suite import seed


@pytest.hookimpl(trylast=True)
def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    # By name first: how files are listed must not matter.
    items.sort(key=lambda item: item.nodeid)
    random.Random(seed.of_run()).shuffle(items)


def pytest_report_header() -> str:
    return f"the order and the cases of the seed {seed.of_run()}"
