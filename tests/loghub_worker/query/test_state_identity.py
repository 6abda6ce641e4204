"""What a state belongs to: a group and a query, whatever name their log service has."""

from pathlib import Path

import msgspec
import pytest

from loghub.contract.sinks import ConsoleSink
from loghub_worker.state.ledger import StateIdentity
from loghub_worker.worker import state_identity
from tests.loghub_worker.state.test_ledger import continued, deliver, lacking, opened
from tests.loghub_worker.support import worker_config

NAMES = [
    "https://cn-hangzhou.log.aliyuncs.com",
    "https://cn-hangzhou-intranet.log.aliyuncs.com",
    "http://logs.svc",
    "https://logs.svc",
    "http://127.0.0.1:8080",
]


def identity(endpoint: str, **changes: str) -> StateIdentity:
    return state_identity(worker_config(endpoint, ConsoleSink(rows=1), **changes))


@pytest.mark.parametrize("name", NAMES[1:])
def test_a_state_outlives_another_name_of_its_log_service(tmp_path: Path, name: str) -> None:
    """`spec.endpoint` may change so, TLS for the embedded service changes it, and so does another port."""
    before = opened(tmp_path, identity(NAMES[0]))
    continued(before, 0, is_first=True)
    deliver(before, 0, 10)
    again = opened(tmp_path, identity(name))
    assert (again.checkpoint.exists(), continued(again, 4), lacking(again)) == (True, 10, {})
    assert not opened(tmp_path, identity(name, consumer_group="another")).checkpoint.exists()


def test_a_state_that_an_earlier_release_named_by_the_endpoint_gets_its_new_name(tmp_path: Path) -> None:
    now = identity(NAMES[0])
    before = opened(tmp_path, StateIdentity(pipeline=now.former, reset=now.reset))
    continued(before, 0, is_first=True)
    deliver(before, 0, 10)
    for name in NAMES[:2]:
        assert opened(tmp_path, identity(name)).checkpoint.exists(), name
    stored = msgspec.json.decode((tmp_path / "state" / "ledger.json").read_bytes())
    assert stored["identity"] == {"pipeline": now.pipeline, "reset": ""}
