"""``python -m loghub_operator`` as a process, with the log service as another.

Both are real, and so is the apiserver; there are no nodes, so no worker ever runs. `tests/faults` has a kill
at each kind of call, in one process.
"""

import json
import signal
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from tests.loghub_operator.support.apiserver import Apiserver
from tests.loghub_operator.support.examples import document
from tests.loghub_operator.support.subprocesses import (
    GUARD_S,
    KEY,
    Operator,
    log_service,
    make_namespace,
    until,
)

pytestmark = pytest.mark.cluster


def dies(operator: Operator, when: str, site: str) -> None:
    """Run it until it is killed with -9 at this call."""
    with operator.running("tests.loghub_operator.support.crashing_operator", when, site) as child:
        assert child.wait(GUARD_S) == -signal.SIGKILL, operator.log.read_text()


def test_an_operator_killed_repeatedly_still_finishes(server: Apiserver, tmp_path: Path) -> None:
    namespace = make_namespace(server)
    with log_service(tmp_path) as endpoint:
        client = HttpLogHub(endpoint, "demo", credentials=KEY)
        client.create_project()
        client.create_logstore("access", shards=2)
        operator = Operator(server, tmp_path, endpoint, namespace)
        group = document({"deletionPolicy": "Delete", "replicas": 3}, namespace=namespace)
        assert server.apply(group) == ""

        def stateful_set() -> dict[str, object]:
            result = server.run("get", "sts", "access", "-n", namespace, "-o", "json").stdout
            return dict(json.loads(result)) if result else {}

        dies(operator, "after", "log service create_group")
        assert [one.name for one in client.list_groups("access")] == ["access"]
        assert stateful_set() == {}
        with operator.running() as child:
            until("alive", operator.alive)
            server.wait(namespace, "jsonpath={.status.replicas}")
            spec = stateful_set()["spec"]
            assert isinstance(spec, dict)
            assert spec["replicas"] == 2  # as many as there are shards
            shown = server.must("get", "lhcg,events,configmaps,sts,svc", "-n", namespace, "-o", "yaml")
            assert KEY.access_key_secret not in shown
            assert KEY.access_key_secret not in Path(f"/proc/{child.pid}/cmdline").read_text()
            child.kill()
            child.wait(GUARD_S)
        server.must("delete", "lhcg", "access", "-n", namespace, "--wait=false")
        assert server.must("get", "lhcg", "access", "-n", namespace, "-o", "name")
        dies(operator, "before", "merge LogHubConsumerGroup finalizers")
        assert stateful_set() == {}
        assert client.list_groups("access") == ()
        with operator.running() as child:
            server.wait(namespace, "delete")
            assert client.list_groups("access") == ()
            assert stateful_set() == {}
            child.send_signal(signal.SIGTERM)
            assert child.wait(GUARD_S) == 0
        client.close()
    assert KEY.access_key_secret not in operator.log.read_text()
