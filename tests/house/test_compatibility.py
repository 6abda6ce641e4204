"""The tables of docs/compatibility.md say what the collected tests show, and nothing else."""

from pathlib import Path

import pytest

from tests.compat import results
from tests.compat.results import PAGE, TABLES, Row, Table


@pytest.fixture(scope="module")
def cases() -> list[str]:
    return results.collected()


def test_the_page_has_what_the_tests_show(cases: list[str]) -> None:
    """If it differs: run the tests, then ``python -m tests.compat.results``."""
    assert PAGE.read_text() == results.with_tables(PAGE.read_text(), cases)


def test_each_test_has_a_row_and_each_row_a_test(cases: list[str]) -> None:
    rows = {row.test for table in TABLES for row in table.rows}
    assert {results.test_of(case) for case in cases} == rows | results.IN_WORDS


def table_of(**differs: str) -> Table:
    row = Row(what="it goes", test="test_a", differs=differs)
    return Table(name="t", clients={"Go": "go", "Java": "java"}, rows=(row,))


def test_a_cell_needs_a_case_or_a_reason() -> None:
    both = ["f.py::test_a[50k-go]", "f.py::test_a[50k-java-in order]"]
    assert "| it goes | works | works | never compared |" in results.rendered(table_of(), both)
    assert "| works | differs: cannot |" in results.rendered(table_of(java="cannot"), both[:1])
    with pytest.raises(ValueError, match="no case of test_a runs java"):
        results.rendered(table_of(), both[:1])
    with pytest.raises(ValueError, match="runs java, which differs"):
        results.rendered(table_of(java="cannot"), both)
    assert "| works | works |" in results.rendered(table_of(), ["f.py::test_a"])


def test_the_page_is_not_written_while_a_case_has_not_passed(
    tmp_path: Path, monkeypatch: pytest.MonkeyPatch, capsys: pytest.CaptureFixture[str]
) -> None:
    page = tmp_path / "page.md"
    page.write_text("<!-- t -->\nold\n<!-- end of t -->\n")
    monkeypatch.setattr(results, "PAGE", page)
    monkeypatch.setattr(results, "RECORDS", tmp_path / "records")
    monkeypatch.setattr(results, "TABLES", (table_of(),))
    monkeypatch.setattr(results, "FILES", ("f.py",))
    both = ["tests/f.py::test_a[50k-go]", "tests/f.py::test_a[50k-java]"]
    monkeypatch.setattr(results, "collected", lambda: both)
    results.record(both[0], "passed")
    results.record("tests/other.py::test_a[50k-java]", "passed")
    for outcome in ("", "skipped", "failed", "error"):
        if outcome:
            results.record(both[1], outcome)
        assert results.main() == 1
        assert f"{both[1]}: {outcome or 'was not run'}" in capsys.readouterr().err
    assert "old" in page.read_text()
    results.record(both[1], "passed")
    assert results.main() == 0
    assert "| it goes | works | works |" in page.read_text()
