"""What a list of the groups shows that the watch did not report: a change, and a deletion."""

import asyncio
from typing import Any

from loghub_operator.clients.kube import KubeError
from loghub_operator.controller.watch_check import WatchCheck, missed, missed_twice
from loghub_operator.observe.group_index import GroupIndex, Incarnation, Name
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import Document, document, resource

A, B = ("ns", "aa", "uid-aa"), ("ns", "bb", "uid-bb")


class Checked:
    """A watch check over a list that a test changes; records what is enqueued."""

    def __init__(self, *objects: Document) -> None:
        self.listed: dict[Incarnation, str] = {}
        self.enqueued: list[Name] = []
        self.group_index = GroupIndex(Settings(embedded_endpoint="http://loghub.svc"))
        for one in objects:
            self.group_index.update(one)
            metadata = one["metadata"]
            self.listed[metadata["namespace"], metadata["name"], metadata["uid"]] = "1"
        kube: Any = self
        self.forbidden: set[str] = set()
        self.watch_check = WatchCheck(
            kube=kube, namespaces=("shut", "ns"), group_index=self.group_index, enqueue=self.enqueued.append
        )

    async def versions(self, _: object, namespace: str) -> dict[Incarnation, str]:
        if namespace in self.forbidden:
            raise KubeError(403, "Forbidden", namespace)
        return {one: version for one, version in self.listed.items() if one[0] == namespace}

    def check(self) -> None:
        self.enqueued.clear()
        asyncio.run(self.watch_check.check())


def test_a_change_is_missed_if_it_is_listed_and_not_reported() -> None:
    assert missed({A: "5", B: "7"}, {A: "5"}) == {B: None}
    assert missed({A: "5"}, {A: "4", B: "1"}) == {A: "4"}


def test_a_late_report_is_no_missed_change() -> None:
    assert missed_twice({A: "4"}, {A: "6"}) == ()  # it reported another version in between
    assert missed_twice({}, {A: "4"}) == ()
    assert missed_twice({A: "4", B: None}, {A: "4", B: None}) == (A, B)


def test_a_missed_change_is_detected_at_the_second_check_and_its_group_enqueued() -> None:
    on = Checked()
    on.listed[A] = "1"
    on.watch_check.reported(A, "1")
    for _ in range(2):
        on.check()
        assert (on.watch_check.unreported, on.enqueued) == ((), [])
    on.listed[A] = "2"
    on.check()
    assert on.watch_check.unreported == ()
    on.listed[A] = "3"
    on.check()
    assert (on.watch_check.unreported, on.enqueued) == ((A,), [A[:2]])
    on.watch_check.reported(A, "3")
    on.check()
    assert on.watch_check.unreported == ()


def test_the_deletion_of_the_previous_object_does_not_count_as_a_missed_change() -> None:
    on, recreated = Checked(), ("ns", "aa", "uid-c")
    on.watch_check.reported(A, "1")
    on.listed[recreated] = "3"
    on.watch_check.reported(recreated, "3")
    on.watch_check.reported(A, "2")
    on.watch_check.deletion_reported(A)
    on.check()
    on.check()
    assert on.watch_check.unreported == ()


def claiming(name: str, created: str) -> Document:
    shared = {"consumerGroup": "shared"}
    return document(shared, namespace="ns", name=name, uid=f"uid-{name}", creationTimestamp=created)


def test_an_unreported_deletion_frees_the_group_at_the_second_check() -> None:
    older, younger = claiming("aa", "2026-01-01T00:00:00Z"), claiming("bb", "2026-01-02T00:00:00Z")
    on = Checked(older, younger)
    for one in (A, B):
        on.watch_check.reported(one, "1")
    mine = resource({"consumerGroup": "shared"}, **younger["metadata"])
    del on.listed[A]
    on.check()
    assert [one.name for one in on.group_index.peers_of(mine)] == ["aa"], (
        "an object may be created during the list"
    )
    assert on.enqueued == []
    on.check()
    assert on.group_index.peers_of(mine) == ()
    assert set(on.enqueued) == {A[:2], B[:2]}
    on.check()
    assert on.enqueued == []


def test_objects_in_a_forbidden_namespace_are_kept_and_the_others_are_checked() -> None:
    shut = claiming("cc", "2026-01-01T00:00:00Z")
    shut["metadata"]["namespace"] = "shut"
    on = Checked(claiming("aa", "2026-01-01T00:00:00Z"), shut)
    on.forbidden = {"shut"}
    on.listed.clear()
    on.check()
    on.check()
    assert on.group_index.known() == {("shut", "cc", "uid-cc")}


def test_a_deletion_before_the_watch_began_frees_the_group_too() -> None:
    on = Checked(claiming("aa", "2026-01-01T00:00:00Z"))
    on.listed.clear()
    on.check()
    on.check()
    assert on.group_index.known() == frozenset()


def test_a_recreated_object_keeps_its_group() -> None:
    on = Checked(claiming("aa", "2026-01-01T00:00:00Z"))
    on.listed.clear()
    on.check()
    recreated = claiming("aa", "2026-01-02T00:00:00Z")
    recreated["metadata"]["uid"] = "uid-c"
    on.group_index.update(recreated)
    on.listed["ns", "aa", "uid-c"] = "2"
    on.watch_check.reported(("ns", "aa", "uid-c"), "2")
    on.check()
    assert on.group_index.known() == {("ns", "aa", "uid-c")}
