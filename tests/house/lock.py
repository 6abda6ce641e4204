"""Write locks/*.txt from what our distributions require: exact versions with hashes, no registry's address.

Run by ``make lock``. ``dev`` is everything; the others are what one image installs.
"""

import re
import subprocess
import sys
from collections.abc import Iterable
from pathlib import Path
from tempfile import NamedTemporaryFile

from tests.distributions import IMAGES, required

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


def compile_for(name: str, *distributions: str, constraints: str = "locks/dev.txt") -> None:
    """The lock of everything that these distributions require."""
    with NamedTemporaryFile("w", suffix=".txt") as wanted:
        wanted.write("\n".join(map(str, required(*distributions))))
        wanted.flush()
        compile_lock(name, [wanted.name, f"--constraints={constraints}"])


def main() -> None:
    for name in ("bootstrap", "go", "native"):
        compile_lock(name, [f"locks/{name}.in"])
    with NamedTemporaryFile("w", suffix=".txt") as wanted:
        everything = [
            "loghub-service",
            "loghub-spark",
            "loghub-operator[controller]",
            "loghub-cli[local,query]",
        ]
        wanted.write("\n".join(map(str, required(*everything))))
        wanted.flush()
        compile_lock("dev", [wanted.name, "--group=dev"])
    for image, distribution in IMAGES.items():
        # The image's versions are the tested ones: dev.txt constrains them.
        compile_for(image, distribution)
    # Not in dev.txt: the tests also cover what a worker without pandas reports.
    compile_for("worker-pandas", "loghub-worker[pandas]")
    compile_for("worker-sdk", "loghub-worker", "loghub-core[sdk]")
    # Not in dev.txt, whose protobuf is too old for Spark Connect (docs/decisions/data-source.md).
    with NamedTemporaryFile("w", suffix=".txt") as constraints:
        constraints.write(tested(without=("protobuf", "grpcio")))
        constraints.flush()
        compile_for("connect", "loghub-spark[connect]", constraints=constraints.name)


if __name__ == "__main__":
    main()
