"""Which objects refer to one consumer group, and which of them owns it."""

import asyncio
import builtins
from typing import Any

import pytest

from loghub.domain.subscription import SubscriptionType
from loghub_operator.api import parse_resource
from loghub_operator.api.labels import FINALIZER
from loghub_operator.clients.kube import KubeError
from loghub_operator.model.observed import Peer
from loghub_operator.model.subscription import SubscriptionKind
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.plan.ownership import owner_of
from loghub_operator.plan.subject import peer
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import Document, document, resource, subscribed

FIRST, SECOND = "2026-01-01T00:00:00Z", "2026-01-02T00:00:00Z"


def index() -> GroupIndex:
    return GroupIndex(Settings(embedded_endpoint="http://loghub.svc"))


def consumer_group(
    name: str, created: str = FIRST, spec: Document | None = None, **metadata: Any
) -> Document:
    return document(
        {"consumerGroup": "shared", **(spec or {})}, name=name, creationTimestamp=created, **metadata
    )


def with_access(given: Document) -> Document:
    """As its status says after an observation with its own key."""
    metadata = given["metadata"]
    ownership = {
        "uid": metadata.get("uid", ""),
        "endpoint": "embedded",
        "group": "demo/access/shared",
        "accessSince": FIRST,
    }
    return given | {"status": {"ownership": ownership}}


def names(peers: tuple[Peer, ...]) -> list[str]:
    return [str(one) for one in peers]


def own(spec: Document | None = None) -> Any:
    given = {"consumerGroup": "shared", **(spec or {})}
    return resource(given, name="mine", creationTimestamp=FIRST)


def test_an_object_is_not_its_own_peer() -> None:
    known = index()
    known.update(consumer_group("mine"))
    assert known.peers_of(own()) == ()


@pytest.mark.parametrize(
    ("spec", "shared"),
    [
        ({}, True),
        ({"endpoint": "http://LOGHUB.svc/"}, True),
        ({"endpoint": "http://loghub.svc:80"}, True),
        ({"endpoint": "https://loghub.svc"}, False),
        ({"endpoint": "http://other.svc"}, False),
        ({"project": "other"}, False),
        ({"logstore": "other"}, False),
        ({"consumerGroup": "other"}, False),
        ({"consumerGroup": None}, False),  # then it is the object's name
    ],
)
def test_endpoint_project_logstore_and_name_identify_a_group(spec: Document, shared: bool) -> None:
    known = index()
    other = consumer_group("other")
    other["spec"] |= {key: value for key, value in spec.items() if value is not None}
    for key in [key for key, value in spec.items() if value is None]:
        del other["spec"][key]
    known.update(other)
    assert names(known.peers_of(own())) == (["default/other"] if shared else [])


def test_internal_and_public_endpoint_of_a_region_are_one_log_service() -> None:
    known = index()
    known.update(consumer_group("other", spec={"endpoint": "https://cn-hangzhou-internal.log.aliyuncs.com"}))
    known.update(consumer_group("third", spec={"endpoint": "https://cn-shanghai.log.aliyuncs.com"}))
    update = known.peers_of(own({"endpoint": "http://cn-hangzhou.log.aliyuncs.com"}))
    assert names(update) == ["default/other"]


def test_a_deleted_or_changed_object_affects_its_peers_once() -> None:
    known = index()
    assert known.update(consumer_group("a")) == ()
    assert known.update(consumer_group("b", SECOND)) == ()
    assert known.update(consumer_group("a")) == ()
    ending = consumer_group("a", deletionTimestamp=SECOND, finalizers=[FINALIZER])
    assert known.update(ending) == (("default", "b"),)
    (leaving, remaining) = known.peers_of(own())
    assert (str(leaving), leaving.leaving) == ("default/a", True)
    assert remaining == Peer(created=SECOND, namespace="default", name="b")
    assert known.remove("default", "a", "") == (("default", "b"),)
    assert known.remove("default", "a", "") == ()
    assert known.update(consumer_group("b", SECOND, {"endpoint": "http://other.svc"})) == ()
    assert known.peers_of(own()) == ()


def test_a_recreated_object_is_another_and_younger_one() -> None:
    known = index()
    old = with_access(consumer_group("a", "2025-12-31T00:00:00Z", uid="1"))
    known.update(old)
    known.update(consumer_group("mine", FIRST, uid="2"))
    (other,) = known.peers_of(own())
    assert owner_of(peer(own()), (other,)) == other
    # Its deletion was not reported; then its successor is, say from a backup with the status.
    new = consumer_group("a", SECOND, uid="3") | {"status": old["status"]}
    assert known.update(new) == (("default", "mine"),)
    (other,) = known.peers_of(own())
    assert (other.created, other.access_since, owner_of(peer(own()), (other,))) == (SECOND, "", None)


@pytest.mark.parametrize(
    ("changed", "counts"),
    [
        ({}, True),
        ({"endpoint": "http://LOGHUB.svc:80"}, True),
        ({"endpoint": "http://other.svc"}, False),
        ({"group": "demo/access/other"}, False),
        ({"uid": "2"}, False),
        ({"accessSince": None}, False),
    ],
)
def test_a_proof_of_access_is_about_one_object_and_one_group(changed: Document, counts: bool) -> None:
    known, other = index(), with_access(consumer_group("a", uid="1"))
    other["status"]["ownership"] |= changed
    known.update(other)
    (found,) = known.peers_of(own())
    assert found.access_since == (FIRST if counts else "")


def test_a_proof_of_access_affects_the_peers() -> None:
    known = index()
    known.update(consumer_group("a", uid="1"))
    known.update(consumer_group("b", uid="2"))
    assert known.update(with_access(consumer_group("a", uid="1"))) == (("default", "b"),)


