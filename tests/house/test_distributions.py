"""Each distribution requires what its modules import, and no more; with it alone installed, what its page
promises runs, and all else says in a line what to install.

Modules and packages that a distribution does not install are not found.
tests/house/test_installed_distributions.py installs each.
"""

import json
import subprocess
import sys
from importlib import metadata
from importlib.metadata import packages_distributions

import pytest
from packaging.requirements import Requirement

from loghub import __version__
from tests.distributions import FOLDERS, installed_with, names, project, requirements
from tests.house.imports import distributions, imported_by, modules_of, ours
from tests.support import ROOT

GUARD_S = 300
ARROW, CONTROLLER, LOCAL = "'loghub-consumer[arrow]'", "'loghub-operator[controller]'", "'loghub-cli[local]'"
QUERY = "'loghub-cli[query]'"
SDK = "'loghub-core[sdk]'"
CHOICE = "from loghub.client.choice import check_client; check_client('sdk')"
PLUGIN = "from loghub_cli.plugin.main import main; main(['why', '--help'])"
API, SPARK, OPERATOR = "import loghub_consumer", "import loghub_spark", "import loghub_operator.__main__"
BATCH = """
from loghub.wire.compression import Packed
from loghub.wire.loggroup import Log, LogGroup, encode, wrap
from loghub_consumer.batch import BodySlice, LogBatch, PulledBody
body = Packed.plain(wrap((encode(LogGroup(logs=(Log(time=7, contents=(("a", "b"),)),))),)))
batch = LogBatch(0, (BodySlice(PulledBody(body, shard=0, first=0, count=1), 0, 1),))
"""
LOGS = BATCH + "assert [log.get('a') for group in batch.groups for log in group.logs] == ['b']"
TABLE = BATCH + "assert batch.arrow.column('contents').to_pylist() == [[('a', 'b')]]"
READ = "from loghub_consumer import read; read('access')"
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
            from loghub_cli.main import main
            sys.exit(main())
        sys.exit(0)
    os.close(write)
    with open(read) as said:
        text = said.read()
    print(json.dumps([os.waitstatus_to_exitcode(os.wait()[1]), text]))
