"""What the pages of a release say is what the code says: versions, the chart's README and its annotations."""

import re

import yaml

from loghub import __version__
from tests.cluster import build, chart_tools
from tests.house import chart_annotations, chart_readme
from tests.house.chart_readme import Value
from tests.house.test_readme import PYPROJECT
from tests.support import ROOT

RELEASES = (ROOT / "docs" / "releases.md").read_text(encoding="utf-8")
CHANGELOG = chart_annotations.CHANGELOG.read_text(encoding="utf-8")


def test_the_table_names_the_versions_of_the_code() -> None:
    chart = yaml.safe_load(chart_annotations.CHART.read_text(encoding="utf-8"))
    kubernetes = chart["kubeVersion"].removeprefix(">=").rpartition(".")[0]
    tried = build.VERSION.removeprefix("v").rpartition(".")[0]
    helm = chart_tools.HELM_VERSION.removeprefix("v").rpartition(".")[0]
    oldest_helm = ".".join(map(str, chart_tools.OLDEST_HELM))
    python = re.search(r'^requires-python = ">=([\d.]+)"', PYPROJECT, re.MULTILINE)
    spark = re.search(r'"pyspark==([\d.]+)"', PYPROJECT)
    assert python is not None
    assert spark is not None
    for row in (
        f"| Kubernetes | {kubernetes} or newer | {tried} |",
        f"| Helm | {oldest_helm} or newer | {helm} |",
        f"| Python | {python[1]} or newer | 3.11 |",
        f"| Spark, for workers | {spark[1]} | {spark[1]} |",
    ):
        assert row in RELEASES


def test_the_newest_section_of_the_changelog_is_this_version() -> None:
    assert CHANGELOG.split("\n## ")[1].startswith(f"{__version__} ")


def test_the_chart_has_the_generated_annotations() -> None:
    """If it differs: ``python -m tests.house.chart_annotations``."""
    assert chart_annotations.CHART.read_text(encoding="utf-8") == chart_annotations.text()


def test_an_entry_of_the_changelog_keeps_its_second_line_and_its_kind() -> None:
    newest = "## 2 (x)\n\n### Added\n\n- one\n  more\n\n### Fixed\n\n- two\n\n"
    text = f"# C\n\n{newest}## 1\n\n### Added\n\n- three\n"
    assert chart_annotations.changes(text) == [
        {"kind": "added", "description": "one more"},
        {"kind": "fixed", "description": "two"},
    ]


def test_the_readme_of_the_chart_has_its_values() -> None:
    """If it differs: ``python -m tests.house.chart_readme``."""
    assert chart_readme.PAGE.read_text(encoding="utf-8") == chart_readme.page()


def test_a_value_has_the_comment_above_and_behind_it() -> None:
    text = (
        '# A heading.\n\n# Of the\n# pods.\n#\n#  example: 1\nimage:\n  tag: "" # none\n'
        "  # Any.\n  labels: {}\nports:\n  - {name: http}\n"
    )
    assert list(chart_readme.values(text)) == [
        Value("image", None, "Of the pods."),
        Value("image.tag", '""', "none"),
        Value("image.labels", "{}", "Any."),
        Value("ports", '[{"name": "http"}]', ""),
    ]
