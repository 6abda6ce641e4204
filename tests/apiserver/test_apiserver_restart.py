"""An outage of the apiserver: the operator continues without a restart and misses no change."""

import asyncio
from pathlib import Path

import pytest

from loghub.client.port import GroupInfo
from loghub_operator.clients.kube import EVENT, STATEFUL_SET
from tests.cluster.apiserver import Standing
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.harness import GROUP, LOGSTORE, Stage, stage
from tests.loghub_operator.support.player import Player

pytestmark = [pytest.mark.cluster, pytest.mark.apiserver]

AWAY_S = 6.0


class Patient(Player):
    """Tries again while the apiserver does not answer."""

    forgiven = (0, 403, 404, 409, 429, 500, 503)


def test_an_outage_of_the_apiserver_is_survived(apiserver_of_its_own: Standing, tmp_path: Path) -> None:
    server = Apiserver(apiserver_of_its_own.kubeconfig)

    async def story(on: Stage) -> None:
        await on.apply({"replicas": 2, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "2/2")
        before, events = await on.versions(), await _events(on)
        await asyncio.to_thread(apiserver_of_its_own.stop)
        rounds_before = on.rounds
        # Changed at the log service meanwhile, which the operator sees when it is back only.
        on.client.update_group(LOGSTORE, GroupInfo(name=GROUP, timeout_s=77, order=False))
        await asyncio.sleep(AWAY_S)  # longer than the first tries of rounds and watches
        # At most the round that had read its object before. (It answers before it says that it is ready.)
        assert on.rounds <= rounds_before + 1, "nothing could be read, so nothing was decided"
        await asyncio.to_thread(apiserver_of_its_own.start)

        async def corrected() -> bool:
            return on.client.list_groups(LOGSTORE)[0].timeout_s == 30

        await on.until("the group as it should be", corrected)
        await on.until_rounds(4)
        after = await on.versions()
        sets = await on.kube.list(STATEFUL_SET, on.namespace, {})
        uid = sets[0]["metadata"]["uid"]
        assert after.keys() == before.keys(), "nothing was created or deleted"
        assert after[uid] == before[uid], "nothing was written twice"
        assert len(await _events(on)) - len(events) <= 2
        # A watch reports what changes now, as before.
        await on.apply({"replicas": 1, "deletionPolicy": "Delete"})
        await on.until_phase("Running", "1/1")
        await on.remove()
        await on.until_deleted()
        assert on.client.list_groups(LOGSTORE) == ()

    stage(server, tmp_path, story, player=Patient)


async def _events(on: Stage) -> list[str]:
    result = await on.kube.list(EVENT, on.namespace, {})
    return [one["reason"] for one in result]
