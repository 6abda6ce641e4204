"""The stand-alone apiserver accepts and rejects as that of a cluster does."""

import json
import subprocess
from pathlib import Path

from tests.cluster import build
from tests.support import wait_until

CRD = {
    "apiVersion": "apiextensions.k8s.io/v1",
    "kind": "CustomResourceDefinition",
    "metadata": {"name": "probes.test.loghub.dev"},
    "spec": {
        "group": "test.loghub.dev",
        "scope": "Namespaced",
        "names": {"kind": "Probe", "plural": "probes", "singular": "probe"},
        "versions": [
            {
                "name": "v1",
                "served": True,
                "storage": True,
                "schema": {
                    "openAPIV3Schema": {
                        "type": "object",
                        "properties": {
                            "spec": {
                                "type": "object",
                                "properties": {"low": {"type": "integer"}, "high": {"type": "integer"}},
                                "x-kubernetes-validations": [
                                    {"rule": "self.low <= self.high", "message": "low is above high"}
                                ],
                            }
                        },
                    }
                },
            }
        ],
    },
}


def probe(low: int, high: int) -> dict[str, object]:
    spec = {"low": low, "high": high}
    return {"apiVersion": "test.loghub.dev/v1", "kind": "Probe", "metadata": {"name": "p"}, "spec": spec}


def apply(kubeconfig: Path, value: object) -> "subprocess.CompletedProcess[str]":
    kubectl = str(build.folder() / "kubectl")
    command = [kubectl, "--kubeconfig", str(kubeconfig), "apply", "--server-side", "-f", "-"]
    return subprocess.run(
        command, input=json.dumps(value), capture_output=True, text=True, timeout=60, check=False
    )


def is_established(kubeconfig: Path) -> bool:
    """`kubectl wait` fails on a CRD that has no conditions yet."""
    command = [build.folder() / "kubectl", "--kubeconfig", kubeconfig, "get", "crd/probes.test.loghub.dev"]
    found = subprocess.run([*command, "-o", "json"], capture_output=True, check=True, timeout=60)
    conditions = json.loads(found.stdout).get("status", {}).get("conditions") or ()
    return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)


def test_the_standalone_apiserver_checks_cel_rules(apiserver: Path) -> None:
    result = apply(apiserver, CRD)
    assert result.returncode == 0, result.stderr
    wait_until(lambda: is_established(apiserver), "the CRD to be established")

    refused = apply(apiserver, probe(low=3, high=1))
    assert refused.returncode != 0
    assert "low is above high" in refused.stderr

    accepted = apply(apiserver, probe(low=1, high=3))
    assert accepted.returncode == 0, accepted.stderr
