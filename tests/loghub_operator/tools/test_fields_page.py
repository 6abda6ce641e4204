"""Each field of the spec has one row on the page for users, and each row is short."""

import re
from collections import Counter
from collections.abc import Iterator
from pathlib import Path

import pytest

from loghub_operator.api.crd import Schema, crd
from loghub_operator.tools import fields_page

PAGE = Path(__file__).parents[3] / "docs" / "fields.md"
# An address or a name of a class may make a row longer than a sentence without parts.
LONGEST = 200


def rows() -> Iterator[tuple[str, str, str, str, str]]:
    """Path from the spec, type, default, bounds and meaning of each row of the committed page."""
    for section in PAGE.read_text(encoding="utf-8").split("\n## ")[1:]:
        heading, _, body = section.partition("\n")
        for name, *cells in re.findall(
            r"^\| \[?`([^`]+)`\S* \|(.*)\|(.*)\|(.*)\|(.*)\|$", body, re.MULTILINE
        ):
            kind, default, bounds, meaning = (cell.strip() for cell in cells)
            yield f"{heading}.{name}", kind, default, bounds, meaning


def paths(before: str, node: Schema) -> Iterator[str]:
    for name, field in node.get("properties", {}).items():
        yield f"{before}.{name}"
        yield from paths(f"{before}.{name}", field)
        yield from paths(f"{before}.{name}[]", field.get("items", {}))


def test_the_committed_page_of_fields_matches_the_models() -> None:
    assert PAGE.read_text(encoding="utf-8") == fields_page.page(), "run: make crds"


def test_every_field_of_the_crd_has_one_row() -> None:
    (version,) = crd()["spec"]["versions"]
    spec: Schema = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    assert Counter(row[0] for row in rows()) == Counter(paths("spec", spec))


def test_every_row_has_a_type_and_a_short_sentence() -> None:
    found = list(rows())
    assert len(found) > 100
    assert [row for row in found if not row[1] or not row[4].endswith(".") or len(row[4]) > LONGEST] == []


def test_every_link_leads_to_a_section() -> None:
    text = PAGE.read_text(encoding="utf-8")
    anchors = {
        re.sub(r"[^a-z0-9]", "", line.lower()) for line in re.findall(r"^## (.*)$", text, re.MULTILINE)
    }
    assert set(re.findall(r"\(#(\w+)\)", text)) == anchors - {"spec"}


@pytest.mark.parametrize(
    ("path", "wanted"),
    [
        ("spec.project", ("string", "required", "1 to 128 characters")),
        ("spec.consumerGroup", ("string", "the name of this object", "1 to 128 characters")),
        ("spec.checkpoint.intervalSeconds", ("integer", "`5`", "0 to 600")),
        ("spec.scaling.workerCapacity", ("integer or string", "measured", "1 to 1000000")),
        ("spec.deletionPolicy", ("enum", "`Retain`", "`Delete`, `Retain`")),
        ("spec.spark.conf", ("map to string", "`{}`", "up to 128 entries")),
    ],
)
def test_a_row_says_type_default_and_bounds(path: str, wanted: tuple[str, str, str]) -> None:
    (found,) = [row[1:4] for row in rows() if row[0] == path]
    assert found == wanted
