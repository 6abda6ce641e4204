"""kubectl against the real apiserver, with our CRD and the operator's permissions in it."""

import asyncio
import functools
import json
import os
import subprocess
from pathlib import Path

import yaml

from loghub_operator.clients.kube import AioKube, KubeError, configured
from tests.cluster import build, runs
from tests.cluster.processes import BRIEF
from tests.loghub_operator.support.examples import Document
from tests.support import wait_until

ROOT = Path(__file__).parents[3]
CRD = ROOT / "crds" / "loghubconsumergroups.loghub.dev.yaml"
GUARD_S = 240.0
OPERATOR = ROOT / "deploy" / "loghub-operator.yaml"


class Apiserver:
    """One apiserver, as its administrator."""

    def __init__(self, kubeconfig: Path) -> None:
        self.kubeconfig = kubeconfig
        # With a cache of its own: what another server had on this port would pass for what this one has.
        cache = kubeconfig.with_name(f"{kubeconfig.name}-cache")
        kubectl = str(build.folder() / "kubectl")
        self.command = [kubectl, "--kubeconfig", str(kubeconfig), "--cache-dir", str(cache)]
        installed = kubeconfig.with_name("installed")  # by one of the processes that share the apiserver
        with runs.locked(installed, guard_s=GUARD_S, what="the CRD is being installed"):
            if not installed.read_text():
                self._install()
                installed.write_text("yes")

    def _install(self) -> None:
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
        return subprocess.run(
            command,
            input=text,
            capture_output=True,
            text=True,
            timeout=GUARD_S,
            check=False,
            env=os.environ | BRIEF,
        )

    def wait(self, namespace: str, what: str) -> None:
        """Until this is so of the group ``access``, as `kubectl wait --for` has it."""
        guard = f"--timeout={GUARD_S - 60:.0f}s"  # before that of `run`
        self.must("wait", "lhcg/access", "-n", namespace, f"--for={what}", guard)

    def must(self, *arguments: str) -> str:
        done = self.run(*arguments)
        assert done.returncode == 0, done.stderr
        return done.stdout

    def create_namespace(self, name: str) -> None:
        """With the service account that a controller makes elsewhere. By requests, since nearly each test has
        one: kubectl takes ten times as much, and asks for the schemas of all kinds."""
        account = {
            "apiVersion": "v1",
            "kind": "ServiceAccount",
            "metadata": {"name": "default", "namespace": name},
        }

        async def create() -> None:
            async with AioKube(await configured(str(self.kubeconfig)), manager="a-user") as kube:
                await kube._call("POST", "/api/v1/namespaces", body={"metadata": {"name": name}})
                await kube.create(account)

        asyncio.run(create())

    def apply(self, value: Document) -> str:
        """What the apiserver has against this server-side apply; "" if it is done. A kubectl for each of many
        cases would take as long as all of the rest."""

        async def ask() -> None:
            async with AioKube(await configured(str(self.kubeconfig)), manager="a-user") as kube:
                await kube.apply(value)

        try:
            asyncio.run(ask())
        except KubeError as error:
            return error.message
        return ""

    @functools.cached_property
    def _token(self) -> str:
        """Of the operator's account, for as long as any test lasts."""
        return self.must(
            "create", "token", "loghub-operator", "-n", "loghub-system", "--duration=48h"
        ).strip()

    def as_the_operator(self, folder: Path) -> Path:
        """A kubeconfig with the rights of the operator's service account, and no others."""
        config = yaml.safe_load(self.kubeconfig.read_text())
        (user,) = config["users"]
        user["user"] = {"token": self._token}
        result = folder / "operator.kubeconfig"
        result.write_text(yaml.safe_dump(config))
        result.chmod(0o600)
        return result
