"""What helm prints after an install can be pasted and is valid."""

import json
import re

import pytest
import yaml

from loghub_operator.api import parse_resource
from tests.charts.chart import Chart, Values
from tests.loghub_operator.support.apiserver import Apiserver

SERVICE: Values = {"embeddedService": {"enabled": True}}


def pasted(notes: str) -> dict[str, object]:
    """The object between the EOF marks; the notes are indented by two."""
    result = re.search(r"<<'EOF'\n(.*?)\n  EOF\n", notes, re.DOTALL)
    assert result is not None, notes
    (document,) = yaml.safe_load_all(result[1])
    assert isinstance(document, dict)
    return document


@pytest.mark.parametrize("values", [{}, SERVICE, {"watchNamespaces": ["default", "chart-notes"]}])
def test_the_example_group_of_the_notes_is_valid(chart: Chart, server: Apiserver, values: Values) -> None:
    document = pasted(chart.notes(values))
    parse_resource(document)
    done = server.run("create", "--dry-run=server", "--validate=strict", "-f", "-", text=json.dumps(document))
    assert (done.returncode, done.stderr) == (0, "")


def test_the_example_group_is_in_a_watched_namespace(chart: Chart) -> None:
    document = pasted(chart.notes({"watchNamespaces": ["team-a"]}))
    assert document["metadata"] == {"name": "first", "namespace": "team-a"}


def test_the_example_uses_the_embedded_service_if_it_is_installed(chart: Chart) -> None:
    assert parse_resource(pasted(chart.notes(SERVICE))).spec.endpoint == "embedded"
    assert parse_resource(pasted(chart.notes())).spec.endpoint.startswith("https://")
    assert "http://loghub-system.svc" in chart.notes(SERVICE)
    assert "embedded LogHub service starts" not in chart.notes()


def test_a_secret_that_the_operator_may_not_read_is_pointed_out(chart: Chart) -> None:
    assert "permission to read only these Secrets: other" in chart.notes({"rbac": {"secretNames": ["other"]}})
    assert "permission to read only" not in chart.notes({"rbac": {"secretNames": ["loghub-credentials"]}})
