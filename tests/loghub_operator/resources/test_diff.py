"""Changes by another client are found; defaults and other spellings of the apiserver are not."""

import copy
from collections.abc import Callable
from typing import Any

import pytest

from loghub_operator.resources.diff import changed_fields, replicas_taken
from tests.loghub_operator.support.examples import Document

OURS: Document = {
    "apiVersion": "apps/v1",
    "kind": "StatefulSet",
    "metadata": {"name": "a", "labels": {"x": "1"}},
    "spec": {
        "selector": {"app": "a"},
        "template": {
            "spec": {
                "containers": [
                    {
                        "name": "worker",
                        "image": "i",
                        "env": [{"name": "A", "value": "1"}],
                        "resources": {"requests": {"cpu": "0.5", "memory": "1536Mi"}},
                        "capabilities": {"drop": ["ALL"]},
                    }
                ],
                "volumes": [{"name": "tmp", "emptyDir": {}}],
            }
        },
    },
}
POD = "StatefulSet a spec.template.spec"


def live(change: Callable[[Document], Any]) -> Document:
    """As the apiserver stores it, then changed."""
    result = copy.deepcopy(OURS)
    result["status"] = {"replicas": 1}
    container = result["spec"]["template"]["spec"]["containers"][0]
    container["terminationMessagePath"] = "/dev/termination-log"
    container["resources"]["requests"] = {"cpu": "500m", "memory": "1.5Gi"}
    del result["spec"]["template"]["spec"]["volumes"][0]["emptyDir"]
    change(result)
    return result


def pod_of(result: Document) -> Document:
    pod: Document = result["spec"]["template"]["spec"]
    return pod


@pytest.mark.parametrize(
    ("change", "paths"),
    [
        (lambda _: None, ()),
        (lambda result: pod_of(result)["containers"].append({"name": "other"}), ()),
        (lambda result: pod_of(result)["containers"].insert(0, {"name": "other"}), ()),
        (lambda result: result["metadata"]["labels"].update(y="2"), ()),
        (lambda result: result["metadata"]["labels"].update(x="2"), ("StatefulSet a metadata.labels.x",)),
        (
            lambda result: pod_of(result)["containers"][0].update(image="j"),
            (f"{POD}.containers[worker].image",),
        ),
        (
            lambda result: pod_of(result)["containers"][0]["env"].clear(),
            (f"{POD}.containers[worker].env[A]",),
        ),
        (
            lambda result: pod_of(result)["containers"][0]["capabilities"].update(drop=[]),
            (f"{POD}.containers[worker].capabilities.drop",),
        ),
        (lambda result: result["spec"]["selector"].update(more="b"), ("StatefulSet a spec.selector",)),
        (lambda result: pod_of(result).pop("volumes"), (f"{POD}.volumes",)),
    ],
)
def test_each_difference_gives_its_path(change: Callable[[Document], Any], paths: tuple[str, ...]) -> None:
    assert tuple(map(str, changed_fields(OURS, live(change)))) == paths


def test_a_missing_object_is_one_difference() -> None:
    assert tuple(map(str, changed_fields(OURS, None))) == ("StatefulSet a (missing)",)


@pytest.mark.parametrize(
    ("entries", "expected"),
    [
        ([], False),
        ([("us", "Apply", {"f:spec": {"f:replicas": {}, "f:template": {}}})], False),
        ([("us", "Apply", {"f:spec": {"f:template": {}}})], True),
        ([("us", "Apply", {"f:spec": {"f:template": {}}}), ("kubectl", "Update", {"f:spec": {}})], True),
    ],
)
def test_a_number_set_by_another_client_is_detected(
    entries: list[tuple[str, str, Document]], expected: bool
) -> None:
    managed = [
        {"manager": manager, "operation": operation, "fieldsV1": fields}
        for manager, operation, fields in entries
    ]
    assert replicas_taken({"metadata": {"managedFields": managed}}, "us") is expected


@pytest.mark.parametrize(
    ("changed", "paths"), [(None, ()), ("TCP", ("ports[53].name",)), ("UDP", ("ports[53].name",))]
)
def test_two_ports_with_one_number_are_compared_pairwise(changed: str | None, paths: tuple[str, ...]) -> None:
    def with_ports(names: dict[str, str]) -> Document:
        ports = [{"containerPort": 53, "protocol": one, "name": name} for one, name in names.items()]
        return {"kind": "Pod", "metadata": {"name": "p"}, "ports": ports}

    ours = {"TCP": "a", "UDP": "b"}
    theirs = ours if changed is None else {**ours, changed: "c"}
    result = changed_fields(with_ports(ours), with_ports(theirs))
    assert tuple(map(str, result)) == tuple(f"Pod p {path}" for path in paths)


def quantity_differs(ours: object, theirs: object) -> bool:
    mine, other = (
        {"kind": "Pod", "metadata": {"name": "a"}, "spec": {"limits": {"x": value}}}
        for value in (ours, theirs)
    )
    return bool(changed_fields(mine, other))


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("1e3", "1k"),
        ("1E3", "1000"),
        ("2.5e-1", "250m"),
        ("+1e+3", "1k"),
        ("1P", "1000T"),
        ("1E", "1000P"),
        ("1Pi", "1024Ti"),
        ("1Ei", "1024Pi"),
        ("500u", "0.5m"),
        ("500000n", "500u"),
        (".5", "500m"),
        ("5.", "5"),
        ("-1", "-1000m"),
        (0.5, "500m"),
        (2, "2"),
    ],
)
def test_quantities_are_compared_by_value(ours: object, theirs: object) -> None:
    """All forms of https://kubernetes.io/docs/reference/kubernetes-api/common-definitions/quantity/."""
    assert not quantity_differs(ours, theirs)
    assert not quantity_differs(theirs, ours)


@pytest.mark.parametrize(
    ("ours", "theirs"),
    [
        ("1e3", "1e4"),
        ("1E", "1"),
        ("1P", "1Pi"),
        ("1u", "1m"),
        ("1e", "1"),
        (".", "0"),
        ("1K", "1k"),
        ("-1", "1"),
    ],
)
def test_other_quantities_and_texts_differ(ours: object, theirs: object) -> None:
    assert quantity_differs(ours, theirs)
