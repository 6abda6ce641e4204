"""Images and left-over containers in the node's containerd, by its `ctr` program.

Imports an OCI layout folder into the node's image store once, and removes the containers of earlier runs.
"""

import subprocess
from collections.abc import Iterable
from pathlib import Path

NAMESPACE = "k8s.io"
GUARD_S = 300.0


class Ctr:
    """`ctr` on one socket, in the namespace that pods use."""

    def __init__(self, socket: Path) -> None:
        self.command = ["ctr", "--address", str(socket), "--namespace", NAMESPACE]

    def answers(self) -> bool:
        return self._try("version").returncode == 0

    def images(self) -> set[str]:
        return set(self._lines("images", "list", "--quiet"))

    def load(self, layout: Path) -> None:
        """Import an OCI layout folder, streamed as the archive that `ctr` expects."""
        with subprocess.Popen(["tar", "-C", str(layout), "-cf", "-", "."], stdout=subprocess.PIPE) as tar:
            done = subprocess.run(
                [*self.command, "images", "import", "-"],
                stdin=tar.stdout,
                capture_output=True,
                text=True,
                timeout=GUARD_S,
                check=False,
            )
        if done.returncode != 0:
            raise RuntimeError(f"ctr could not import {layout.name}: {done.stderr.strip()}")

    def remove_images(self, names: Iterable[str]) -> None:
        for name in names:
            self._try("images", "remove", "--sync", name)  # frees the space before it returns

    def forget_containers(self) -> None:
        """Remove every container and its snapshot; their processes have ended before."""
        for container in self._lines("containers", "list", "--quiet"):
            self._try("tasks", "delete", "--force", container)
            self._try("containers", "delete", container)

    def _lines(self, *arguments: str) -> list[str]:
        done = self._try(*arguments)
        if done.returncode != 0:
            raise RuntimeError(f"ctr {' '.join(arguments)}: {done.stderr.strip()}")
        return done.stdout.split()

    def _try(self, *arguments: str) -> "subprocess.CompletedProcess[str]":
        return subprocess.run(
            [*self.command, *arguments], capture_output=True, text=True, timeout=GUARD_S, check=False
        )
