"""An image holds what its program imports, and no more: checked without building one.

The imports come from the source, those inside functions included; what is copied comes from the Dockerfile
and .dockerignore, and what is installed from the requirements of our distributions, from which the locks are
made.
"""

import os
import re
import subprocess
import sys
from pathlib import Path, PurePosixPath

import pytest

import loghub
import loghub_consumer
from loghub_cli.main import COMMANDS
from tests.cluster import dockerfile
from tests.distributions import IMAGES, names, project
from tests.house.imports import distributions, graph, imported, ours

ROOT = Path(__file__).parents[2]


# Target -> the programs that its image runs.
PROGRAMS = {
    "service": ("loghub_service.__main__", "loghub_service.fsck.__main__"),
    "operator": ("loghub_operator.__main__",),
    # The worker, the hook before its pod stops, the programs that the Dockerfile runs, and what a user's own
    # program imports.
    "worker": (
        "loghub_worker.__main__",
        "loghub_worker.pre_stop",
        "loghub_worker.image.cds_archive",
        "loghub_worker.image.spark_jars",
        "loghub_consumer",
        # Its names are imported when they are first used.
        *sorted(set(loghub_consumer._MODULES.values())),
    ),
}
# The command line imports the module of a command when that is used.
COMMAND = (
    "loghub_cli.main",
    *(f"loghub_cli.{module}" for module in sorted({module for module, _ in COMMANDS.values()})),
)
# Imported by a package that does not require it: uvicorn's HTTP parser.
INDIRECT = {"service": {"httptools"}}


def copied(target: str) -> set[str]:
    """The modules in the image of ``target``."""
    paths = (path for path in dockerfile.contents(ROOT, target) if path.is_relative_to("/app"))
    names = (
        ".".join(path.relative_to("/app").with_suffix("").parts) for path in paths if path.suffix == ".py"
    )
    return {name.removesuffix(".__init__") for name in names}


def missing(target: str, modules: set[str]) -> set[str]:
    """What the program of ``target`` needs and the image lacks."""
    return ours(modules) - copied(target)


def unused(target: str, modules: set[str]) -> set[str]:
    """Folders of the image that its program never imports from, and single files that it never imports."""
    folders = {module for module in copied(target) if graph().find_children(module)}
    named = {
        source.removesuffix(".py").replace("/", ".").removesuffix(".__init__")
        for copy in dockerfile.stages(ROOT)[target].copies
        for source in copy.sources
        if source.startswith("loghub/") and source.endswith(".py")
    }
    used = {parent for parent in folders if any(module.startswith(f"{parent}.") for module in modules)}
    return (folders - used) | (named - modules)


@pytest.mark.parametrize("target", PROGRAMS)
def test_an_image_has_every_module_that_its_program_imports(target: str) -> None:
    assert missing(target, imported(*PROGRAMS[target])) == set()


@pytest.mark.parametrize("target", PROGRAMS)
def test_an_image_has_no_folder_that_its_program_never_imports(target: str) -> None:
    assert unused(target, imported(*PROGRAMS[target])) == set()


def test_a_missing_module_and_an_unused_folder_of_an_image_are_detected() -> None:
    modules = imported("loghub_operator.__main__")
    assert missing("operator", modules | {"loghub.atomic_file"}) == {"loghub.atomic_file"}
    without = {module for module in modules if not module.startswith("loghub_operator.leader")}
    assert unused("operator", without - {"loghub.clock"}) == {"loghub_operator.leader", "loghub.clock"}


@pytest.mark.long
@pytest.mark.parametrize("target", PROGRAMS)
def test_the_files_of_an_image_start_its_program(target: str, tmp_path: Path) -> None:
    """Its modules are imported from a folder that holds what the image holds."""
    for inside, path in dockerfile.contents(ROOT, target).items():
        if inside.is_relative_to("/app"):
            file = tmp_path / inside.relative_to("/app")
            file.parent.mkdir(parents=True, exist_ok=True)
            file.write_bytes((ROOT / path).read_bytes())
    main = PROGRAMS[target][0]
    run = subprocess.run(
        [sys.executable, "-c", f"import {main}; print({main}.__file__)"],
        env=os.environ | {"PYTHONPATH": str(tmp_path)},
        cwd=tmp_path,
        capture_output=True,
        text=True,
        check=False,
    )
    assert run.returncode == 0, run.stderr
    assert Path(run.stdout.strip()).is_relative_to(tmp_path)


@pytest.mark.parametrize("folder", ["/home/loghub", "/data"])
def test_a_user_that_the_platform_assigns_may_write_where_the_programs_do(folder: str) -> None:
    """Such a user has the group 0. The working directory must be open to it, or no container starts."""
    lines = (ROOT / "Dockerfile").read_text().replace("\\\n", " ").splitlines()
    (line,) = [one for one in lines if one.startswith("RUN ") and f"chown 10001:0 {folder}" in one]
    assert f"chmod 0770 {folder}" in line or f"mkdir --mode=0770 {folder}" in line


def instructions(stage: str) -> list[str]:
    """Of one stage of the Dockerfile, each in one line."""
    text = (ROOT / "Dockerfile").read_text().replace("\\\n", " ")
    (found,) = (part for part in re.split(r"^FROM ", text, flags=re.MULTILINE) if f" AS {stage}\n" in part)
    return re.findall(r"^(?:RUN|COPY|LABEL|USER) .*$", found, flags=re.MULTILINE)


@pytest.mark.parametrize("target", [*PROGRAMS, "worker-pandas", "worker-sdk"])
def test_an_image_has_no_pip(target: str) -> None:
    """Nothing may be installed in a container, and what scanners say of pip is not said of the image."""
    uninstall = "pip uninstall --yes --disable-pip-version-check setuptools pip"
    for stage in dockerfile.stages(ROOT)[target].copied_stages:
        assert uninstall in instructions(stage)[-1], stage
    installs = [line for line in instructions(target) if "pip " in line and "install" in line]
    assert all("--mount=type=bind,from=tooling" in line for line in installs)


@pytest.mark.parametrize("target", PROGRAMS)
def test_an_image_says_its_release_and_has_the_license(target: str) -> None:
    (label,) = (line for line in instructions(target) if line.startswith("LABEL "))
    assert f'org.opencontainers.image.version="{loghub.__version__}"' in label
    assert f'org.opencontainers.image.licenses="{project("loghub-core")["license"]}"' in label
    inside = dockerfile.contents(ROOT, target)
    assert inside[PurePosixPath("/licenses/LICENSE")] == Path("LICENSE")


# --- packages ------------------------------------------------------------------------------------


@pytest.mark.parametrize("target", PROGRAMS)
def test_an_image_installs_what_its_program_imports(target: str) -> None:
    result = distributions(imported(*PROGRAMS[target]))
    if target == "worker":  # imported only where it is chosen
        result -= names("loghub-core[sdk]") - names("loghub-core[client]")
    assert names(IMAGES[target]) == result | INDIRECT.get(target, set())


def test_the_operators_lock_has_no_packages_of_the_user_interface() -> None:
    lock = (ROOT / "locks" / "operator.txt").read_text()
    assert not re.search(r"^(rich|pygments|markdown-it-py)==", lock, re.MULTILINE)
