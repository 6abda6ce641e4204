"""The demo's state folder: made by a demo, emptied by the next one, and by nobody else.

`loghub up` and `loghub serve` have an option of the same name, and keep a user's logs and tables in folders
of the same names. So a demo removes only what stands in a folder with its mark, and they remove the mark:
from then on the folder is the user's.
"""

import shutil
from pathlib import Path

from loghub_operator.local.file_lock import is_locked, process_that_uses
from loghub_operator.local.paths import DEMO_MARK, Root
from loghub_operator.local.processes.orphans import end_orphans

_OWN_PATHS = ("service", "volumes", "groups", "producer", "cr.yaml", "cr.new")


class NotOfTheDemo(Exception):  # noqa: N818 - says what is so
    """The folder has what no demo made, or what is in use; the message says what to do."""


def reject_foreign(folder: Path) -> None:
    """Raises `NotOfTheDemo` if the demo would remove what it has not made."""
    if (folder / DEMO_MARK).exists():
        return
    found = [name for name in _OWN_PATHS if (folder / name).exists() or (folder / name).is_symlink()]
    if found:
        raise NotOfTheDemo(
            f"{folder} has {', '.join(found)}, which no demo made, or which `loghub up` or `loghub serve` has"
            " used since; nothing is removed. Choose another --state-dir, or remove them yourself"
        )


def empty(folder: Path) -> None:
    """Removes what the previous demo left, and nothing else; the caller holds the demo's lock. Raises
    `NotOfTheDemo`."""
    reject_foreign(folder)
    root = Root(folder)
    used = [path.name for path in root.groups.glob("*") if is_locked(root.group(path.name).lock)]
    process = process_that_uses(root.service / "data")
    if used or process:
        what = f"process {process} serves its data" if process else f"group {used[0]} is up"
        raise NotOfTheDemo(f"{folder} is in use: {what}; end it first")
    end_orphans(root.groups)
    for name in _OWN_PATHS:
        path = folder / name
        if path.is_dir() and not path.is_symlink():
            shutil.rmtree(path)
        else:
            path.unlink(missing_ok=True)
    (folder / DEMO_MARK).touch()
