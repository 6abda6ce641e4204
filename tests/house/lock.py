"""Write locks/*.txt from pyproject.toml: exact versions with hashes, no registry's address.

Run by ``make lock``. ``dev`` is everything; the others are what one image installs.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

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


def tested(*, without: Iterable[str]) -> str:
    """The versions of dev.txt but for these packages."""
    pins = re.findall(r"^([^ ]+==[^\\\n]+?) *\\?$", (ROOT / "locks" / "dev.txt").read_text(), re.MULTILINE)
    return "\n".join(pin for pin in pins if pin.partition("==")[0] not in without)


def main() -> None:
    compile_lock("bootstrap", ["locks/bootstrap.in"])
    compile_lock("go", ["locks/go.in"])
    compile_lock("native", ["locks/native.in"])
    every_extra = [f"--extra={extra}" for extra in ("service", "worker", "operator", "local", "spark")]
    compile_lock("dev", ["pyproject.toml", *every_extra, "--group=dev"])
    for part in ("service", "worker", "operator"):
        # The image's versions are the tested ones: dev.txt constrains them.
        compile_lock(part, ["pyproject.toml", f"--extra={part}", "--constraints=locks/dev.txt"])
    # Not in dev.txt: the tests also cover what a worker without pandas reports.
    extras = ["--extra=worker", "--extra=pandas"]
    compile_lock("worker-pandas", ["pyproject.toml", *extras, "--constraints=locks/dev.txt"])
    extras = ["--extra=worker", "--extra=sdk"]
    compile_lock("worker-sdk", ["pyproject.toml", *extras, "--constraints=locks/dev.txt"])
    # Not in dev.txt, whose protobuf is too old for Spark Connect (docs/decisions/data-source.md).
    with NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write(tested(without=("protobuf", "grpcio")))
        constraints.flush()
        compile_lock("connect", ["pyproject.toml", "--extra=connect", f"--constraints={constraints.name}"])


if __name__ == "__main__":
    main()
