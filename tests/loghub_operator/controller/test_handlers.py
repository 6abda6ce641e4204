"""Which events the real Kopf receives from an API server, and which of them enqueue a group.

The API server is a small one that records each request (`WatchedApiserver`); `tests.apiserver.test_watches`
uses the real one.
"""

import asyncio
from collections.abc import Awaitable, Callable
from typing import Any

import kopf
import pytest

from loghub.clock import SystemClock
from loghub_operator.api.labels import LABEL_INSTANCE, LABEL_NAME
from loghub_operator.clients.kube import CONSUMER_GROUP, POD, STATEFUL_SET, KubeConnection
from loghub_operator.controller import handlers
from loghub_operator.controller import handlers as login
from loghub_operator.controller.handlers import KopfLogin
from loghub_operator.controller.reconciler import Reconciler
from loghub_operator.controller.watch_check import WatchCheck
from loghub_operator.controller.workqueue import Key
from loghub_operator.observe.group_index import GroupIndex
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import Document
from tests.loghub_operator.support.watched_apiserver import KINDS, WatchedApiserver

GUARD_S = 120.0
OURS = dict(term.partition("=")[::2] for term in handlers.SELECTOR.split(",")[:2]) | {
    LABEL_INSTANCE: "access"
}
ACCESS = Key("ns", "access")


class Enqueued(Reconciler):
    """Records what is enqueued."""

    def __init__(self) -> None:
        self.groups: list[Key] = []
        self.children: list[Key] = []
        self.closed = False

    async def close(self) -> None:
        self.closed = True

    def enqueue(self, key: Key, *, version: str = "") -> None:
        self.groups.append(key)

    def enqueue_known(self, key: Key) -> None:
        self.children.append(key)


class Stage:
    """Kopf with our handlers over a small API server, until the story ends."""

    def __init__(self, *tokens: str) -> None:
        self.server = WatchedApiserver(*tokens)
        self.enqueued = Enqueued()
        self.token = tokens[0]

    async def children(self, number: int) -> None:
        """Waits until so many events of children have been enqueued."""
        while len(self.enqueued.children) < number:
            await asyncio.sleep(0.01)


def play(story: Callable[[Stage], Awaitable[None]], *tokens: str, clock: SystemClock | None = None) -> Stage:
    on = Stage(*(tokens or ("one",)))

    async def run() -> None:
        async with on.server.serving() as port:

            async def connection() -> KubeConnection:
                return KubeConnection(
                    server=f"http://127.0.0.1:{port}",
                    verify_tls=True,
                    ca_file=None,
                    cert_file=None,
                    key_file=None,
                    proxy=None,
                    authorization=f"bearer {on.token}",
                )

            registry, stop = kopf.OperatorRegistry(), asyncio.Event()
            handlers.register(registry, KopfLogin(connection, clock or SystemClock()))
            group_index = GroupIndex(Settings(embedded_endpoint="http://loghub.svc"))
            kube: Any = None
            check = WatchCheck(kube=kube, namespaces=(), group_index=group_index, enqueue=lambda _: None)
            memo = kopf.Memo(reconciler=on.enqueued, watch_check=check, group_index=group_index)
            running = asyncio.create_task(
                kopf.operator(
                    registry=registry,
                    settings=handlers.settings(),
                    memo=memo,
                    standalone=True,
                    clusterwide=True,
                    stop_flag=stop,
                )
            )
            try:
                async with asyncio.timeout(GUARD_S):
                    await on.server.until_watched()
                    await story(on)
            finally:
                stop.set()
                await running

    asyncio.run(run())
    return on


class LongerLogins(SystemClock):
    """Each login is valid for twice as long as the one before: one of them suffices on a slow machine."""

    def __init__(self) -> None:
        self._valid_s = 0.3

    def unix_s(self) -> float:
        """Asked once for each login, which is valid for `LOGIN_S` from then."""
        self._valid_s *= 2
        return super().unix_s() - login.LOGIN_S + self._valid_s


def pod_status(*, ready: bool = False, waiting: str = "") -> Document:
    state: Document = {"waiting": {"reason": waiting}} if waiting else {"running": {}}
    return {
        "phase": "Running",
        "conditions": [{"type": "Ready", "status": "True" if ready else "False"}],
        "containerStatuses": [{"name": "worker", "ready": ready, "started": True, "state": state}],
    }


