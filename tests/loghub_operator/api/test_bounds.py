"""Every bound in the CRD's schema is enforced by the apiserver, and in the spec by `parse_resource`.

The cases are generated from the CRD (`crd_cases`): for each bound of spec and status a value that breaks this
bound and no other, and the outermost values that are valid. `make test` has as many of these in one object as
go together, `make check-deep` each in one of its own.
"""

import asyncio
import re
import uuid

import pytest

from loghub_operator.api import InvalidResourceError, parse_resource
from loghub_operator.clients.kube import CONSUMER_GROUP, AioKube, KubeError, configured
from tests.loghub_operator.api.crd_cases import (
    BOUNDS,
    MESSAGES,
    OTHER,
    Case,
    accepted_values,
    bounds_of,
    broken,
    nodes,
    place,
    root,
)
from tests.loghub_operator.api.joined_cases import changes, joined_broken, joined_values
from tests.loghub_operator.api.problems import in_kubernetes
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document

# Around a group: Kubernetes holds these itself, whatever a CRD says.
KUBERNETES_OWN = {("apiVersion", "type"), ("kind", "type"), ("metadata", "type"), ("", "type")}
HEADS = {text.split("{}")[0] for text in MESSAGES.values()}
# A wrong type is not in the list of values either, and both are reported.
WITH_TYPE = {MESSAGES["enum"]}


def in_the_spec(cases: dict[str, Case]) -> dict[str, Case]:
    return {name: case for name, case in cases.items() if case.place.split(".")[0] == "spec"}


def test_every_bound_of_the_crd_has_a_case() -> None:
    """Checks the schema keyword by keyword: a new kind of bound fails here until it is tried."""
    schemas = [(place(path), schema) for path, schema in nodes(root())]
    assert {keyword for _, schema in schemas for keyword in schema} <= {*BOUNDS, *OTHER}
    result = {(at, keyword) for at, schema in schemas for keyword in bounds_of(schema)} - {
        (at, "x-kubernetes-list-type")
        for at, schema in schemas
        if schema.get("x-kubernetes-list-type") == "atomic"
    }
    result |= {(f"{at}.{name}".strip("."), "required") for at, s in schemas for name in s.get("required", ())}
    tried = {(case.place, case.bound) for case in broken().values()}
    assert result - KUBERNETES_OWN == {(at.removesuffix("[1]"), bound) for at, bound in tried}
    right = {(case.place, case.bound) for case in accepted_values().values()}
    assert {one for one in result - KUBERNETES_OWN if one[1] not in ("required", "pattern")} <= right


def test_each_value_beyond_a_bound_is_rejected_at_its_field() -> None:
    for name, case in in_the_spec(broken()).items():
        with pytest.raises(InvalidResourceError) as caught:
            parse_resource(case.document)
        places = [in_kubernetes(problem.path) for problem in caught.value.problems]
        assert any(at.startswith(case.place.removesuffix("[1]")) for at in places), f"{name}: {places}"


def test_each_value_within_its_bound_is_accepted() -> None:
    for case in in_the_spec(accepted_values()).values():
        parse_resource(case.document)


def test_the_apiserver_rejects_each_value_beyond_its_bound_with_the_same_message(server: Apiserver) -> None:
    joined = joined_broken()
    cases = [case for together, _ in joined for case in together]
    assert sorted(map(repr, cases)) == sorted(map(repr, broken().values()))
    answers = apiserver_messages(server, {str(number): value for number, (_, value) in enumerate(joined)})
    wrong = {}
    for (together, _), message in zip(joined, answers.values(), strict=True):
        problems = _problems(message)
        wrong |= {case.place: message for case in together if not _is_named(case, problems)}
        wrong |= dict.fromkeys(problems.keys() - {case.place for case in together}, message)
    assert wrong == {}


@pytest.mark.deep
def test_the_apiserver_rejects_each_of_these_values_alone(server: Apiserver) -> None:
    cases = broken()
    answers = apiserver_messages(server, {name: case.document for name, case in cases.items()})
    assert {name: message for name, message in answers.items() if not _only(cases[name], message)} == {}


@pytest.mark.parametrize(
    "alone", [pytest.param(False, id="together"), pytest.param(True, id="alone", marks=pytest.mark.deep)]
)
def test_the_apiserver_accepts_each_value_within_its_bound(server: Apiserver, alone: bool) -> None:
    cases = accepted_values()
    documents = {name: case.document for name, case in cases.items()} if alone else joined_values()
    answers = apiserver_messages(server, documents)
    assert {name: message for name, message in answers.items() if message} == {}


def test_of_values_in_one_object_none_replaces_another() -> None:
    cases = accepted_values()
    for names, value in joined_values().items():
        there = changes(value, document())
        for name in names.split(", "):
            assert changes(cases[name].document, document()).items() <= there.items(), name


def _problems(message: str) -> dict[str, str]:
    """What the apiserver says of a bound at each place."""
    found: dict[str, str] = {}
    for part in re.split(r"(?:[\[,] ?|: )(?=(?:spec|status)[^ ]*: )", message):
        place, _, text = part.partition(": ")
        if any(head in text for head in HEADS):
            found[place] = f"{found.get(place, '')} {text}"
    return found


def _is_named(case: Case, problems: dict[str, str]) -> bool:
    """This bound is reported at this place, and no other bound there."""
    said = problems.get(case.place, "")
    heads = {head for head in HEADS if head in said} - (WITH_TYPE if case.bound == "type" else set())
    return heads == {MESSAGES[case.bound].split("{}")[0]} and case.message in said


def _only(case: Case, message: str) -> bool:
    """This bound is reported at this place, and no other bound anywhere."""
    heads = {head for head in HEADS if head in message} - (WITH_TYPE if case.bound == "type" else set())
    alone = heads == {MESSAGES[case.bound].split("{}")[0]}
    return alone and f"{case.place}: " in message and case.message in message


def apiserver_messages(server: Apiserver, documents: dict[str, Document]) -> dict[str, str]:
    """The apiserver's message for each object, "" if accepted. One connection: a kubectl each would take
    minutes."""

    async def ask() -> dict[str, str]:
        async with AioKube(await configured(str(server.kubeconfig)), manager="a-user") as kube:
            return {name: await _refusal(kube, value) for name, value in documents.items()}

    return asyncio.run(ask())


async def _refusal(kube: AioKube, value: Document) -> str:
    """What is said to an object of this spec, and then of this status."""
    name = f"b-{uuid.uuid4().hex[:8]}"
    metadata = {**value["metadata"], "name": name}
    try:
        await kube.create({**value, "metadata": metadata})
        if "status" in value:
            # Merged, not applied: the bounds are tested, not the merging of lists.
            await kube.patch(
                CONSUMER_GROUP, metadata["namespace"], f"{name}/status", {"status": value["status"]}
            )
    except KubeError as error:
        return error.message
    return ""
