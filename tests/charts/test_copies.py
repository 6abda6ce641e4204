"""The CRD, the version, the values and their schema each agree with their source."""

import json
from typing import Any

import yaml

from loghub import __version__
from tests.charts.chart import FOLDER, ROOT


def test_the_crd_of_the_chart_is_the_generated_one() -> None:
    generated = (ROOT / "crds" / "loghubconsumergroups.loghub.dev.yaml").read_text()
    assert (FOLDER / "files" / "crd.yaml").read_text() == generated, "run: make crds"


def test_the_charts_version_is_the_projects() -> None:
    chart = yaml.safe_load((FOLDER / "Chart.yaml").read_text())
    assert (chart["version"], chart["appVersion"]) == (__version__, __version__)


def _paths(values: dict[str, Any], schema: dict[str, Any], at: str = "") -> tuple[set[str], set[str]]:
    """Paths in the values and in the schema, down to where the schema lets anything through."""
    given, known = set(), set()
    properties = schema.get("properties", {})
    for key in values.keys() | properties.keys():
        path = f"{at}.{key}"
        given |= {path} if key in values else set()
        known |= {path} if key in properties else set()
        if isinstance(values.get(key), dict) and "properties" in properties.get(key, {}):
            below_given, below_known = _paths(values[key], properties[key], path)
            given, known = given | below_given, known | below_known
    return given, known


def test_the_schema_knows_every_value_and_no_other() -> None:
    schema = json.loads((FOLDER / "values.schema.json").read_text())
    values = yaml.safe_load((FOLDER / "values.yaml").read_text())
    given, known = _paths(values, schema)
    quantities = {path for path in given | known if path.split(".")[-1] in ("requests", "limits")}
    assert given - quantities == known - quantities


def _open_objects(schema: dict[str, Any], at: str = "") -> list[str]:
    parts = schema.get("properties", {})
    here = [at] if parts and schema.get("additionalProperties") is not False else []
    return here + [one for key, part in parts.items() for one in _open_objects(part, f"{at}.{key}")]


def test_an_unknown_value_is_rejected_at_every_depth() -> None:
    # A parent chart passes its own global values to each of its dependencies.
    assert _open_objects(json.loads((FOLDER / "values.schema.json").read_text())) == [".global"]
