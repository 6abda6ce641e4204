"""Which files of the repository the Dockerfile copies into an image, read without building it.

The names of the test images are derived from these files, and `tests/house/test_images.py` compares them with
what each image imports. Understood are the forms that our Dockerfile uses: stages, and COPY of files, folders
and patterns from the build context or from another stage.
"""

import re
from collections.abc import Iterator
from dataclasses import dataclass
from pathlib import Path, PurePosixPath


@dataclass(frozen=True, slots=True)
class Copy:
    """One COPY from the build context: files, folders or patterns, and a destination in the image."""

    sources: tuple[str, ...]
    destination: str


@dataclass(frozen=True, slots=True)
class Stage:
    parent: str
    copies: tuple[Copy, ...]
    copied_stages: tuple[str, ...]


def stages(repository: Path) -> dict[str, Stage]:
    """The stages of the Dockerfile by name."""
    by_name: dict[str, Stage] = {}
    name = ""
    for line in (repository / "Dockerfile").read_text(encoding="utf-8").splitlines():
        match line.split():
            case ["FROM", parent, "AS", name]:
                by_name[name] = Stage(parent, (), ())
            case ["COPY", option, *_] if option.startswith("--from="):
                stage = by_name[name]
                others = (*stage.copied_stages, option.removeprefix("--from="))
                by_name[name] = Stage(stage.parent, stage.copies, others)
            case ["COPY", *sources, destination]:
                stage = by_name[name]
                copies = (*stage.copies, Copy(tuple(sources), destination))
                by_name[name] = Stage(stage.parent, copies, stage.copied_stages)
    return by_name


def inputs(repository: Path, target: str) -> list[Path]:
    """Every file of the build context that the image of ``target`` is made from, in order of name."""
    sources = set()
    known, todo = stages(repository), [target]
    while todo:
        if (stage := known.get(todo.pop())) is not None:
            sources |= {source for copy in stage.copies for source, _ in _files(repository, copy)}
            todo += [stage.parent, *stage.copied_stages]
    return sorted(sources)


def contents(repository: Path, target: str) -> dict[PurePosixPath, Path]:
    """Path in the image -> file of the build context, for what ``target`` and its parents copy."""
    files: dict[PurePosixPath, Path] = {}
    known, name = stages(repository), target
    while name in known:
        for copy in known[name].copies:
            files |= {destination: source for source, destination in _files(repository, copy)}
        name = known[name].parent
    return files


def _files(repository: Path, copy: Copy) -> Iterator[tuple[Path, PurePosixPath]]:
    """Pairs of a file of the build context and its path in the image."""
    rules = _ignore_rules(repository)
    for source in (path for pattern in copy.sources for path in sorted(repository.glob(pattern))):
        for path in sorted(source.rglob("*")) if source.is_dir() else [source]:
            relative = path.relative_to(repository)
            if path.is_file() and not _ignored(relative, rules):
                # The contents of a folder are copied, a file under its own name.
                inner = path.relative_to(source if source.is_dir() else source.parent)
                yield relative, PurePosixPath(copy.destination) / inner


def _ignore_rules(repository: Path) -> list[tuple[bool, re.Pattern[str]]]:
    """For each line of .dockerignore: whether it leaves out, and what it matches."""
    rules = []
    for line in (repository / ".dockerignore").read_text(encoding="utf-8").split("\n"):
        if line and not line.startswith("#"):
            pattern = re.escape(line.removeprefix("!")).replace(r"\*\*/", "(?:.*/)?").replace(r"\*", "[^/]*")
            rules.append((not line.startswith("!"), re.compile(pattern)))
    return rules


def _ignored(path: Path, rules: list[tuple[bool, re.Pattern[str]]]) -> bool:
    """The last line that matches the path or a folder above it decides."""
    names = [path.as_posix(), *(parent.as_posix() for parent in path.parents)]
    matching = [leaves_out for leaves_out, pattern in rules if any(pattern.fullmatch(name) for name in names)]
    return bool(matching) and matching[-1]
