"""The user's Python code: where it comes from, how it is imported, and its errors as users should see them.

An error is reported with its own message and the place in the user's file, because what the worker does
around it does not help the user.
"""

import importlib
import importlib.machinery
import importlib.util
import os
import shutil
import sys
import sysconfig
import traceback
from pathlib import Path

from loghub.contract.worker import CopyPipeline, Pipeline, PythonPipeline, SqlPipeline
from loghub_consumer.errors import FatalError, first_lines

# A process of the worker would import a file with one of these names instead of a module that it needs. So it
# would with what is installed (`_is_installed`).
RESERVED_MODULES = sys.stdlib_module_names | {"loghub", "loghub_consumer", "loghub_worker"}

# Spark's functions over Arrow batches require pandas too, except for `arrow_udf`.
WITHOUT_PANDAS = (
    "; this worker has no pandas: use an image from the target worker-pandas of the Dockerfile and set it as"
    " worker.image, or without a cluster install the extra `pandas`"
)


def place_code(pipeline: Pipeline, scratch: Path) -> Path | None:
    """The folder with the user's modules, or None if none are outside the image. Call this before other
    processes start, because they import from the folder too. Raises `FatalError` ``InvalidPipeline``."""
    if isinstance(pipeline, SqlPipeline | CopyPipeline) or not (pipeline.files or pipeline.folder):
        return None
    name = pipeline.function if isinstance(pipeline, PythonPipeline) else pipeline.factory
    code = Path(pipeline.folder) if pipeline.folder is not None else scratch
    if pipeline.files:
        shutil.rmtree(scratch, ignore_errors=True)
        scratch.mkdir(parents=True)
        for name, text in pipeline.files.items():
            (scratch / Path(name).name).write_text(text, encoding="utf-8")
    if not code.is_dir():
        raise FatalError("InvalidPipeline", f"the folder {code} with the code of {name} does not exist")
    try:
        hiding = sorted(path.name for path in code.iterdir() if _hides_a_module(path))
    except OSError as error:
        raise FatalError("InvalidPipeline", f"the code of {name} cannot be read: {error}") from error
    if hiding:
        raise FatalError(
            "InvalidPipeline",
            f"{hiding[0]} would hide a module with the same name that the worker needs: rename it",
        )
    return code


def _hides_a_module(path: Path) -> bool:
    # `os.path.exists` is False in a folder without permission, as in lost+found in a volume's root.
    is_module = path.suffix == ".py" or os.path.exists(path / "__init__.py")
    return is_module and (path.stem in RESERVED_MODULES or _is_installed(path.stem))


def _is_installed(module: str) -> bool:
    """Whether a package of this Python has a module of that name."""
    spec = importlib.machinery.PathFinder.find_spec(module)
    if spec is None or spec.origin is None:
        return False
    return any(Path(spec.origin).is_relative_to(sysconfig.get_path(kind)) for kind in ("purelib", "platlib"))


def import_named(name: str, code: Path | None) -> object:
    """What ``module:name`` names, imported from the folder `code` if there is one. Raises `FatalError`
    ``InvalidPipeline``."""
    module_name, _, attribute = name.partition(":")
    if code is not None:
        sys.path.insert(0, str(code))
        importlib.invalidate_caches()
    try:
        return getattr(importlib.import_module(module_name), attribute)
    except (Exception, SystemExit) as error:
        raise FatalError("InvalidPipeline", f"{name}: {user_message(error, code)}") from error


def user_message(error: BaseException, code: Path | None) -> str:
    """The last line of the user's own traceback, and where in the user's files it was raised."""
    message = first_lines(error) or "no message"
    advice = WITHOUT_PANDAS if _lacks_pandas(error) else ""
    return f"{type(error).__name__}: {message}{_location(error, code)}{advice}"


def _lacks_pandas(error: BaseException) -> bool:
    # Of Spark's own error; it is not imported here, because a processor runs without Spark.
    parameters: dict[str, str] = getattr(error, "getMessageParameters", dict)() or {}
    return parameters.get("package_name") == "Pandas" or (
        isinstance(error, ModuleNotFoundError) and error.name == "pandas"
    )


def _location(error: BaseException, code: Path | None) -> str:
    frames = [f for f in traceback.extract_tb(error.__traceback__) if _is_user_code(f.filename)]
    inside = [f for f in frames if code is not None and Path(f.filename).is_relative_to(code)]
    if not frames:
        return ""
    last = (inside or frames)[-1]
    file = Path(last.filename)
    shown = file.relative_to(code) if code is not None and inside else file.name
    return f" ({shown}:{last.lineno}, in {last.name})"


def _is_user_code(filename: str) -> bool:
    return not filename.startswith(("<frozen ", *_OWN_PACKAGES)) and Path(filename) != Path(
        importlib.__file__
    )


def _own_packages() -> tuple[str, ...]:
    """Folders, found without importing what is in them."""
    packages = (
        importlib.util.find_spec(name) for name in ("loghub_consumer", "loghub_worker", "py4j", "pyspark")
    )
    return tuple(str(Path(spec.origin).parent) for spec in packages if spec is not None and spec.origin)


_OWN_PACKAGES = _own_packages()
