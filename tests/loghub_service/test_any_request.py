"""Any request whatsoever, signed or not, complete or with a client that disconnects at any moment: no
response is a failure of the service, and nothing stays in use afterwards."""

import asyncio
import os
import tempfile
from pathlib import Path

import pytest
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st

from loghub.wire import errors
from loghub.wire.errors import REGISTRY
from tests.loghub_service.inline_batches import InlineBatches
from tests.loghub_service.inprocess import in_process
from tests.loghub_service.rawclient import Reply
from tests.loghub_service.request_strategies import LIMITS, AnyRequest, requests
from tests.loghub_service.simdisk import SimDisk

MEMORY = "/dev/shm"  # where the metadata's syncs cost nothing


def check(reply: Reply | None) -> None:
    """A success, or an error of the registry that is not a failure; None if the client disconnected."""
    if reply is None or reply.status == 200 or reply.code == errors.CHECKPOINT_OF_NO_SHARD_FOR_GO:
        return
    assert REGISTRY[reply.code].status == reply.status, reply
    assert reply.status < 500 or reply.code == "ServerBusy", reply


async def send_all(folder: Path, sequence: list[AnyRequest], *, at_once: bool) -> None:
    async with in_process(folder, limits=LIMITS, disk=SimDisk(), start_batches=InlineBatches) as service:
        exchanges = []
        for request in sequence:
            exchange = service.begin_scope(request.scope(service.clock.unix_s()), request.arriving())
            exchanges.append(exchange)
            if not at_once:
                check(await exchange.reply())
        for exchange in exchanges:
            check(await exchange.reply())
        assert set(service.memory_in_use) == {0}
        assert (service.engine.checking.locked(), service.engine.pulling.locked()) == (False, False)
        assert not service.engine.admin.locked()
        await service.ok("POST", "/", body=b"{}", headers={"Host": "after.127.0.0.1"})


@pytest.mark.long
@settings(
    max_examples=200, deadline=None, suppress_health_check=[HealthCheck.too_slow, HealthCheck.data_too_large]
)
@given(st.lists(requests, min_size=1, max_size=8), st.booleans())
def test_no_request_fails_the_service_and_everything_is_given_back(
    sequence: list[AnyRequest], at_once: bool
) -> None:
    with tempfile.TemporaryDirectory(dir=MEMORY if os.path.isdir(MEMORY) else None) as folder:
        asyncio.run(send_all(Path(folder), sequence, at_once=at_once))
