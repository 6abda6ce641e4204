"""`docs/migration.md`: a row names fields that the CRD has, and a test that exists unless it is missing."""

import functools
import inspect
import re
from typing import Any

import pytest
from aliyun.log import consumer as python_library
from aliyun.log.consumer import LogHubConfig

from loghub_operator.api.crd import crd
from tests.house.test_tree import ROOT, text_of, tracked_files

PAGE = ROOT / "docs" / "migration.md"
CODE = re.compile(r"`([^`]+)`")


def rows(part: str = "") -> list[list[str]]:
    """The cells of each row of the sections whose heading begins with this."""
    found = []
    for section in re.split(r"^## \d+ ", PAGE.read_text(encoding="utf-8"), flags=re.MULTILINE)[1:]:
        if section.startswith(part):
            table = [line for line in section.splitlines() if line.startswith("|")][2:]
            found += [[cell.strip() for cell in line.strip("|").split("|")] for line in table]
    return found


@functools.cache
def names_of_tests() -> set[str]:
    """The name of every test function."""
    files = (file for file in tracked_files() if file.name.startswith("test_"))
    return {
        name for file in files for name in re.findall(r"^(?:async )?def (\w+)", text_of(file), re.MULTILINE)
    }


@functools.cache
def fields() -> dict[str, Any]:
    """The schema of the objects."""
    (version,) = crd()["spec"]["versions"]
    schema: dict[str, Any] = version["schema"]["openAPIV3Schema"]
    return schema


@pytest.mark.parametrize("row", rows(), ids=lambda row: row[0])
def test_a_row_names_what_is_there_what_is_here_and_a_test_that_exists(row: list[str]) -> None:
    there, here, shown_by = row
    assert CODE.findall(there)
    assert here
    named = CODE.findall(shown_by)
    if here.startswith("*missing*"):
        assert shown_by == "–"
    else:
        assert named, "name a test that shows it"
    assert set(named) <= names_of_tests()


@pytest.mark.parametrize(
    "field", sorted({one for row in rows() for one in CODE.findall(row[1]) if one.startswith("spec.")})
)
def test_a_field_that_a_row_names_exists(field: str) -> None:
    schema = fields()
    for name in field.split("."):
        assert name in schema["properties"]
        schema = schema["properties"][name]


def test_every_option_of_the_python_library_has_a_row() -> None:
    options = set(inspect.signature(LogHubConfig).parameters)
    assert options == {name for row in rows("Python: `LogHubConfig`") for name in CODE.findall(row[0])}


def test_every_class_of_the_python_library_has_a_row() -> None:
    """With each method that a program overrides or calls."""
    text = " ".join(row[0] for row in rows("Python: calls"))
    classes = {name: one for name, one in vars(python_library).items() if inspect.isclass(one)}
    assert "ConsumerWorker" in classes
    assert {name for name in classes.keys() - {LogHubConfig.__name__} if name not in text} == set()
    base = classes["ConsumerProcessorBase"]
    methods = {name for name, one in vars(base).items() if inspect.isfunction(one) and name[0] != "_"}
    assert {name for name in methods if name not in text} == set()
