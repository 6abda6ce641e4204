"""`deploy/examples`: every field of the spec is in an example, if only in a comment."""

import re
from collections.abc import Iterator
from pathlib import Path
from typing import Any

import pytest

from loghub_operator.api.crd import crd

EXAMPLES = sorted((Path(__file__).parents[2] / "deploy" / "examples").glob("*.yaml"))
# A field, also one in a comment (`# name: value`) or the first one of an item.
FIELD = re.compile(r"(?P<before> *(?:# *)?(?:- )?)(?P<name>[a-z]\w*):(?: +(?P<value>.*))?\Z")
INNER = re.compile(r"(?<=[{ ])([a-z]\w*): ")
FieldPath = tuple[str, ...]


def fields(schema: dict[str, Any], parent: FieldPath = ()) -> Iterator[FieldPath]:
    for name, one in schema.get("properties", {}).items():
        yield (*parent, name)
        yield from fields(one, (*parent, name))
        yield from fields(one.get("items", {}), (*parent, name))


def spec() -> dict[str, Any]:
    (version,) = crd()["spec"]["versions"]
    found: dict[str, Any] = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return found


def shown(text: str, known: set[FieldPath]) -> Iterator[FieldPath]:
    """The fields of a group, by their indentation. Prose in a comment may look like a field, but at no place
    that the spec has."""
    above: list[tuple[int, str]] = []
    for line in text.partition("kind: LogHubConsumerGroup\n")[2].partition("\nspec:\n")[2].splitlines():
        found = FIELD.match(line)
        if found is None:
            continue
        # A comment stands where its field would: `# ` is no indentation.
        column = len(found["before"]) - (2 if "#" in found["before"] else 0)
        kept = [one for one in above if one[0] < column]
        path = (*(name for _, name in kept), found["name"])
        if path not in known:
            continue
        above = [*kept, (column, found["name"])]
        yield path
        yield from ((*path, name) for name in INNER.findall(found["value"] or ""))


@pytest.fixture(scope="module")
def in_examples() -> set[FieldPath]:
    known = set(fields(spec()))
    return {one for file in EXAMPLES for one in shown(file.read_text(encoding="utf-8"), known)}


@pytest.mark.parametrize("field", sorted(fields(spec())), ids=".".join)
def test_an_example_shows_the_field(field: FieldPath, in_examples: set[FieldPath]) -> None:
    assert field in in_examples
