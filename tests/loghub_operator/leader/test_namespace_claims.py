"""Several operators that watch one namespace: at most one manages its objects at a time."""

import random
from collections.abc import Mapping
from dataclasses import dataclass, field
from typing import Any

import pytest

from loghub_operator.clients.kube import Document, Kind, KubeError
from loghub_operator.leader.namespace_claims import CHECK_S, CLAIM, END_S, NamespaceClaims, claim_duration_s

BOUND_S = 120.0  # of a reconcile
DURATION_S = claim_duration_s(BOUND_S)
A, B, C = "team-a/loghub", "team-b/loghub", "laptop"


@dataclass
class Cluster:
    """The Leases of an API server, whose time is that of the test."""

    now: float = 0.0
    stored: dict[str, Document] = field(default_factory=dict)  # by namespace
    refused: dict[str, int] = field(default_factory=dict)  # status by method
    lost: list[str] = field(default_factory=list)  # "request" or "answer" of the next writes
    calls: int = 0
    version: int = 0

    async def get(self, kind: Kind, namespace: str, name: str) -> Document | None:
        assert (kind.kind, name) == ("Lease", CLAIM)
        self._called("get")
        return self.stored.get(namespace)

    async def create(self, document: Document) -> Document:
        return self._write("create", document["metadata"]["namespace"], document["spec"], None)

    async def patch(self, _: Kind, namespace: str, __: str, patch: Document) -> Document:
        return self._write("patch", namespace, patch["spec"], patch["metadata"])

    def _write(
        self, method: str, namespace: str, spec: Document, expected: Mapping[str, Any] | None
    ) -> Document:
        self._called(method)
        fault = self.lost.pop() if self.lost else ""
        if fault == "request":
            raise KubeError(0, "Unreachable", "lost")
        known = self.stored.get(namespace)
        if expected != (known and known["metadata"]):
            raise KubeError(409, "Conflict", "it is another version")
        self.version += 1
        before = {} if known is None else known["spec"]
        self.stored[namespace] = {
            "metadata": {"resourceVersion": str(self.version)},
            "spec": {**before, **spec},
        }
        if fault == "answer":
            raise KubeError(0, "Unreachable", "lost")
        return self.stored[namespace]

    def _called(self, method: str) -> None:
        self.calls += 1
        if method in self.refused:
            raise KubeError(self.refused[method], "Forbidden", "not allowed")

    @property
    def holder(self) -> str:
        return str(self.stored["shop"]["spec"]["holderIdentity"])


class Operator:
    """One process of an operator. Its clock may show anything."""

    def __init__(self, cluster: Cluster, identity: str, *, offset_s: float = 0.0) -> None:
        self._cluster = cluster
        self.offset_s = offset_s
        kube: Any = cluster
        self._claims = NamespaceClaims(kube, self, identity=identity, duration_s=DURATION_S)

    def monotonic_s(self) -> float:
        return self._cluster.now + 1000.0

    def unix_s(self) -> float:
        return 1_800_000_000.0 + self._cluster.now + self.offset_s

    def other(self, namespace: str = "shop") -> str:
        """Nothing in it waits, so it needs no loop, which would take most of the time."""
        try:
            self._claims.other(namespace).send(None)
        except StopIteration as done:
            return str(done.value)
        raise AssertionError("it waits")


def test_the_first_one_manages_the_namespace_and_the_second_knows_it_by_name() -> None:
    cluster = Cluster()
    first, second = Operator(cluster, A), Operator(cluster, B)
    for _ in range(100):
        assert (first.other(), second.other()) == ("", A)
        cluster.now += 7.0
    assert second.other("other") == ""
    assert first.other("other") == B


def test_a_claim_costs_two_requests_however_many_objects_it_is_for() -> None:
    cluster = Cluster()
    first = Operator(cluster, A)
    for _ in range(500):
        first.other()
    assert cluster.calls == 2
    cluster.now += CHECK_S
    first.other()
    assert cluster.calls == 4


