"""Split, merge and deletion of a shard, killed at each step: every state that a kill can leave is tested.

Another engine starts on each copy that `cameras` made.
"""

from collections import Counter
from itertools import pairwise
from pathlib import Path

import pytest

from loghub.domain.shards import WHOLE
from loghub_service.api import shards as api
from loghub_service.engine import Engine
from tests.loghub_service.cameras import Camera, WatchedDisk
from tests.loghub_service.engines import STORE_ID, ManualClock, create_group_of_one_shard, live, request

Table = dict[int, tuple[bool, tuple[int, ...]]]  # shard -> read-only, parents


def _table(engine: Engine) -> Table:
    shards = engine.catalog.logstores_by_id[STORE_ID].shards
    return {n: (saved.spec.read_only, saved.spec.parents) for n, saved in shards.items()}


async def _change(engine: Engine, action: str, shard: int) -> None:
    query = {} if action == "delete" else {"action": action}
    act = api.delete_shard if action == "delete" else api.change_shard
    await act(engine, request("POST", query), ls="ls", shard=str(shard))


async def _fill(engine: Engine, name: str) -> None:
    """Some groups into each writable shard."""
    for shard in engine.catalog.logstores_by_id[STORE_ID].shard_map().writable():
        for number in range(3):
            group = f"{shard.shard} {name} {number}".encode()
            await engine.append(engine.logs[STORE_ID, shard.shard], group, logs=1)


def _stored(engine: Engine) -> Counter[bytes]:
    reads = (
        log.read(cursor=0, end_cursor=1 << 62, max_groups=1000, max_bytes=1 << 30)
        for log in engine.logs.values()
    )
    return Counter(entry.group for read in reads for entry in read.entries)


async def _check(engine: Engine) -> None:
    """The shard table is whole, the group and the logs agree with it, and it goes on."""
    await engine.removals.drain()
    store = engine.catalog.logstores_by_id[STORE_ID]
    keys = [shard.keys for shard in store.shard_map().writable()]
    assert (keys[0].begin, keys[-1].end) == (WHOLE.begin, WHOLE.end)
    assert all(left.end == right.begin for left, right in pairwise(keys))
    (group,) = engine.groups.of(STORE_ID).values()
    assert list(group.state.shards) == list(store.shards)
    assert [n for n, entry in group.state.shards.items() if entry.log_shard.read_only] == [
        n for n, (read_only, _) in _table(engine).items() if read_only
    ]
    folders = {int(path.name) for path in Path(engine.settings.data).glob("logs/*/*")}
    assert {shard for _, shard in engine.logs} == set(store.shards)
    assert folders <= set(store.shards)
    known, number = set(store.shards), store.shard_map().writable()[0].shard
    await _change(engine, "split", number)
    assert len(set(store.shards) - known) == 2
    await _fill(engine, "after")


@pytest.mark.long
@pytest.mark.parametrize(("action", "shard"), [("split", 1), ("merge", 1), ("delete", 0)])
def test_a_kill_at_any_step_leaves_a_split_or_merge_done_or_undone(
    tmp_path: Path, action: str, shard: int
) -> None:
    clock, camera = ManualClock(), Camera(tmp_path / "d", tmp_path / "album")
    tables: list[Table] = []
    kept: list[Counter[bytes]] = []

    async def scenario(engine: Engine) -> None:
        await create_group_of_one_shard(engine, order=True)
        await _fill(engine, "first")
        await _change(engine, "split", 0)
        await _fill(engine, "second")
        for camera.on in (True, False):
            tables.append(_table(engine))
            kept.append(_stored(engine))
            if camera.on:
                await _change(engine, action, shard)
                await engine.removals.drain()
                camera.shoot()

    live(tmp_path / "d", clock, scenario, disk=WatchedDisk(camera), start_batches=camera.start_batches)
    found: list[Table] = []

    async def after_kill(engine: Engine) -> None:
        found.append(_table(engine))
        assert found[-1] in tables
        assert _stored(engine) == kept[tables.index(found[-1])]
        await _check(engine)

    for picture in camera.pictures:
        live(picture, clock, after_kill)
    # The kill came on both sides of the commit, and never after the answer was it undone.
    assert (found[0], found[-1]) == (tables[0], tables[1])
    assert kept[1] == (kept[0] if action != "delete" else {g: 1 for g in kept[0] if b"second" in g})
