"""The manifests for Kubernetes: a recovery gets the time that it needs, and fsck runs on the volume."""

from pathlib import Path
from typing import Any

import yaml

from loghub_service.fsck.__main__ import command

DEPLOY = Path(__file__).parents[2] / "deploy"
HOUR_S = 3600


def _documents(name: str) -> dict[str, Any]:
    return {one["kind"]: one for one in yaml.safe_load_all((DEPLOY / name).read_text())}


def test_a_recovery_has_an_hour_before_a_probe_ends_it() -> None:
    (container,) = _documents("loghub-service.yaml")["StatefulSet"]["spec"]["template"]["spec"]["containers"]
    startup, liveness = container["startupProbe"], container["livenessProbe"]
    assert startup["httpGet"]["path"] == liveness["httpGet"]["path"] == "/healthz"
    assert startup["periodSeconds"] * startup["failureThreshold"] >= HOUR_S


def test_fsck_runs_on_the_volume_of_the_service_with_its_rights() -> None:
    stateful = _documents("loghub-service.yaml")["StatefulSet"]
    service, fsck = stateful["spec"]["template"]["spec"], _documents("fsck.yaml")["Pod"]
    (ours,), (theirs,) = fsck["spec"]["containers"], service["containers"]
    (claim,) = stateful["spec"]["volumeClaimTemplates"]
    assert fsck["metadata"]["namespace"] == stateful["metadata"]["namespace"]
    volume = next(one for one in fsck["spec"]["volumes"] if one["name"] == "data")
    name = f"{claim['metadata']['name']}-{stateful['metadata']['name']}-0"
    assert volume["persistentVolumeClaim"] == {"claimName": name}
    assert fsck["spec"]["securityContext"] == service["securityContext"]
    for key in ("image", "securityContext"):
        assert ours[key] == theirs[key]
    assert ours["command"] == ["python", "-m", "loghub_service.fsck"]
    options = command.make_context("fsck", list(ours["args"])).params
    assert f"--data={options['data']}" in theirs["args"]