@pytest.mark.parametrize("offset_s", [0.0, 86_400.0, -86_400.0])
def test_a_claim_ends_after_that_of_an_operator_that_is_gone(offset_s: float) -> None:
    """Whatever the clocks say."""
    cluster = Cluster()
    assert Operator(cluster, A, offset_s=offset_s).other() == ""
    second = Operator(cluster, B)
    assert second.other() == A
    cluster.now += DURATION_S - 1.0
    assert second.other() == A
    cluster.now += CHECK_S
    assert second.other() == ""
    assert cluster.holder == B


def test_a_reconcile_that_began_under_a_claim_ends_before_another_operator_begins() -> None:
    cluster = Cluster()
    first, second = Operator(cluster, A), Operator(cluster, B)
    assert (first.other(), second.other()) == ("", A)
    cluster.now += CHECK_S - 0.1
    assert first.other() == ""  # without a request; what it does now may last until it counts as stuck
    cluster.now += BOUND_S + END_S
    assert second.other() == A


def test_another_process_of_the_same_release_goes_on_at_once() -> None:
    cluster = Cluster()
    assert Operator(cluster, A).other() == ""
    assert Operator(cluster, A).other() == ""
    assert cluster.stored["shop"]["spec"]["leaseTransitions"] == 0


def test_a_namespace_that_is_given_back_is_taken_at_once() -> None:
    """As a person does who has just removed a release."""
    cluster = Cluster()
    second = Operator(cluster, B)
    assert (Operator(cluster, A).other(), second.other()) == ("", A)
    cluster.stored["shop"]["spec"]["holderIdentity"] = ""
    cluster.now += CHECK_S
    assert second.other() == ""


@pytest.mark.parametrize(("method", "status"), [("get", 403), ("create", 403), ("create", 404)])
def test_an_operator_that_may_write_no_lease_goes_on_as_before(method: str, status: int) -> None:
    """After an upgrade of its image alone, or in a namespace that is being deleted."""
    cluster = Cluster(refused={method: status})
    first = Operator(cluster, A)
    for _ in range(3):
        assert first.other() == ""
        cluster.now += CHECK_S


def test_an_operator_that_may_only_read_the_lease_keeps_off_too() -> None:
    cluster = Cluster()
    assert Operator(cluster, A).other() == ""
    cluster.refused = {"patch": 403, "create": 403}
    assert Operator(cluster, B).other() == A


@pytest.mark.parametrize("status", [0, 409, 500])
def test_what_is_not_known_is_an_error(status: int) -> None:
    cluster = Cluster(refused={"get": status})
    with pytest.raises(KubeError):
        Operator(cluster, A).other()


@pytest.mark.parametrize(
    "seed", [*range(4), *(pytest.param(one, marks=pytest.mark.deep) for one in range(4, 40))]
)
def test_no_two_operators_manage_one_namespace_at_a_time(seed: int) -> None:
    """Processes end and start again, requests and answers are lost, clocks jump, and reconciles last long."""
    chance, cluster = random.Random(seed), Cluster()
    running = {name: Operator(cluster, name) for name in (A, B, C)}
    until = dict.fromkeys(running, -1.0)  # when the last reconcile of each ends
    managed = dict.fromkeys(running, 0)
    for _ in range(400):
        cluster.now += chance.choice((0.0, 1.0, 5.0, 30.0, 100.0))
        name = chance.choice(tuple(running))
        if chance.random() < 0.05:
            running[name] = Operator(cluster, name)
        running[name].offset_s = chance.choice((0.0, 3600.0, -3600.0, running[name].offset_s))
        cluster.lost = [chance.choice(("request", "answer"))] if chance.random() < 0.2 else []
        try:
            other = running[name].other()
        except KubeError:
            continue
        if not other:
            managed[name] += 1
            assert all(end < cluster.now for one, end in until.items() if one != name)
            until[name] = max(until[name], cluster.now + chance.uniform(0.0, BOUND_S))
    assert sum(bool(count) for count in managed.values()) > 1, "it moves when its holder is silent"
    cluster.lost = []
    cluster.now += DURATION_S
    last = chance.choice(tuple(running))
    running[last].other()
    cluster.now += DURATION_S
    assert running[last].other() == ""
