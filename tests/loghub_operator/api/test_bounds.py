"""Every bound in the CRD's schema is held by the apiserver and by `parse_resource`, at its field.

The cases are made from the CRD: for each bound of each field of the spec one value beyond it.
"""

import asyncio
import uuid
from collections.abc import Iterator
from typing import Any

import pytest

from loghub_operator.api import InvalidResourceError, parse_resource
from loghub_operator.api.crd import crd
from loghub_operator.kube import AioKube, KubeError, configured
from tests.loghub_operator.api.test_rules import in_kubernetes
from tests.loghub_operator.api_server import Apiserver
from tests.loghub_operator.examples import Document, document

Path = tuple[str | int, ...]


def beyond(schema: Document) -> Iterator[tuple[str, Any]]:
    """One wrong value for each bound of this very schema."""
    if "enum" in schema:
        yield "enum", "no-such-word"
    if "minimum" in schema:
        yield "minimum", schema["minimum"] - 1
    if "maximum" in schema:
        yield "maximum", schema["maximum"] + 1
    if schema.get("minLength"):
        yield "minLength", "x" * (schema["minLength"] - 1)
    if "maxLength" in schema:
        yield "maxLength", "1" * (schema["maxLength"] + 1)
    if "pattern" in schema:
        yield "pattern", "%"
    if schema.get("minItems"):
        yield "minItems", []
    if "maxItems" in schema:
        yield "maxItems", [_some(schema["items"], number) for number in range(schema["maxItems"] + 1)]
    if "maxProperties" in schema:
        yield "maxProperties", {f"k{number}": "1" for number in range(schema["maxProperties"] + 1)}
    if "type" in schema:
        yield "type", "x" if schema["type"] in ("object", "array", "integer", "number", "boolean") else 7


def _some(schema: Document, number: int) -> Any:
    return number if schema["type"] == "integer" else {"name": f"n{number}"}


def bounds(schema: Document, path: Path) -> Iterator[tuple[Path, str, Any]]:
    """All bounds below: where, which, and a value beyond it."""
    for kind, value in beyond(schema):
        yield path, kind, value
    for name, part in schema.get("properties", {}).items():
        yield from bounds(part, (*path, name))
    if isinstance(schema.get("items"), dict):
        yield from bounds(schema["items"], (*path, 0))
    if isinstance(schema.get("additionalProperties"), dict):
        yield from bounds(schema["additionalProperties"], (*path, "key"))


def cases() -> list[tuple[Path, str, Any]]:
    (version,) = crd()["spec"]["versions"]
    spec = version["schema"]["openAPIV3Schema"]["properties"]["spec"]
    return [case for name, part in spec["properties"].items() for case in bounds(part, (name,))]


def with_value(path: Path, value: Any) -> Document:
    """A whole object in which only this place is wrong, as far as a schema can say."""
    for following in reversed(path[1:]):
        value = [value] if following == 0 else {following: value}
    return document({str(path[0]): value}, name=f"b-{uuid.uuid4().hex[:8]}")


def spelled(path: Path) -> str:
    return in_kubernetes("spec." + ".".join(str(part) for part in path))


CASES = {f"{spelled(path)}-{kind}": (path, value) for path, kind, value in cases()}


def test_there_is_a_case_for_every_part_of_the_spec() -> None:
    (version,) = crd()["spec"]["versions"]
    parts = version["schema"]["openAPIV3Schema"]["properties"]["spec"]["properties"]
    assert {path[0] for path, _ in CASES.values()} == set(parts)


@pytest.mark.parametrize("name", CASES)
def test_a_value_beyond_a_bound_is_told_at_its_field(name: str) -> None:
    path, value = CASES[name]
    with pytest.raises(InvalidResourceError) as caught:
        parse_resource(with_value(path, value))
    told = [in_kubernetes(problem.path) for problem in caught.value.problems]
    assert any(place.startswith(spelled(path)) for place in told), told


def test_the_apiserver_refuses_each_of_them_at_the_same_field(server: Apiserver) -> None:
    """One connection for all: a kubectl for each would take a minute."""

    async def ask() -> dict[str, str]:
        async with AioKube(await configured(str(server.kubeconfig)), manager="a-user") as kube:
            return {name: await _refusal(kube, *case) for name, case in CASES.items()}

    answers = asyncio.run(ask())
    assert {name: words for name, words in answers.items() if spelled(CASES[name][0]) not in words} == {}


async def _refusal(kube: AioKube, path: Path, value: Any) -> str:
    try:
        await kube.create(with_value(path, value))
    except KubeError as error:
        return error.message.replace('["key"]', ".key")
    return "taken"
