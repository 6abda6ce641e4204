"""What must not be in a tracked file, and the shape of the tree (CONTRIBUTING.md 4)."""

import ast
import re
import subprocess
from collections.abc import Iterator
from functools import cache
from pathlib import Path

import pytest

ROOT = Path(__file__).parents[2]
# Limits of CONTRIBUTING.md 4.
MAX_FUNCTION_LINES = 60
MAX_FILE_LINES = 700

# Written in pieces, so that this file does not contain what it searches.
REGISTRY_HOSTS = [
    ".".join(parts)
    for parts in (
        ("pypi", "org"),
        ("pythonhosted", "org"),
        ("npmjs", "org"),
        ("proxy.golang", "org"),
        ("sum.golang", "org"),
        ("deb.debian", "org"),
        ("repo1.maven", "org"),
        ("repo.maven.apache", "org"),
        ("static.crates", "io"),
    )
]
# Absolute folders that exist only on one user's machine; the images' own folders are named differently.
MACHINE_PATH = re.compile(
    r"(^|[^A-Za-z0-9_.\-}])/(" + "|".join(("work", "farm", "root", "home/[a-z]+")) + r")/"
)
DOCSTRING = re.compile(r'(?:\s*#.*\n)*\s*r?"""\S')
SECRET = re.compile(
    r"(?<![A-Za-z0-9+/])LTAI[0-9A-Za-z]{12,26}(?![A-Za-z0-9+/=])|-----BEGIN [A-Z ]*PRIVATE KEY-----"
)


@cache
def tracked_files() -> list[Path]:
    """Files that git tracks or would track; every file where there is no git (an unpacked archive)."""
    command = ["git", "ls-files", "--cached", "--others", "--exclude-standard", "-z"]
    run = subprocess.run(command, cwd=ROOT, capture_output=True, text=True, check=True)
    return [ROOT / name for name in run.stdout.split("\0") if name and (ROOT / name).is_file()]


@cache
def text_of(path: Path) -> str:
    return path.read_text(encoding="utf-8", errors="replace")


@pytest.mark.parametrize("host", REGISTRY_HOSTS)
def test_no_file_names_a_package_registry(host: str) -> None:
    assert [str(p) for p in tracked_files() if host in text_of(p)] == []


def test_no_file_names_a_path_of_a_machine() -> None:
    hits = [
        f"{path.relative_to(ROOT)}:{number}: {line.strip()[:100]}"
        for path in tracked_files()
        for number, line in enumerate(text_of(path).splitlines(), 1)
        if MACHINE_PATH.search(line)
    ]
    assert hits == []


def test_no_file_holds_a_secret() -> None:
    assert [str(p) for p in tracked_files() if SECRET.search(text_of(p))] == []


def test_every_file_is_text() -> None:
    """Programs, packages and archives are fetched or built, and are not what anybody can review."""
    binary = [str(path.relative_to(ROOT)) for path in tracked_files() if "\0" in text_of(path)]
    assert binary == []


def test_there_is_no_uv_lock_file() -> None:
    # uv.lock names the registry it was made with.
    assert not (ROOT / "uv.lock").exists()


def test_the_operator_folder_is_not_a_package() -> None:
    # With an __init__.py it would hide the standard library's module.
    assert not (ROOT / "operator" / "__init__.py").exists()
    assert not (ROOT / "worker" / "__init__.py").exists()
    assert not (ROOT / "service" / "__init__.py").exists()


def test_every_test_folder_is_a_package() -> None:
    # Without the top one, tests/loghub would hide loghub.
    folders = {p.parent for p in tracked_files() if p.suffix == ".py" and (ROOT / "tests") in p.parents}
    assert [str(f) for f in sorted(folders) if not (f / "__init__.py").exists()] == []


def _sources() -> list[Path]:
    return [p for p in tracked_files() if p.suffix == ".py"]


def _functions(statements: list[ast.stmt]) -> Iterator[ast.FunctionDef | ast.AsyncFunctionDef]:
    """Only statements are looked at: expressions are nine of ten nodes, and have no function."""
    for node in statements:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef):
            yield node
        for name in ("body", "orelse", "finalbody", "handlers", "cases"):
            yield from _functions(getattr(node, name, []))


def test_functions_are_found_wherever_a_statement_can_be() -> None:
    text = """
def a():
    async def b(): pass
class C:
    def c(self): pass
if x:
    with y:
        def d(): pass
else:
    for z in y:
        def e(): pass
try: pass
except OSError:
    def f(): pass
finally:
    while x:
        def g(): pass
match x:
    case 1:
        def h(): pass
"""
    assert sorted(node.name for node in _functions(ast.parse(text).body)) == list("abcdefgh")


def test_files_and_functions_stay_short() -> None:
    too_long = []
    for path in _sources():
        text = text_of(path)
        name = path.relative_to(ROOT)
        if text.count("\n") > MAX_FILE_LINES:
            too_long.append(f"{name}: {text.count(chr(10))} lines")
        for node in _functions(ast.parse(text).body):
            lines = (node.end_lineno or node.lineno) - node.lineno + 1
            if lines > MAX_FUNCTION_LINES:
                too_long.append(f"{name}:{node.lineno} {node.name}: {lines} lines")
    assert too_long == []


def test_every_module_has_a_docstring() -> None:
    packages = [ROOT / "loghub", ROOT / "operator", ROOT / "worker"]
    without = [
        str(p.relative_to(ROOT))
        for p in _sources()
        if any(root in p.parents for root in packages)
        and text_of(p).strip()
        and not DOCSTRING.match(text_of(p))
    ]
    assert without == []
