"""Java for the tests that start Spark, found or installed by the demo's own script."""

import functools
import subprocess

from tests.support import ROOT

SCRIPT = ROOT / "operator" / "loghub_cli" / "demo" / "ensure_java.sh"


@functools.cache
def missing() -> str:
    """The line that says what is missing and how to get it; empty where Java is there."""
    found = subprocess.run(["sh", str(SCRIPT), "--look"], capture_output=True, text=True, check=False)
    return "" if found.returncode == 0 else found.stderr.strip()


def install() -> None:
    """Installs Java where none is found; `missing` reports what went wrong."""
    subprocess.run(["sh", str(SCRIPT)], check=False)
