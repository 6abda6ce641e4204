"""A log service without our extensions, as the real SLS is: nobody but the worker says that it left."""

from pathlib import Path

import pytest

from loghub_operator.api.labels import worker_selector
from loghub_operator.clients.kube import EVENT, POD, STATEFUL_SET
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import GROUP, LOGSTORE, Player, Stage, stage

pytestmark = pytest.mark.cluster


class WithoutExtensions(Player):
    extensions = False


async def reasons(on: Stage) -> set[str]:
    return {one["reason"] for one in await on.kube.list(EVENT, on.namespace, {})}


def test_whoever_is_told_to_leave_is_stopped_when_it_says_that_it_left(
    server: Apiserver, tmp_path: Path
) -> None:
    """Scaled down, suspended and deleted: nobody is given up on, so nobody's bound was waited for."""

    async def story(on: Stage) -> None:
        await on.apply({"replicas": 3})
        await on.until_phase("Running", "3/3")
        await on.apply({"replicas": 2})
        await on.until_phase("Running", "2/2")
        await on.apply({"replicas": 2, "suspend": True})
        await on.until_phase("Suspended", "0/0")
        await on.apply({"replicas": 2, "suspend": False})
        await on.until_phase("Running", "2/2")
        assert {"Scaled", "Suspended", "Resumed"} <= await reasons(on)
        await on.remove()
        await on.until_gone()
        assert "DrainTimedOut" not in await reasons(on)
        assert on.player.stopped_without_leaving == []
        assert await on.get(STATEFUL_SET) is None
        assert await on.kube.list(POD, on.namespace, worker_selector(GROUP)) == []
        assert [one.name for one in on.hub.list_groups(LOGSTORE)] == [GROUP], "deletionPolicy is Retain"

    stage(server, tmp_path, story, player=WithoutExtensions)
