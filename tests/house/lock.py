"""Write locks/*.txt from pyproject.toml: exact versions with hashes, no registry's address.

Run by ``make lock``. ``dev`` is everything; the others are what one image installs.
"""

import subprocess
import sys
from pathlib import Path

ROOT = Path(__file__).parents[2]
UV = Path(sys.executable).with_name("uv")
COMMON = [
    "--universal",
    "--generate-hashes",
    "--no-emit-index-url",
    "--no-header",
    "--no-annotate",
    "--python-version",
    "3.11",
]


def compile_lock(name: str, sources: list[str]) -> None:
    """Resolve ``sources`` into locks/<name>.txt, keeping versions that still fit."""
    subprocess.run(
        [UV, "pip", "compile", "--quiet", *COMMON, *sources, "-o", f"locks/{name}.txt"], cwd=ROOT, check=True
    )


def main() -> None:
    compile_lock("bootstrap", ["locks/bootstrap.in"])
    compile_lock("go", ["locks/go.in"])
    every_extra = [f"--extra={extra}" for extra in ("service", "worker", "operator", "local", "spark")]
    compile_lock("dev", ["pyproject.toml", *every_extra, "--group=dev"])
    for part in ("service", "worker", "operator"):
        # The image's versions are the tested ones: dev.txt constrains them.
        compile_lock(part, ["pyproject.toml", f"--extra={part}", "--constraints=locks/dev.txt"])
    # Not in dev.txt: the tests also cover what a worker without pandas reports.
    extras = ["--extra=worker", "--extra=pandas"]
    compile_lock("worker-pandas", ["pyproject.toml", *extras, "--constraints=locks/dev.txt"])


if __name__ == "__main__":
    main()
