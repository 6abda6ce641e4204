"""The records of pods and holders, without a cluster."""

from pathlib import Path

from tests.cluster.kubectl import Kubectl, Object
from tests.cluster.processes import wait_until
from tests.cluster.watching import Held, HoldersWatch, PodsWatch
from tests.fakes.fake_log_service import MemoryLogHub, MemoryServer


def observed(**shards: list[Held]) -> HoldersWatch:
    watch = HoldersWatch(client=MemoryLogHub(MemoryServer(), "p"), logstore="access", group="g")
    watch.observed.update({int(name[1:]): held for name, held in shards.items()})
    return watch


def test_the_shards_of_a_consumer_are_reassigned_when_the_last_one_has_an_owner() -> None:
    watch = observed(
        s0=[Held("already_alloc", "a", 1.0), Held("already_alloc", "b", 5.0)],
        s1=[Held("already_alloc", "a", 1.0), Held("not_alloc", "", 2.0), Held("already_alloc", "b", 7.0)],
        s2=[Held("already_alloc", "b", 1.0)],
    )
    assert watch.freed_s("a") == 7.0


def test_a_shard_in_transfer_has_no_owner_yet() -> None:
    retained = [Held("already_alloc", "a", 1.0), Held("transfer", "a", 2.0)]
    assert (
        observed(s0=[Held("already_alloc", "a", 1.0), Held("already_alloc", "b", 5.0)], s1=retained).freed_s(
            "a"
        )
        is None
    )
    assert observed(s0=[Held("already_alloc", "a", 1.0), Held("not_alloc", "", 2.0)]).freed_s("a") is None


def test_a_consumer_without_shards_has_nothing_to_reassign() -> None:
    assert observed(s0=[Held("already_alloc", "b", 1.0)]).freed_s("a") is None


def test_a_request_without_an_answer_is_counted() -> None:
    """What happened meanwhile was not seen."""
    with observed() as watch:
        wait_until(lambda: watch.unanswered > 1, what="requests to a project that does not exist", guard_s=60)
    assert watch.observed == {}


def test_the_steps_of_a_pod_are_recorded_by_its_uid() -> None:
    watch = PodsWatch(Kubectl(Path("kubectl"), Path("config")), "default", "a=b")
    watch.note("ADDED", pod("one"))
    assert watch.draining() == []
    watch.note("MODIFIED", pod("one", {"loghub.dev/drain": "true"}))
    assert watch.draining() == ["w-0"]
    watch.note("DELETED", pod("one", {"loghub.dev/drain": "true"}))
    watch.note("ADDED", pod("two"))
    assert watch.draining() == []
    assert [(one.name, one.deleted_s is None) for one in watch.pods.values()] == [
        ("w-0", False),
        ("w-0", True),
    ]


def pod(uid: str, annotations: dict[str, str] | None = None) -> Object:
    return {"metadata": {"name": "w-0", "uid": uid, "annotations": annotations or {}}}
