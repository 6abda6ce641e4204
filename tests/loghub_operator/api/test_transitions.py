"""Changes of a spec that both the operator and the API server reject, or accept."""

import uuid

import pytest

from loghub_operator.api import parse_resource
from loghub_operator.api.subscription import SUBSCRIPTION_STAYS
from tests.loghub_operator.api.problems import problems
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import Document, document, subscribed

HANGZHOU, SHANGHAI = (
    "https://cn-hangzhou.log.aliyuncs.com",
    "http://cn-shanghai-intranet.log.aliyuncs.com:80/",
)


def immutable(field: str) -> str:
    if field == "subscription":
        return SUBSCRIPTION_STAYS.message
    rule = "must stay at the same log service" if field == "endpoint" else "is immutable"
    return f"{field} {rule}; create another LogHubConsumerGroup instead"


CHANGES: dict[str, tuple[Document, Document, str]] = {
    "project": ({}, {"project": "other"}, "project"),
    "logstore": ({}, {"logstore": "other"}, "logstore"),
    "group-changed": ({"consumerGroup": "one"}, {"consumerGroup": "two"}, "consumerGroup"),
    "group-appears": ({}, {"consumerGroup": "two"}, "consumerGroup"),
    "group-goes": ({"consumerGroup": "one"}, {}, "consumerGroup"),
    "region": ({"endpoint": HANGZHOU}, {"endpoint": SHANGHAI}, "endpoint"),
    "embedded to SLS": ({}, {"endpoint": HANGZHOU}, "endpoint"),
    "with state": ({}, {"pipeline": {"stateful": True}}, "pipeline.stateful"),
    "without state": ({"pipeline": {"stateful": True}}, {}, "pipeline.stateful"),
    "another volume": (
        {"pipeline": {"stateful": True, "state": {"size": "1Gi"}}},
        {"pipeline": {"stateful": True, "state": {"size": "2Gi"}}},
        "pipeline.state",
    ),
    "no volume": (
        {"pipeline": {"stateful": True, "state": {"size": "1Gi"}}},
        {"pipeline": {"stateful": True}},
        "pipeline.state",
    ),
    "a subscription appears": (
        {"pipeline": subscribed("Shared")["pipeline"]},
        subscribed("Shared"),
        "subscription",
    ),
    "a subscription goes": (
        subscribed("Shared"),
        {"pipeline": subscribed("Shared")["pipeline"]},
        "subscription",
    ),
    "SLS to embedded": ({"endpoint": SHANGHAI}, {}, "endpoint"),
}


@pytest.mark.parametrize("name", CHANGES)
def test_a_change_of_an_immutable_field_is_rejected(name: str) -> None:
    before, after, field = CHANGES[name]
    reported = problems(document(after), old=document(before))
    assert reported == [f"spec.{field}: {immutable(field)}"]


@pytest.mark.parametrize("name", CHANGES)
def test_the_apiserver_rejects_such_a_change_with_the_same_message(name: str, server: Apiserver) -> None:
    before, after, field = CHANGES[name]
    unique = f"c-{uuid.uuid4().hex[:8]}"
    assert server.apply(document(before, name=unique)) == ""
    assert immutable(field) in server.apply(document(after, name=unique))


@pytest.mark.parametrize(
    "after",
    [
        {"subscription": {"type": "Failover"}},
        {"subscription": {"type": "KeyShared", "key": ["user"]}},
        {"subscription": {"priority": 3}},
    ],
)
def test_a_subscription_may_become_another(after: Document) -> None:
    old = parse_resource(document(subscribed("Shared")))
    assert parse_resource(document(subscribed("Shared", after)), old=old).spec != old.spec


# Other names of one service, or what may be one.
SPELLINGS = (
    ("https://CN-hangzhou-intranet.log.aliyuncs.com", "http://cn-hangzhou-internal.log.aliyuncs.com:80/"),
    (HANGZHOU, "http://sls.corp.example:8080"),
    ("embedded", "http://loghub.example"),
    ("http://10.0.0.1:8080", "https://loghub.example"),
    ("http://x.log.aliyuncs.com.example", SHANGHAI),
)


@pytest.mark.parametrize(("before", "after"), SPELLINGS)
def test_an_endpoint_may_change_to_what_may_be_the_same_service(before: str, after: str) -> None:
    for old, new in ((before, after), (after, before)):
        parse_resource(document({"endpoint": new}), old=parse_resource(document({"endpoint": old})))


@pytest.mark.parametrize(("before", "after"), SPELLINGS)
def test_the_apiserver_accepts_such_a_change(before: str, after: str, server: Apiserver) -> None:
    unique = f"c-{uuid.uuid4().hex[:8]}"
    for endpoint in (before, after, before):
        assert server.apply(document({"endpoint": endpoint}, name=unique)) == ""
