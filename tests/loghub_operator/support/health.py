"""What Flux, helm and Argo CD say of an object: their own code judges it (`tests/cluster/tools/health`).

Argo CD judges by the script that `deploy/argo-cd/argocd-cm.yaml` brings.
"""

import json
import subprocess
import tempfile
from collections.abc import Iterable
from dataclasses import dataclass
from pathlib import Path

import yaml

from tests.loghub_operator.support.examples import Document

ARGO_CD = Path(__file__).parents[3] / "deploy" / "argo-cd" / "argocd-cm.yaml"
_KEY = "resource.customizations.health.loghub.dev_LogHubConsumerGroup"
GUARD_S = 120.0


@dataclass(frozen=True, slots=True, kw_only=True)
class Judgement:
    """``kstatus``: InProgress, Current, Failed, Terminating. ``argo``: Progressing, Healthy, Degraded."""

    kstatus: str
    argo: str
    messages: tuple[str, str]  # in this order

    @property
    def passes(self) -> bool:
        """Whether a pipeline that waits for this object would go on."""
        return self.kstatus == "Current" or self.argo == "Healthy"


def judged(program: Path, objects: Iterable[Document]) -> list[Judgement]:
    """Of each object as the API server returns it."""
    lines = "".join(json.dumps(one) + "\n" for one in objects)
    with tempfile.NamedTemporaryFile("w", suffix=".lua") as script:
        script.write(yaml.safe_load(ARGO_CD.read_text())["data"][_KEY])
        script.flush()
        done = subprocess.run(
            [str(program), script.name],
            input=lines,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
        )
    assert done.returncode == 0, done.stderr
    return [_judgement(json.loads(line)) for line in done.stdout.splitlines()]


def _judgement(said: Document) -> Judgement:
    kstatus, argo = said["kstatus"], said["argo"]
    messages = (kstatus["message"], argo["message"])
    return Judgement(kstatus=kstatus["status"], argo=argo["status"], messages=messages)
