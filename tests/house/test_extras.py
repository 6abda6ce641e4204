"""With one extra installed, what its pages promise runs, and all else says in a line which extra to install.

Modules and packages that the extra does not install are not found. tests/house/test_installed_extras.py
installs each extra.
"""

import json
import subprocess
import sys
from importlib.metadata import distribution, packages_distributions

import pytest

from tests.requirements import packages
from tests.support import ROOT

GUARD_S = 300
API, SPARK = "import loghub_consumer", "import loghub_spark"
SDK = "from loghub.client.choice import check_client; check_client('sdk')"
# Each promise in a fork of one process: a statement, or arguments of `loghub`.
FORKS = """
import importlib.machinery, importlib.metadata, json, os, sys
hidden, packages, promises = json.load(sys.stdin)
find_spec = importlib.machinery.PathFinder.find_spec

def spec(name, path=None, target=None):
    return None if name.partition(".")[0] in hidden else find_spec(name, path, target)

def found(name, *, real=importlib.metadata.version):
    if name.lower() not in packages:
        raise importlib.metadata.PackageNotFoundError(name)
    return real(name)

importlib.machinery.PathFinder.find_spec = spec
importlib.metadata.version = found
for promise, _ in promises:
    read, write = os.pipe()
    sys.stdout.flush()
    if os.fork() == 0:
        os.dup2(write, 1), os.dup2(write, 2)
        if isinstance(promise, str):
            exec(promise)
        else:
            sys.argv = ["loghub", *promise]
            from loghub_cli.entry import main
            sys.exit(main())
        sys.exit(0)
    os.close(write)
    with open(read) as said:
        text = said.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.wait()[1]), text]))
"""

Promise = tuple[str | list[str], str]  # and the extra that is named; "" if none is


def outcomes(extra: str, promises: list[Promise], *more: str) -> list[tuple[int, str]]:
    """Status and output of each promise where an extra is installed, and ``more`` packages."""
    ours = distribution("loghub-operator")
    installed = packages(ours, extra) | {"loghub-operator": ours}
    for name in more:
        installed |= packages(distribution(name), "") | {name: distribution(name)}
    known = packages_distributions().items()
    hidden = {name for name, of in known if not {normal(one) for one in of} & set(installed)}
    given = json.dumps([sorted(hidden), sorted(installed), promises])
    done = subprocess.run(
        [sys.executable, "-c", FORKS],
        input=given,
        cwd=ROOT,
        capture_output=True,
        text=True,
        check=True,
        timeout=GUARD_S,
    )
    return [tuple(json.loads(line)) for line in done.stdout.splitlines()]


def normal(name: str) -> str:
    return name.lower().replace("_", "-")


@pytest.mark.parametrize(
    ("extra", "promises"),
    [
        ("", [(["--help"], "cli"), (API, "consumer"), (SPARK, "spark")]),
        ("consumer", [(API, ""), (SDK, "sdk"), (["--help"], "cli")]),
        ("spark", [(SPARK, ""), (["lag", "--help"], "cli")]),
        (
            "cli",
            [
                (["--help"], ""),
                (SDK, ""),
                (["tail", "--help"], ""),
                (["up", "--help"], "local"),
                (API, "consumer"),
            ],
        ),
        ("local", [(["up", "--help"], "")]),
        pytest.param(
            "service",
            [
                ("import loghub_service.__main__, loghub_service.fsck.__main__", ""),
                (["serve"], "local"),
                (API, "consumer"),
            ],
            marks=pytest.mark.deep,
        ),
        pytest.param("worker", [("import loghub_worker.__main__", ""), (API, "")], marks=pytest.mark.deep),
        pytest.param("operator", [("import loghub_operator.__main__", "")], marks=pytest.mark.deep),
    ],
)
def test_an_extra_alone_keeps_its_promises_and_names_the_extra_of_others(
    extra: str, promises: list[Promise]
) -> None:
    results = outcomes(extra, promises)
    assert len(results) == len(promises)
    for (promise, asked), (status, said) in zip(promises, results, strict=True):
        assert (status == 0) is (not asked), f"{promise}: {said}"
        last = said.rstrip("\n").rpartition("\n")[2]
        if asked:
            assert f"pip install 'loghub-operator[{asked}]'" in last, said
            assert isinstance(promise, str) or last == said.rstrip("\n"), f"{promise} has a traceback: {said}"


@pytest.mark.parametrize(
    "command",
    [
        ["serve", "--state-dir", "/dev/null/nowhere"],
        pytest.param(["fsck", "/nowhere"], marks=pytest.mark.deep),
        pytest.param(["up", "-f", "nothing.yaml"], marks=pytest.mark.deep),
    ],
    ids=lambda command: command[0],
)
def test_a_command_that_starts_a_program_looks_for_its_packages_first(command: list[str]) -> None:
    """pydantic is all that the command itself needs of `local`, and often there for others."""
    ((status, said),) = outcomes("cli", [(command, "")], "pydantic")
    assert status == 1
    assert "pip install 'loghub-operator[" in said
    assert len(said.splitlines()) == 1
