"""Requests that wait for news: each has a place and gives it back, whatever ends it; none delays others."""

import asyncio
import json
import os
import signal
from collections.abc import Awaitable, Callable, Iterator
from contextlib import ExitStack, contextmanager
from pathlib import Path
from typing import Any

import pytest

from loghub_service.http.protocol import GONE, PARKED
from loghub_service.settings import Limits
from tests.loghub_service.inprocess import Exchange, InProcess, in_process
from tests.loghub_service.rawclient import RawClient, group_of
from tests.loghub_service.test_admin import admin_address, series_of
from tests.loghub_service.test_budgets import LB, PROTOBUF, assert_consumers_go_on, outcome, settle
from tests.support import ServiceProcess, get, running_service, wait_until

ENDS = "/_loghub/v1/logstores/access/ends"
REVISION = "/_loghub/v1/logstores/access/consumergroups/g/revision"
GUARD_S = 30.0  # less than the polls may wait
LIMITS = Limits(polls_per_key=3, json_total_bytes=1 << 16)


def run(tmp_path: Path, scenario: Callable[[InProcess], Awaitable[None]], *, limits: Limits = LIMITS) -> None:
    """Run the scenario; afterwards no poll waits and no memory is in use."""

    async def main() -> None:
        async with in_process(tmp_path / "data", limits=limits) as service:
            async with asyncio.timeout(GUARD_S):
                await scenario(service)
            assert len(service.engine.polls) == 0
            assert set(service.memory_in_use) == {0}
            # Nobody watches any more either.
            assert (service.engine.log_changes._waiting, service.engine.groups.changes._waiting) == ({}, {})

    asyncio.run(main())


async def known_end(service: InProcess) -> str:
    query = {"type": "cursor", "from": "end"}
    return str((await service.ok("GET", "/logstores/access/shards/0", query)).json()["cursor"])


async def put(service: InProcess) -> None:
    await service.ok("POST", LB, body=group_of("line"), headers=PROTOBUF)


def await_ends(
    service: InProcess, known: dict[int, str], *, name: str = "p", wait_ms: int = 60_000, padding: int = 0
) -> Exchange:
    body = json.dumps(known).encode() + b" " * padding
    return service.begin("POST", ENDS, {"poll": name, "wait_ms": str(wait_ms)}, body=body)


def await_group(service: InProcess, revision: int, *, name: str = "w") -> Exchange:
    query = {"consumer": "a", "poll": name, "wait_ms": "60000", "revision": str(revision)}
    return service.begin("GET", REVISION, query)


async def revision_of(service: InProcess) -> int:
    answer = await service.ok("GET", REVISION, {"consumer": "a", "poll": "once"})
    return int(answer.json()["revision"])


async def parked(service: InProcess, number: int) -> None:
    """Until so many polls wait."""
    await settle()
    assert len(service.engine.polls) == number


