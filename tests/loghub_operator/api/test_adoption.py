"""What the annotations record about a group, and about which one."""

from typing import Any

import pytest

from loghub_operator.api.adoption import origin_annotations, read_origin
from tests.loghub_operator.support.examples import resource

SLS = "https://cn-hangzhou.log.aliyuncs.com"


def marked(origin: Any = "Created", **spec: str) -> dict[str, str]:
    return origin_annotations(origin, resource(spec))


@pytest.mark.parametrize("origin", ["Created", "Adopted"])
def test_a_recorded_origin_is_read_back(origin: str) -> None:
    assert read_origin(resource(annotations=marked(origin))) == origin


def test_another_spelling_of_the_endpoint_is_the_same_group() -> None:
    intranet = "https://cn-hangzhou-intranet.log.aliyuncs.com:443/"
    assert read_origin(resource({"endpoint": intranet}, annotations=marked(endpoint=SLS))) == "Created"


def test_at_another_endpoint_the_origin_is_unknown() -> None:
    assert read_origin(resource({"endpoint": SLS}, annotations=marked())) is None


@pytest.mark.parametrize("field", ["project", "logstore", "consumerGroup"])
def test_annotations_copied_onto_an_object_of_another_group_record_no_origin(field: str) -> None:
    """As `kubectl get -o yaml` with another name would: the other group may belong to another user."""
    assert read_origin(resource({field: "other"}, annotations=marked())) is None
    assert read_origin(resource({field: "other"}, annotations=marked(**{field: "other"}))) == "Created"


def test_a_copy_under_another_name_refers_to_another_group() -> None:
    assert read_origin(resource(name="other", annotations=marked())) is None


@pytest.mark.parametrize("value", ["", "created", "Other"])
def test_an_unknown_value_of_the_annotation_records_no_origin(value: str) -> None:
    assert read_origin(resource(annotations={**marked(), "loghub.dev/group-origin": value})) is None
    assert read_origin(resource()) is None
