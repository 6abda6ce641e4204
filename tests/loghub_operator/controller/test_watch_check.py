"""What a list of the groups shows that the watch did not tell: a change, and an end."""

import asyncio
from typing import Any

from loghub_operator.clients.kube import KubeError
from loghub_operator.controller.watch_check import WatchCheck, missed, silent_about
from loghub_operator.observe.group_index import GroupIndex, Incarnation, Name
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import Document, document, resource

A, B = ("ns", "aa", "uid-aa"), ("ns", "bb", "uid-bb")


class Called:
    """A roll call over a list that a test changes; notes who is woken."""

    def __init__(self, *objects: Document) -> None:
        self.listed: dict[Incarnation, str] = {}
        self.woken: list[Name] = []
        self.claims = GroupIndex(Settings(embedded_endpoint="http://loghub.svc"))
        for one in objects:
            self.claims.seen(one)
            about = one["metadata"]
            self.listed[about["namespace"], about["name"], about["uid"]] = "1"
        kube: Any = self
        self.refused: set[str] = set()
        self.roll_call = WatchCheck(
            kube=kube, namespaces=("shut", "ns"), claims=self.claims, wake=self.woken.append
        )

    async def versions(self, _: object, namespace: str) -> dict[Incarnation, str]:
        if namespace in self.refused:
            raise KubeError(403, "Forbidden", namespace)
        return {one: version for one, version in self.listed.items() if one[0] == namespace}

    def call(self) -> None:
        self.woken.clear()
        asyncio.run(self.roll_call.call())


def test_missed_is_what_the_list_has_and_the_watch_has_not() -> None:
    assert missed({A: "5", B: "7"}, {A: "5"}) == {B: None}
    assert missed({A: "5"}, {A: "4", B: "1"}) == {A: "4"}


def test_late_is_not_silent() -> None:
    assert silent_about({A: "4"}, {A: "6"}) == ()  # it told of another in between
    assert silent_about({}, {A: "4"}) == ()
    assert silent_about({A: "4", B: None}, {A: "4", B: None}) == (A, B)


def test_a_silent_watch_is_seen_at_the_second_call_and_its_group_woken() -> None:
    on = Called()
    on.listed[A] = "1"
    on.roll_call.told(A, "1")
    for _ in range(2):
        on.call()
        assert (on.roll_call.silent_about, on.woken) == ((), [])
    on.listed[A] = "2"
    on.call()
    assert on.roll_call.silent_about == ()
    on.listed[A] = "3"
    on.call()
    assert (on.roll_call.silent_about, on.woken) == ((A,), [A[:2]])
    on.roll_call.told(A, "3")
    on.call()
    assert on.roll_call.silent_about == ()


def test_the_end_of_who_was_there_before_is_not_silence_about_the_new_one() -> None:
    on, anew = Called(), ("ns", "aa", "uid-c")
    on.roll_call.told(A, "1")
    on.listed[anew] = "3"
    on.roll_call.told(anew, "3")
    on.roll_call.told(A, "2")
    on.roll_call.told_gone(A)
    on.call()
    on.call()
    assert on.roll_call.silent_about == ()


def claiming(name: str, created: str) -> Document:
    shared = {"consumerGroup": "shared"}
    return document(shared, namespace="ns", name=name, uid=f"uid-{name}", creationTimestamp=created)


def test_whose_end_was_not_told_gives_its_group_up_at_the_second_call() -> None:
    older, younger = claiming("aa", "2026-01-01T00:00:00Z"), claiming("bb", "2026-01-02T00:00:00Z")
    on = Called(older, younger)
    for one in (A, B):
        on.roll_call.told(one, "1")
    mine = resource({"consumerGroup": "shared"}, **younger["metadata"])
    del on.listed[A]
    on.call()
    assert [one.name for one in on.claims.peers_of(mine)] == ["aa"], "an object may be made amid the list"
    assert on.woken == []
    on.call()
    assert on.claims.peers_of(mine) == ()
    assert set(on.woken) == {A[:2], B[:2]}
    on.call()
    assert on.woken == []


def test_a_namespace_that_may_not_be_listed_keeps_what_is_known_of_it_and_the_others_are_looked_at() -> None:
    shut = claiming("cc", "2026-01-01T00:00:00Z")
    shut["metadata"]["namespace"] = "shut"
    on = Called(claiming("aa", "2026-01-01T00:00:00Z"), shut)
    on.refused = {"shut"}
    on.listed.clear()
    on.call()
    on.call()
    assert on.claims.known() == {("shut", "cc", "uid-cc")}


def test_whose_end_came_before_the_watch_began_gives_its_group_up_too() -> None:
    on = Called(claiming("aa", "2026-01-01T00:00:00Z"))
    on.listed.clear()
    on.call()
    on.call()
    assert on.claims.known() == frozenset()


def test_who_is_made_anew_keeps_its_group() -> None:
    on = Called(claiming("aa", "2026-01-01T00:00:00Z"))
    on.listed.clear()
    on.call()
    anew = claiming("aa", "2026-01-02T00:00:00Z")
    anew["metadata"]["uid"] = "uid-c"
    on.claims.seen(anew)
    on.listed["ns", "aa", "uid-c"] = "2"
    on.roll_call.told(("ns", "aa", "uid-c"), "2")
    on.call()
    assert on.claims.known() == {("ns", "aa", "uid-c")}