def test_a_key_has_a_limited_number_of_polls_and_consumers_go_on_without_one(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        polls = [await_ends(service, known, name=name) for name in "abc"]
        await parked(service, 3)
        assert await outcome(await_ends(service, known, name="d")) == "ServerBusy"
        assert await outcome(await_group(service, 1)) == "ServerBusy"
        await assert_consumers_go_on(service)
        await put(service)
        assert [await outcome(poll) for poll in polls] == ["", "", ""]
        assert await outcome(await_ends(service, known, name="d")) == ""

    run(tmp_path, scenario)


def test_polls_hold_memory_of_their_own_and_none_of_other_requests(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        padding = 2 * LIMITS.json_free_bytes
        poll = await_ends(service, known, padding=padding)
        await parked(service, 1)
        *others, used = service.memory_in_use
        assert (set(others), used > padding) == ({0}, True)
        assert await outcome(await_ends(service, known, name="q", padding=padding)) == "ServerBusy"
        await put(service)
        assert await outcome(poll) == ""

    run(tmp_path, scenario, limits=Limits(poll_bytes=24_000))


def test_a_client_that_goes_away_frees_its_place_at_once(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        is_gone = False

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await service.app(scope | {"state": {GONE: lambda: is_gone}}, receive, send)

        scope = service.scope(
            "POST", ENDS, {"poll": "p", "wait_ms": "60000"}, body=json.dumps(known).encode()
        )
        poll = service.begin_scope(scope, [(json.dumps(known).encode(), False)], app=application)
        watch = await_group(service, await revision_of(service))
        await parked(service, 2)
        is_gone = True
        for exchange in (poll, watch):
            exchange.arriving.put_nowait(None)
        await parked(service, 0)

    run(tmp_path, scenario)


def test_all_polls_end_at_once_when_the_service_stops_and_no_other_one_waits(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        revision = await revision_of(service)
        polls = [await_ends(service, known), await_group(service, revision)]
        await parked(service, 2)
        service.engine.polls.close()
        assert [await outcome(poll) for poll in polls] == ["", ""]
        assert await outcome(await_ends(service, known)) == ""
        assert await outcome(await_group(service, revision)) == ""

    run(tmp_path, scenario)


def test_only_the_newest_poll_of_a_name_and_key_waits(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        polls = [await_ends(service, known) for _ in range(10)]
        for poll in polls[:-1]:
            assert await outcome(poll) == ""
        await parked(service, 1)
        await put(service)
        assert await outcome(polls[-1]) == ""

    run(tmp_path, scenario)


def test_a_poll_that_is_replaced_by_one_that_does_not_wait_answers_too(tmp_path: Path) -> None:
    """A worker that watches one more shard, which has news already, loses no watch of the others."""

    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        first = await_ends(service, known)
        await parked(service, 1)
        second = await_ends(service, {0: ""})
        assert [await outcome(poll) for poll in (second, first)] == ["", ""]

    run(tmp_path, scenario)


def test_a_poll_that_waits_is_parked_and_no_other_request_is(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        places: list[str] = []

        @contextmanager
        def noted() -> Any:
            places.append("parked")
            yield
            places.append("over")

        async def application(scope: Any, receive: Any, send: Any) -> None:
            await service.app(scope | {"state": {PARKED: noted}}, receive, send)

        body = json.dumps({0: await known_end(service)}).encode()
        scope = service.scope("POST", ENDS, {"poll": "p", "wait_ms": "60000"}, body=body)
        poll = service.begin_scope(scope, [(body, False)], app=application)
        await parked(service, 1)
        assert places == ["parked"]
        await put(service)
        assert await outcome(poll) == ""
        assert places == ["parked", "over"]

    run(tmp_path, scenario)


def test_bad_polls_are_refused_with_what_is_wrong(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        max_ms = LIMITS.poll_s * 1000
        assert await outcome(await_ends(service, known, wait_ms=max_ms + 1)) == "ParameterInvalid"
        assert await outcome(await_ends(service, known, name="")) == "ParameterInvalid"
        assert await outcome(await_ends(service, {0: "no cursor"})) == "InvalidCursor"
        assert await outcome(service.begin("POST", ENDS, {"poll": "p"}, body=b"[0]")) == "JsonInfoInvalid"
        assert await outcome(service.begin("GET", REVISION, {"poll": "p"})) == "ParameterInvalid"

    run(tmp_path, scenario)


def test_appends_of_a_shard_that_is_deleted_with_its_logstore_wake_nobody_forever(tmp_path: Path) -> None:
    async def scenario(service: InProcess) -> None:
        known = {0: await known_end(service)}
        poll, watch = await_ends(service, known), await_group(service, await revision_of(service))
        await parked(service, 2)
        await service.ok("DELETE", "/logstores/access")
        assert {await outcome(poll), await outcome(watch)} == {"LogStoreNotExist"}

    run(tmp_path, scenario)


# --- a process --------------------------------------------------------------------------------


def begin_poll(client: RawClient, name: str = "p") -> None:
    body = json.dumps({0: client.cursor("end")}).encode()
    client.begin("POST", ENDS, {"poll": name, "wait_ms": "60000"}, body=body, headers={})


def waiting_polls(service: ServiceProcess) -> bool:
    """Whether any request waits for news."""
    series = series_of(get(admin_address(service), "/metrics")[1].decode())
    return series["loghub_service_memory_used_bytes", (("budget", "polls"),)] > 0


@pytest.fixture(scope="module")
def process(tmp_path_factory: pytest.TempPathFactory) -> Iterator[ServiceProcess]:
    extra = ("--max-connections", "10", "--admin-listen", "127.0.0.1:0")
    with running_service(tmp_path_factory.mktemp("service"), extra=extra) as service:
        with RawClient(service) as client:
            client.create()
            client.create_group("g")
        yield service


@pytest.mark.long
def test_polls_on_all_connections_keep_no_heartbeat_from_being_served(process: ServiceProcess) -> None:
    with ExitStack() as stack:
        for number in range(12):
            begin_poll(stack.enter_context(RawClient(process)), f"p-{number}")
        wait_until(lambda: waiting_polls(process), "the polls to wait")
        for number in range(5):
            with RawClient(process) as late:
                assert late.heartbeat(f"late-{number}", []) in ([], [0])
    wait_until(lambda: not waiting_polls(process), "the places of clients that have gone")


def test_a_service_that_was_paused_answers_its_polls_once_it_runs_again(process: ServiceProcess) -> None:
    with RawClient(process) as client, RawClient(process) as writer:
        begin_poll(client)
        wait_until(lambda: waiting_polls(process), "the poll to wait")
        os.kill(process.pid, signal.SIGSTOP)
        try:
            writer.begin_put(group_of("line"))
            assert not client.answered(within_s=0.0)
        finally:
            os.kill(process.pid, signal.SIGCONT)
        assert client.end().status == writer.end().status == 200


@pytest.mark.long
def test_a_stop_waits_for_no_poll_and_the_next_run_has_another_revision(process: ServiceProcess) -> None:
    with RawClient(process) as client, RawClient(process) as watching:
        revision = watching.ok("GET", REVISION, {"consumer": "a", "poll": "once"}).json()["revision"]
        begin_poll(client)
        wait_until(lambda: waiting_polls(process), "the poll to wait")
        assert process.terminate() == 0
        assert client.end().status == 200
    process.start()
    with RawClient(process) as watching:
        query = {"consumer": "a", "poll": "w", "wait_ms": "60000", "revision": str(revision)}
        assert watching.ok("GET", REVISION, query).json()["revision"] != revision
