"""Java for the tests that start Spark: the demo's own script, asked or let install.

What for: one answer to "is there a Java that Spark takes". What it must not know: Spark. Read next:
`operator/loghub_operator/demo/java.sh`.
"""

import functools
import subprocess

from tests.support import ROOT

SCRIPT = ROOT / "operator" / "loghub_operator" / "demo" / "java.sh"


@functools.cache
def trouble() -> str:
    """The one line that says what is missing and how to get it, "" where nothing is."""
    look = subprocess.run(["sh", str(SCRIPT), "--look"], capture_output=True, text=True, check=False)
    return "" if look.returncode == 0 else look.stderr.strip()


def install() -> None:
    """Where we may and none is there; what went wrong is told by `trouble`."""
    subprocess.run(["sh", str(SCRIPT)], check=False)
