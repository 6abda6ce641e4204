"""kubectl against the real apiserver, with our CRD and the operator's permissions in it."""

import json
import subprocess
from pathlib import Path

import yaml

from tests.cluster import build
from tests.loghub_operator.support.examples import Document
from tests.support import wait_until

ROOT = Path(__file__).parents[3]
CRD = ROOT / "crds" / "loghubconsumergroups.loghub.dev.yaml"
OPERATOR = ROOT / "deploy" / "loghub-operator.yaml"


class Apiserver:
    """One apiserver, as its administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        self.command = [str(build.folder() / "kubectl"), "--kubeconfig", str(kubeconfig)]
        self.must("apply", "--server-side", "--force-conflicts", "-f", str(CRD), "-f", str(OPERATOR))
        wait_until(self._is_established, "the CRD to be established")
        # Which is said before its objects can be listed: until then the answer is 429, which kubectl repeats.
        self.must("get", "lhcg", "--all-namespaces")

    def _is_established(self) -> bool:
        """`kubectl wait` fails on a CRD that has no conditions yet."""
        crd = json.loads(self.must("get", "crd/loghubconsumergroups.loghub.dev", "-o", "json"))
        conditions = crd.get("status", {}).get("conditions") or ()
        return any(one["type"] == "Established" and one["status"] == "True" for one in conditions)

    def run(self, *arguments: str, text: str = "") -> "subprocess.CompletedProcess[str]":
        command = [*self.command, *arguments]
        return subprocess.run(command, input=text, capture_output=True, text=True, timeout=90, check=False)

    def must(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def apply(self, value: Document) -> "subprocess.CompletedProcess[str]":
        # As JSON: YAML leaves a hash such as 12e34567 unquoted, which kubectl reads as a number.
        return self.run("apply", "--server-side", "-f", "-", text=json.dumps(value))

    def as_the_operator(self, folder: Path) -> Path:
        """A kubeconfig with the rights of the operator's service account, and no others."""
        token = self.must("create", "token", "loghub-operator", "-n", "loghub-system").strip()
        config = yaml.safe_load(self.kubeconfig.read_text())
        (user,) = config["users"]
        user["user"] = {"token": token}
        result = folder / "operator.kubeconfig"
        result.write_text(yaml.safe_dump(config))
        result.chmod(0o600)
        return result
