"""The impact of a change of each field of the spec; a field without a row here fails."""

from collections.abc import Iterator
from typing import Any

import pytest
from pydantic import BaseModel

from loghub_operator.api import LogHubConsumerGroup
from loghub_operator.api.v1alpha1 import Spec
from loghub_operator.model.observed import Placement
from loghub_operator.plan.consumption import stored_of
from loghub_operator.plan.decisions import ChangeImpact, Running, change_impact
from loghub_operator.resources import worker_spec
from loghub_operator.resources.worker_config import worker_config
from tests.loghub_operator.plan.change_impact_cases import FIELDS
from tests.loghub_operator.support.examples import Document, resource

PLACEMENT = Placement(endpoint="http://loghub.svc", sink_root="/sink", needs_project_address=True)
IMMUTABLE = {"project", "logstore", "consumerGroup"}
AS_A_WHOLE = {"scaling", "resetCheckpoints"}


def running(group: LogHubConsumerGroup) -> Running:
    """What this spec comes to where nothing bounds the number of workers."""
    spec = group.spec
    config = worker_config(group, Placement(**{**_placement(), "endpoint": _endpoint(spec)}))
    return Running(
        replicas=0 if spec.suspend else spec.replicas,
        stored=stored_of(group),
        revision=worker_spec(group, config, image="i").revision,
    )


def _placement() -> dict[str, Any]:
    return {"sink_root": "/sink", "needs_project_address": True, "has_pods": True}


def _endpoint(spec: Spec) -> str:
    return PLACEMENT.endpoint if spec.endpoint == "embedded" else spec.endpoint


@pytest.mark.parametrize("field", sorted(FIELDS))
def test_a_change_of_each_field_has_the_expected_impact(field: str) -> None:
    change, before, expected = FIELDS[field]
    document = resource(before).to_dict()["spec"]
    old, new = resource(before), resource(_merged(before, change))
    assert new.to_dict()["spec"] != document
    assert change_impact(running(old), running(new)) is expected


def test_an_unchanged_spec_has_no_impact() -> None:
    assert change_impact(running(resource()), running(resource())) is ChangeImpact.NONE


def test_a_change_of_the_order_restarts_the_workers_of_a_logstore_sink() -> None:
    """It writes in order, too."""
    spec = {"pipeline": {"sink": {"parquet": None, "logstore": {"name": "copy"}}}}
    assert (
        change_impact(running(resource(spec)), running(resource({**spec, "inOrder": True})))
        is ChangeImpact.ROLL
    )


def test_the_most_expensive_impact_counts() -> None:
    both = resource({"replicas": 3, "inOrder": True, "spark": {"cores": 2}})
    assert change_impact(running(resource()), running(both)) is ChangeImpact.ROLL


def test_every_field_of_the_spec_has_a_row() -> None:
    assert set(_fields(Spec)) - IMMUTABLE == set(FIELDS)


def _merged(before: Document, change: Document) -> Document:
    merged_spec = {**before}
    for key, value in change.items():
        both = isinstance(value, dict) and isinstance(merged_spec.get(key), dict)
        merged_spec[key] = _merged(merged_spec[key], value) if both else value
    return merged_spec


def _fields(model: type[BaseModel], path: str = "") -> Iterator[str]:
    """Every leaf of a spec, as in the CRD."""
    for name, field in model.model_fields.items():
        here = f"{path}.{field.alias or name}" if path else field.alias or name
        inner = _model_in(field.annotation)
        if inner is None or here in AS_A_WHOLE:
            yield here
        else:
            yield from _fields(inner, here)


def _model_in(annotation: Any) -> type[BaseModel] | None:
    if isinstance(annotation, type) and issubclass(annotation, BaseModel):
        return annotation
    choices = [one for one in getattr(annotation, "__args__", ()) if isinstance(one, type)]
    models = [one for one in choices if issubclass(one, BaseModel)]
    return models[0] if len(models) == 1 and getattr(annotation, "__origin__", None) is None else None
