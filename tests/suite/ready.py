"""Lets tests wait until programs and images are there: ``pytest -p tests.suite.ready --ready=FILE``.

The run makes the file once all is prepared (`tests.suite.__main__`). Until then tests are collected, and with
several processes (`tests.suite.forks`) those run that need nothing of it.
"""

import time

import pytest

from tests.suite import beginning

LOOK_AGAIN_S = 0.2


def pytest_addoption(parser: pytest.Parser) -> None:
    parser.getgroup("forks").addoption("--ready", default="", help="begin as this file appears")


def pytest_runtestloop(session: pytest.Session) -> None:
    """Not called in a run with several processes, which asks before it hands out a test."""
    while not session.config.option.collectonly and not beginning.is_ready(session.config):
        time.sleep(LOOK_AGAIN_S)
