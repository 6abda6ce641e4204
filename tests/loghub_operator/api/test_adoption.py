"""What the annotations record about a group, and about which one."""

import pytest

from loghub_operator.api.adoption import ANNOTATION_UID, GroupRecord, read_record, record_annotations
from tests.loghub_operator.support.examples import resource

SLS = "https://cn-hangzhou.log.aliyuncs.com"


CREATED = GroupRecord("Created", 3)


def marked(record: GroupRecord = CREATED, **spec: str) -> dict[str, str]:
    return record_annotations(record, resource(spec))


@pytest.mark.parametrize("record", [CREATED, GroupRecord("Adopted", 0), GroupRecord("Created", None)])
def test_a_record_is_read_back(record: GroupRecord) -> None:
    assert read_record(resource(annotations=marked(record))) == record


@pytest.mark.parametrize("value", ["", "-1", "x", "1e3", "9" * 10, "\u0663"])
def test_an_edited_number_of_a_shard_is_unknown(value: str) -> None:
    edited = {**marked(), "loghub.dev/last-initial-shard": value}
    assert read_record(resource(annotations=edited)) == GroupRecord("Created", None)


def test_another_spelling_of_the_endpoint_is_the_same_group() -> None:
    intranet = "https://cn-hangzhou-intranet.log.aliyuncs.com:443/"
    assert read_record(resource({"endpoint": intranet}, annotations=marked(endpoint=SLS))) == CREATED


def test_at_another_endpoint_the_origin_is_unknown() -> None:
    assert read_record(resource({"endpoint": SLS}, annotations=marked())) is None


@pytest.mark.parametrize("field", ["project", "logstore", "consumerGroup"])
def test_annotations_copied_onto_an_object_of_another_group_record_no_origin(field: str) -> None:
    """As `kubectl get -o yaml` with another name would: the other group may belong to another user."""
    assert read_record(resource({field: "other"}, annotations=marked())) is None
    assert read_record(resource({field: "other"}, annotations=marked(**{field: "other"}))) == CREATED


def test_a_copy_under_another_name_refers_to_another_group() -> None:
    assert read_record(resource(name="other", annotations=marked())) is None


def test_a_restored_object_is_a_stranger_to_the_group() -> None:
    """In another cluster, or after it was deleted: the one that made the group may still consume it."""
    mine = resource(uid="uid-1")
    kept = record_annotations(CREATED, mine)
    assert read_record(resource(uid="uid-1", annotations=kept)) == CREATED
    assert read_record(resource(uid="uid-2", annotations=kept)) is None
    old = {name: value for name, value in kept.items() if name != ANNOTATION_UID}
    status = {"ownership": {"uid": "uid-1", "endpoint": "embedded", "group": "demo/access/access"}}
    # An earlier release did not name it.
    assert read_record(resource(uid="uid-1", annotations=old, status=status)) == CREATED
    assert read_record(resource(uid="uid-2", annotations=old, status=status)) is None
    assert read_record(resource(uid="uid-1", annotations=old)) is None


@pytest.mark.parametrize("value", ["", "created", "Other"])
def test_an_unknown_value_of_the_annotation_records_no_origin(value: str) -> None:
    assert read_record(resource(annotations={**marked(), "loghub.dev/group-origin": value})) is None
    assert read_record(resource()) is None
