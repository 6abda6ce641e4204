"""The pages of commands and of the Python API are those of the code."""

from types import ModuleType

import pytest

from tests.house import commands_page, python_api_page


@pytest.mark.parametrize("generator", [commands_page, python_api_page], ids=lambda one: one.__name__)
def test_the_committed_page_is_the_generated_one(generator: ModuleType) -> None:
    """If it differs: run the generator as a program, ``python -m tests.house.commands_page``."""
    assert generator.PAGE.read_text(encoding="utf-8") == generator.page()
