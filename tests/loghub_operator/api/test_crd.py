"""The committed CRD is generated from the models, and `kubectl explain` describes every field."""

from collections.abc import Iterator
from pathlib import Path

import pytest
import yaml

from loghub_operator.api import InvalidResourceError, fields, parse_resource
from loghub_operator.api.crd import COLUMNS, SELECTABLE, WIDE_COLUMNS, crd, crd_yaml
from tests.loghub_operator.api.crd_cases import ITEM, nodes, place, root, schema_at
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document, resource, subscribed
from tests.support import wait_until

CRD = Path(__file__).parents[3] / "crds" / "loghubconsumergroups.loghub.dev.yaml"
FIELDS = [
    (path, schema)
    for path, schema in nodes(root())
    if path and path[0] in ("spec", "status") and path[-1] not in (ITEM, "any-key")
]


def test_the_committed_crd_is_generated_from_the_models() -> None:
    assert CRD.read_text() == crd_yaml(), "run: make crds"


def test_the_committed_crd_has_no_anchors() -> None:
    tokens = yaml.scan(CRD.read_text())
    assert not [one for one in tokens if isinstance(one, yaml.AnchorToken | yaml.AliasToken)]


def test_kubectl_delete_all_leaves_the_groups_alone() -> None:
    assert "all" not in crd()["spec"]["names"]["categories"]


def test_scale_and_status_are_subresources_with_a_selector() -> None:
    (version,) = crd()["spec"]["versions"]
    assert version["subresources"]["status"] == {}
    assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"


def test_an_object_that_no_operator_has_seen_is_not_taken_for_finished() -> None:
    """kstatus takes an object for finished that has neither conditions nor an observed generation."""
    assert root()["properties"]["status"]["default"] == {"observedGeneration": -1}
    assert resource(status={"observedGeneration": -1}).is_new
    assert not resource(status={"observedGeneration": 1}).is_new


def test_shards_are_a_bounded_map_by_id() -> None:
    shards = schema_at(("status", "shards"))
    assert shards["x-kubernetes-list-type"] == "map"
    assert shards["x-kubernetes-list-map-keys"] == ["id"]
    assert shards["maxItems"] == 256


def test_every_field_has_a_description() -> None:
    assert [place(path) for path, schema in FIELDS if not schema.get("description", "").endswith(".")] == []


def test_every_value_of_an_enumeration_has_an_explanation() -> None:
    unexplained = [
        (place(path), value)
        for path, schema in FIELDS
        for value in schema.get("enum", ())
        if value not in schema["description"]
    ]
    assert unexplained == []


def test_every_default_is_in_the_description() -> None:
    for path, schema in FIELDS:
        default = schema.get("default")
        if path[0] == "spec" and default is not None and not isinstance(default, dict | list):
            text = str(default).lower() if isinstance(default, bool) else str(default)
            assert f"Default: {text}" in schema["description"], place(path)


def test_no_default_contains_null() -> None:
    """The API server would refuse the whole CRD."""
    assert "null" not in crd_yaml().replace("null removes", "")


def test_every_duration_names_its_unit() -> None:
    spans = [(path, schema) for path, schema in FIELDS if path[-1].lower().endswith("seconds")]
    assert len(spans) > 10
    for path, schema in spans:
        assert "econds" in schema["description"] or "econds" in path[-1], place(path)


def test_every_number_has_a_format_and_every_time_is_a_date_time() -> None:
    for path, schema in FIELDS:
        if schema.get("type") in ("integer", "number"):
            assert schema["format"] in ("int32", "int64", "double"), place(path)
        if path[-1].lower().endswith(("time", "timestamp", "observedat")):
            assert schema["format"] == "date-time", place(path)


def _paths() -> Iterator[str]:
    yield from SELECTABLE
    yield from (path for *_, path in (*COLUMNS, *WIDE_COLUMNS) if "[" not in path and "metadata" not in path)


@pytest.mark.parametrize("path", sorted(set(_paths())))
def test_columns_and_selectable_fields_exist(path: str) -> None:
    assert schema_at(tuple(path.strip(".").split(".")))["type"] in ("string", "integer")


def test_kubectl_explains_and_shows_a_group(server: Apiserver) -> None:
    server.apply(document(name="shown"))
    # The schemas of a CRD are published a while after it is established.
    wait_until(lambda: server.run("explain", "lhcg").returncode == 0, "the schemas to be published")
    explained = server.must("explain", "lhcg.spec.scaling.mode")
    assert "Recommend" in explained
    assert "Default: Fixed" in " ".join(explained.split())
    heads = server.must("get", "lhcg", "shown").splitlines()[0].split()
    assert heads == ["NAME", "PHASE", "READY", "UP-TO-DATE", "REASON", "SHARDS", "LAG(S)", "AGE"]
    wide = server.must("get", "lhcg", "shown", "-o", "wide").splitlines()[0].split()
    assert wide[len(heads) :] == [
        "PROJECT",
        "LOGSTORE",
        "GROUP",
        "SUBSCRIPTION",
        "MODE",
        "ASSIGNABLE",
        "LAG(LOGS)",
    ]
    assert "shown" in server.must("get", "loghub")
    assert "shown" in server.must("get", "lhcg", "--field-selector", "spec.project=demo")
    assert "shown" not in server.must("get", "lhcg", "--field-selector", "spec.project=other")


def test_kubectl_explains_and_shows_a_subscription(server: Apiserver) -> None:
    assert server.apply(document(subscribed("KeyShared"), name="dealt")) == ""
    wait_until(lambda: server.run("explain", "lhcg").returncode == 0, "the schemas to be published")
    explained = " ".join(server.must("explain", "lhcg.spec.subscription", "--recursive").split())
    assert "enum: Exclusive, Failover, Shared, KeyShared" in explained
    of_priority = " ".join(server.must("explain", "lhcg.spec.subscription.priority").split())
    assert "only while those before them are full" in of_priority
    shown = server.must("get", "lhcg", "dealt", "-o", "wide").splitlines()
    column = shown[0].index("SUBSCRIPTION")
    assert shown[1][column:].split()[0] == "KeyShared"


@pytest.mark.parametrize(
    ("quantity", "number"),
    [(250, 250.0), ("250", 250.0), ("1.5", 1.5), ("500m", 0.5), ("2k", 2000.0), ("1Ki", 1024.0), ("1M", 1e6)],
)
def test_a_quantity_is_a_number(quantity: int | str, number: float) -> None:
    assert fields.amount(quantity) == pytest.approx(number)


@pytest.mark.parametrize("text", ["", "m", "1e3", "-1", "1.", "1mm", "1 k"])
def test_a_value_that_is_no_quantity_is_rejected(text: str) -> None:
    with pytest.raises(ValueError, match="is not a quantity"):
        fields.amount(text)


def test_a_float_is_rejected_with_one_message() -> None:
    value: Document = document({"scaling": {"workerCapacity": 12.5}})
    with pytest.raises(InvalidResourceError) as caught:
        parse_resource(value)
    (problem,) = caught.value.problems
    assert problem.path == "spec.scaling.workerCapacity"
    assert "valid integer or Input should be a valid string" in problem.message
