"""Rules for every test run: what a skip means, and where real log lines come from.

With ``LOGHUB_TEST_REQUIRE=all`` (continuous integration) a skip is a failure: a part
that is missing there must not pass unseen.
"""

import gc
import os
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING

import hypothesis
import pytest
from hypothesis.internal.conjecture import providers

from tests import java
from tests.cluster.fixtures import (
    apiserver,  # noqa: F401 - fixtures
    apiserver_of_its_own,  # noqa: F401 - fixtures
    s3,  # noqa: F401 - fixtures
    versitygw,  # noqa: F401 - fixtures
)
from tests.spark_session import (
    spark,  # noqa: F401 - fixtures
    spark_state,  # noqa: F401 - fixtures
)
from tests.suite.hang_guard import pytest_timeout_set_timer  # noqa: F401 - a hook
from tests.suite.seed import of_run

# No deadline and no fresh randomness: other work on the machine must not fail a test, and the gate must say
# the same twice. A slice of the long tests, which has a seed, takes other examples.
hypothesis.settings.register_profile(
    "steady",
    deadline=None,
    derandomize=of_run() == 0,
    suppress_health_check=[hypothesis.HealthCheck.too_slow],
)
hypothesis.settings.load_profile("steady")
# It also draws constants from the source of the modules that are loaded, so that what a test tries would
# depend on which other tests its process has.
providers._get_local_constants = lambda: providers._local_constants
# Of the JVM that prints the command line of a JVM of Spark, and ends.
os.environ.setdefault("SPARK_LAUNCHER_OPTS", "-XX:TieredStopAtLevel=1 -XX:+UseSerialGC")

MARKS = {
    "apiserver": "apiserver",
    "apiserver_of_its_own": "apiserver",
    "helm": "tools",
    "actionlint": "tools",
    "keda_client": "tools",
    "health": "tools",
    "versitygw": "tools",
    "cluster": "node",
    "service": "long",  # a process of its own
}
DEEP_GUARD_S = 3600.0  # at least, and ten times the minutes that a test is expected to take
REQUIRE_ALL = os.environ.get("LOGHUB_TEST_REQUIRE") == "all"


def _fail_if_skipped(report: pytest.TestReport | pytest.CollectReport) -> None:
    if REQUIRE_ALL and report.skipped and not hasattr(report, "wasxfail"):
        report.outcome = "failed"
        report.longrepr = f"skipped under LOGHUB_TEST_REQUIRE=all: {report.longrepr}"


@pytest.hookimpl(wrapper=True)
def pytest_collection() -> Generator[None, object, object]:
    """What is collected stays to the end, so that no search for garbage walks over its million objects."""
    gc.disable()
    try:
        return (yield)
    finally:
        gc.enable()
        gc.freeze()


def pytest_collection_modifyitems(items: list[pytest.Item]) -> None:
    """Marks tests by what they need: a program that is compiled first, or a process."""
    for item in items:
        for fixture in MARKS.keys() & set(fixtures_of(item)):
            item.add_marker(MARKS[fixture])
        deep = item.get_closest_marker("deep")
        if deep is not None and item.get_closest_marker("timeout") is None:
            item.add_marker(pytest.mark.timeout(max(DEEP_GUARD_S, 600.0 * deep.kwargs.get("minutes", 1))))
    # The longest come first, so that none of them is left alone at the end of a run in several processes, and
    # first of all those that share a session, which are in one process (`tests.suite.forks`).
    items.sort(key=_place)


def _place(item: pytest.Item) -> int:
    if item.get_closest_marker("spark") is None:
        return 2
    return 0 if "spark" in fixtures_of(item) else 1


def fixtures_of(item: pytest.Item) -> list[str]:
    return getattr(item, "fixturenames", [])


def pytest_runtest_setup(item: pytest.Item) -> None:
    """Spark needs Java; the reason of the skip says how to get it."""
    if item.get_closest_marker("spark") is not None and (missing := java.missing()):
        pytest.skip(missing)


@pytest.hookimpl(wrapper=True)
def pytest_runtest_makereport() -> Generator[None, pytest.TestReport, pytest.TestReport]:
    report = yield
    _fail_if_skipped(report)
    return report


@pytest.hookimpl(wrapper=True)
def pytest_make_collect_report() -> Generator[None, pytest.CollectReport, pytest.CollectReport]:
    report = yield
    _fail_if_skipped(report)
    return report


if TYPE_CHECKING:  # so that tests without an apiserver do not wait for its import
    from tests.loghub_operator.support.apiserver import Apiserver


@pytest.fixture(scope="session")
def server(apiserver: Path) -> "Apiserver":  # noqa: F811
    """kubectl on the session's kube-apiserver, with the CRD and the operator's rights in it."""
    from tests.loghub_operator.support.apiserver import Apiserver

    return Apiserver(apiserver)
