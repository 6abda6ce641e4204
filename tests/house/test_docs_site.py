"""The site of the docs: its navigation, how its pages differ from those of docs/, and the build."""

import json
import re

import pytest

from tests.house import docs_site
from tests.house.docs_site import NOT_SEARCHED, OUT, navigation, page_of, site_text, sources


def test_the_navigation_has_every_page_once() -> None:
    pages = [page for page, _part in navigation(docs_site.configuration())]
    assert sorted(pages) == sorted(map(page_of, sources()))


@pytest.mark.parametrize(
    ("source", "written", "shown"),
    [
        ("README.md", "[a](docs/install.md#1-in-a-checkout)", "[a](install.md#1-in-a-checkout)"),
        ("README.md", "[a](docs/README.md)", "[a](pages.md)"),
        ("README.md", "![a](docs/demo.svg)", "![a](demo.svg)"),
        ("docs/kafka.md", "[a](../README.md), [b](#x)", "[a](index.md), [b](#x)"),
        ("docs/kafka.md", "[a](https://example.com/b.md)", "[a](https://example.com/b.md)"),
        ("docs/decisions/kafka.md", "[a](../sinks.md), [b](README.md)", "[a](../sinks.md), [b](index.md)"),
        ("docs/kafka.md", "[a](../deploy/fsck.yaml)", "[a](files/deploy/fsck.yaml)"),
    ],
)
def test_links_lead_to_pages_of_the_site(source: str, written: str, shown: str) -> None:
    text, files = site_text(source, written, is_searched=True)
    assert text == shown
    assert files == ({"deploy/fsck.yaml"} if "fsck.yaml" in shown else set())


def test_which_test_shows_a_row_is_folded_away() -> None:
    table = "| there | shown by |\n| --- | --- |\n| `a\\|b` | test.py |\n"
    text, _ = site_text("docs/kafka.md", f"Text\n\n{table}\nmore\n", is_searched=True)
    visible, _, folded = text.partition('??? note "Shown by"\n')
    assert visible == "Text\n\n| there |\n| --- |\n| `a\\|b` |\n\n"
    assert folded == "\n    | there | shown by |\n    | --- | --- |\n    | `a\\|b` | test.py |\n\nmore\n"


def test_other_tables_stay() -> None:
    table = "| a | b |\n| --- | --- |\n| 1 | 2 |\n"
    assert site_text("docs/kafka.md", table, is_searched=True)[0] == table


@pytest.mark.long
def test_the_site_builds_without_a_broken_link_and_its_search_is_for_users() -> None:
    assert "No issues found" in docs_site.build()
    found = json.loads((OUT / "site" / "search.json").read_text(encoding="utf-8"))["items"]
    searched = {re.sub(r"\.html.*", ".md", item["location"]) for item in found}
    parts = {page: part for page, part in navigation(docs_site.configuration()) if "decisions/" not in page}
    assert searched == {page for page, part in parts.items() if part != NOT_SEARCHED}
