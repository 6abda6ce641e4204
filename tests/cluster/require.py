"""What a test does if a tool that it needs is absent.

On a user's machine it is skipped, with the reason and the way to get the tool. If ``LOGHUB_TEST_REQUIRE=all``
is set, as in the project's CI, it fails instead, so that nothing stays untested unnoticed.
"""

import os
from typing import NoReturn

import pytest


def everything() -> bool:
    return os.environ.get("LOGHUB_TEST_REQUIRE") == "all"


def absent(reason: str) -> NoReturn:
    if everything():
        pytest.fail(f"LOGHUB_TEST_REQUIRE=all, but: {reason}", pytrace=False)
    pytest.skip(reason)