@pytest.mark.parametrize("created", [FIRST, SECOND], ids=["in the same second", "later"])
def test_a_late_event_of_the_previous_object_changes_nothing(created: str) -> None:
    known = index()
    known.update(consumer_group("a", FIRST, uid="1"))
    known.update(consumer_group("a", created, uid="2"))
    before = known.peers_of(own())
    assert known.update(consumer_group("a", FIRST, uid="1", deletionTimestamp=SECOND)) == ()
    assert known.remove("default", "a", "1") == ()
    assert known.peers_of(own()) == before
    assert known.known() == {("default", "a", "2")}
    assert known.remove("default", "a", "2") == ()
    assert known.peers_of(own()) == ()


def test_an_event_of_the_previous_object_after_the_new_one_changes_nothing() -> None:
    known = index()
    known.update(consumer_group("a", SECOND, uid="2"))
    assert known.update(consumer_group("a", FIRST, uid="1")) == ()
    assert known.known() == {("default", "a", "2")}


@pytest.mark.parametrize(
    "spec", [None, {}, {"project": "p"}, {"project": "p", "logstore": "l", "endpoint": 5}]
)
def test_an_object_that_cannot_be_parsed_claims_no_group(spec: Document | None) -> None:
    known = index()
    known.update({"metadata": {"namespace": "default", "name": "x"}, "spec": spec})
    assert known.peers_of(own()) == ()


def test_existing_objects_are_indexed_before_the_watch() -> None:
    class Listed:
        async def list(self, *_: object) -> builtins.list[Document]:
            return [consumer_group("a", SECOND)]

    known, listed = index(), Listed()
    asyncio.run(known.initial_list(listed))  # type: ignore[arg-type]
    assert names(known.peers_of(own())) == ["default/a"]


class Refusing:
    """Lists one object in namespace default, and refuses the others."""

    async def list(self, _: object, namespace: str, __: object) -> builtins.list[Document]:
        if namespace == "default":
            return [consumer_group("a", SECOND)]
        raise KubeError(403, "Forbidden", namespace)


def test_a_forbidden_namespace_does_not_delay_the_others() -> None:
    known, kube = GroupIndex(Settings(namespaces=("gone", "default"))), Refusing()
    refused = asyncio.run(known.initial_list(kube))  # type: ignore[arg-type]
    assert refused.keys() == {"gone"}
    assert known.known() == {("default", "a", "")}


@pytest.mark.parametrize("namespaces", [(), ("gone",), ("gone", "gone-too")])
def test_the_initial_list_fails_if_every_namespace_is_forbidden(namespaces: tuple[str, ...]) -> None:
    with pytest.raises(KubeError, match="Forbidden"):
        asyncio.run(GroupIndex(Settings(namespaces=namespaces)).initial_list(Refusing()))  # type: ignore[arg-type]


@pytest.mark.parametrize(
    ("created", "namespace", "name", "owns"),
    [
        ("2025-12-31T00:00:00Z", "zzz", "zzz", True),
        (SECOND, "aaa", "aaa", False),
        (FIRST, "aaa", "zzz", True),
        (FIRST, "default", "lower", True),
        (FIRST, "default", "zzz", False),
        (FIRST, "zzz", "aaa", False),
    ],
)
def test_of_two_that_proved_access_in_one_second_the_oldest_owns_the_group(
    created: str, namespace: str, name: str, owns: bool
) -> None:
    other = Peer(created=created, namespace=namespace, name=name, access_since=FIRST, leaving=True)
    proven = with_access(consumer_group("mine", FIRST))
    assert owner_of(peer(parse_resource(proven)), (other,)) == (other if owns else None)


@pytest.mark.parametrize(("finalizers", "claims"), [([FINALIZER, "x/y"], ["default/one"]), (["x/y"], [])])
def test_an_object_that_was_released_claims_no_group(finalizers: list[str], claims: list[str]) -> None:
    """The operator is done with it; the finalizer of another controller may hold it for good."""
    on = index()
    leaving = {"finalizers": finalizers, "deletionTimestamp": SECOND}
    on.update(with_access(consumer_group("one", uid="uid-1")))
    on.update(with_access(consumer_group("one", uid="uid-1", **leaving)))
    assert names(on.peers_of(own())) == claims


def subscription(name: str, kind: str = "Shared", **metadata: Any) -> Document:
    spec = subscribed(kind, {"consumerGroup": "shared"})
    return document(spec, name=name, creationTimestamp=FIRST, **metadata)


def test_a_subscription_is_another_thing_than_a_group_of_its_name() -> None:
    known = index()
    known.update(consumer_group("group"))
    known.update(subscription("theirs", "KeyShared"))
    assert names(known.peers_of(own())) == ["default/group"]
    (theirs,) = known.peers_of(own(subscribed("Shared")))
    assert str(theirs) == "default/theirs"
    assert theirs.subscription == SubscriptionKind(type=SubscriptionType.KEY_SHARED, in_order=True)


def test_access_to_a_subscription_is_no_access_to_a_group_of_its_name() -> None:
    known = index()
    stored = with_access(subscription("theirs", uid="uid-2"))
    known.update(stored)
    assert known.peers_of(own(subscribed("Shared")))[0].access_since == ""
    stored["status"]["ownership"]["group"] = "demo/access/subscription/shared"
    known.update(stored)
    assert known.peers_of(own(subscribed("Shared")))[0].access_since == FIRST


@pytest.mark.parametrize("broken", [{"type": "Other"}, {}, "Shared", {"type": "Shared", "key": ["a"]}])
def test_a_subscription_that_cannot_be_read_claims_nothing(broken: object) -> None:
    known = index()
    given = subscription("theirs")
    given["spec"]["subscription"] = broken
    known.update(given)
    assert known.peers_of(own(subscribed("Shared"))) == ()
