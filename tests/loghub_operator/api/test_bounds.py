"""Every bound in the CRD's schema is held by the apiserver, and in the spec by `parse_resource`.

The cases are made from the CRD (`crd_cases`): for each bound of spec and status a value that
breaks this bound and no other, and the outermost values that are right.
"""

import asyncio
import uuid

import pytest

from loghub_operator.api import InvalidResourceError, parse_resource
from loghub_operator.clients.kube import CONSUMER_GROUP, AioKube, KubeError, configured
from tests.loghub_operator.api.crd_cases import (
    BOUNDS,
    OTHER,
    WORDS,
    Case,
    bounds_of,
    broken,
    kept,
    nodes,
    place,
    root,
)
from tests.loghub_operator.api.test_validation import in_kubernetes
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document

BROKEN, KEPT = broken(), kept()
# Around a group: Kubernetes holds these itself, whatever a CRD says.
KUBERNETES_OWN = {("apiVersion", "type"), ("kind", "type"), ("metadata", "type"), ("", "type")}
HEADS = {words.split("{}")[0] for words in WORDS.values()}
# A wrong type is no word of the list either, and both are told.
BESIDE_TYPE = {WORDS["enum"]}


def in_the_spec(cases: dict[str, Case]) -> list[str]:
    return [name for name, case in cases.items() if case.place.split(".")[0] == "spec"]


def test_every_bound_of_the_crd_has_a_case() -> None:
    """Asked of the schema itself, word by word: a new kind of bound is red here until it is tried."""
    schemas = [(place(path), schema) for path, schema in nodes(root())]
    assert {word for _, schema in schemas for word in schema} <= {*BOUNDS, *OTHER}
    found = {(at, word) for at, schema in schemas for word in bounds_of(schema)} - {
        (at, "x-kubernetes-list-type")
        for at, schema in schemas
        if schema.get("x-kubernetes-list-type") == "atomic"
    }
    found |= {(f"{at}.{name}".strip("."), "required") for at, s in schemas for name in s.get("required", ())}
    tried = {(case.place, case.bound) for case in BROKEN.values()}
    assert found - KUBERNETES_OWN == {(at.removesuffix("[1]"), bound) for at, bound in tried}
    right = {(case.place, case.bound) for case in KEPT.values()}
    assert {one for one in found - KUBERNETES_OWN if one[1] not in ("required", "pattern")} <= right


@pytest.mark.parametrize("name", in_the_spec(BROKEN))
def test_a_value_beyond_a_bound_is_rejected_at_its_field(name: str) -> None:
    case = BROKEN[name]
    with pytest.raises(InvalidResourceError) as caught:
        parse_resource(case.document)
    told = [in_kubernetes(problem.path) for problem in caught.value.problems]
    assert any(at.startswith(case.place.removesuffix("[1]")) for at in told), told


@pytest.mark.parametrize("name", in_the_spec(KEPT))
def test_a_value_within_its_bound_is_accepted(name: str) -> None:
    parse_resource(KEPT[name].document)


def test_the_apiserver_rejects_each_value_beyond_its_bound_with_the_same_message(server: Apiserver) -> None:
    answers = asked(server, BROKEN)
    assert {name: told for name, told in answers.items() if not _only(BROKEN[name], told)} == {}


def test_the_apiserver_accepts_each_value_within_its_bound(server: Apiserver) -> None:
    answers = asked(server, KEPT)
    assert {name: told for name, told in answers.items() if told} == {}


def _only(case: Case, told: str) -> bool:
    """This bound is told at this place, and no other bound anywhere."""
    heads = {head for head in HEADS if head in told} - (BESIDE_TYPE if case.bound == "type" else set())
    alone = heads == {WORDS[case.bound].split("{}")[0]}
    return alone and f"{case.place}: " in told and case.words in told


def asked(server: Apiserver, cases: dict[str, Case]) -> dict[str, str]:
    """The apiserver's words on each; none where it took it. One connection: a kubectl each takes minutes."""

    async def ask() -> dict[str, str]:
        async with AioKube(await configured(str(server.kubeconfig)), manager="a-user") as kube:
            return {name: await _refusal(kube, case.document) for name, case in cases.items()}

    return asyncio.run(ask())


async def _refusal(kube: AioKube, value: Document) -> str:
    """What is said to an object of this spec, and then of this status."""
    name = f"b-{uuid.uuid4().hex[:8]}"
    about = {**value["metadata"], "name": name}
    try:
        await kube.create({**value, "metadata": about})
        if "status" in value:
            # Merged, not applied: the bounds are asked for, not the merging of lists.
            await kube.patch(
                CONSUMER_GROUP, about["namespace"], f"{name}/status", {"status": value["status"]}
            )
    except KubeError as error:
        return error.message
    return ""
