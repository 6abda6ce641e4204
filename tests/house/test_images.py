"""An image holds what its program imports, and no more: checked without building one.

The imports come from the source, those inside functions included; what is copied comes from the Dockerfile
and .dockerignore, and what is installed from the extras in pyproject.toml, from which the locks are made.
"""

import os
import re
import subprocess
import sys
import tomllib
from functools import cache
from importlib.metadata import packages_distributions
from pathlib import Path, PurePosixPath

import grimp
import pytest

from loghub_cli.main import COMMANDS
from tests.cluster import dockerfile

ROOT = Path(__file__).parents[2]
PACKAGES = (
    "loghub",
    "loghub_service",
    "loghub_consumer",
    "loghub_worker",
    "loghub_spark",
    "loghub_operator",
    "loghub_cli",
)


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
    ),
}
# The command line imports the module of a command when that is used.
COMMAND = (
    "loghub_cli.main",
    *(f"loghub_cli.{module}" for module in sorted({module for module, _ in COMMANDS.values()})),
)
# Imported, but not named in pyproject.toml: each belongs to another package, which pins it.
PARTS = {"pydantic_core": "pydantic", "py4j": "pyspark"}
# Imported by a package that does not require it: uvicorn's HTTP parser.
INDIRECT = {"service": {"httptools"}}
# A wheel of our own, built from the folder `native`, that no program needs.
NATIVE = {"loghub_native"}


@cache
def graph() -> grimp.ImportGraph:
    return grimp.build_graph(*PACKAGES, include_external_packages=True)


def imported(*modules: str) -> set[str]:
    """``modules``, what they import at any depth, and the packages around each module."""
    result: set[str] = set()
    todo = list(modules)
    while todo:
        module = todo.pop()
        if module not in result:
            result.add(module)
            todo += graph().find_modules_directly_imported_by(module)
            todo += [module.rpartition(".")[0]] if "." in module else []
    return result


def ours(modules: set[str]) -> set[str]:
    return {module for module in modules if module.split(".")[0] in PACKAGES}


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
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    (label,) = (line for line in instructions(target) if line.startswith("LABEL "))
    assert f'org.opencontainers.image.version="{project["version"]}"' in label
    assert f'org.opencontainers.image.licenses="{project["license"]}"' in label
    inside = dockerfile.contents(ROOT, target)
    assert inside[PurePosixPath("/licenses/LICENSE")] == Path("LICENSE")


# --- packages ------------------------------------------------------------------------------------


def required(*extras: str) -> set[str]:
    """Distributions that pyproject.toml names in its main list and in ``extras``."""
    project = tomllib.loads((ROOT / "pyproject.toml").read_text())["project"]
    lines = [
        *project["dependencies"],
        *(line for extra in extras for line in project["optional-dependencies"][extra]),
    ]
    own = re.compile(rf"{project['name']}\[(.*)\]")
    inner = {extra for line in lines if (found := own.match(line)) for extra in found[1].split(",")}
    named = {re.split(r"[ <>=!~;\[]", line, maxsplit=1)[0].lower() for line in lines if not own.match(line)}
    return named | (required(*inner) if inner else set())


def distributions(modules: set[str]) -> set[str]:
    """The distributions that the third-party imports among ``modules`` come from."""
    names = {module.split(".")[0] for module in modules - ours(modules)} - sys.stdlib_module_names - NATIVE
    known = packages_distributions()
    return {known[PARTS.get(name, name)][0].lower().replace("_", "-") for name in names}


def without_sdk(found: set[str]) -> set[str]:
    """Workers and programs import the vendor's SDK only where it is chosen, from an extra of its own."""
    return found - (required("sdk") - required())


@pytest.mark.parametrize("target", PROGRAMS)
def test_an_image_installs_what_its_program_imports(target: str) -> None:
    result = distributions(imported(*PROGRAMS[target]))
    if target == "worker":
        result = without_sdk(result)
    assert required(target) == result | INDIRECT.get(target, set())


def test_the_command_imports_what_its_extra_installs() -> None:
    modules = ("loghub_cli.entry", *(one for one in COMMAND if one != "loghub_cli.local"))
    result = distributions(imported(*modules))
    assert result <= required("cli")
    assert required("cli") - required() <= result


def test_the_command_on_a_laptop_imports_what_its_extra_installs() -> None:
    """It starts the service and the workers as processes, which have extras of their own."""
    result = distributions(imported(*COMMAND)) | required("service", "worker")
    assert result == required("local")


def test_the_data_source_imports_what_its_extra_installs() -> None:
    assert required("spark") == required() | without_sdk(distributions(imported("loghub_spark")))


def test_a_program_with_the_processor_api_imports_what_its_extra_installs() -> None:
    result = distributions(imported("loghub_consumer"))
    assert without_sdk(result) == required("consumer")


def test_the_operators_lock_has_no_packages_of_the_user_interface() -> None:
    lock = (ROOT / "locks" / "operator.txt").read_text()
    assert not re.search(r"^(rich|pygments|markdown-it-py)==", lock, re.MULTILINE)
