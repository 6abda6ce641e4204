"""Workers by their pods."""

from loghub_cli.plugin.worker_pods import is_about, selector, trouble, worker_of
from tests.loghub_cli.plugin.objects import AT, AT_UNIX_S, group, pod

ENDED = {"exitCode": 1, "reason": "Error", "message": "InvalidPipeline: no such column\n", "finishedAt": AT}
BACK_OFF = {"reason": "CrashLoopBackOff"}
NO_MEMORY = {"reason": "OOMKilled", "exitCode": 137}
NO_NODE = {"type": "PodScheduled", "status": "False", "reason": "Unschedulable", "message": "0/3 nodes"}


def test_a_worker_says_what_is_wrong_in_its_own_words_if_it_has_any() -> None:
    rows = [
        worker_of(one, (3, 1))
        for one in (
            pod("access-0"),
            pod("access-1", ready=False, restarts=4,
                container={"state": {"waiting": BACK_OFF, "running": None},
                           "lastState": {"terminated": ENDED}}),
            pod("access-2", ready=False, container={"state": {"terminated": ENDED, "running": None}}),
            pod("access-3", ready=False, container={"state": {"terminated": NO_MEMORY, "running": None}}),
            {"metadata": {"name": "access-4"}, "status": {"conditions": [NO_NODE]}},
            {"metadata": {"name": "access-5", "deletionTimestamp": AT}, "status": {}},
            pod("access-6", ready=False),
        )
    ]  # fmt: skip
    assert [(row["worker"], row["phase"], row["restarts"], row["says"]) for row in rows] == [
        ("access-0", "ready", 0, None),
        ("access-1", "waiting", 4, "CrashLoopBackOff"),
        ("access-2", "waiting", 0, "InvalidPipeline: no such column"),
        ("access-3", "waiting", 0, "OOMKilled: exit status 137"),
        ("access-4", "waiting", 0, "Unschedulable: 0/3 nodes"),
        ("access-5", "ending", 0, None),
        ("access-6", "starting", 0, None),
    ]
    assert rows[0]["shards"] == [1, 3]


def test_a_worker_that_runs_is_no_trouble_unless_it_was_started_again() -> None:
    assert trouble(pod("access-0"), now_unix_s=AT_UNIX_S) is None
    again = trouble(
        pod("access-0", restarts=2, container={"lastState": {"terminated": ENDED}}),
        now_unix_s=AT_UNIX_S + 300,
    )
    assert again is not None
    assert (again["restarts"], again["lastEnd"], again["says"]) == (
        2,
        "5m",
        "InvalidPipeline: no such column",
    )


def test_the_pods_and_the_events_of_a_group_are_its_own() -> None:
    assert selector(group()) == "app.kubernetes.io/name=loghub-worker,app.kubernetes.io/instance=access"
    assert selector(group(selector="a=b")) == "a=b"
    about = [
        name
        for name in ("access", "access-0", "access-12", "access-log-0", "access-x")
        if is_about({"involvedObject": {"name": name}}, "access")
    ]
    assert about == ["access", "access-0", "access-12"]
