"""``docs/metrics.md`` has each metric that a program exposes."""

from pathlib import Path

import pytest

from tests import exposed_metrics
from tests.house import metrics_page


def test_the_committed_page_has_the_metrics_that_are_exposed(tmp_path: Path) -> None:
    """If it differs: ``python -m tests.house.metrics_page``."""
    assert metrics_page.PAGE.read_text(encoding="utf-8") == metrics_page.page(
        exposed_metrics.in_use(tmp_path)
    )


def test_a_metric_without_a_series_is_no_row_without_labels(tmp_path: Path) -> None:
    with pytest.raises(ValueError, match="has no series"):
        metrics_page.page(exposed_metrics.at_start(tmp_path))
