"""What a test does when a tool it needs is absent.

What for: a user's machine skips with the reason and the way to get the tool; where
``LOGHUB_TEST_REQUIRE=all`` is set (the project's CI) the same is a failure, so that no
part goes untested unseen. What it must not know: the tools. Read next: `fixtures`.
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
