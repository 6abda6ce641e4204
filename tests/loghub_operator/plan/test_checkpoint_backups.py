"""Of the backups that resets leave, the last ones stay: by the decision, in a cluster and on one machine."""

import asyncio
from pathlib import Path
from typing import Any

import pytest
from hypothesis import given
from hypothesis import strategies as st

from loghub.clock import SystemClock
from loghub_cli.up.backend import CheckpointBackups
from loghub_operator.clients.kube import CONFIG_MAP, Document, Kind, KubeError
from loghub_operator.clients.log_service import LogServicePool
from loghub_operator.model.actions import BackUpCheckpoints
from loghub_operator.model.observed import CheckpointBackup
from loghub_operator.plan.checkpoint_reset import MAX_BACKUPS, superseded
from loghub_operator.resources import checkpoint_backup
from loghub_operator.settings import Settings
from tests.loghub_operator.support.examples import resource
from tests.loghub_operator.support.wiring import observer_and_applier

NAMES = st.sampled_from([f"access-checkpoints-{n}" for n in range(12)])
TIMES = st.integers(0, 59).map(lambda second: f"2026-01-01T00:00:{second:02}Z")
RESET = {"resetCheckpoints": {"to": "ConfigMap", "configMapName": "access-checkpoints-0", "nonce": "9"}}


def backup(number: int) -> CheckpointBackup:
    return CheckpointBackup(requested_at=f"2026-01-01T00:00:{number:02}Z", before={0: ""}, targets={0: ""})


@given(st.dictionaries(NAMES, TIMES), st.frozensets(NAMES, max_size=2))
def test_the_last_backups_and_those_in_use_stay(given_times: dict[str, str], needed: frozenset[str]) -> None:
    gone = superseded(given_times, needed=needed)
    stays = given_times.keys() - set(gone)
    assert not needed & set(gone)
    assert len(stays - needed) <= MAX_BACKUPS
    assert len(stays) >= min(MAX_BACKUPS, len(given_times))
    for name in gone:
        younger = [one for one in stays if given_times[one] >= given_times[name]]
        assert len(younger) >= MAX_BACKUPS


class Cluster:
    """Has ConfigMaps."""

    def __init__(self) -> None:
        self.maps: dict[str, Document] = {}

    async def create(self, document: Document) -> Document:
        if document["metadata"]["name"] in self.maps:
            raise KubeError(409, "AlreadyExists", "it exists")
        self.maps[document["metadata"]["name"]] = document
        return document

    async def list(self, kind: Kind, _: str, labels: dict[str, str]) -> list[Document]:
        assert kind is CONFIG_MAP
        return [one for one in self.maps.values() if labels.items() <= one["metadata"]["labels"].items()]

    async def delete(self, kind: Kind, _: str, name: str, *, uid: str = "") -> bool:
        return self.maps.pop(name, None) is not None


def back_up(cluster: Cluster, name: str, made: CheckpointBackup) -> None:
    pool = LogServicePool(lambda *_: pytest.fail("no log service is asked"))
    api: Any = cluster
    _, applier = observer_and_applier(api, pool, settings=Settings(), clock=SystemClock())
    action = BackUpCheckpoints(name=name, backup=made)
    asyncio.run(applier.carry_out(resource(RESET, uid="uid-1"), action))
    pool.close()


def test_in_a_cluster_older_config_maps_are_removed() -> None:
    cluster, name = Cluster(), "access-checkpoints-{}".format
    for number in range(MAX_BACKUPS + 4):
        back_up(cluster, name(number), backup(number))
    # The first one is the source of the reset.
    assert list(cluster.maps) == [name(n) for n in (0, *range(4, MAX_BACKUPS + 4))]


def test_config_maps_of_others_stay() -> None:
    cluster = Cluster()
    for number in range(MAX_BACKUPS + 2):
        other = checkpoint_backup(resource(uid=f"uid-{number + 2}"), f"other-{number}", backup(number))
        cluster.maps[f"other-{number}"] = other
    edited = checkpoint_backup(resource(uid="uid-1"), "edited", backup(0))
    edited["metadata"]["annotations"] = {}
    cluster.maps["edited"] = edited
    before = list(cluster.maps)
    back_up(cluster, "access-checkpoints-9", backup(59))
    assert list(cluster.maps) == [*before, "access-checkpoints-9"]


def test_on_one_machine_older_files_are_removed(tmp_path: Path) -> None:
    backups = CheckpointBackups(tmp_path)
    (tmp_path / "edited.json").write_text("not a backup")
    for number in range(MAX_BACKUPS + 3):
        backups.keep(f"access-{number}", backup(number), source="access-0")
    kept = [f"access-{n}" for n in (0, *range(3, MAX_BACKUPS + 3))]
    assert sorted(path.stem for path in tmp_path.iterdir()) == [*kept, "edited"]