def test_the_watches_select_our_labels_and_receive_nothing_else() -> None:
    async def story(on: Stage) -> None:
        on.server.put(STATEFUL_SET, "database", labels={LABEL_INSTANCE: "x"})
        on.server.put(POD, "database-0", labels={**OURS, LABEL_NAME: "database"}, status={})
        on.server.put(STATEFUL_SET, "access", labels=OURS)
        on.server.put(POD, "access-0", labels=OURS, status={})
        await on.children(2)

    on = play(story)
    assert on.enqueued.closed
    assert {kind for kind, _, _ in on.server.sent} == {"statefulsets", "pods"}
    assert {name for _, _, name in on.server.sent} == {"access", "access-0"}
    requested = {(one.plural, one.watch, one.selector) for one in on.server.requests}
    assert requested == {
        (kind.plural, watch, "" if kind is CONSUMER_GROUP else handlers.SELECTOR)
        for kind in KINDS
        for watch in (False, True)
    }
    assert on.enqueued.children == [ACCESS, ACCESS]


def test_a_pod_enqueues_its_group_only_if_its_observed_part_changes() -> None:
    async def story(on: Stage) -> None:
        put = on.server.put
        put(POD, "access-0", labels=OURS, status={})
        await on.children(1)
        put(POD, "access-0", labels=OURS, status=pod_status(waiting="ImagePullBackOff"))
        await on.children(2)
        for heartbeat in range(5):
            put(
                POD,
                "access-0",
                labels=OURS,
                status={**pod_status(waiting="ImagePullBackOff"), "x": heartbeat},
            )
        put(POD, "access-0", labels=OURS, status=pod_status(ready=True))
        await on.children(3)
        put(POD, "access-0", labels=OURS, status={**pod_status(ready=True), "podIP": "10.0.0.1"})
        put(POD, "access-0", labels=OURS, status={"phase": "Failed", "reason": "Evicted"})
        await on.children(4)
        on.server.delete(POD, "access-0")
        await on.children(5)
        put(POD, "access-0", labels=OURS, status={})
        await on.children(6)
        put(POD, "access-0", labels={}, status={})  # an API server with selectors reports it as deleted
        await on.children(7)

    assert play(story).enqueued.children == [ACCESS] * 7


def test_of_the_status_of_a_statefulset_only_that_it_observed_a_change_enqueues() -> None:
    def put(on: Stage, generation: int, **status: int) -> None:
        metadata = {"generation": generation, "managedFields": [{"time": str(status)}]}
        on.server.put(STATEFUL_SET, "access", labels=OURS, metadata=metadata, status=status)

    async def story(on: Stage) -> None:
        put(on, 1)
        await on.children(1)
        for ready in range(5):
            put(on, 1, readyReplicas=ready)
        put(on, 2, readyReplicas=4)  # its spec has changed
        await on.children(2)
        put(on, 2, observedGeneration=2)
        await on.children(3)
        on.server.delete(STATEFUL_SET, "access")
        await on.children(4)

    assert play(story).enqueued.children == [ACCESS] * 4


def test_an_interrupted_watch_reports_only_what_changed_meanwhile() -> None:
    async def story(on: Stage) -> None:
        on.server.put(POD, "access-0", labels=OURS, status=pod_status())
        on.server.put(POD, "access-1", labels=OURS, status=pod_status())
        await on.children(2)
        on.server.cut()
        on.server.put(POD, "access-1", labels=OURS, status=pod_status(ready=True))
        await on.server.until_watched(times=2)
        await on.children(3)

    assert play(story).enqueued.children == [ACCESS] * 3


def test_a_rotated_token_is_used_after_the_old_one_was_rejected(monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.setattr(login, "PAUSE_S", 0.05)

    async def story(on: Stage) -> None:
        on.server.tokens = {"two"}
        on.server.cut()  # the next watch begins with the old token, and so does the login after it
        while on.server.rejected < 2 * len(KINDS):
            await asyncio.sleep(0.01)
        on.token = "two"
        await on.server.until_watched(times=2)
        on.server.put(POD, "access-0", labels=OURS, status={})
        await on.children(1)

    on = play(story, "one", "two")
    assert [one.authorization for one in on.server.requests if one.watch][-3:] == ["bearer two"] * 3


def test_a_token_is_replaced_before_it_expires(monkeypatch: pytest.MonkeyPatch) -> None:
    """Kopf's own clock decides, so the time is short and real."""
    monkeypatch.setattr(login, "PAUSE_S", 0.0)

    async def story(on: Stage) -> None:
        on.token = "two"
        while not any(one.authorization == "bearer two" and one.watch for one in on.server.requests):
            on.server.cut()
            await asyncio.sleep(0.05)

    on = play(story, "one", "two", clock=LongerLogins())
    assert on.server.rejected == 0
