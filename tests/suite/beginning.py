"""Which tests come first, and when the others may begin; the plugins `forks`, `ready` and `record` ask."""

from pathlib import Path

import pytest


def comes_first(item: pytest.Item) -> bool:
    """Whether it has none of the marks of ``--first-without``."""
    marks = item.config.getoption("first_without", "")
    return all(item.get_closest_marker(mark) is None for mark in marks.split(",") if mark)


def is_ready(config: pytest.Config) -> bool:
    """Whether the file of ``--ready`` is there; always without that option."""
    file = config.getoption("ready", "")
    return not file or Path(file).exists()
