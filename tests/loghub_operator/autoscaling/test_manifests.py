"""The components of ``deploy/`` on top of the plain manifests: one operator that serves both."""

import os
from pathlib import Path
from typing import cast

import yaml

from loghub_operator.autoscaling import external_metrics_server
from loghub_operator.clients.kube import Kube
from loghub_operator.leader import leader_label
from loghub_operator.leader.leader_label import LeaderLabel
from loghub_operator.settings import Settings
from tests.loghub_operator.support.apiserver import ROOT, Apiserver


def test_with_both_components_the_operator_serves_the_ports_of_the_services(
    server: Apiserver, tmp_path: Path
) -> None:
    deploy = os.path.relpath(ROOT / "deploy", tmp_path)
    components = [f"{deploy}/external-metrics", f"{deploy}/keda"]
    (tmp_path / "kustomization.yaml").write_text(
        yaml.safe_dump({"resources": [deploy], "components": components})
    )
    rendered = server.must("kustomize", str(tmp_path))
    result = {(one["kind"], one["metadata"]["name"]): one for one in yaml.safe_load_all(rendered)}
    pod = result["Deployment", "loghub-operator"]["spec"]["template"]
    (container,) = pod["spec"]["containers"]
    settings = Settings.from_environment({one["name"]: one.get("value", "x") for one in container["env"]})
    ports = {one["name"]: one["containerPort"] for one in container["ports"]}
    assert settings.lease is not None
    value = LeaderLabel(kube=cast(Kube, None), lease=settings.lease, pod="pod").value
    for name, address in (
        ("loghub-operator-external-metrics", settings.external_metrics_address),
        ("loghub-operator-keda", settings.keda_address),
    ):
        service = result["Service", name]["spec"]
        assert service["selector"].items() <= {**pod["metadata"]["labels"], leader_label.LABEL: value}.items()
        assert service["selector"][leader_label.LABEL] == value
        assert address == f":{ports[service['ports'][0]['targetPort']]}"
    leads_to = result["APIService", external_metrics_server.NAME]["spec"]["service"]
    assert settings.external_metrics_service == f"{leads_to['namespace']}/{leads_to['name']}"
    assert ("Service", leads_to["name"]) in result
    done = server.run("apply", "--server-side", "--dry-run=server", "-f", "-", text=rendered)
    assert "nvalid" not in done.stderr, done.stderr
