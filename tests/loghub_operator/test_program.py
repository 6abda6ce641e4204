"""``python -m loghub_operator`` as a process, with the log service as another.

Both are real, and so is the apiserver; there are no nodes, so no worker ever runs.
"""

import json
import signal
from pathlib import Path

import pytest

from loghub.client.http import HttpLogHub
from tests.loghub_operator.api_server import Apiserver
from tests.loghub_operator.examples import document
from tests.loghub_operator.programs import GUARD_S, KEY, Operator, log_service, make_namespace, until

pytestmark = pytest.mark.cluster


def test_killed_between_apply_and_delete_it_finishes_both(server: Apiserver, tmp_path: Path) -> None:
    namespace = make_namespace(server)
    with log_service(tmp_path) as endpoint:
        hub = HttpLogHub(endpoint, "demo", credentials=KEY)
        hub.create_project()
        hub.create_logstore("access", shards=2)
        operator = Operator(server, tmp_path, endpoint, namespace)
        group = document({"deletionPolicy": "Delete", "replicas": 3}, namespace=namespace)
        assert server.apply(group).returncode == 0

        def stateful_set() -> dict[str, object]:
            found = server.run("get", "sts", "access", "-n", namespace, "-o", "json").stdout
            return dict(json.loads(found)) if found else {}

        with operator.running() as child:
            until("alive", operator.alive)
            until("the group", lambda: [one.name for one in hub.list_groups("access")] == ["access"])
            until("the workers", lambda: bool(stateful_set()))
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
        with operator.running() as child:
            gone = ("get", "lhcg", "access", "-n", namespace)
            until("the object gone", lambda: "NotFound" in server.run(*gone).stderr)
            assert hub.list_groups("access") == ()
            assert stateful_set() == {}
            child.send_signal(signal.SIGTERM)
            assert child.wait(GUARD_S) == 0
        hub.close()
    assert KEY.access_key_secret not in operator.log.read_text()
