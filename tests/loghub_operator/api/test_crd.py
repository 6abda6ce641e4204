"""The committed CRD is the one that the models make."""

from pathlib import Path

from loghub_operator.api.crd import crd, crd_yaml

CRD = Path(__file__).parents[3] / "crds" / "loghubconsumergroups.loghub.dev.yaml"


def test_the_committed_crd_is_made_from_the_models() -> None:
    assert CRD.read_text() == crd_yaml(), "write it anew: make crds"


def test_scale_and_status_are_subresources_with_a_selector() -> None:
    (version,) = crd()["spec"]["versions"]
    assert version["subresources"]["status"] == {}
    assert version["subresources"]["scale"]["labelSelectorPath"] == ".status.selector"


def test_shards_are_a_bounded_map_by_id() -> None:
    (version,) = crd()["spec"]["versions"]
    shards = version["schema"]["openAPIV3Schema"]["properties"]["status"]["properties"]["shards"]
    assert shards["x-kubernetes-list-type"] == "map"
    assert shards["x-kubernetes-list-map-keys"] == ["id"]
    assert shards["maxItems"] > 0
