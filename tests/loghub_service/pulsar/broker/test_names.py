"""What the names of topics, namespaces and subscriptions stand for."""

import pytest

from loghub_service.kafka.records.record_forms import RecordForm
from loghub_service.pulsar.broker.names import (
    FoundTopic,
    check_namespace,
    check_subscription,
    find_local,
    logstore_to_create,
    parse_namespace,
    parse_topic,
    partition_name,
)
from loghub_service.pulsar.broker.refusals import RefusedCommand
from loghub_service.pulsar.wire.errors import ServerError

LOGSTORES = {"access", "access-partition-3", "access-partition-4", "odd-partition-3", "access-sub-retry"}


def _find(local: str, *, whole_first: bool = False) -> FoundTopic[str] | None:
    """Each logstore has four shards."""
    return find_local(
        local,
        lambda name: name if name in LOGSTORES else None,
        partitions=lambda _: 4,
        whole_first=whole_first,
    )


@pytest.mark.parametrize(
    ("text", "namespace", "local"),
    [
        ("persistent://public/default/access", "default", "access"),
        ("persistent://public/demo/access-partition-3", "demo", "access-partition-3"),
        ("access", "default", "access"),
        ("public/demo/access", "demo", "access"),
    ],
)
def test_a_topic_is_in_a_namespace_and_may_be_named_shortly(text: str, namespace: str, local: str) -> None:
    parsed = parse_topic(text)
    assert (parsed.namespace, parsed.local) == (namespace, local)


@pytest.mark.parametrize(
    "text",
    [
        "",
        "persistent://",
        "persistent://public/default/",
        "persistent://public/default",
        "persistent://tenant/default/access",
        "non-persistent://public/default/access",
        "kafka://public/default/access",
        "persistent://public/cluster/default/access",
        "x" * 513,
    ],
)
def test_what_is_no_topic_is_an_invalid_name(text: str) -> None:
    with pytest.raises(RefusedCommand) as refused:
        parse_topic(text)
    assert refused.value.code is ServerError.TOPIC_NOT_FOUND


@pytest.mark.parametrize(
    ("local", "topic", "partition", "form"),
    [
        ("access", "access", None, None),
        ("access-partition-0", "access", 0, None),
        ("access-partition-17", "access", 17, None),
        ("access.raw", "access", None, "raw"),
        ("access.json-partition-2", "access", 2, "json"),
        ("odd-partition-3", "odd-partition-3", None, None),
        ("odd-partition-3-partition-1", "odd-partition-3", 1, None),
        ("ACCESS-Sub-RETRY", "access-sub-retry", None, None),
        ("access-sub-RETRY-partition-0", "access-sub-retry", 0, None),
    ],
)
def test_a_local_name_is_a_logstore_a_partition_or_both_with_a_suffix(
    local: str, topic: str, partition: int | None, form: str | None
) -> None:
    assert _find(local) == FoundTopic(
        topic=topic, partition=partition, form=RecordForm(form) if form else None
    )


def test_a_name_that_may_be_both_is_a_topic_for_its_partitions_and_else_a_partition() -> None:
    """A client that has the topic access uses the name for its shard 3. A client that has the other one asks
    for the partitions of this name, and then uses the names of these."""
    both, only = "access-partition-3", "access-partition-4"
    assert _find(both) == FoundTopic(topic="access", partition=3, form=None)
    assert _find(both, whole_first=True) == FoundTopic(topic=both, partition=None, form=None)
    assert _find(f"{both}-partition-0") == FoundTopic(topic=both, partition=0, form=None)
    assert _find(only) == FoundTopic(topic=only, partition=None, form=None)


@pytest.mark.parametrize(
    "local", ["other", "access.other", "access-partition-", "access-partition-01", "access-partition-x"]
)
def test_other_names_stand_for_nothing(local: str) -> None:
    assert _find(local) is None


def test_the_namespace_is_default_or_the_project_of_the_login() -> None:
    check_namespace("default", "demo")
    check_namespace("demo", "demo")
    with pytest.raises(RefusedCommand) as refused:
        check_namespace("other", "demo")
    assert refused.value.code is ServerError.AUTHORIZATION_ERROR
    assert parse_namespace("public/demo") == "demo"
    for text in ("public", "public/", "other/demo", "public/a/b", ""):
        with pytest.raises(RefusedCommand):
            parse_namespace(text)


def test_a_name_of_a_partition_is_found_again() -> None:
    name = partition_name("default", "access", 3)
    found = _find(parse_topic(name).local)
    assert found == FoundTopic(topic="access", partition=3, form=None)


@pytest.mark.parametrize(
    ("local", "logstore"), [("New", "new"), ("a-b-RETRY-partition-0", "a-b-retry"), ("x1", "x1")]
)
def test_a_new_topic_is_a_logstore_in_small_letters(local: str, logstore: str) -> None:
    assert logstore_to_create(local) == logstore


@pytest.mark.parametrize("local", ["__change_events", "a.raw", "a", "é" * 3])
def test_a_new_topic_needs_a_name_that_a_logstore_may_have(local: str) -> None:
    with pytest.raises(RefusedCommand) as refused:
        logstore_to_create(local)
    assert refused.value.code is ServerError.TOPIC_NOT_FOUND


@pytest.mark.parametrize("name", ["s", "A.b_c-1", "x" * 128])
def test_a_subscription_has_a_name_of_letters_digits_and_three_signs(name: str) -> None:
    check_subscription(name)


@pytest.mark.parametrize("name", ["", "a/b", "a b", "x" * 129, "ü", "a\n"])
def test_another_name_of_a_subscription_is_refused(name: str) -> None:
    with pytest.raises(RefusedCommand) as refused:
        check_subscription(name)
    assert refused.value.code is ServerError.NOT_ALLOWED_ERROR