"""

Promise = tuple[str | list[str], str]  # and what has to be installed for it; "" if it is kept


def outcomes(promises: list[Promise], *distributions: str) -> list[tuple[int, str]]:
    """Status and output of each promise where these are installed, with what they require."""
    installed = set(installed_with(*distributions))
    known = packages_distributions().items()
    hidden = {name for name, of in known if not {normal(one) for one in of} & installed}
    hidden |= {folder.name for name, folder in FOLDERS.items() if name not in installed}
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


@pytest.mark.long
@pytest.mark.parametrize(
    ("installed", "promises"),
    [
        ("loghub-consumer", [(API, ""), (LOGS, ""), (TABLE, ARROW), (READ, ARROW), (CHOICE, SDK)]),
        ("loghub-consumer[arrow]", [(TABLE, "")]),
        ("loghub-spark", [(SPARK, "")]),
        (
            "loghub-cli",
            [
                (["--help"], ""),
                (CHOICE, ""),
                (PLUGIN, ""),
                (["tail", "--help"], ""),
                (["up", "--help"], LOCAL),
                (["query", "--help"], QUERY),
            ],
        ),
        ("loghub-cli[local]", [(["up", "--help"], "")]),
        ("loghub-cli[query]", [(["query", "--help"], ""), (["schema", "--help"], "")]),
        pytest.param(
            "loghub-service",
            [("import loghub_service.__main__, loghub_service.fsck.__main__", "")],
            marks=pytest.mark.deep,
        ),
        pytest.param("loghub-worker", [("import loghub_worker.__main__", "")], marks=pytest.mark.deep),
        pytest.param("loghub-operator", [(OPERATOR, CONTROLLER)], marks=pytest.mark.deep),
        pytest.param("loghub-operator[controller]", [(OPERATOR, "")], marks=pytest.mark.deep),
    ],
)
def test_a_distribution_alone_keeps_its_promises_and_says_what_else_to_install(
    installed: str, promises: list[Promise]
) -> None:
    results = outcomes(promises, installed)
    assert len(results) == len(promises)
    for (promise, asked), (status, said) in zip(promises, results, strict=True):
        assert (status == 0) is (not asked), f"{promise}: {said}"
        last = said.rstrip("\n").rpartition("\n")[2]
        if asked:
            assert last.endswith(f"pip install {asked}"), said
            assert isinstance(promise, str) or last == said.rstrip("\n"), f"{promise} has a traceback: {said}"


@pytest.mark.long
@pytest.mark.parametrize(
    ("command", "asked"),
    [
        (["serve", "--state-dir", "/dev/null/nowhere"], "loghub-service"),
        pytest.param(["fsck", "/nowhere"], "loghub-service", marks=pytest.mark.deep),
        pytest.param(["up", "-f", "nothing.yaml"], LOCAL, marks=pytest.mark.deep),
    ],
)
def test_a_command_that_starts_a_program_looks_for_its_distribution_first(
    command: list[str], asked: str
) -> None:
    """`loghub-operator` is all that the command itself needs of `local`."""
    ((status, said),) = outcomes([(command, "")], "loghub-cli", "loghub-operator")
    assert status == 1
    assert said.endswith(f"pip install {asked}\n")
    assert len(said.splitlines()) == 1


# The modules that an extra is for, and those below them, but for some.
EXTRAS = {
    "loghub-core[sdk]": ("loghub.client.aliyun", "loghub.client.aliyun_sdk"),
    "loghub-core[client]": ("loghub.client",),
    "loghub-consumer[arrow]": (
        "loghub_consumer.reading.decoding",
        "loghub_consumer.reading.received_logs",
        "loghub_consumer.reading.shard_reader",
        "loghub_consumer.log_groups",
        "loghub_consumer.writing",
    ),
    "loghub-consumer[testing]": ("loghub_consumer.pytest_plugin",),
    "loghub-spark[testing]": ("loghub_spark.testing",),
    "loghub-operator[controller]": (
        "loghub_operator.__main__",
        "loghub_operator.controller",
        "loghub_operator.apply",
        "loghub_operator.observe",
        "loghub_operator.autoscaling",
        "loghub_operator.metrics",
        "loghub_operator.http_server",
        "loghub_operator.leader",
        "loghub_operator.clients.kube",
        "loghub_operator.logservice.secret_credentials",
        "loghub_operator.tools",
    ),
    "loghub-cli[query]": (
        "loghub_cli.duckdb_session",
        "loghub_cli.key_types",
        "loghub_cli.query",
        "loghub_cli.query_rows",
        "loghub_cli.recent_logs",
        "loghub_cli.schema",
    ),
    "loghub-cli[local]": ("loghub_cli.local", "loghub_cli.try_out", "loghub_cli.up", "loghub_cli.demo"),
}
WITHOUT_EXTRA = {
    f"loghub_cli.up.{module}"
    for module in ("client_endpoint", "folder_identity", "paths", "service_options", "text_input")
}
# Imported only where they are wanted; an error says what to install.
IN_FUNCTIONS = {
    "loghub-consumer": {"loghub-consumer[arrow]"},
    "loghub-core[client]": {"loghub-core[sdk]"},
}
# Required and not imported: processes that are started, the client of the real SLS, which is
# chosen by a word, and uvicorn's parser of HTTP.
NOT_IMPORTED = {
    "loghub-cli": {"loghub-core[sdk]"},
    "loghub-cli[local]": {"loghub-service", "loghub-worker"},
    "loghub-consumer[testing]": {"loghub-service"},
    "loghub-operator": {"loghub-core[sdk]"},
    "loghub-service": {"httptools"},
}


def owner(module: str) -> str:
    """The distribution that a module of ours is installed with, and its extra."""
    if module not in WITHOUT_EXTRA:
        for distribution, prefixes in EXTRAS.items():
            if any(f"{module}.".startswith(f"{prefix}.") for prefix in prefixes):
                return distribution
    package = module.partition(".")[0]
    return next(name for name, folder in FOLDERS.items() if folder.name == package)


def covered(distributions: set[str]) -> set[str]:
    """These, each without its extra as well, and what of ours they require."""
    found: set[str] = set()
    todo = set(distributions)
    while todo:
        one = todo.pop()
        found |= {one, Requirement(one).name}
        todo |= {written(needed) for needed in requirements(one) if needed.name in FOLDERS} - found
    return found


def written(needed: Requirement) -> str:
    return f"{needed.name}[{','.join(needed.extras)}]" if needed.extras else needed.name


@pytest.mark.parametrize("distribution", [*FOLDERS, *EXTRAS])
def test_a_distribution_requires_what_its_modules_import_and_nothing_else(distribution: str) -> None:
    named = Requirement(distribution)
    modules = modules_of(FOLDERS[named.name].name)
    imports = imported_by({module for module in modules if owner(module) == distribution})
    required = set(project(named.name)["dependencies"])
    if named.extras:
        (extra,) = named.extras
        required = set(project(named.name)["optional-dependencies"][extra])
        imports -= imported_by({module for module in modules if owner(module) == named.name})
    needed = [Requirement(line) for line in required]
    unseen = NOT_IMPORTED.get(distribution, set())
    third_party = {one.name for one in needed if one.name not in FOLDERS}
    base = set() if not named.extras else names(named.name)
    assert third_party - unseen - base == distributions(imports) - base

    own = {written(one) for one in needed if one.name in FOLDERS}
    wanted = {owner(module) for module in ours(imports)} - {distribution, named.name}
    wanted -= IN_FUNCTIONS.get(distribution, set())
    assert wanted <= covered(own | {named.name})
    assert own - unseen <= wanted, "required, and not imported"


@pytest.mark.parametrize("distribution", FOLDERS)
def test_a_distribution_has_the_version_and_the_page_of_all(distribution: str) -> None:
    """One version: that of `loghub`, which the build reads; requirements of our own name it."""
    table = project(distribution)
    lines = [
        *table["dependencies"],
        *(line for of in table.get("optional-dependencies", {}).values() for line in of),
    ]
    own = [one for one in map(Requirement, lines) if one.name in FOLDERS]
    assert {str(one.specifier) for one in own} <= {f"=={__version__}"}
    assert metadata.version(distribution) == __version__
    assert table["name"] == distribution
    assert table["dynamic"] == ["version"]
    assert table["urls"]
    assert "Typing :: Typed" in table["classifiers"]
    assert (FOLDERS[distribution] / "py.typed").exists()
    assert (FOLDERS[distribution] / "LICENSE").read_bytes() == (ROOT / "LICENSE").read_bytes()
